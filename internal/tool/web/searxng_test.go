package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/netguard"
)

// engine is a search engine with the interface of SearXNG.
func engine(t *testing.T, answer http.HandlerFunc) *Tools {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	searcher, err := NewSearXNG(server.URL+"/base", server.Client())
	if err != nil {
		t.Fatal(err)
	}
	guard, err := netguard.New(netguard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tools := New(Options{Guard: guard, Searcher: searcher})
	t.Cleanup(tools.Close)
	return tools
}

func TestSearXNG(t *testing.T) {
	var asked string
	tools := engine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/search" || r.URL.Query().Get("format") != "json" {
			t.Errorf("asked %s", r.URL)
		}
		asked = r.URL.Query().Get("q")
		_, _ = io.WriteString(w, `{"query":"x","results":[
			{"url":"https://go.dev/doc","title":"Docs","content":"How to write Go","engine":"e","score":1.5},
			{"url":"https://evil.example/","title":"Elsewhere","content":"no"},
			{"url":"http://127.0.0.1/admin","title":"Inside","content":"no"},
			{"url":"javascript:alert(1)","title":"Script","content":"no"}],"answers":[]}`)
	})
	r := tools.Search(t.Context(), Settings{Domains: []Domains{{Allowed: []string{"go.dev"}}}}, []byte(`{"query":"how to write go"}`))
	if r.IsError || r.Searches != 1 {
		t.Fatalf("%s, %d searches", r.Content, r.Searches)
	}
	if asked != "how to write go (site:go.dev)" {
		t.Errorf("asked for %q", asked)
	}
	got := string(r.Content)
	if !strings.Contains(got, `"source":"https://go.dev/doc"`) || !strings.Contains(got, "How to write Go") {
		t.Errorf("the result lacks what was found: %s", got)
	}
	for _, never := range []string{"evil.example", "127.0.0.1", "javascript"} {
		if strings.Contains(got, never) {
			t.Errorf("the result has %s: %s", never, got)
		}
	}
}

func TestSearXNGFails(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no json here", http.StatusForbidden) },
		"html":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"too big": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(" ", maxSearchAnswer+2))
		},
		"dropped": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		r := engine(t, answer).Search(t.Context(), Settings{}, []byte(`{"query":"x"}`))
		if !r.IsError || !strings.Contains(string(r.Content), "unavailable") || r.Cause == nil || r.Searches != 0 {
			t.Errorf("%s: %s, cause %v, %d searches", name, r.Content, r.Cause, r.Searches)
		}
	}
}

func TestSearXNGAddress(t *testing.T) {
	for _, address := range []string{"", "localhost:8888", "ftp://x", "http://", "http://u:p@x", "http://%zz"} {
		if _, err := NewSearXNG(address, http.DefaultClient); err == nil {
			t.Errorf("the address %q is taken", address)
		}
	}
}
