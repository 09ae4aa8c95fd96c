package perdure_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure"
)

func TestMain(m *testing.M) {
	perdure.Reexec()
	os.Exit(m.Run())
}

type client struct {
	t      *testing.T
	url    string
	secret string
	keep   bool // the sessions, for another server
}

func start(t *testing.T, o perdure.Options) *client {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	server, err := perdure.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	secret, _, err := server.CreateKey(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	web := httptest.NewServer(server.Handler())
	c := &client{t: t, url: web.URL, secret: secret}
	t.Cleanup(func() {
		if !c.keep {
			c.deleteSessions()
		}
		web.CloseClientConnections()
		web.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// deleteSessions ends the sandboxes, which outlive the server.
func (c *client) deleteSessions() {
	var list struct {
		Data []object `json:"data"`
	}
	c.do(http.MethodGet, "/v1/sessions?limit=100&include_archived=true", nil, &list)
	for _, s := range list.Data {
		if status := c.do(http.MethodDelete, "/v1/sessions/"+s.ID, nil, nil); status != http.StatusOK {
			c.t.Errorf("session %s could not be deleted: %d", s.ID, status)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (c *client) do(method, path string, body any, into any) int {
	c.t.Helper()
	raw := []byte(nil)
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			c.t.Fatal(err)
		}
	}
	request, err := http.NewRequestWithContext(context.Background(), method, c.url+path, bytes.NewReader(raw))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.secret)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if response.StatusCode >= 300 {
		c.t.Logf("%s %s: %d %s", method, path, response.StatusCode, answer)
	} else if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			c.t.Fatalf("%s %s: %v: %s", method, path, err, answer)
		}
	}
	return response.StatusCode
}

type object struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

func (c *client) session(model string, events ...any) object {
	var agent, environment, session object
	c.do("POST", "/v1/agents", map[string]any{"name": "a", "model": model, "tools": []any{map[string]any{"type": "agent_toolset_20260401"}}}, &agent)
	c.do("POST", "/v1/environments", map[string]any{"name": "e"}, &environment)
	c.do("POST", "/v1/sessions", map[string]any{"agent": agent.ID, "environment_id": environment.ID, "initial_events": events}, &session)
	return session
}

// follow reads events of the session from its beginning until stop says so.
func (c *client) follow(session string, stop func(kind string, body []byte) bool) []string {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+"/v1/sessions/"+session+"/events/stream?after=0", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("X-Api-Key", c.secret)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 64<<20)
	var kinds []string
	kind := ""
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			kind = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && kind != "ping" {
			c.t.Log(data)
			kinds = append(kinds, kind)
			if stop(kind, []byte(data)) {
				return kinds
			}
		}
	}
	c.t.Fatalf("the stream ended: %v", lines.Err())
	return nil
}

func TestDemoTurn(t *testing.T) {
	c := start(t, perdure.Options{})
	s := c.session("scripted/demo", map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "go"}}})
	c.follow(s.ID, func(kind string, _ []byte) bool { return kind == "session.status_idle" })
}

func (c *client) send(session string, events ...any) int {
	return c.do("POST", "/v1/sessions/"+session+"/events", map[string]any{"events": events}, nil)
}

func scripts(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const writer = `
rules:
  - when: {system: judge, user: second draft}
    text: '{"result": "satisfied", "explanation": "It is good."}'
  - when: {system: judge}
    text: 'Here it is: {"result": "needs_revision", "explanation": "Write it again."}'
  - when: {user: Write it again}
    text: second draft
otherwise:
  text: first draft
`

func TestOutcome(t *testing.T) {
	c := start(t, perdure.Options{ScriptsDir: scripts(t, map[string]string{"writer": writer})})
	s := c.session("scripted/writer")
	outcome := func(most int) map[string]any {
		return map[string]any{
			"type": "user.define_outcome", "description": "a text", "max_iterations": most,
			"rubric": map[string]any{"type": "text", "content": "It is good."},
		}
	}
	if status := c.send(s.ID, outcome(3)); status != 200 {
		t.Fatalf("define_outcome: %d", status)
	}
	var results []string
	note := func(kind string, body []byte) bool {
		if kind == "span.outcome_evaluation_end" {
			var end struct {
				Result string `json:"result"`
			}
			if err := json.Unmarshal(body, &end); err != nil {
				t.Fatal(err)
			}
			results = append(results, end.Result)
		}
		return kind == "session.status_idle"
	}
	kinds := c.follow(s.ID, note)
	if want := []string{"needs_revision", "satisfied"}; !slices.Equal(results, want) {
		t.Errorf("results %v, want %v", results, want)
	}
	want := []string{
		"user.define_outcome", "session.status_running", "session.thread_status_running",
		"span.model_request_start", "agent.message", "span.model_request_end",
		"span.outcome_evaluation_start", "span.outcome_evaluation_end",
		"span.model_request_start", "agent.message", "span.model_request_end",
		"span.outcome_evaluation_start", "span.outcome_evaluation_end",
		"session.thread_status_idle", "session.usage", "session.status_idle",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("events %v,\nwant %v", kinds, want)
	}
	var view struct {
		Outcomes []struct {
			Result    string  `json:"result"`
			Iteration int     `json:"iteration"`
			Completed *string `json:"completed_at"`
		} `json:"outcome_evaluations"`
	}
	c.do(http.MethodGet, "/v1/sessions/"+s.ID, nil, &view)
	if len(view.Outcomes) != 1 || view.Outcomes[0].Result != "satisfied" || view.Outcomes[0].Iteration != 1 || view.Outcomes[0].Completed == nil {
		t.Errorf("outcome_evaluations %+v", view.Outcomes)
	}

	// The last evaluation that asks for a revision ends the outcome, after a last word of the agent.
	other := c.session("scripted/writer", outcome(1))
	results = nil
	kinds = c.follow(other.ID, note)
	if want := []string{"max_iterations_reached"}; !slices.Equal(results, want) {
		t.Errorf("results %v, want %v", results, want)
	}
	if n := len(kinds); n < 6 || kinds[n-5] != "agent.message" {
		t.Errorf("no last word: %v", kinds)
	}
}

// TestStop stops a server in the middle of a model request, many times: nothing is lost, and it is not held against the
// session.
func TestStop(t *testing.T) {
	const slow = "steps:\n  - text: one two three four five six seven eight nine ten\n    delta_delay: 50ms\n    delta_size: 4\n"
	o := perdure.Options{Dir: t.TempDir(), ScriptsDir: scripts(t, map[string]string{"slow": slow})}
	var session object
	for i := range 8 {
		t.Run("", func(t *testing.T) {
			c := start(t, o)
			c.keep = true
			if i == 0 {
				session = c.session("scripted/slow", map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "count"}}})
			}
			starts := 0
			c.follow(session.ID, func(kind string, _ []byte) bool {
				if kind == "span.model_request_start" {
					starts++
				}
				return starts == i+1
			})
		})
	}
	c := start(t, o)
	kinds := c.follow(session.ID, func(kind string, _ []byte) bool { return kind == "session.status_idle" })
	count := func(kind string) int {
		return len(slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k != kind }))
	}
	if starts, ends := count("span.model_request_start"), count("span.model_request_end"); starts != 9 || ends != 9 {
		t.Errorf("%d requests began and %d ended, want 9", starts, ends)
	}
	if count("agent.message") != 1 || count("session.error") != 0 || count("session.status_running") != 1 {
		t.Errorf("events %v", kinds)
	}
}

// TestWebSearch searches with the engine that the operator configured, and is billed by the search.
func TestWebSearch(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"results":[{"url":"https://go.dev/doc","title":"Docs","content":"How to write Go"}]}`)
	}))
	t.Cleanup(engine.Close)
	const script = "steps:\n  - answer:\n      - tool: web_search\n        input: {query: go}\notherwise:\n  text: \"found {{result}}\"\n"
	for name, test := range map[string]struct {
		url    string
		want   string
		number int64
	}{"configured": {engine.URL, "How to write Go", 1}, "not configured": {"", "no search provider", 0}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, perdure.Options{SearchURL: test.url, ScriptsDir: scripts(t, map[string]string{"search": script})})
			s := c.session("scripted/search", map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "search"}}})
			told := ""
			c.follow(s.ID, func(kind string, body []byte) bool {
				if kind == "agent.tool_result" {
					told = string(body)
				}
				return kind == "session.status_idle"
			})
			if !strings.Contains(told, test.want) {
				t.Errorf("the result is %s", told)
			}
			var view struct {
				Usage struct {
					Tools struct {
						Searches int64 `json:"web_search_requests"`
					} `json:"server_tool_use"`
					Cost struct {
						Amount string `json:"amount"`
					} `json:"list_cost"`
				} `json:"usage"`
			}
			c.do(http.MethodGet, "/v1/sessions/"+s.ID, nil, &view)
			if view.Usage.Tools.Searches != test.number || test.number == 1 && view.Usage.Cost.Amount == "0" {
				t.Errorf("usage %+v", view.Usage)
			}
		})
	}
}

// TestWebFetch fetches a page that the operator allows, and none that nobody did.
func TestWebFetch(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>Inside</title><h1>Hello</h1><script>no()</script>")
	}))
	t.Cleanup(page.Close)
	script := "steps:\n  - answer:\n      - tool: web_fetch\n        input: {url: \"" + page.URL + "\"}\notherwise:\n  text: done\n"
	for name, test := range map[string]struct {
		allow []netip.Prefix
		want  string
	}{
		"allowed":     {[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "# Hello"},
		"not allowed": {nil, "url_not_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, perdure.Options{AllowNetworks: test.allow, ScriptsDir: scripts(t, map[string]string{"fetch": script})})
			s := c.session("scripted/fetch", map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "fetch"}}})
			told := ""
			c.follow(s.ID, func(kind string, body []byte) bool {
				if kind == "agent.tool_result" {
					told = string(body)
				}
				return kind == "session.status_idle"
			})
			if !strings.Contains(told, test.want) || strings.Contains(told, "no()") {
				t.Errorf("the result is %s", told)
			}
		})
	}
}

// TestSystemMessageNeedsAModelThatTakesIt: a provider that does not would refuse every later request of the session.
func TestSystemMessageNeedsAModelThatTakesIt(t *testing.T) {
	c := start(t, perdure.Options{Providers: []perdure.Provider{{Name: "anthropic", Kind: "anthropic", BaseURL: "http://127.0.0.1:1", APIKey: "none"}}})
	note := map[string]any{"type": "system.message", "content": []any{map[string]any{"type": "text", "text": "Be kind."}}}
	hello := map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "hello"}}}
	for model, want := range map[string]int{
		"claude-haiku-4-5": http.StatusBadRequest, "anthropic/claude-haiku-4-5": http.StatusBadRequest,
		"scripted/echo": http.StatusOK,
	} {
		s := c.session(model)
		if got := c.send(s.ID, hello, note); got != want {
			t.Errorf("%s: %d, want %d", model, got, want)
		} else if got == http.StatusOK {
			c.follow(s.ID, func(kind string, _ []byte) bool { return kind == "session.status_idle" })
		}
	}
}
