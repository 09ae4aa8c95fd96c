package demo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/client"
)

// countLog counts a log in which the call "check" is the one that a kill hit.
func countLog(t *testing.T, seen []string, events ...string) *Account {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/sessions/s/events" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		fmt.Fprintf(w, `{"data":[%s],"next_page":null}`, strings.Join(events, ","))
	}))
	defer server.Close()
	c, err := client.New(client.Options{BaseURL: server.URL, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{c: c, account: &Account{Session: "s", Kills: make([]Kill, 2)}, seen: map[string]bool{}, check: "check"}
	for _, id := range seen {
		d.seen[id] = true
	}
	if err := d.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d.account
}

const (
	start1   = `{"id":"m1","type":"span.model_request_start"}`
	end1     = `{"id":"e1","type":"span.model_request_end","model_request_start_id":"m1","is_error":false}`
	start2   = `{"id":"m2","type":"span.model_request_start"}`
	cut2     = `{"id":"e2","type":"span.model_request_end","model_request_start_id":"m2","is_error":true}`
	use      = `{"id":"check","type":"agent.tool_use","name":"bash","input":{}}`
	once     = `{"id":"r","type":"agent.tool_result","tool_use_id":"check","content":[{"type":"text","text":"check 3: PASS\ntimes this check has run: 1\n"}]}`
	twice    = `{"id":"r","type":"agent.tool_result","tool_use_id":"check","content":[{"type":"text","text":"times this check has run: 2"}]}`
	unknown  = `{"id":"r","type":"agent.tool_result","tool_use_id":"check","is_error":true,"content":[{"type":"text","text":"outcome unknown"}]}`
	lastWord = `{"id":"w","type":"agent.message","content":[{"type":"text","text":"Done. It is right.\n\nMore."}]}`
)

func TestAccount(t *testing.T) {
	a := countLog(t, []string{"m1", "check"}, start1, use, end1, once, start2, cut2, lastWord)
	if a.ModelCalls != 2 || a.ModelCallsCut != 1 || a.ToolCalls != 1 || a.ToolResults != 1 || a.ToolRuns != 1 || a.Lost != 0 || a.Events != 7 || a.Report != "Done. It is right." {
		t.Errorf("account: %+v", a)
	}
	if !a.Clean() {
		t.Error("it is not taken for clean")
	}
}

// TestAccountSeesWhatWentWrong keeps the demo honest.
func TestAccountSeesWhatWentWrong(t *testing.T) {
	for name, a := range map[string]*Account{
		"a tool ran twice":          countLog(t, nil, start1, use, end1, twice),
		"an outcome is unknown":     countLog(t, nil, start1, use, end1, unknown),
		"a result is missing":       countLog(t, nil, start1, use, end1),
		"a result was given twice":  countLog(t, nil, start1, use, end1, once, once),
		"an event was lost":         countLog(t, []string{"m1", "gone"}, start1, use, end1, once),
		"more calls cut than kills": countLog(t, nil, start1, use, once, start1, start1, start2, cut2),
	} {
		if a.Clean() {
			t.Errorf("%s, and the account is taken for clean: %+v", name, a)
		}
	}
}

func TestTheServersEnvironmentIsItsOwn(t *testing.T) {
	t.Setenv("PERDURE_LISTEN", "0.0.0.0:1")
	t.Setenv("ANTHROPIC_API_KEY", "sk-canary")
	t.Setenv("OPENAI_BASE_URL", "http://x")
	for _, e := range environment() {
		if strings.HasPrefix(e, "PERDURE_") || strings.HasPrefix(e, "ANTHROPIC_") || strings.HasPrefix(e, "OPENAI_") {
			t.Errorf("it has %s", e)
		}
	}
	if len(environment()) < len(os.Environ())-10 {
		t.Error("too much is left out")
	}
}

func TestAServerThatDoesNotStartIsTold(t *testing.T) {
	_, err := Run(t.Context(), Options{Program: "/bin/sh", Args: []string{"-c", "echo no disk left >&2"}})
	if err == nil || !strings.Contains(err.Error(), "no disk left") {
		t.Errorf("the error is %v", err)
	}
}
