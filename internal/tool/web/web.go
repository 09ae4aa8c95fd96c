// Package web is the two tools that reach the web from the server: web_fetch and web_search.
//
// The URLs come from a model, which takes them from pages and documents that anybody may have written, so everything here
// is hostile: where a URL leads, and what is there. A request goes to public addresses only, judged by netguard at the
// moment of connecting and again for each redirect; the domain rules of the agent and the hosts of the environment are
// checked at each hop too. Size, time, redirects, depth and output are bounded, and the work done on a page is
// proportional to the smaller of its size and the size of the answer.
//
// Whatever goes wrong is told to the model as the result of the call, because the model can do something about it. A
// result's text holds nothing that the model could not know: no resolver, no internal address, no credential.
package web

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/netguard"
)

// Options is what the tools are made of.
type Options struct {
	// Guard decides which addresses may be connected to. Required.
	Guard *netguard.Guard
	// Searcher answers web_search; nil if the operator configured none.
	Searcher Searcher
	// Version is the server's own, for the User-Agent header; "" is left out.
	Version string
}

// Tools runs calls of web_fetch and web_search. It is safe for concurrent use.
type Tools struct {
	client    *http.Client
	searcher  Searcher
	userAgent string
	limits    limits
}

// limits bound one call of web_fetch.
type limits struct {
	total     time.Duration // from the call to its result
	body      int64         // bytes of a response, as sent and as decompressed
	redirects int
}

// New makes the tools.
func New(options Options) *Tools {
	userAgent := "Perdure"
	if options.Version != "" {
		userAgent += "/" + options.Version
	}
	return &Tools{
		client:    &http.Client{Transport: options.Guard.Transport()},
		searcher:  options.Searcher,
		userAgent: userAgent + " (web_fetch; +https://github.com/perdure/perdure)",
		limits:    limits{total: 30 * time.Second, body: 10 << 20, redirects: 10},
	}
}

// Close drops idle connections. Calls that run are not disturbed.
func (t *Tools) Close() { t.client.CloseIdleConnections() }

// Settings is what the agent and the environment of a session say about its web tools.
type Settings struct {
	// Domains are the lists of the agent and of whoever called it. A URL must satisfy each of them.
	Domains []Domains
	// Limited says that the environment's networking is limited, so that only AllowedHosts can be reached.
	Limited bool
	// AllowedHosts are the hosts of a limited environment: "example.com" is that host alone, "*.example.com" is every
	// host below it.
	AllowedHosts []string
	// MaxContentTokens bounds the text of a fetched page, at about four characters a token. 0 is 25,000 tokens; more
	// than 1,000,000 counts as that. It does not apply to PDF.
	MaxContentTokens int64
	// Location is where the user of web_search is, nil if not told.
	Location *Location
}

// Result is what the model is told of a call. Content is a JSON array of content blocks and never empty.
type Result struct {
	Content jsontext.Value
	IsError bool
	// Cause is what went wrong underneath, for the operator's log; it may name internal hosts. Nil if there is no more
	// to know than Content says.
	Cause error
	// Searches is how many searches were made, which are billed by the search.
	Searches int
}

// The codes that an error result begins with. They are those of the web tools of the Messages API.
const (
	codeInvalidInput       = "invalid_input"
	codeURLTooLong         = "url_too_long"
	codeURLNotAllowed      = "url_not_allowed"
	codeURLNotAccessible   = "url_not_accessible"
	codeUnsupportedContent = "unsupported_content_type"
	codeUnavailable        = "unavailable"
)

// failure is a call that did not work, as the model is told. It travels through net/http's redirect callback as an error.
type failure struct {
	code    string
	message string // a sentence or two for the model
	cause   error
}

func (f *failure) Error() string { return f.code + ": " + f.message }

func (f *failure) Unwrap() error { return f.cause }

func failf(code, format string, args ...any) *failure {
	return &failure{code: code, message: fmt.Sprintf(format, args...)}
}

func (f *failure) because(cause error) *failure {
	f.cause = cause
	return f
}

func (f *failure) result() Result {
	r := blocks(textBlock{Type: "text", Text: cleanText(f.Error())})
	r.IsError = true
	r.Cause = f.cause
	return r
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type documentBlock struct {
	Type   string         `json:"type"`
	Source documentSource `json:"source"`
	Title  string         `json:"title,omitzero"`
}

type documentSource struct {
	Type      string `json:"type"` // text | base64
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// blocks makes a result of content blocks, whose strings must be valid UTF-8.
func blocks(content ...any) Result {
	value, err := json.Marshal(content)
	if err != nil {
		// Only invalid UTF-8 gets here. The call has run, so the model must get some result.
		return Result{
			Content: jsontext.Value(`[{"type":"text","text":"unavailable: the result could not be encoded"}]`),
			IsError: true,
			Cause:   fmt.Errorf("encode the result of a web tool: %w", err),
		}
	}
	return Result{Content: value}
}

// cleanText makes text that every store and provider accepts: valid UTF-8, "\n" for line ends, and no other control
// characters than tab.
func cleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r' || r == '\u2028' || r == '\u2029':
			return '\n'
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\uFEFF':
			return -1
		}
		return r
	}, s)
}
