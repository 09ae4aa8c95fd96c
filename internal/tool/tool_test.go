package tool

import (
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
)

func agent(t *testing.T, tools string) *resource.AgentConfig {
	t.Helper()
	a, err := resource.CreateAgent([]byte(`{"name":"a","model":"m","tools":`+tools+`}`), resource.Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	return &a.AgentConfig
}

const everything = `[
	{"type":"agent_toolset_20260401","default_config":{"permission_policy":{"type":"auto"}},"configs":[
		{"name":"bash","permission_policy":{"type":"always_allow"}},
		{"name":"write","permission_policy":{"type":"always_ask"}},
		{"name":"edit","enabled":false}]},
	{"type":"custom","name":"lookup","description":"Looks up.","input_schema":{"type":"object","properties":{"z":{},"a":{}}}}]`

func TestJudge(t *testing.T) {
	for _, selfHosted := range []bool{false, true} {
		s := NewSet(agent(t, everything), selfHosted)
		for name, want := range map[string]session.AnswerCall{
			"bash":       {Type: session.AgentToolUse, Permission: "allow", Evaluation: evaluationAllow, Remote: selfHosted},
			"write":      {Type: session.AgentToolUse, Permission: "ask", Evaluation: evaluationAsk, Remote: selfHosted},
			"read":       {Type: session.AgentToolUse, Permission: "allow", Evaluation: evaluationAuto, Remote: selfHosted},
			"glob":       {Type: session.AgentToolUse, Permission: "allow", Evaluation: evaluationAuto, Remote: selfHosted},
			"grep":       {Type: session.AgentToolUse, Permission: "allow", Evaluation: evaluationAuto, Remote: selfHosted},
			"web_fetch":  {Type: session.AgentToolUse, Permission: "ask", Evaluation: evaluationAutoAsk},
			"web_search": {Type: session.AgentToolUse, Permission: "ask", Evaluation: evaluationAutoAsk},
			"edit":       {Type: session.AgentToolUse, Permission: "deny"},
			"lookup":     {Type: session.AgentCustomToolUse, Remote: true},
			"nothing":    {Type: session.AgentToolUse, Permission: "deny"},
			"":           {Type: session.AgentToolUse, Permission: "deny"},
		} {
			got := s.Judge(name, []byte(`{"x":1}`))
			if got.Name != name || string(got.Input) != `{"x":1}` {
				t.Errorf("%q is judged as a call of %q with %s", name, got.Name, got.Input)
			}
			if got.Type != want.Type || got.Permission != want.Permission || got.Remote != want.Remote || string(got.Evaluation) != string(want.Evaluation) {
				t.Errorf("self-hosted %v: %s is judged %+v, want %+v", selfHosted, name, got, want)
			}
		}
	}
}

func TestPlace(t *testing.T) {
	cloud, own := NewSet(agent(t, everything), false), NewSet(agent(t, everything), true)
	for name, want := range map[string][2]Place{
		"bash": {Sandbox, Client}, "read": {Sandbox, Client}, "edit": {Nowhere, Nowhere}, "web_fetch": {Server, Server},
		"lookup": {Client, Client}, "nothing": {Nowhere, Nowhere},
	} {
		if got := [2]Place{cloud.Place(name), own.Place(name)}; got != want {
			t.Errorf("%s runs at %v, want %v", name, got, want)
		}
	}
}

func TestOffered(t *testing.T) {
	s := NewSet(agent(t, everything), false)
	var names []string
	for _, offered := range s.Offered() {
		names = append(names, offered.Name)
		var schema struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(offered.InputSchema, &schema); err != nil || schema.Type != "object" || offered.Description == "" {
			t.Errorf("%s is offered with schema %s and description %q", offered.Name, offered.InputSchema, offered.Description)
		}
	}
	want := []string{"bash", "read", "write", "glob", "grep", "web_fetch", "web_search", "lookup"}
	if len(names) != len(want) {
		t.Fatalf("offered %v, want %v", names, want)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Errorf("offered %v, want %v", names, want)
			break
		}
	}
	again := NewSet(agent(t, everything), false)
	for i, offered := range s.Offered() {
		if string(offered.InputSchema) != string(again.Offered()[i].InputSchema) {
			t.Errorf("the schema of %s is written in more than one way", offered.Name)
		}
	}
}

func TestOnlyWhatChangesNothingIsRepeated(t *testing.T) {
	s := NewSet(agent(t, everything), false)
	for _, name := range resource.Builtins {
		want := name != resource.Bash && name != resource.Write && name != resource.Edit
		if s.Repeatable(name) != want {
			t.Errorf("%s is repeatable: %v", name, !want)
		}
	}
	if s.Repeatable("lookup") {
		t.Error("a custom tool is never run here, let alone twice")
	}
}
