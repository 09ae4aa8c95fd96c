package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// SearXNG is a search engine that people host themselves: it asks others and merges what they find. Its JSON format must
// be enabled (search.formats in its settings).
type SearXNG struct {
	client *http.Client
	base   *url.URL
}

// NewSearXNG makes a Searcher of the instance at an address such as http://127.0.0.1:8888. The address is the operator's,
// so it may be a private one, unlike those that models ask for.
func NewSearXNG(address string, client *http.Client) (*SearXNG, error) {
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, errors.New("web: the address of the search provider must be an http or https URL without credentials")
	}
	return &SearXNG{client: client, base: base}, nil
}

// maxSearchAnswer bounds the answer of the search engine in bytes.
const maxSearchAnswer = 4 << 20

// Search implements Searcher.
func (s *SearXNG) Search(ctx context.Context, query Query) ([]Found, error) {
	u := s.base.JoinPath("search")
	u.RawQuery = url.Values{"q": {restricted(query)}, "format": {"json"}, "safesearch": {"0"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxSearchAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("web: the search provider answered with status %d; 403 means that its JSON format is not enabled", response.StatusCode)
	case len(body) > maxSearchAnswer:
		return nil, fmt.Errorf("web: the search provider's answer is larger than %d bytes", maxSearchAnswer)
	}
	var answer struct {
		Results []struct {
			URL     string `json:"url"`
			Title   string `json:"title"`
			Content string `json:"content"`
		} `json:"results"`
	}
	if err := json.Unmarshal(body, &answer, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("web: the search provider's answer cannot be read: %w", err)
	}
	found := make([]Found, 0, len(answer.Results))
	for _, r := range answer.Results {
		found = append(found, Found{URL: r.URL, Title: r.Title, Text: r.Content})
	}
	return found, nil
}

// maxSites bounds the sites that are named in a query: engines refuse longer ones. What they find elsewhere is left out
// afterwards all the same.
const maxSites = 8

// restricted writes the lists of domains into the query, in the words that engines know.
func restricted(query Query) string {
	words := []string{query.Text}
	for _, d := range query.Domains {
		var sites []string
		for _, domain := range d.Allowed {
			sites = append(sites, "site:"+domain)
		}
		if len(sites) > 0 && len(sites) <= maxSites {
			words = append(words, "("+strings.Join(sites, " OR ")+")")
		}
		for i, domain := range d.Blocked {
			if i < maxSites {
				words = append(words, "-site:"+domain)
			}
		}
	}
	return strings.Join(words, " ")
}
