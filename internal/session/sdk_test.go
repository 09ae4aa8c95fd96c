package session_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/respjson"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/session"
)

// checkSDK checks that the official client reads an event, as it stands in a list and in a stream: it knows the type, finds
// every member that it requires, and knows every member that there is.
func checkSDK(t *testing.T, e session.Event) {
	t.Helper()
	var listed anthropic.BetaManagedAgentsSessionEventUnion
	var streamed anthropic.BetaManagedAgentsStreamSessionEventsUnion
	for name, union := range map[string]any{"list": &listed, "stream": &streamed} {
		if err := json.Unmarshal(e.Body, union); err != nil {
			t.Fatalf("the SDK cannot read %s in a %s: %v", e.Body, name, err)
		}
		checkRead(t, reflect.ValueOf(union).Elem(), name+": "+e.Type)
	}
	if listed.ID != e.ID || listed.Type != e.Type || !e.Queued && !listed.ProcessedAt.Equal(e.At) || e.Queued && !listed.ProcessedAt.IsZero() {
		t.Errorf("the SDK reads %s %s at %v of %s", listed.Type, listed.ID, listed.ProcessedAt, e.Body)
	}
	checkValues(t, listed, e)
}

// checkValues checks the members that clients act upon, against an independent reading of the body.
func checkValues(t *testing.T, read anthropic.BetaManagedAgentsSessionEventUnion, e session.Event) {
	t.Helper()
	var b struct {
		Name  string         `json:"name"`
		Input map[string]any `json:"input"`
		Stop  struct {
			Type   string   `json:"type"`
			Events []string `json:"event_ids"`
		} `json:"stop_reason"`
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
			Retry   struct {
				Type string `json:"type"`
			} `json:"retry_status"`
		} `json:"error"`
		Usage struct {
			Input int64 `json:"input_tokens"`
			Cost  *struct {
				Amount string `json:"amount"`
			} `json:"list_cost"`
		} `json:"usage"`
		Tool       string `json:"tool_use_id"`
		MCP        string `json:"mcp_tool_use_id"`
		Custom     string `json:"custom_tool_use_id"`
		Thread     string `json:"session_thread_id"`
		Permission string `json:"evaluated_permission"`
		Start      string `json:"model_request_start_id"`
		Deny       string `json:"deny_message"`
		Title      string `json:"title"`
	}
	if err := json.Unmarshal(e.Body, &b); err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]any{
		"name":                   {b.Name, read.Name},
		"stop_reason":            {b.Stop.Type, read.StopReason.Type},
		"tool_use_id":            {b.Tool, read.ToolUseID},
		"mcp_tool_use_id":        {b.MCP, read.MCPToolUseID},
		"custom_tool_use_id":     {b.Custom, read.CustomToolUseID},
		"session_thread_id":      {b.Thread, read.SessionThreadID},
		"evaluated_permission":   {b.Permission, string(read.EvaluatedPermission)},
		"model_request_start_id": {b.Start, read.ModelRequestStartID},
		"deny_message":           {b.Deny, read.DenyMessage},
		"title":                  {b.Title, read.Title},
		"error.type":             {b.Error.Type, read.Error.Type},
		"error.message":          {b.Error.Message, read.Error.Message},
	} {
		if pair[0] != pair[1] {
			t.Errorf("the SDK reads %s as %v, it is %v in %s", name, pair[1], pair[0], e.Body)
		}
	}
	if len(b.Stop.Events) > 0 && !reflect.DeepEqual(b.Stop.Events, read.StopReason.EventIDs) {
		t.Errorf("the SDK reads event_ids as %v in %s", read.StopReason.EventIDs, e.Body)
	}
	if b.Input != nil && !reflect.DeepEqual(any(b.Input), read.Input) {
		t.Errorf("the SDK reads input as %v in %s", read.Input, e.Body)
	}
	if e.Type == session.SessionUsage {
		usage := read.AsSessionUsage().Usage
		if usage.InputTokens != b.Usage.Input || b.Usage.Cost != nil && usage.ListCost.Amount != b.Usage.Cost.Amount {
			t.Errorf("the SDK reads usage as %+v in %s", usage, e.Body)
		}
	}
}

func checkRead(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			checkRead(t, v.Index(i), path+"[]")
		}
		return
	}
	if v.Kind() != reflect.Struct {
		return
	}
	if variant := v.MethodByName("AsAny"); variant.IsValid() {
		// A union has the members of all its variants; only those of the one that is meant count.
		as := variant.Call(nil)[0]
		if as.IsNil() {
			t.Errorf("%s: the SDK does not know this variant", path)
			return
		}
		checkRead(t, as.Elem(), path)
		return
	}
	members := v.FieldByName("JSON")
	if !members.IsValid() {
		return
	}
	if extra := members.FieldByName("ExtraFields"); extra.IsValid() {
		for _, name := range extra.MapKeys() {
			t.Errorf("%s: the SDK does not know %s", path, name)
		}
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		member := members.FieldByName(field.Name)
		if !member.IsValid() || field.Name == "JSON" {
			continue
		}
		state, ok := member.Interface().(respjson.Field)
		if !ok {
			continue
		}
		required := field.Tag.Get("api") == "required" || field.Tag.Get("default") != ""
		switch {
		case state.Raw() == "" && required:
			t.Errorf("%s.%s: is missing", path, field.Name)
		case state.Raw() == "", state.Raw() == "null":
		case !state.Valid():
			t.Errorf("%s.%s: the SDK cannot read %s", path, field.Name, state.Raw())
		default:
			checkRead(t, v.Field(i), path+"."+field.Name)
		}
	}
}

// What we serve of a session and its thread is what the official client expects.
func TestSDKReadsViews(t *testing.T) {
	c := config()
	c.BudgetCents = 100
	c.Agent = jsontext.Value(`{"type":"agent","id":"agent_1","version":1,"name":"helper","description":null,"system":null,"model":{"id":"m"},` +
		`"tools":[],"mcp_servers":[],"skills":[],"execution_identity":null`)
	ofThread := append(slices.Clone(c.Agent), '}')
	c.Agent = append(c.Agent, `,"multiagent":null}`...)
	m := newMachine(t, c)
	m.mustAccept(outcome(1))
	m.answer(text("done"))
	m.evaluate(session.OutcomeSatisfied)
	var read anthropic.BetaManagedAgentsSession
	var thread anthropic.BetaManagedAgentsSessionThread
	for view, into := range map[any]any{
		toJSON(t, session.NewView(m.state, m.now)):                                &read,
		toJSON(t, session.NewThreadView(m.state, ofThread, m.now)):                &thread,
		toJSON(t, session.NewView(newMachine(t, c).state, m.now)):                 new(anthropic.BetaManagedAgentsSession),
		toJSON(t, session.NewThreadView(newMachine(t, c).state, ofThread, m.now)): new(anthropic.BetaManagedAgentsSessionThread),
	} {
		if err := json.Unmarshal([]byte(view.(string)), into); err != nil {
			t.Fatalf("the SDK cannot read %s: %v", view, err)
		}
		checkRead(t, reflect.ValueOf(into).Elem(), reflect.TypeOf(into).Elem().Name())
	}
	if o := read.OutcomeEvaluations[0]; o.Result != "satisfied" || o.Explanation != "because" || o.CompletedAt.IsZero() {
		t.Errorf("the SDK reads the outcome as %+v", o)
	}
	if read.Usage.ListCost.Amount != "1" || read.Budget.MaxListCost.Amount != "100" || thread.Usage.InputTokens != 10 {
		t.Errorf("the SDK reads usage %+v, budget %+v and thread usage %+v", read.Usage, read.Budget, thread.Usage)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	var b jsontext.Value
	roundTrip(t, v, &b)
	return string(b)
}
