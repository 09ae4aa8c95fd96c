package resource_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
)

// agentBody draws the body of a valid create or, without a name and model, of a valid update.
func agentBody(t *rapid.T) map[string]any {
	policies := rapid.SampledFrom([]string{"always_allow", "always_ask", "auto"})
	policy := func(label string) map[string]any { return map[string]any{"type": policies.Draw(t, label)} }
	body := map[string]any{}
	maybe := func(name string, draw func() any) {
		if rapid.Bool().Draw(t, name+"?") {
			body[name] = draw()
		}
	}
	maybe("description", func() any { return rapid.SampledFrom([]any{nil, "", "d"}).Draw(t, "description") })
	maybe("system", func() any { return rapid.StringN(0, 20, -1).Draw(t, "system") })
	maybe("metadata", func() any {
		return rapid.MapOfN(rapid.StringN(1, 8, -1), rapid.StringN(0, 8, -1), 0, 8).Draw(t, "metadata")
	})
	maybe("tools", func() any {
		tools := []any{}
		if rapid.Bool().Draw(t, "toolset") {
			var configs []any
			for _, name := range rapid.Permutation(resource.Builtins).Draw(t, "names")[:rapid.IntRange(0, 8).Draw(t, "configs")] {
				config := map[string]any{"name": name}
				if rapid.Bool().Draw(t, "own policy") {
					config["permission_policy"] = policy("policy")
				}
				if rapid.Bool().Draw(t, "own enabled") {
					config["enabled"] = rapid.Bool().Draw(t, "enabled")
				}
				if strings.HasPrefix(name, "web_") && rapid.Bool().Draw(t, "domains") {
					config["blocked_domains"] = []string{"a.example.com", "b.example.com"}
				}
				configs = append(configs, config)
			}
			toolset := map[string]any{"type": "agent_toolset_20260401", "configs": configs}
			if rapid.Bool().Draw(t, "default") {
				toolset["default_config"] = map[string]any{"permission_policy": policy("default policy"), "enabled": rapid.Bool().Draw(t, "default enabled")}
			}
			tools = append(tools, toolset)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "customs") {
			tools = append(tools, map[string]any{"type": "custom", "name": fmt.Sprintf("tool-%d", i), "description": "d",
				"input_schema": map[string]any{"type": "object", "properties": map[string]any{"p": map[string]any{"type": "string"}}}})
		}
		return tools
	})
	return body
}

func drawAgent(t *rapid.T) *resource.Agent {
	body := agentBody(t)
	body["name"] = rapid.StringN(1, 30, -1).Draw(t, "name")
	body["model"] = rapid.SampledFrom([]any{"m", map[string]any{"id": "m", "effort": "max"}, map[string]any{"id": "haiku", "speed": "fast"}}).Draw(t, "model")
	agent, err := resource.CreateAgent(marshal(t, body), defaults)
	if err != nil {
		t.Fatal(err)
	}
	agent.ID, agent.CreatedAt, agent.UpdatedAt = agentID, moment, moment
	return agent
}

func marshal(t *rapid.T, v any) jsontext.Value {
	encoded, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func TestAgentUpdatesAreIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agent := drawAgent(t)
		same, changed, err := updateAgent(agent, marshal(t, agent), defaults)
		if err != nil || changed || same != agent {
			t.Fatalf("its own answer changed %s: %v", marshal(t, agent), err)
		}
		update := marshal(t, agentBody(t))
		once, changed, err := updateAgent(agent, update, defaults)
		if problemOfMetadata(err) {
			return // the pairs of both together may be too many
		}
		if err != nil {
			t.Fatal(err)
		}
		if changed != (once.Version == agent.Version+1) {
			t.Fatalf("changed is %v at version %d", changed, once.Version)
		}
		if _, again, err := updateAgent(once, update, defaults); err != nil || again {
			t.Fatalf("the same update changed the agent twice: %s, %v", update, err)
		}
		var stored resource.Agent
		if err := json.Unmarshal(marshal(t, once), &stored); err != nil {
			t.Fatal(err)
		}
		if a, b := string(marshal(t, once)), string(marshal(t, stored)); a != b {
			t.Fatalf("storage changed %s to %s", a, b)
		}
	})
}

func problemOfMetadata(err error) bool {
	p, ok := problem.As(err)
	return ok && p.Code == "invalid_metadata"
}

// Whatever the order of keys in a request, the object and its bytes are the same.
func TestKeyOrderMeansNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agent := drawAgent(t)
		body := marshal(t, agent)
		sorted := body.Clone()
		if err := sorted.Format(jsontext.ReorderRawObjects(true)); err != nil {
			t.Fatal(err)
		}
		again, err := resource.CreateAgent(sorted, defaults)
		if err != nil {
			t.Fatal(err)
		}
		again.ID, again.CreatedAt, again.UpdatedAt = agent.ID, agent.CreatedAt, agent.UpdatedAt
		if got := marshal(t, again); string(got) != string(body) && len(agent.CustomTools()) == 0 {
			t.Fatalf("got  %s\nwant %s", got, body)
		}
	})
}

// Whatever path is asked for, the mount is below the root, and its own answer means the same place.
func TestMountsStayBelowTheRoot(t *testing.T) {
	part := rapid.OneOf(rapid.SampledFrom([]string{"..", ".", "", "a", "mnt", "session", "uploads", "..."}), rapid.StringN(0, 5, -1))
	rapid.Check(t, func(t *rapid.T) {
		asked := strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "parts"), "/")
		if rapid.Bool().Draw(t, "absolute") {
			asked = "/" + asked
		}
		if rapid.Bool().Draw(t, "rooted") {
			asked = resource.UploadsRoot + asked
		}
		body := marshal(t, map[string]string{"type": "file", "file_id": fileID, "mount_path": asked})
		mount, err := resource.DecodeFileMount(body, nil)
		if err != nil {
			if _, ok := problem.As(err); !ok {
				t.Fatal(err)
			}
			return
		}
		below, ok := strings.CutPrefix(mount.MountPath, resource.UploadsRoot+"/")
		if !ok || below == "" || strings.Contains("/"+below+"/", "/../") || strings.Contains(below, "//") {
			t.Fatalf("%q is mounted at %q", asked, mount.MountPath)
		}
		body = marshal(t, map[string]string{"type": "file", "file_id": fileID, "mount_path": mount.MountPath})
		if again, err := resource.DecodeFileMount(body, nil); err != nil || again != mount {
			t.Fatalf("%q became %q, then %q: %v", asked, mount.MountPath, again.MountPath, err)
		}
	})
}
