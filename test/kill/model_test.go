//go:build linux

package kill

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/perdure/perdure/internal/model/mockserver"
	"github.com/perdure/perdure/internal/model/scripted"
)

// commonRules end each script: what every session is asked in the end.
const commonRules = `
rules:
  - when: {user: Are you there?}
    text: I am.
  - when: {user: Print the runs.}
    answer:
      - tool: bash
        input: {command: "cat runs 2>/dev/null; echo endofruns"}
  - when: {result: endofruns}
    text: Those are the runs.
otherwise:
  text: Done.
`

// strictModel is a strict scripted model. It goes on while the server is dead.
type strictModel struct {
	*mockserver.Server
	library *scripted.Library
	url     string
}

func startModel(t *testing.T) *strictModel {
	t.Helper()
	library := scripted.NewLibrary()
	m := &strictModel{library: library, Server: mockserver.New(mockserver.Config{Library: library, Strict: true, MaxRecords: 100_000})}
	web := httptest.NewServer(named(m.Server))
	m.url = web.URL
	t.Cleanup(func() {
		web.CloseClientConnections() // some of its answers never end
		web.Close()
	})
	return m
}

// tag is in the first message of each conversation.
var (
	tag      = regexp.MustCompile(`kill-[0-9]+-of-[A-Za-z0-9_]+`)
	notInTag = regexp.MustCompile(`[^A-Za-z0-9_]`)
)

// named tells the model's server which conversation a request belongs to.
func named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			return // the server was killed while it asked
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.Header.Set(mockserver.SessionHeader, string(tag.Find(body)))
		next.ServeHTTP(w, r)
	})
}

// script adds a script and returns the id of the model that plays it.
func (m *strictModel) script(t *testing.T, name, steps string) string {
	t.Helper()
	script, err := scripted.Parse(name, []byte(steps+commonRules))
	if err != nil {
		t.Fatal(err)
	}
	m.library.Add(script)
	return "anthropic/" + name
}

// requests are those of a conversation that the model has answered, or has given up to answer.
func (m *strictModel) requests(tag string) []mockserver.Record { return m.RecordsOf(tag) }

// completed are those that it has answered to the end.
func (m *strictModel) completed(tag string) []mockserver.Record {
	var complete []mockserver.Record
	for _, r := range m.requests(tag) {
		if r.Outcome == mockserver.Complete {
			complete = append(complete, r)
		}
	}
	return complete
}
