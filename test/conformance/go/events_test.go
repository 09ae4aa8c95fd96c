package goclient

import (
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

var plainTurn = []string{"session.status_running", "session.thread_status_running", "user.message", "span.model_request_start",
	"agent.message", "span.model_request_end", "session.thread_status_idle", "session.usage", "session.status_idle"}

func TestPlainTurn(t *testing.T) {
	w := begin(t)
	made := w.session("greet")
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	echo := w.send(made.ID, message("hello"))
	same(w, "echoed events", len(echo.Data), 1)
	same(w, "echoed type", echo.Data[0].Type, "user.message")
	events := w.until(stream, "session.status_idle")
	equal(w, "events", types(events), plainTurn)
	same(w, "id of the message", events[2].ID, echo.Data[0].ID)
	if events[2].ProcessedAt.IsZero() {
		t.Error("the message on the stream has no processed_at")
	}
	same(w, "answer", said(events), "You said: hello")
	idle := events[8].AsSessionStatusIdle()
	same(w, "stop reason", idle.StopReason.Type, "end_turn")
	if !strings.Contains(idle.RawJSON(), `"stop_details":null`) {
		t.Errorf("stop_details must be there: %s", idle.RawJSON())
	}
	end := events[5].AsSpanModelRequestEnd()
	same(w, "start of the span", end.ModelRequestStartID, events[3].ID)
	same(w, "input tokens", end.ModelUsage.InputTokens, 100)
	same(w, "output tokens", end.ModelUsage.OutputTokens, 20)
	usage := w.retrieve(made.ID).Usage
	same(w, "session input tokens", usage.InputTokens, 100)
	same(w, "session output tokens", usage.OutputTokens, 20)
	same(w, "usage on the stream", events[7].AsSessionUsage().Usage.InputTokens, 100)
	equal(w, "log", logIDs(w.log(made.ID, anthropic.BetaSessionEventListParams{})), ids(events))
}

// The way of the documentation: open the stream, list what was before, and drop what comes twice.
func TestStreamListAndDedupe(t *testing.T) {
	w := begin(t)
	made := w.session("chunks", toolset)
	w.converse(made.ID, message("go"))
	w.send(made.ID, message("go"))
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	var got []string
	seen := map[string]bool{}
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			got = append(got, id)
		}
	}
	idles := 0
	for _, e := range w.log(made.ID, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(7)}) {
		add(e.ID)
		if e.Type == "session.status_idle" {
			idles++
		}
	}
	for idles < 2 && stream.Next() {
		e := stream.Current()
		if e.Type == "session.status_idle" && !seen[e.ID] {
			idles++
		}
		add(e.ID)
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	equal(w, "stream and list together", got, logIDs(w.log(made.ID, anthropic.BetaSessionEventListParams{})))
}

func TestEventList(t *testing.T) {
	w := begin(t)
	made := w.session("chunks", toolset)
	whole := ids(w.converse(made.ID, message("go")))
	list := func(params anthropic.BetaSessionEventListParams) []string { return logIDs(w.log(made.ID, params)) }
	equal(w, "paged", list(anthropic.BetaSessionEventListParams{Limit: anthropic.Int(4)}), whole)
	descending := list(anthropic.BetaSessionEventListParams{Limit: anthropic.Int(4), Order: anthropic.BetaSessionEventListParamsOrderDesc})
	slices.Reverse(descending)
	equal(w, "descending", descending, whole)
	at := w.log(made.ID, anthropic.BetaSessionEventListParams{})[5].ProcessedAt
	equal(w, "gt", list(anthropic.BetaSessionEventListParams{CreatedAtGt: anthropic.Time(at)}), whole[6:])
	equal(w, "gte", list(anthropic.BetaSessionEventListParams{CreatedAtGte: anthropic.Time(at)}), whole[5:])
	equal(w, "lt", list(anthropic.BetaSessionEventListParams{CreatedAtLt: anthropic.Time(at)}), whole[:5])
	equal(w, "lte", list(anthropic.BetaSessionEventListParams{CreatedAtLte: anthropic.Time(at)}), whole[:6])
	uses := w.log(made.ID, anthropic.BetaSessionEventListParams{Limit: anthropic.Int(1), Types: []anthropic.BetaManagedAgentsSessionEventType{
		anthropic.BetaManagedAgentsSessionEventTypeAgentToolUse, anthropic.BetaManagedAgentsSessionEventTypeAgentToolResult}})
	var kinds []string
	for _, e := range uses {
		kinds = append(kinds, e.Type)
	}
	equal(w, "tool calls and results", kinds, []string{"agent.tool_use", "agent.tool_result", "agent.tool_use", "agent.tool_result", "agent.tool_use", "agent.tool_result"})
}

func TestPreviews(t *testing.T) {
	w := begin(t)
	made := w.session("long")
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{
		EventDeltas: []anthropic.BetaManagedAgentsDeltaType{anthropic.BetaManagedAgentsDeltaTypeAgentMessage},
	})
	w.send(made.ID, message("go"))
	var previews anthropic.BetaManagedAgentsEventAccumulator
	preview, id, deltas := "", "", 0
	events := w.untilFound(stream, func(e streamEvent) bool {
		if e.Type != "agent.message" {
			previews.Accumulate(e)
		}
		if e.Type == "event_delta" {
			deltas++
			id = e.EventID
			preview = previews.AgentMessageText(id)
		}
		return e.Type == "session.status_idle"
	})
	if deltas < 2 {
		t.Errorf("%d deltas", deltas)
	}
	final := only(events, "agent.message")
	same(w, "final events", len(final), 1)
	same(w, "id", final[0].ID, id)
	same(w, "preview", preview, said(events))
	same(w, "starts", len(only(events, "event_start")), 1)
	order := slices.DeleteFunc(types(events), func(kind string) bool { return kind == "event_delta" })
	equal(w, "events", order, slices.Insert(slices.Clone(plainTurn), 4, "event_start"))
}

func TestThinking(t *testing.T) {
	w := begin(t)
	made := w.session("think")
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{
		EventDeltas: []anthropic.BetaManagedAgentsDeltaType{anthropic.BetaManagedAgentsDeltaTypeAgentThinking},
	})
	w.send(made.ID, message("go"))
	events := w.until(stream, "session.status_idle")
	thinking := only(events, "agent.thinking")
	if len(thinking) != 1 {
		t.Fatalf("events: %v", types(events))
	}
	starts := only(events, "event_start")
	same(w, "starts", len(starts), 1)
	same(w, "deltas of thinking", len(only(events, "event_delta")), 0)
	if strings.Contains(thinking[0].RawJSON(), "There is one") {
		t.Error("the thinking is shown")
	}
	same(w, "answer", said(events), "First part. Second part.")
}

func TestPrimaryThread(t *testing.T) {
	w := begin(t)
	made := w.session("greet")
	pager := w.client.Beta.Sessions.Threads.ListAutoPaging(w.ctx, made.ID, anthropic.BetaSessionThreadListParams{})
	threads := slices.Collect(pager.All())
	if pager.Err() != nil || len(threads) != 1 {
		t.Fatalf("%d threads, %v", len(threads), pager.Err())
	}
	thread := threads[0]
	same(w, "session", thread.SessionID, made.ID)
	same(w, "parent", thread.ParentThreadID, "")
	same(w, "status", string(thread.Status), "idle")
	same(w, "agent", thread.Agent.AsAgent().ID, made.Agent.ID)

	stream := w.client.Beta.Sessions.Threads.Events.StreamEvents(w.ctx, thread.ID, anthropic.BetaSessionThreadEventStreamParams{SessionID: made.ID})
	defer stream.Close()
	w.send(made.ID, message("hello"))
	var kinds, list []string
	for stream.Next() {
		kinds = append(kinds, stream.Current().Type)
		list = append(list, stream.Current().ID)
		if stream.Current().Type == "session.thread_status_idle" {
			break
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	for _, kind := range plainTurn[1:7] {
		same(w, kind+" on the thread's stream", slices.Contains(kinds, kind), true)
	}
	events := w.client.Beta.Sessions.Threads.Events.ListAutoPaging(w.ctx, thread.ID, anthropic.BetaSessionThreadEventListParams{SessionID: made.ID, Limit: anthropic.Int(3)})
	var listed []string
	for e := range events.All() {
		listed = append(listed, e.ID)
	}
	if events.Err() != nil {
		t.Fatal(events.Err())
	}
	if len(listed) < len(list) {
		t.Errorf("the list of the thread has %v, its stream had %v", listed, list)
	} else {
		equal(w, "list of the thread", listed[:len(list)], list)
	}
	again := must[*anthropic.BetaManagedAgentsSessionThread](w)(w.client.Beta.Sessions.Threads.Get(w.ctx, thread.ID, anthropic.BetaSessionThreadGetParams{SessionID: made.ID}))
	same(w, "input tokens of the thread", again.Usage.InputTokens, 100)
	_, err := w.client.Beta.Sessions.Threads.Archive(w.ctx, thread.ID, anthropic.BetaSessionThreadArchiveParams{SessionID: made.ID})
	w.refused(err, 400, "invalid_request_error", "")
}

// A message that comes while a tool runs is steered into the running turn.
func TestSteering(t *testing.T) {
	w := begin(t)
	made := w.session("steer", toolset)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("go"))
	before := w.until(stream, "agent.tool_use")
	echo := w.send(made.ID, message("faster"))
	if !echo.Data[0].ProcessedAt.IsZero() {
		t.Errorf("a queued message has processed_at: %s", echo.RawJSON())
	}
	after := w.until(stream, "session.status_idle")
	same(w, "answer", said(after), "Meanwhile: faster")
	same(w, "turns begun", len(only(append(before, after...), "session.status_running")), 1)
	result := slices.IndexFunc(after, func(e streamEvent) bool { return e.Type == "agent.tool_result" })
	delivered := slices.IndexFunc(after, func(e streamEvent) bool { return e.ID == echo.Data[0].ID && !e.ProcessedAt.IsZero() })
	request := slices.IndexFunc(after, func(e streamEvent) bool { return e.Type == "span.model_request_start" })
	if result < 0 || delivered < result || request < delivered {
		t.Errorf("want the result, the message, the request: %v", types(after))
	}
}

func TestInterruptWhileStreaming(t *testing.T) {
	w := begin(t)
	made := w.session("endless")
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{
		EventDeltas: []anthropic.BetaManagedAgentsDeltaType{anthropic.BetaManagedAgentsDeltaTypeAgentMessage},
	})
	w.send(made.ID, message("go"))
	w.until(stream, "event_delta")
	echo := w.send(made.ID, interrupt)
	same(w, "type of the echo", echo.Data[0].Type, "user.interrupt")
	events := w.until(stream, "session.status_idle")
	same(w, "messages of a broken answer", len(only(events, "agent.message")), 0)
	same(w, "errors", len(only(events, "session.error")), 0)
	same(w, "ended spans", len(only(events, "span.model_request_end")), 1)
	same(w, "interrupts", len(only(events, "user.interrupt")), 1)
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "end_turn")
	same(w, "answer afterwards", said(w.converse(made.ID, message("again"))), "Back again.")
}

func TestInterruptWhileAToolRuns(t *testing.T) {
	w := begin(t)
	made := w.session("sleeper", toolset)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("go"))
	call := w.until(stream, "agent.tool_use")
	w.until(stream, "span.model_request_end")
	w.send(made.ID, interrupt)
	events := w.until(stream, "session.status_idle")
	results := only(events, "agent.tool_result")
	if len(results) != 1 {
		t.Fatalf("events after the interrupt: %v", types(events))
	}
	result := results[0].AsAgentToolResult()
	same(w, "call", result.ToolUseID, call[len(call)-1].ID)
	same(w, "is_error", result.IsError, true)
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "end_turn")
	same(w, "answer afterwards", said(w.converse(made.ID, message("again"))), "Awake.")
}

func TestInterruptOfAnIdleSession(t *testing.T) {
	w := begin(t)
	made := w.session("greet")
	w.send(made.ID, interrupt)
	w.settle(made.ID)
	same(w, "answer", said(w.converse(made.ID, message("hello"))), "You said: hello")
}

func TestRefusal(t *testing.T) {
	w := begin(t)
	events := w.converse(w.session("refuse").ID, message("go"))
	idle := events[len(events)-1].AsSessionStatusIdle()
	same(w, "stop reason", idle.StopReason.Type, "refusal")
	same(w, "category", string(idle.StopDetails.Category), "cyber")
	same(w, "explanation", idle.StopDetails.Explanation, "I will not.")
}

func TestModelThatFailsOnce(t *testing.T) {
	w := begin(t)
	made := w.session("flaky")
	events := w.converse(made.ID, message("go"))
	same(w, "answer", said(events), "Got there.")
	for _, e := range only(events, "session.error") {
		failure := e.AsSessionError()
		same(w, "retry status", failure.Error.RetryStatus.Type, "retrying")
		same(w, "error", failure.Error.Type, "model_overloaded_error")
	}
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "end_turn")
}

func TestModelThatRefusesTheRequest(t *testing.T) {
	w := begin(t)
	made := w.session("broken")
	events := w.converse(made.ID, message("go"))
	failures := only(events, "session.error")
	if len(failures) == 0 {
		t.Fatalf("events: %v", types(events))
	}
	same(w, "retry status", failures[len(failures)-1].AsSessionError().Error.RetryStatus.Type, "exhausted")
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "retries_exhausted")
	same(w, "answer afterwards", said(w.converse(made.ID, message("recover"))), "Recovered.")
}

func TestBudget(t *testing.T) {
	w := begin(t)
	made := w.sessionOf(w.agent("costly", toolset).ID, anthropic.BetaSessionNewParams{
		Budget: anthropic.BetaManagedAgentsBudgetLimitParam{MaxListCost: anthropic.BetaMonetaryAmountParam{Amount: "100", Currency: "USD"}},
	})
	// One answer costs 12 dollars, so the second request of the turn is not made.
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	w.send(made.ID, message("work"))
	events := w.until(stream, "session.status_idle")
	same(w, "stop reason", events[len(events)-1].AsSessionStatusIdle().StopReason.Type, "budget_reached")
	same(w, "model requests", len(only(events, "span.model_request_start")), 1)
	same(w, "list cost", w.retrieve(made.ID).Usage.ListCost.Amount, "1200")
	w.refused(w.trySend(made.ID, message("more")), 400, "invalid_request_error", "user.interrupt")

	raise := func(amount string) error {
		_, err := w.client.Beta.Sessions.Update(w.ctx, made.ID, anthropic.BetaSessionUpdateParams{
			Budget: anthropic.BetaManagedAgentsBudgetLimitParam{MaxListCost: anthropic.BetaMonetaryAmountParam{Amount: amount, Currency: "USD"}},
		})
		return err
	}
	w.refused(raise("500"), 400, "invalid_request_error", "must be greater than the session's consumed list cost")
	// A higher budget goes on with the work.
	if err := raise("100000"); err != nil {
		t.Fatal(err)
	}
	events = w.until(stream, "session.status_idle")
	same(w, "answer", said(events), "Said.")
	same(w, "updates", len(only(events, "session.updated")), 1)
	same(w, "list cost", w.retrieve(made.ID).Usage.ListCost.Amount, "2400")
}

func TestEveryClientEvent(t *testing.T) {
	w := begin(t)
	made := w.session("greet", weatherTool)
	content := []anthropic.BetaManagedAgentsUserMessageEventParamsContentUnion{
		{OfText: &anthropic.BetaManagedAgentsTextBlockParam{Text: "look"}},
		{OfImage: &anthropic.BetaManagedAgentsImageBlockParam{Source: anthropic.BetaManagedAgentsImageBlockSourceUnionParam{
			OfBase64: &anthropic.BetaManagedAgentsBase64ImageSourceParam{MediaType: "image/png", Data: onePixel}}}},
		{OfDocument: &anthropic.BetaManagedAgentsDocumentBlockParam{Title: anthropic.String("A note"), Source: anthropic.BetaManagedAgentsDocumentBlockSourceUnionParam{
			OfText: &anthropic.BetaManagedAgentsPlainTextDocumentSourceParam{Data: "the note"}}}},
	}
	events := w.converse(made.ID, anthropic.BetaManagedAgentsEventParamsOfUserMessage(content))
	echoed := only(events, "user.message")[0].AsUserMessage()
	same(w, "blocks", len(echoed.Content), 3)
	same(w, "image", echoed.Content[1].Type, "image")
	same(w, "document", echoed.Content[2].Type, "document")

	// A word of the system, with a message and alone.
	note := anthropic.BetaManagedAgentsEventParamsOfSystemMessage([]anthropic.BetaManagedAgentsSystemContentBlockParam{{Text: "Be kind.", Type: "text"}})
	events = w.converse(made.ID, message("and"), note)
	same(w, "system messages", len(only(events, "system.message")), 1)
	// An answer to a call that was never made.
	for _, wrong := range []clientEvent{customResult("sevt_011CZkZAtmR3yMPDzynEDxu7", "x", false), confirmation("sevt_011CZkZAtmR3yMPDzynEDxu7", "allow", ""),
		{OfUserToolResult: &anthropic.BetaManagedAgentsUserToolResultEventParams{ToolUseID: "sevt_011CZkZAtmR3yMPDzynEDxu7"}}} {
		w.refused(w.trySend(made.ID, wrong), 400, "invalid_request_error", "")
	}
	// One bad event refuses all of a request.
	before := len(w.log(made.ID, anthropic.BetaSessionEventListParams{}))
	w.refused(w.trySend(made.ID, message("good"), confirmation("sevt_011CZkZAtmR3yMPDzynEDxu7", "allow", "")), 400, "invalid_request_error", "")
	same(w, "events", len(w.log(made.ID, anthropic.BetaSessionEventListParams{})), before)
}

// onePixel is a PNG image of one pixel.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
