package resource_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	agentID       = "agent_01ABCDEFGHJKLMNPQRSTUVWX"
	environmentID = "env_01ABCDEFGHJKLMNPQRSTUVWX"
	fileID        = "file_01ABCDEFGHJKLMNPQRSTUVWX"
	otherFileID   = "file_01ABCDEFGHJKLMNPQRSTUVWY"
)

var (
	moment   = resource.At(time.Date(2026, 3, 15, 10, 0, 0, 0, time.UTC))
	later    = resource.At(time.Date(2026, 3, 15, 10, 0, 1, 412_345_678, time.UTC))
	defaults = resource.Defaults{DefaultEffort: func(model string) string {
		if strings.Contains(model, "haiku") {
			return "medium"
		}
		return "high"
	}}
)

// refusal returns the message of a problem that a client is told, and fails if the error is anything else.
func refusal(t *testing.T, err error) *problem.Error {
	t.Helper()
	p, ok := problem.As(err)
	if !ok {
		t.Fatalf("got error %v, want a *problem.Error", err)
	}
	return p
}

func wantRefusal(t *testing.T, err error, message string) {
	t.Helper()
	p := refusal(t, err)
	if p.Message != message {
		t.Errorf("got  %s\nwant %s", p.Message, message)
	}
	if p.Kind != problem.Invalid {
		t.Errorf("got kind %v, want Invalid", p.Kind)
	}
}

func encode(t testing.TB, v any) jsontext.Value {
	t.Helper()
	encoded, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// golden compares the wire form of v, indented for people, with a file.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got := encode(t, v)
	if err := got.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; run with -update if that is meant\ngot:\n%s", file, got)
	}
}

func mustCreateAgent(t testing.TB, body string) *resource.Agent {
	t.Helper()
	agent, err := resource.CreateAgent([]byte(body), defaults)
	if err != nil {
		t.Fatal(err)
	}
	agent.ID, agent.CreatedAt, agent.UpdatedAt = agentID, moment, moment
	return agent
}

func mustCreateEnvironment(t testing.TB, body string) *resource.Environment {
	t.Helper()
	environment, err := resource.CreateEnvironment([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	environment.ID, environment.CreatedAt, environment.UpdatedAt = environmentID, moment, moment
	return environment
}

func updateAgent(current *resource.Agent, body []byte, d resource.Defaults) (*resource.Agent, bool, error) {
	u, err := resource.DecodeAgentUpdate(body)
	if err != nil {
		return nil, false, err
	}
	return u.Apply(current, d)
}

func updateEnvironment(current *resource.Environment, body []byte) (*resource.Environment, bool, error) {
	u, err := resource.DecodeEnvironmentUpdate(body)
	if err != nil {
		return nil, false, err
	}
	return u.Apply(current)
}
