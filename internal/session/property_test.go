package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/session"
)

// TestHistories drives a session with everything that can happen to it, in any order, and checks after each step what must
// hold whatever happened before.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config()
		c.SelfHosted = rapid.Bool().Draw(t, "self-hosted")
		c.BudgetCents = rapid.SampledFrom([]int64{0, 0, 1, 20, 5000}).Draw(t, "budget")
		h := &history{machine: newMachine(t, c), t: t}
		h.limits = session.Limits{Requests: 4, Truncated: 2, Lost: 2}
		t.Repeat(map[string]func(*rapid.T){
			"":         h.check,
			"send":     h.send,
			"drive":    h.drive,
			"drive on": func(t *rapid.T) { h.drive(t); h.drive(t); h.drive(t) },
			"crash":    h.crash,
			"tick":     h.tick,
			"own":      h.own,
			"model":    func(t *rapid.T) { h.converse(rapid.SampledFrom([]string{"m1", "m2"}).Draw(t, "model")) },
		})
		h.check(t)
		h.finish(t)
	})
}

// history is a machine whose moves are drawn.
type history struct {
	*machine
	t     *rapid.T
	calls int // so far, for their ids
	// spent is what the drawn answers and failures used.
	spent session.Usage
}

func (h *history) check(t *rapid.T) {
	scanned, err := checkLog(h.log)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.describe())
	}
	whole := h.refold()
	sameState(t, "state of the steps and fold of the log", whole, h.state)
	if cut := rapid.IntRange(0, len(h.log)).Draw(t, "snapshot"); cut > 0 {
		snapshot := &session.State{}
		if err := snapshot.Fold(h.log[:cut]...); err != nil {
			t.Fatalf("%v", err)
		}
		snapshot = reloaded(t, snapshot)
		if err := snapshot.Fold(h.log[cut:]...); err != nil {
			t.Fatalf("after a snapshot at %d: %v", cut, err)
		}
		sameState(t, fmt.Sprintf("fold of the log with and without a snapshot at %d", cut), whole, snapshot)
	}
	if active := time.Duration(h.state.ActiveNanos); active != scanned.active {
		t.Fatalf("it was active for %v, the log says %v", active, scanned.active)
	}
	if diff := cmp.Diff(h.spent, h.state.Usage); diff != "" {
		t.Fatalf("usage (-sum +state):\n%s", diff)
	}
	wantCost := h.spent.Cost + session.RuntimeCost(scanned.active, h.state.Config.RuntimeRate)
	if got := h.state.CostAt(h.state.At); h.state.Status != session.Running && got != wantCost {
		t.Fatalf("it cost %v, the sum is %v", got, wantCost)
	}
	if len(h.state.Queue) != len(scanned.queued) && h.state.Archived.IsZero() {
		t.Fatalf("%d messages wait, the log says %d", len(h.state.Queue), len(scanned.queued))
	}
	h.checkAction(t)
	h.checkInterruptible(t)
	sameState(t, "steps that were not appended changed the state", whole, h.state)
}

// checkAction checks that the action is one that somebody can perform.
func (h *history) checkAction(t *rapid.T) {
	step := h.step()
	action := step.Settle(h.limits)
	if step.Err() != nil {
		t.Fatalf("settling fails: %v", step.Err())
	}
	if again := step.Settle(h.limits); !cmp.Equal(action, again) {
		t.Fatalf("settling twice gives %v and %v", action, again)
	}
	s := step.State
	idle := s.Status == session.Idle || s.Status == session.Terminated
	if (action.Kind == session.Rest) != idle && s.Interrupt == nil && !s.Deleted {
		t.Fatalf("a session that is %s needs %s", s.Status, kindName(action.Kind))
	}
	if s.Status == session.Idle && len(s.Queue) > 0 && s.Stop.Type != session.RequiresAction && s.Stop.Type != session.BudgetReached {
		t.Fatalf("messages wait while it is idle with %s", s.Stop.Type)
	}
	if action.Kind == session.RunCalls && len(action.Calls) == 0 {
		t.Fatalf("no calls are to be run: %+v", s.Calls)
	}
	for _, c := range action.Calls {
		if c.Answered || c.Remote || c.Permission == "deny" || c.Confirmed == "deny" ||
			c.Permission == "ask" && c.Confirmed != "allow" || c.Input == nil {
			t.Fatalf("call %+v must not run", c)
		}
	}
	if wake := session.WakeTime(h.state, h.now); wake.IsZero() && len(step.Events) > 0 {
		t.Fatalf("nobody wakes it, and it has to log %v", types(step.Events))
	}
}

// checkInterruptible checks that a session can always be interrupted, and then takes a message that starts a turn.
func (h *history) checkInterruptible(t *rapid.T) {
	if h.state.Status == session.Terminated || h.state.Deleted {
		return
	}
	m := &machine{t: t, now: h.now, log: slices.Clone(h.log), state: h.state, limits: h.limits, context: session.NewContext(h.model, resolveFile)}
	m.fold(m.context, m.log)
	m.mustAccept(interrupt())
	if m.settle().Kind == session.Stop {
		m.interrupt(nil)
	}
	if m.state.Status == session.Idle && m.state.OverBudget() {
		return
	}
	m.mustAccept(message("after the interrupt"))
	action := m.settle()
	if m.state.Stop != nil && m.state.Stop.Type == session.BudgetReached {
		return
	}
	if action.Kind != session.Sample {
		t.Fatalf("after an interrupt and a message the session needs %s\n%s", kindName(action.Kind), describe(m.log))
	}
	asked := m.begin()
	if last := asked[len(asked)-1]; last.Role != "user" || !strings.HasSuffix(string(last.Content), `"after the interrupt"}]`) {
		t.Fatalf("the model is asked %s", last.Content)
	}
	if err := checkMessages(asked, h.model); err != nil {
		t.Fatalf("%v\n%s", err, describe(m.log))
	}
	if _, err := checkLog(m.log); err != nil {
		t.Fatalf("%v\n%s", err, describe(m.log))
	}
}

// finish checks that nothing that was accepted is lost once the session is left in peace.
func (h *history) finish(t *rapid.T) {
	if h.state.Status == session.Terminated || h.state.Deleted {
		return
	}
	step := h.step()
	if err := step.Update(session.Change{Rebudget: true}); err != nil {
		t.Fatalf("the budget cannot be removed: %v", err)
	}
	h.commit(step)
	for range 100 {
		action := h.settle()
		switch action.Kind {
		case session.Rest:
			if h.state.Stop != nil && h.state.Stop.Type == session.RequiresAction {
				h.mustAccept(interrupt())
				continue
			}
			scanned, err := checkLog(h.log)
			if err != nil {
				t.Fatalf("%v\n%s", err, h.describe())
			}
			if len(scanned.queued) > 0 || scanned.interrupt != "" || len(scanned.open()) > 0 {
				t.Fatalf("queued %v, interrupt %q, open calls %v\n%s", scanned.queued, scanned.interrupt, scanned.open(), h.describe())
			}
			return
		case session.Stop:
			h.interrupt(nil)
		case session.WaitUntil:
			h.now = action.At
			step := h.step()
			step.Resume()
			h.commit(step)
		case session.Sample:
			h.ask(t)
		case session.Abandon:
			h.end(session.Answer{Blocks: []session.AnswerBlock{text("done")}, Model: h.model})
		case session.RunCalls:
			for _, c := range action.Calls {
				h.addResult(c.ID, "done")
			}
		case session.Evaluate:
			step := h.step()
			step.BeginEvaluation()
			step.EndEvaluation(session.OutcomeSatisfied, "done", session.Usage{})
			h.commit(step)
		default:
			t.Fatalf("it needs %s", kindName(action.Kind))
		}
	}
	t.Fatalf("it does not come to rest\n%s", h.describe())
}

// send posts some inputs, right and wrong ones.
func (h *history) send(t *rapid.T) {
	inputs := rapid.SliceOfN(rapid.Custom(h.drawInput), 1, 4).Draw(t, "inputs")
	before := h.state.Clone()
	echoes, _, err := h.accept(inputs...)
	if err != nil {
		var p *problem.Error
		if !errors.As(err, &p) {
			t.Fatalf("the error is not a problem: %v", err)
		}
		sameState(t, "a refused request changed the state", before, h.state)
		return
	}
	if len(echoes) != len(inputs) {
		t.Fatalf("%d inputs have %d echoes", len(inputs), len(echoes))
	}
}

func (h *history) drawInput(t *rapid.T) session.Input {
	switch rapid.SampledFrom([]string{
		"message", "message", "message", "system", "interrupt", "allow", "deny", "custom", "custom", "tool", "outcome", "nonsense",
	}).Draw(t, "input") {
	case "message":
		return session.Input{Type: session.UserMessage, Content: drawContent(t)}
	case "system":
		return session.Input{Type: session.SystemMessage, Content: session.TextContent(drawText(t))}
	case "interrupt":
		return session.Input{Type: session.UserInterrupt, Thread: rapid.SampledFrom([]string{"", "", "sthr_1", "sthr_2"}).Draw(t, "thread")}
	case "allow":
		return allow(h.drawCall(t))
	case "deny":
		return deny(h.drawCall(t), rapid.SampledFrom([]string{"", "no", "\x00\u2028\"</script>"}).Draw(t, "deny message"))
	case "custom":
		return session.Input{Type: session.UserCustomToolResult, Call: h.drawCall(t), Content: drawResult(t), IsError: rapid.Bool().Draw(t, "error")}
	case "tool":
		return session.Input{Type: session.UserToolResult, Call: h.drawCall(t), Content: drawResult(t)}
	case "outcome":
		return outcome(rapid.IntRange(0, 3).Draw(t, "max"))
	default:
		return session.Input{Type: rapid.SampledFrom([]string{session.ModelRequestEnd, session.AgentMessage, ""}).Draw(t, "type")}
	}
}

// drawCall is most often a call that waits, and sometimes one that does not, or none.
func (h *history) drawCall(t *rapid.T) string {
	candidates := append(h.state.Waiting(), h.state.Waiting()...)
	for _, c := range h.state.Calls {
		candidates = append(candidates, c.ID)
	}
	for _, e := range h.log {
		if isUse(e.Type) {
			candidates = append(candidates, e.ID)
			break
		}
	}
	return rapid.SampledFrom(append(candidates, "sevt_nobody")).Draw(t, "call")
}

func drawText(t *rapid.T) string {
	return rapid.SampledFrom([]string{"hello", "\x00", "</script>\u2028\u2029", "a\tb\r\n", "\\u0000 \"quoted\"", "\U0001F600 \uFFFD \uFEFF"}).Draw(t, "text")
}

func drawContent(t *rapid.T) jsontext.Value {
	return slices.Clone(rapid.SampledFrom([]jsontext.Value{
		session.TextContent("hello"),
		session.TextContent("\x00</script>\u2028"),
		jsontext.Value(`[{"type":"text","text":"a"},{"type":"text","text":"\u0041\/ \ud83d\ude00"}]`),
		jsontext.Value(`[ {"type":"image", "source":{"type":"file","file_id":"file_1"}} , {"type":"text","text":"see"}]`),
		jsontext.Value(`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]`),
	}).Draw(t, "content"))
}

func drawResult(t *rapid.T) jsontext.Value {
	return slices.Clone(rapid.SampledFrom([]jsontext.Value{
		nil,
		jsontext.Value(`[]`),
		jsontext.Value(`[{"type":"text","text":""},{"type":"text","text":" \n"}]`),
		session.TextContent("ok"),
		jsontext.Value(`[{"type":"image","source":{"type":"file","file_id":"file_1"}}]`),
	}).Draw(t, "result"))
}

// drive does what the session needs, as its driver would, or fails to.
func (h *history) drive(t *rapid.T) {
	step := h.step()
	action := step.Settle(h.limits)
	switch action.Kind {
	case session.Sample:
		h.commit(step)
		h.ask(t)
		return
	case session.Abandon:
		h.endRequest(t, step)
	case session.Stop:
		usage := session.Usage{}
		if step.State.Request != nil {
			usage = h.spend(drawUsage(t))
		}
		results := map[string]session.Result{}
		for _, c := range step.State.Calls {
			if rapid.Bool().Draw(t, "ended") {
				results[c.ID] = session.Result{Content: session.TextContent("stopped")}
			}
		}
		step.ApplyInterrupt(usage, results)
	case session.WaitUntil:
		if h.now.Before(action.At) && rapid.Bool().Draw(t, "wait") {
			h.now = action.At
		}
		if !h.now.Before(action.At) {
			step.Resume()
		}
	case session.Evaluate:
		step.BeginEvaluation()
		if rapid.Bool().Draw(t, "judged") {
			result := rapid.SampledFrom([]string{session.OutcomeSatisfied, session.OutcomeNeedsRevision, session.OutcomeFailed}).Draw(t, "result")
			step.EndEvaluation(result, "because "+drawText(t), h.spend(drawUsage(t)))
		}
	case session.RunCalls:
		for _, c := range action.Calls {
			if rapid.Bool().Draw(t, "ended") {
				step.AddResult(c.ID, session.Result{Content: drawResult(t), IsError: rapid.Bool().Draw(t, "error")})
			}
		}
	}
	step.Settle(h.limits)
	h.commit(step)
}

// ask begins a model request and checks what the model sees.
func (h *history) ask(t *rapid.T) {
	asked := h.begin()
	if err := checkMessages(asked, h.model); err != nil {
		t.Fatalf("%v\n%s", err, h.describe())
	}
	again := session.NewContext(h.model, resolveFile)
	h.fold(again, h.log)
	if diff := cmp.Diff(again.Messages(), asked); diff != "" || again.Bytes() != h.context.Bytes() {
		t.Fatalf("conversation from scratch and step by step (-scratch +steps), %d and %d bytes:\n%s", again.Bytes(), h.context.Bytes(), diff)
	}
	if err := checkPrefix(h.asked, asked); err != nil {
		t.Fatalf("%v\n%s", err, h.describe())
	}
	h.asked = asked
}

func (h *history) endRequest(t *rapid.T, step *session.Step) {
	failure := session.Failure{Type: "model_overloaded_error", Message: drawText(t)}
	switch rapid.SampledFrom([]string{"answer", "answer", "answer", "answer", "retry", "fail", "lost"}).Draw(t, "outcome") {
	case "answer":
		step.EndRequest(h.drawAnswer(t))
	case "retry":
		step.RetryRequest(h.spend(drawUsage(t)), failure, h.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "wait"))*time.Millisecond))
	case "fail":
		step.FailTurn(h.spend(drawUsage(t)), failure)
	case "lost":
		step.AbandonRequest()
	}
}

func (h *history) spend(u session.Usage) session.Usage {
	h.spent.Add(u)
	return u
}

func drawUsage(t *rapid.T) session.Usage {
	n := func(name string) int64 { return rapid.Int64Range(0, 1000).Draw(t, name) }
	u := session.Usage{
		Input: n("input"), Output: n("output"), CacheRead: n("read"), CacheWrite5m: n("5m"), CacheWrite1h: n("1h"),
		WebSearches: n("searches"), Cost: session.Cost(n("cost")) * cent / 100, Fast: rapid.Bool().Draw(t, "fast"),
	}
	if rapid.IntRange(0, 40).Draw(t, "unpriced") == 0 {
		u.Unpriced, u.Cost = 1, 0
	}
	return u
}

func (h *history) drawAnswer(t *rapid.T) session.Answer {
	a := session.Answer{
		Blocks:     rapid.SliceOfN(rapid.Custom(h.drawBlock), 0, 5).Draw(t, "blocks"),
		StopReason: rapid.SampledFrom([]string{"end_turn", "tool_use", "tool_use", "max_tokens", "refusal"}).Draw(t, "stop"),
		Usage:      h.spend(drawUsage(t)), Model: h.model, Provider: "msg_1",
	}
	if a.StopReason == session.Refusal {
		a.Details = jsontext.Value(`{"type":"refusal","category":null,"explanation":null}`)
	}
	return a
}

func (h *history) drawBlock(t *rapid.T) session.AnswerBlock {
	switch rapid.SampledFrom([]string{"text", "blank", "thinking", "opaque", "call", "call", "call"}).Draw(t, "block") {
	case "text":
		return text("says " + drawText(t))
	case "blank":
		return text(rapid.SampledFrom([]string{"", " ", "\n\t", "\u00a0\u2003"}).Draw(t, "blank"))
	case "thinking":
		return thinking(h.model, drawText(t))
	case "opaque":
		return session.AnswerBlock{Type: "server_note", Raw: object("type", "server_note", "note", drawText(t))}
	}
	h.calls++
	b := call(fmt.Sprintf("sevt_call%d", h.calls), session.AgentToolUse, "")
	kind := rapid.SampledFrom([]string{session.AgentToolUse, session.AgentToolUse, session.AgentMCPToolUse, session.AgentCustomToolUse}).Draw(t, "kind")
	b = call(b.Event, kind, "")
	if kind != session.AgentCustomToolUse {
		b.Call.Permission = rapid.SampledFrom([]string{"allow", "ask", "ask", "deny"}).Draw(t, "permission")
		b.Call.Remote = kind == session.AgentToolUse && h.state.Config.SelfHosted
	}
	switch rapid.IntRange(0, 9).Draw(t, "fault") {
	case 0:
		b.Call.Refusal = "The input of this call is not a JSON object."
		b.Call.Input = jsontext.Value(`{}`)
	case 1:
		b.Call.Refusal, b.Call.Cut = "This call was cut off.", true
	}
	return b
}

// crash forgets everything but the log.
func (h *history) crash(*rapid.T) {
	h.state = h.refold()
	h.context = session.NewContext(h.model, resolveFile)
	h.fold(h.context, h.log)
}

// tick lets the clock go on, or back.
func (h *history) tick(t *rapid.T) {
	h.now = h.now.Add(time.Duration(rapid.Int64Range(-int64(2*time.Second), int64(10*time.Minute)).Draw(t, "nanoseconds")))
}

// own does what the owner of the session does.
func (h *history) own(t *rapid.T) {
	step := h.step()
	before := h.state.Clone()
	var err error
	switch rapid.IntRange(0, 30).Draw(t, "ownership") {
	case 0:
		err = step.Archive()
	case 1:
		err = step.Delete()
	case 2:
		err = step.SetResources([]jsontext.Value{object("type", "file", "file_id", drawText(t))})
	default:
		err = step.Update(drawChange(t))
	}
	sameState(t, "an owner's step changed the state that it is based on", before, h.state)
	if err == nil {
		h.commit(step)
	}
}

func drawChange(t *rapid.T) session.Change {
	var c session.Change
	if rapid.Bool().Draw(t, "retitle") {
		c.Retitle = true
		if rapid.Bool().Draw(t, "has title") {
			title := drawText(t)
			c.Title = &title
		}
	}
	if rapid.Bool().Draw(t, "metadata") {
		value := drawText(t)
		c.Metadata = map[string]*string{"k": &value, "gone": nil}
		if rapid.Bool().Draw(t, "delete") {
			c.Metadata["k"] = nil
		}
	}
	if rapid.Bool().Draw(t, "agent") {
		c.Agent = object("type", "agent", "name", drawText(t))
	}
	if rapid.Bool().Draw(t, "rebudget") {
		c.Rebudget, c.BudgetCap = true, rapid.Int64Range(0, 100).Draw(t, "cap")
	}
	return c
}

func (h *history) describe() string { return describe(h.log) }

func describe(log []session.Event) string {
	var b strings.Builder
	for _, e := range log {
		fmt.Fprintf(&b, "%3d %s\n", e.Seq, e.Body)
		if e.Body == nil {
			fmt.Fprintf(&b, "    %s %s\n", e.Type, e.Private)
		}
	}
	return b.String()
}
