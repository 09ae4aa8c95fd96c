package perdure_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
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
	t.Cleanup(func() {
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
	return &client{t, web.URL, secret}
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
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(raw))
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
	request, err := http.NewRequestWithContext(c.t.Context(), "GET", c.url+"/v1/sessions/"+session+"/events/stream?after=0", nil)
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
