package resource_test

import (
	"os"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
)

// refused fails if an error is not a problem that a client can be told.
func refused(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return false
	}
	p, ok := problem.As(err)
	if !ok || p.Message == "" || !utf8.ValidString(p.Message) || len(p.Message) > 20_000 {
		t.Fatalf("not a problem to tell: %v", err)
	}
	return true
}

func FuzzAgent(f *testing.F) {
	full, err := os.ReadFile("testdata/agent_full_request.json")
	if err != nil {
		f.Fatal(err)
	}
	stored, err := os.ReadFile("testdata/agent_full.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(full), string(stored), ``, `{"name":"a","model":"m"}`, `{"metadata":{"a":null}}`, `{"tools":null}`, `[[`} {
		f.Add([]byte(seed))
	}
	current := fullAgent(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		if agent, err := resource.CreateAgent(body, defaults); !refused(t, err) {
			sent := encode(t, agent)
			again, err := resource.CreateAgent(sent, defaults)
			if err != nil {
				t.Fatalf("refused its own answer %s: %v", sent, err)
			}
			if got := encode(t, again); string(got) != string(sent) {
				t.Fatalf("got  %s\nwant %s", got, sent)
			}
		}
		next, _, err := updateAgent(current, body, defaults)
		if refused(t, err) {
			return
		}
		if _, changed, err := updateAgent(next, encode(t, next), defaults); err != nil || changed {
			t.Fatalf("its own answer changed %s: %v", encode(t, next), err)
		}
	})
}

func FuzzEnvironment(f *testing.F) {
	for _, seed := range []string{limitedBody, `{"name":"a","config":{"type":"self_hosted"}}`, `{"config":{"packages":{"pip":null}}}`} {
		f.Add([]byte(seed))
	}
	current := mustCreateEnvironment(f, limitedBody)
	f.Fuzz(func(t *testing.T, body []byte) {
		if environment, err := resource.CreateEnvironment(body); !refused(t, err) {
			if _, changed, err := updateEnvironment(environment, encode(t, environment)); err != nil || changed {
				t.Fatalf("its own answer changed %s: %v", encode(t, environment), err)
			}
		}
		next, _, err := updateEnvironment(current, body)
		if refused(t, err) {
			return
		}
		var stored resource.Environment
		if err := json.Unmarshal(encode(t, next), &stored); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzSession(f *testing.F) {
	f.Add([]byte(encode(f, exampleSession(f))))
	f.Add([]byte(sessionBody(`"resources":[{"type":"file","file_id":"` + fileID + `","mount_path":"/a/../b"}],"initial_events":[{}]`)))
	f.Add([]byte(`{"environment_id":"` + environmentID + `","agent":{"type":"agent_with_overrides","id":"` + agentID + `","model":null,"tools":[]}}`))
	f.Add([]byte(`{"title":null,"budget":null,"agent":{"tools":[],"mcp_servers":null}}`))
	agent, environment := fullAgent(f), mustCreateEnvironment(f, limitedBody)
	f.Fuzz(func(t *testing.T, body []byte) {
		if create, err := resource.DecodeSessionCreate(body); !refused(t, err) {
			for _, event := range create.InitialEvents {
				if !event.IsValid() {
					t.Fatalf("event %s is not JSON", event)
				}
			}
			if overridden, err := resource.ApplyOverrides(agent, create.Agent.Overrides, defaults); !refused(t, err) {
				refused(t, resource.CheckSession(overridden, environment, create))
			}
		}
		u, err := resource.DecodeSessionUpdate(body)
		if refused(t, err) {
			return
		}
		next, _, err := u.ApplyAgent(agent.Snapshot())
		if refused(t, err) {
			return
		}
		if _, changed, err := u.ApplyAgent(next); err != nil || changed {
			t.Fatalf("the same update changed the agent twice: %v", err)
		}
	})
}

func FuzzContent(f *testing.F) {
	for _, seed := range []string{
		`[{"type":"text","text":"a\u0000\ud83d\ude00"}]`,
		`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]`,
		`[{"type":"document","title":"t","source":{"type":"file","file_id":"` + fileID + `"}}]`,
		`[{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}],"citations":{"enabled":true}}]`,
		`[[[[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		content, err := resource.DecodeContent("content", jsontext.Value(raw), resource.ResultContent)
		if refused(t, err) {
			return
		}
		if !content.IsValid() || !utf8.Valid(content) {
			t.Fatalf("%q is not valid JSON", content)
		}
		again, err := resource.DecodeContent("content", content, resource.ResultContent)
		if err != nil || string(again) != string(content) {
			t.Fatalf("the canonical form %s became %s, %v", content, again, err)
		}
		if _, err := resource.ContentFiles(content); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzFilename(f *testing.F) {
	f.Add(`C:\dir\a.txt`, "text/plain")
	f.Add("..", "image/png")
	f.Fuzz(func(t *testing.T, name, media string) {
		clean, err := resource.CleanFilename(name, media)
		if refused(t, err) {
			return
		}
		if again, err := resource.CleanFilename(clean, media); err != nil || again != clean || clean == "" || clean == ".." {
			t.Fatalf("%q became %q, then %q, %v", name, clean, again, err)
		}
	})
}
