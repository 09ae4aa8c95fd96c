package session_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/session"
)

var hostile = []string{
	"", "\x00", "\x00\x01\x1f\x7f", "\u2028\u2029", "</script><!--", `"}],"type":"user.message","x":[{"`, `\`, `\u0000`, "\ufeff", "\U0010ffff",
	"\ufffd", "e\u0301", "\u202e", strings.Repeat("long ", 10_000), "\r\n", "%s%n", "{{.}}",
}

var invalid = []string{"\xff", "a\xc3(b", "\xed\xa0\x80", "\xf4\x90\x80\x80", "cut \xe2\x82"}

func TestTextContent(t *testing.T) {
	read := func(t *testing.T, v jsontext.Value) string {
		t.Helper()
		var blocks []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := json.Unmarshal(v, &blocks); err != nil || len(blocks) != 1 || blocks[0].Type != "text" {
			t.Fatalf("content %s: %v", v, err)
		}
		return blocks[0].Text
	}
	for _, s := range hostile {
		if got := read(t, session.TextContent(s)); got != s {
			t.Errorf("%q is read again as %q", s, got)
		}
	}
	for _, s := range invalid {
		if got := read(t, session.TextContent(s)); !utf8.ValidString(got) || strings.TrimSpace(got) == "" {
			t.Errorf("%q, which is not valid, is read again as %q", s, got)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.String().Draw(rt, "text")
		if got := read(t, session.TextContent(s)); got != s {
			rt.Fatalf("%q is read again as %q", s, got)
		}
	})
}

// Whatever a client, a model or a tool says, a body is one JSON object whose members say just that, once.
func TestBodiesHoldHostileText(t *testing.T) {
	for _, s := range hostile {
		m := newMachine(t, config())
		m.mustAccept(message("x" + s))
		b := call("c1", session.AgentMCPToolUse, "ask")
		b.Call.Name, b.Call.Server, b.Call.Input, b.Call.Provider = "n"+s, "s"+s, object("k"+s, s), s
		m.answer(text("x"+s), b)
		m.mustAccept(deny("c1", s))
		m.settle()
		step := m.step()
		step.BeginRequest()
		step.FailTurn(session.Usage{}, session.Failure{Type: "unknown_error", Message: s})
		m.commit(step)
		step = m.step()
		if err := step.Update(session.Change{Retitle: true, Title: &s, Metadata: map[string]*string{s: &s}, Agent: object("name", s)}); err != nil {
			t.Fatal(err)
		}
		m.commit(step)
		m.checked(t)

		got := map[string]string{}
		for _, e := range m.log {
			var body struct {
				Name    string            `json:"name"`
				Server  string            `json:"mcp_server_name"`
				Input   map[string]string `json:"input"`
				Deny    string            `json:"deny_message"`
				Content []struct {
					Text string `json:"text"`
				} `json:"content"`
				Error struct {
					Message string `json:"message"`
				} `json:"error"`
				Title    string            `json:"title"`
				Metadata map[string]string `json:"metadata"`
			}
			if !e.Public() {
				continue
			}
			if err := json.Unmarshal(e.Body, &body); err != nil {
				t.Fatalf("%s: %v", e.Body, err)
			}
			switch e.Type {
			case session.UserMessage, session.AgentMessage:
				got[e.Type] = body.Content[0].Text
			case session.AgentMCPToolUse:
				got["name"], got["server"], got["input"] = body.Name, body.Server, body.Input["k"+s]
			case session.UserToolConfirmation:
				got["deny"] = body.Deny
			case session.SessionError:
				got["error"] = body.Error.Message
			case session.SessionUpdated:
				got["title"], got["metadata"] = body.Title, body.Metadata[s]
			}
		}
		want := map[string]string{
			session.UserMessage: "x" + s, session.AgentMessage: "x" + s, "name": "n" + s, "server": "s" + s, "input": s, "deny": s,
			"error": s, "title": s, "metadata": s,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", s, diff)
		}
	}
}

// Text that is no valid Unicode must not wedge a session: each step that would log it can be built.
func TestInvalidTextDoesNotWedge(t *testing.T) {
	for _, s := range invalid {
		m := started(t)
		m.begin()
		step := m.step()
		step.RetryRequest(session.Usage{}, session.Failure{Type: "unknown_error", Message: s}, noon)
		m.commit(step)
		step = m.step()
		step.Resume()
		m.commit(step)
		m.answer(text(s), allowed("c1"))
		m.addResult("c1", s)
		wantValid(t, m.answer(text("ok")))
		m.checked(t)
	}
}

// The bytes of raw members are those that were given.
func TestRawMembersAreKept(t *testing.T) {
	raw := `[ {"text" : "\u0041\/\ud83d\ude00", "type":"text", "n": 1.00e2} ]`
	m := newMachine(t, config())
	events := m.mustAccept(session.Input{Type: session.UserMessage, Content: jsontext.Value(raw)})
	if body := string(events[2].Body); !strings.Contains(body, `"content":[{"text":"\u0041\/\ud83d\ude00","type":"text","n":1.00e2}]`) {
		t.Errorf("the content %s became %s", raw, body)
	}
}

func TestViews(t *testing.T) {
	c := config()
	c.Metadata, c.Resources, c.Vaults, c.BudgetCents, c.Deployment = nil, nil, nil, 100, "depl_1"
	m := newMachine(t, c)
	m.mustAccept(message("hello"))
	m.now = m.now.Add(1500 * time.Millisecond)
	m.answer(text("ok"))
	m.now = m.now.Add(time.Hour)
	step := m.step()
	if err := step.Archive(); err != nil {
		t.Fatal(err)
	}
	m.commit(step)
	show := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	later := m.now.Add(24 * time.Hour)
	want := `{"id":"sesn_1","type":"session","agent":{"type":"agent","id":"agent_1","version":1},"environment_id":"env_1","status":"terminated",` +
		`"title":null,"metadata":{},"resources":[],"vault_ids":[],"budget":{"type":"limit","max_list_cost":{"amount":"100","currency":"USD"}},` +
		`"usage":{"input_tokens":0,"output_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},` +
		`"active_seconds":1.5,"list_cost":{"amount":"0","currency":"USD"},"server_tool_use":{"web_search_requests":0,"web_fetch_requests":0}},` +
		`"stats":{"active_seconds":1.5,"duration_seconds":3601.5},"outcome_evaluations":[],"deployment_id":"depl_1",` +
		`"created_at":"2026-01-02T12:00:00.000000Z","updated_at":"2026-01-02T13:00:01.500001Z","archived_at":"2026-01-02T13:00:01.500001Z"}`
	if got := show(session.NewView(m.state, later)); got != want {
		t.Errorf("the session is\n%s\nwant\n%s", got, want)
	}
	fresh := newMachine(t, config())
	want = `{"id":"sthr_1","type":"session_thread","session_id":"sesn_1","parent_thread_id":null,"agent":{},"status":"idle","workflow_run_id":null,` +
		`"stats":null,"usage":null,"created_at":"2026-01-02T12:00:00.000000Z","updated_at":"2026-01-02T12:00:00.000000Z","archived_at":null}`
	if got := show(session.NewThreadView(fresh.state, jsontext.Value(`{}`), later)); got != want {
		t.Errorf("the thread is\n%s\nwant\n%s", got, want)
	}
	thread := session.NewThreadView(m.state, jsontext.Value(`{}`), later)
	if thread.Stats == nil || thread.Stats.ActiveSeconds != 1.5 || thread.Usage == nil || thread.Usage.ListCost.Amount != "0" {
		t.Errorf("the thread is %s", show(thread))
	}
}
