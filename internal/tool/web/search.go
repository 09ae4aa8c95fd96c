package web

import (
	"context"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Searcher is a search engine.
type Searcher interface {
	// Search returns results in order of relevance, none if nothing was found. It obeys ctx. Results outside the lists
	// of the query may be returned: they are left out afterwards.
	Search(ctx context.Context, query Query) ([]Found, error)
}

// Query is what is searched for.
type Query struct {
	Text string
	// Domains are hints: an engine that can restrict its search to them finds more that is of use.
	Domains  []Domains
	Location *Location
	Limit    int // results wanted, at most
}

// Location is where the user of a search is, approximately. Empty fields are not known.
type Location struct {
	City     string
	Region   string
	Country  string // ISO 3166-1 alpha-2
	Timezone string // IANA
}

// Found is one search result.
type Found struct {
	URL   string
	Title string
	Text  string // what the engine shows of the page
}

const (
	maxQueryRunes   = 1000
	maxResults      = 10
	maxSnippetRunes = 8000
)

type searchResultBlock struct {
	Type      string      `json:"type"`
	Source    string      `json:"source"`
	Title     string      `json:"title"`
	Content   []textBlock `json:"content"`
	Citations citations   `json:"citations"`
}

type citations struct {
	Enabled bool `json:"enabled"`
}

// Search runs one call of web_search. The result is a list of search_result blocks, or an error that the model can read.
func (t *Tools) Search(ctx context.Context, settings Settings, input jsontext.Value) Result {
	var in struct {
		Query *string `json:"query"`
	}
	if err := json.Unmarshal(input, &in); err != nil || in.Query == nil || strings.TrimSpace(*in.Query) == "" {
		return failf(codeInvalidInput, `The input must be an object with one string, query: {"query":"what to search for"}.`).because(err).result()
	}
	if t.searcher == nil {
		return failf(codeUnavailable, "This server has no search provider, so web_search cannot be used. Its operator can configure "+
			`one (search_url); the agent's author can disable the tool with {"name":"web_search","enabled":false} in the configs of its toolset. `+
			"If you know an address, use web_fetch.").result()
	}
	if settings.Limited && len(settings.AllowedHosts) == 0 {
		return settings.check(&url.URL{}).result()
	}
	ctx, cancel := context.WithTimeout(ctx, t.limits.total)
	defer cancel()
	found, err := t.searcher.Search(ctx, Query{
		Text:     shorten(collapse(*in.Query), maxQueryRunes),
		Domains:  settings.Domains,
		Location: settings.Location,
		Limit:    maxResults,
	})
	if err != nil {
		return failf(codeUnavailable, "The search provider did not answer. Try again later.").because(err).result()
	}
	var results []any
	for _, f := range found {
		if block, ok := searchResult(settings, f); ok && len(results) < maxResults {
			results = append(results, block)
		}
	}
	r := blocks(textBlock{Type: "text", Text: "No results found."})
	if len(results) > 0 {
		r = blocks(results...)
	}
	r.Searches = 1
	return r
}

// searchResult leaves out what could not be fetched either.
func searchResult(settings Settings, f Found) (searchResultBlock, bool) {
	u, failed := parseTarget(f.URL)
	if failed != nil || settings.check(u) != nil {
		return searchResultBlock{}, false
	}
	title := oneLine(f.Title)
	if title == "" {
		title = u.Hostname()
	}
	text := strings.TrimSpace(cleanText(f.Text))
	if text == "" {
		text = title
	}
	return searchResultBlock{
		Type:      "search_result",
		Source:    u.String(),
		Title:     title,
		Content:   []textBlock{{Type: "text", Text: shorten(text, maxSnippetRunes)}},
		Citations: citations{Enabled: true},
	}, true
}
