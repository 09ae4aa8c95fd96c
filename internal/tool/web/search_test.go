package web

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/netguard"
)

type searcherFunc func(context.Context, Query) ([]Found, error)

func (f searcherFunc) Search(ctx context.Context, q Query) ([]Found, error) { return f(ctx, q) }

func newTools(t *testing.T, searcher Searcher) *Tools {
	t.Helper()
	guard, err := netguard.New(netguard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Guard: guard, Searcher: searcher})
}

var searchInput = jsontext.Value(`{"query":"go\n 1.26"}`)

func TestSearchWithoutProviderSaysWhatToDo(t *testing.T) {
	t.Parallel()
	text := wantError(t, newTools(t, nil).Search(t.Context(), Settings{}, searchInput), codeUnavailable)
	for _, part := range []string{"operator", `{"name":"web_search","enabled":false}`, "web_fetch"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing from %q", part, text)
		}
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	var asked Query
	var fails error
	tools := newTools(t, searcherFunc(func(_ context.Context, q Query) ([]Found, error) {
		asked = q
		return []Found{
			{URL: "https://go.dev/doc/x", Title: "Go\x00 docs", Text: "Text\xff"},
			{URL: "https://go.dev/blog/y", Title: "", Text: ""},
			{URL: "https://other.example/", Title: "Other", Text: "t"},
			{URL: "javascript:alert(1)", Title: "No", Text: "t"},
		}, fails
	}))
	titles := func(settings Settings) string {
		t.Helper()
		r := tools.Search(t.Context(), settings, searchInput)
		if r.IsError {
			t.Fatalf("%s", r.Content)
		}
		var found []searchResultBlock
		if err := json.Unmarshal(r.Content, &found, json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("%s: %v", r.Content, err)
		}
		var list []string
		for _, f := range found {
			if f.Type != "search_result" || f.Source == "" || len(f.Content) != 1 || f.Content[0].Text == "" || !f.Citations.Enabled {
				t.Errorf("%+v", f)
			}
			list = append(list, f.Title)
		}
		return strings.Join(list, ",")
	}
	for want, settings := range map[string]Settings{
		"Go docs,go.dev,Other": {},
		"Go docs,go.dev":       {Domains: []Domains{{Allowed: []string{"go.dev"}}}},
		"go.dev":               {Domains: []Domains{{Allowed: []string{"go.dev/blog"}}}},
		"Go docs,Other":        {Domains: []Domains{{Blocked: []string{"go.dev/blog/"}}}},
		"Other":                {Limited: true, AllowedHosts: []string{"other.example"}},
	} {
		if got := titles(settings); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if asked.Text != "go 1.26" || asked.Limit == 0 {
		t.Errorf("%+v", asked)
	}
	none := tools.Search(t.Context(), Settings{Domains: []Domains{{Allowed: []string{}}}}, searchInput)
	if none.IsError || !strings.Contains(string(none.Content), "No results found.") {
		t.Errorf("%s", none.Content)
	}
	wantError(t, tools.Search(t.Context(), Settings{Limited: true}, searchInput), codeURLNotAllowed)
	for _, input := range []string{``, `{}`, `{"query":""}`, `{"query":" "}`, `{"query":1}`} {
		wantError(t, tools.Search(t.Context(), Settings{}, jsontext.Value(input)), codeInvalidInput)
	}
	fails = errors.New("401: key sk-secret is not valid")
	r := tools.Search(t.Context(), Settings{}, searchInput)
	if text := wantError(t, r, codeUnavailable); strings.Contains(text, "sk-secret") || !errors.Is(r.Cause, fails) {
		t.Errorf("%s (%v)", text, r.Cause)
	}
}

func TestDefinitionsAreSchemas(t *testing.T) {
	t.Parallel()
	for _, d := range []Definition{FetchDefinition(), SearchDefinition()} {
		var schema struct {
			Type       string                    `json:"type"`
			Properties map[string]jsontext.Value `json:"properties"`
			Required   []string                  `json:"required"`
		}
		if err := json.Unmarshal(d.InputSchema, &schema, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		if schema.Type != "object" || len(schema.Required) != 1 || schema.Properties[schema.Required[0]] == nil || d.Description == "" {
			t.Errorf("%s: %s", d.Name, d.InputSchema)
		}
	}
}

func TestDomainRules(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		domains Domains
		url     string
		allowed bool
	}{
		{Domains{}, "https://a.example/", true},
		{Domains{Allowed: []string{}}, "https://a.example/", false},
		{Domains{Allowed: []string{"a.example"}}, "https://x.y.a.example/", true},
		{Domains{Allowed: []string{"a.example"}}, "https://xa.example/", false},
		{Domains{Allowed: []string{"a.example"}}, "https://a.example.evil.example/", false},
		{Domains{Allowed: []string{"xn--bcher-kva.example"}}, "https://BÜCHER.example/", true},
		{Domains{Allowed: []string{""}}, "https://a.example/", false},
		{Domains{Blocked: []string{"a.example"}}, "https://A.EXAMPLE./", false},
		{Domains{Blocked: []string{"0.0.1"}}, "https://8.0.0.1/", true},
		{Domains{Allowed: []string{"a.example/docs"}}, "https://a.example/docs/x", true},
		{Domains{Allowed: []string{"a.example/docs"}}, "https://a.example/docsx", false},
		{Domains{Allowed: []string{"a.example/docs"}}, "https://a.example/docs/../secret", false},
		{Domains{Allowed: []string{"a.example/docs"}}, "https://a.example/docs/%2e%2e/secret", false},
	} {
		u, failed := parseTarget(test.url)
		if failed != nil {
			t.Fatalf("%s: %v", test.url, failed)
		}
		if failed := (Settings{Domains: []Domains{test.domains}}).check(u); (failed == nil) != test.allowed {
			t.Errorf("%+v %s: %v", test.domains, test.url, failed)
		}
	}
	// Lists of several agents hold together.
	both := Settings{Domains: []Domains{{Allowed: []string{"a.example", "b.example"}}, {Allowed: []string{"b.example"}}}}
	if both.check(&url.URL{Host: "a.example"}) == nil || both.check(&url.URL{Host: "b.example"}) != nil {
		t.Error("the lists are not intersected")
	}
}

func FuzzTarget(f *testing.F) {
	for _, u := range hostileURLs("80") {
		f.Add(u)
	}
	f.Add("https://BÜCHER.example:8080/a?b#c")
	f.Fuzz(func(t *testing.T, raw string) {
		u, failed := parseTarget(raw)
		if failed != nil {
			t.Skip()
		}
		again, failed := parseTarget(u.String())
		if failed != nil {
			if failed.code != codeURLTooLong { // escaping may lengthen it
				t.Fatalf("%q became %q, which is refused: %v", raw, u, failed)
			}
			return
		}
		if again.Host != u.Host || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			t.Fatalf("%q became %q and then %q", raw, u, again)
		}
	})
}
