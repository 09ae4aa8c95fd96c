package goclient

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
)

func TestToolInTheSandbox(t *testing.T) {
	w := begin(t)
	events := w.converse(w.session("shell", toolset).ID, message("run it"))
	equal(w, "events", types(events), []string{"session.status_running", "session.thread_status_running", "user.message",
		"span.model_request_start", "agent.message", "agent.tool_use", "span.model_request_end", "agent.tool_result",
		"span.model_request_start", "agent.message", "span.model_request_end",
		"session.thread_status_idle", "session.usage", "session.status_idle"})
	call := events[5].AsAgentToolUse()
	same(w, "tool", call.Name, "bash")
	same(w, "permission", string(call.EvaluatedPermission), "allow")
	same(w, "evaluation", call.Evaluation.Type, "always_allow")
	if command, _ := call.Input["command"].(string); command != "echo out of the sandbox" {
		t.Errorf("input %v", call.Input)
	}
	result := events[7].AsAgentToolResult()
	same(w, "call of the result", result.ToolUseID, call.ID)
	same(w, "is_error", result.IsError, false)
	if text := result.Content[0].Text; !strings.Contains(text, "out of the sandbox") {
		t.Errorf("result %q", text)
	}
	if answer := said(events); !strings.Contains(answer, "The command said: out of the sandbox") {
		t.Errorf("answer %q", answer)
	}
}

func TestCustomTool(t *testing.T) {
	w := begin(t)
	made := w.session("weather", weatherTool)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("weather, please"))
	events := w.until(stream, "session.status_idle")
	idle := events[len(events)-1].AsSessionStatusIdle()
	same(w, "stop reason", idle.StopReason.Type, "requires_action")
	call := only(events, "agent.custom_tool_use")[0].AsAgentCustomToolUse()
	equal(w, "waits for", idle.StopReason.EventIDs, []string{call.ID})
	same(w, "name", call.Name, "get_weather")
	same(w, "city", call.Input["city"], any("Paris"))
	same(w, "status", string(w.retrieve(made.ID).Status), "idle")

	w.refused(w.trySend(made.ID, message("hello?")), 400, "invalid_request_error", "")
	echo := w.send(made.ID, customResult(call.ID, "rain", false))
	if echo.Data[0].ProcessedAt.IsZero() {
		t.Error("a tool result is processed on receipt")
	}
	events = w.until(stream, "session.status_idle")
	same(w, "first event", events[0].Type, "user.custom_tool_result")
	same(w, "answer", said(events), "The weather: rain")
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "end_turn")

	// The answer once more: taken, and without effect on what the model sees.
	w.send(made.ID, customResult(call.ID, "sun", false))
	w.settle(made.ID)
	requests := w.log(made.ID, anthropic.BetaSessionEventListParams{Types: []anthropic.BetaManagedAgentsSessionEventType{"span.model_request_start"}})
	same(w, "model requests", len(requests), 2)
}

func TestCustomToolsOneByOne(t *testing.T) {
	w := begin(t)
	made := w.session("weather", weatherTool)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("both, please"))
	events := w.until(stream, "session.status_idle")
	waiting := events[len(events)-1].AsSessionStatusIdle().StopReason.EventIDs
	if len(waiting) != 2 {
		t.Fatalf("waits for %v", waiting)
	}
	w.send(made.ID, customResult(waiting[1], "snow", false))
	events = w.until(stream, "session.status_idle")
	idle := events[len(events)-1].AsSessionStatusIdle()
	same(w, "stop reason", idle.StopReason.Type, "requires_action")
	equal(w, "still waits for", idle.StopReason.EventIDs, waiting[:1])
	same(w, "model requests in between", len(only(events, "span.model_request_start")), 0)
	w.send(made.ID, customResult(waiting[0], "broken", true))
	events = w.until(stream, "session.status_idle")
	if answer := said(events); !strings.Contains(answer, "The tool failed") {
		t.Errorf("answer %q", answer)
	}
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "end_turn")
}

func TestToolRunner(t *testing.T) {
	w := begin(t)
	made := w.session("weather", weatherTool)
	var runs atomic.Int32
	type input struct {
		City string `json:"city" jsonschema:"required,description=The city."`
	}
	tool, err := toolrunner.NewBetaToolFromJSONSchema("get_weather", "Says what the weather is like.",
		func(_ context.Context, in input) (anthropic.BetaToolResultBlockParamContentUnion, error) {
			runs.Add(1)
			return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "fine in " + in.City}}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("both, please"))
	idle := time.Millisecond
	runner := w.client.Beta.Sessions.Events.NewToolRunner(w.ctx, made.ID, anthropic.SessionToolRunnerOptions{
		Tools: []anthropic.BetaTool{tool}, MaxIdle: &idle,
	})
	defer runner.Close()
	calls := 0
	for runner.Next() {
		call := runner.Current()
		calls++
		same(w, "custom", call.Custom, true)
		same(w, "posted", call.Posted, true)
		same(w, "failed", call.IsError, false)
	}
	if err := runner.Err(); err != nil && !errors.Is(err, anthropic.ErrIdleTimeout) {
		t.Fatal(err)
	}
	same(w, "calls", calls, 2)
	same(w, "runs", runs.Load(), 2)
	events := w.untilFound(stream, func(e streamEvent) bool {
		return e.Type == "session.status_idle" && e.AsSessionStatusIdle().StopReason.Type == "end_turn"
	})
	if answer := said(events); !strings.Contains(answer, "fine in Oslo") {
		t.Errorf("answer %q", answer)
	}
}

func TestApproval(t *testing.T) {
	w := begin(t)
	made := w.session("approve", askToolset)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("one"))
	events := w.until(stream, "session.status_idle")
	call := only(events, "agent.tool_use")[0].AsAgentToolUse()
	same(w, "permission", string(call.EvaluatedPermission), "ask")
	same(w, "evaluation", call.Evaluation.Type, "always_ask")
	idle := events[len(events)-1].AsSessionStatusIdle()
	same(w, "stop reason", idle.StopReason.Type, "requires_action")
	equal(w, "waits for", idle.StopReason.EventIDs, []string{call.ID})
	same(w, "results before the approval", len(only(events, "agent.tool_result")), 0)

	w.send(made.ID, confirmation(call.ID, "allow", ""))
	events = w.until(stream, "session.status_idle")
	if answer := said(events); !strings.Contains(answer, "Result: approved run") {
		t.Errorf("answer %q", answer)
	}
	same(w, "results", len(only(events, "agent.tool_result")), 1)

	// Denied, with a reason.
	w.send(made.ID, message("one"))
	events = w.until(stream, "session.status_idle")
	call = only(events, "agent.tool_use")[0].AsAgentToolUse()
	w.send(made.ID, confirmation(call.ID, "deny", "not today"))
	events = w.until(stream, "session.status_idle")
	result := only(events, "agent.tool_result")[0].AsAgentToolResult()
	same(w, "is_error", result.IsError, true)
	if text := result.Content[0].Text; !strings.Contains(text, "Permission to use bash has been rejected") || !strings.Contains(text, "not today") {
		t.Errorf("result %q", text)
	}
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "end_turn")
}

// Two calls wait; each is answered by its own id, and the second answer does not count for the first call.
func TestApprovalsOneByOne(t *testing.T) {
	w := begin(t)
	made := w.session("approve", askToolset)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("two"))
	events := w.until(stream, "session.status_idle")
	waiting := events[len(events)-1].AsSessionStatusIdle().StopReason.EventIDs
	if len(waiting) != 2 {
		t.Fatalf("waits for %v", waiting)
	}
	w.refused(w.trySend(made.ID, message("hello?")), 400, "invalid_request_error", "")
	w.send(made.ID, confirmation(waiting[1], "deny", ""))
	events = w.untilFound(stream, func(e streamEvent) bool {
		return e.Type == "session.status_idle" && slices.Equal(e.AsSessionStatusIdle().StopReason.EventIDs, waiting[:1])
	})
	same(w, "model requests in between", len(only(events, "span.model_request_start")), 0)
	w.send(made.ID, confirmation(waiting[0], "allow", ""))
	events = w.untilFound(stream, func(e streamEvent) bool {
		return e.Type == "session.status_idle" && e.AsSessionStatusIdle().StopReason.Type == "end_turn"
	})
	all := w.log(made.ID, anthropic.BetaSessionEventListParams{Types: []anthropic.BetaManagedAgentsSessionEventType{"agent.tool_result"}})
	failed := map[string]bool{}
	for _, e := range all {
		result := e.AsAgentToolResult()
		if _, twice := failed[result.ToolUseID]; twice {
			t.Errorf("%s has two results", result.ToolUseID)
		}
		failed[result.ToolUseID] = result.IsError
	}
	same(w, "results", len(failed), 2)
	same(w, "allowed call failed", failed[waiting[0]], false)
	same(w, "denied call failed", failed[waiting[1]], true)
	same(w, "model requests", len(only(events, "span.model_request_start")), 1)
}

// An interrupt ends the wait for an approval.
func TestInterruptWhileWaiting(t *testing.T) {
	w := begin(t)
	made := w.session("approve", askToolset)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("one"))
	w.until(stream, "session.status_idle")
	w.send(made.ID, interrupt)
	events := w.until(stream, "session.status_idle")
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "end_turn")
	results := only(events, "agent.tool_result")
	if len(results) != 1 || !results[0].AsAgentToolResult().IsError {
		t.Errorf("events: %v", types(events))
	}
	w.converse(made.ID, message("hello"))
}
