package session_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/session"
)

// started is a session whose first message was taken.
func started(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t, config())
	m.mustAccept(message("hello"))
	return m
}

// checked fails the test if the log or the conversation breaks a rule, or if a fold depends on how it was made.
func (m *machine) checked(t *testing.T) {
	t.Helper()
	if _, err := checkLog(m.log); err != nil {
		t.Errorf("%v\n%s", err, describe(m.log))
	}
	sameState(t, "fold of the log and state of the steps", m.refold(), m.state)
	sameState(t, "state after it was stored", m.state, reloaded(t, m.state))
}

func wantValid(t *testing.T, asked []session.Message) {
	t.Helper()
	if err := checkMessages(asked, "m1"); err != nil {
		t.Errorf("the model's API would refuse this: %v\n%s", err, show(asked))
	}
}

func show(messages []session.Message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s %s\n", m.Role, m.Content)
	}
	return b.String()
}

func stop(t *testing.T, m *machine, want string) {
	t.Helper()
	if m.state.Status != session.Idle || m.state.Stop == nil || m.state.Stop.Type != want {
		t.Fatalf("it is %s, %+v, not idle with %s\n%s", m.state.Status, m.state.Stop, want, describe(m.log))
	}
}

func delivered(log []session.Event) []string {
	var texts []string
	for _, e := range log {
		if e.Type != session.UserMessage || e.Queued {
			continue
		}
		var b struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		}
		if err := json.Unmarshal(e.Body, &b); err == nil {
			texts = append(texts, b.Content[0].Text)
		}
	}
	return texts
}

// C01: the server dies while a call runs. The call is still to be run or accounted for, once.
func TestCallIsOpenAfterACrash(t *testing.T) {
	m := started(t)
	m.answer(allowed("c1"))
	m.state = reloaded(t, m.refold())
	action := m.want(session.RunCalls)
	if len(action.Calls) != 1 || action.Calls[0].ID != "c1" || string(action.Calls[0].Input) != `{"command":"ls"}` {
		t.Fatalf("calls to run after the crash: %+v", action.Calls)
	}
	m.addResult("c1", "The outcome is unknown.")
	m.addResult("c1", "late")
	wantValid(t, m.answer(text("ok")))
	stop(t, m, session.EndTurn)
	m.checked(t)
}

// C02: a call that policy refuses has both halves, and the next turn works.
func TestRefusedCallIsPaired(t *testing.T) {
	m := started(t)
	m.answer(denied("c1"))
	asked := m.answer(text("ok"))
	wantValid(t, asked)
	if last := string(asked[len(asked)-1].Content); !strings.Contains(last, "Permission to use bash has been denied.") || !strings.Contains(last, `"is_error":true`) {
		t.Errorf("the model is told %s", last)
	}
	m.mustAccept(message("again"))
	wantValid(t, m.answer(text("ok")))
	m.checked(t)
}

// C03: a message never comes between a call and its result, and a second result is never given to the model.
func TestMessageWaitsForResults(t *testing.T) {
	m := started(t)
	m.begin()
	m.mustAccept(message("also do X"))
	m.end(session.Answer{Blocks: []session.AnswerBlock{custom("c1")}, Model: "m1"})
	stop(t, m, session.RequiresAction)
	m.mustAccept(customResult("c1", "found"))
	if events := m.mustAccept(customResult("c1", "found twice")); len(events) > 0 {
		t.Errorf("a second result adds %v", types(events))
	}
	asked := m.answer(text("ok"))
	wantValid(t, asked)
	want := `[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"found"}]},{"type":"text","text":"also do X"}]`
	if got := string(asked[len(asked)-1].Content); got != want {
		t.Errorf("the model is asked %s, want %s", got, want)
	}
	m.checked(t)
}

// Messages are delivered in the order in which they were accepted, also when a wait ends with one.
func TestMessagesDoNotOvertake(t *testing.T) {
	for name, inputs := range map[string][]session.Input{
		"result and message":       {customResult("c1", "found"), message("second")},
		"interrupt and message":    {interrupt(), message("second")},
		"result, message, message": {customResult("c1", "found"), message("second"), message("third")},
	} {
		t.Run(name, func(t *testing.T) {
			m := started(t)
			m.begin()
			m.mustAccept(message("first"))
			m.end(session.Answer{Blocks: []session.AnswerBlock{custom("c1")}, Model: "m1"})
			m.mustAccept(inputs...)
			wantValid(t, m.answer(text("ok")))
			want := []string{"hello", "first", "second", "third"}[:len(inputs)+1]
			if diff := cmp.Diff(want, delivered(m.log)); diff != "" {
				t.Errorf("order of delivery (-want +got):\n%s", diff)
			}
			m.checked(t)
		})
	}
	t.Run("approval and message", func(t *testing.T) {
		m := started(t)
		m.answer(asking("c1"))
		m.mustAccept(allow("c1"), message("second"))
		m.addResult("c1", "ran")
		wantValid(t, m.answer(text("ok")))
		m.checked(t)
	})
	t.Run("message, interrupt, message", func(t *testing.T) {
		m := newMachine(t, config())
		m.mustAccept(message("first"), interrupt(), message("second"))
		m.interrupt(nil)
		m.answer(text("ok")) // what came after the interrupt starts a turn
		stop(t, m, session.EndTurn)
		m.checked(t)
	})
	t.Run("interrupt, then message", func(t *testing.T) {
		m := started(t)
		m.begin()
		m.mustAccept(message("first"))
		m.end(session.Answer{Blocks: []session.AnswerBlock{asking("c1")}, Model: "m1"})
		m.mustAccept(interrupt())
		m.mustAccept(message("second")) // before anybody has driven the session
		m.answer(text("ok"))
		if diff := cmp.Diff([]string{"hello", "first", "second"}, delivered(m.log)); diff != "" {
			t.Errorf("order of delivery (-want +got):\n%s", diff)
		}
		m.checked(t)
	})
}

// C05: thinking of another model is not shown to this one, and stays in the log.
func TestThinkingOfAnotherModel(t *testing.T) {
	m := started(t)
	m.answer(thinking("m1", "hm"), text("ok"))
	m.mustAccept(message("again"))
	m.converse("m2")
	asked := m.answer(thinking("m2", "hm"), text("ok"))
	if err := checkMessages(asked, "m2"); err != nil {
		t.Error(err)
	}
	if n := len(slices.DeleteFunc(types(m.log), func(s string) bool { return s != session.AgentThinking })); n != 2 {
		t.Errorf("the log has %d thoughts, want 2", n)
	}
	m.checked(t)
}

// C07: blank text of a tool or the model never reaches the model again.
func TestBlankTextIsLeftOut(t *testing.T) {
	m := started(t)
	m.answer(text(" \n"), allowed("c1"), allowed("c2"))
	step := m.step()
	step.AddResult("c1", session.Result{Content: jsontext.Value(`[{"type":"text","text":""}]`)})
	step.AddResult("c2", session.Result{})
	m.commit(step)
	asked := m.answer(text(""))
	wantValid(t, asked)
	if got := string(asked[2].Content); strings.Count(got, "(no output)") != 2 {
		t.Errorf("empty results are shown as %s", got)
	}
	stop(t, m, session.EndTurn)
	m.mustAccept(message("again"))
	wantValid(t, m.answer(text("ok")))
	m.checked(t)
}

// C08: the provider repeats the id of a call. Ours are unique, and are what the model is shown.
func TestProviderRepeatsIDs(t *testing.T) {
	m := started(t)
	for i := range 3 {
		a, b := allowed(fmt.Sprint("a", i)), allowed(fmt.Sprint("b", i))
		a.Call.Provider, b.Call.Provider = "tool_0", "tool_0"
		m.answer(a, b)
		m.addResult(a.Event, "of "+a.Event)
		m.addResult(b.Event, "of "+b.Event)
	}
	asked := m.answer(text("ok"))
	wantValid(t, asked)
	if all := show(asked); strings.Contains(all, "tool_0") || !strings.Contains(all, `"b2","content":[{"type":"text","text":"of b2"}]`) {
		t.Errorf("the model is asked\n%s", all)
	}
}

// C11: mending a conversation never replaces a result that there is.
func TestMendingKeepsGoodResults(t *testing.T) {
	m := started(t)
	for i := range 10 {
		for j := range 3 {
			if j == 0 {
				m.answer(allowed(fmt.Sprint("a", i)), allowed(fmt.Sprint("b", i)), allowed(fmt.Sprint("c", i)))
			}
			m.addResult(string(rune('c'-j))+fmt.Sprint(i), "good")
		}
	}
	before := m.begin()
	again := session.NewContext("m1", nil)
	m.fold(again, m.log)
	if diff := cmp.Diff(before, again.Messages()); diff != "" {
		t.Errorf("before and after a restart (-before +after):\n%s", diff)
	}
	if strings.Contains(show(before), "not recorded") {
		t.Errorf("a good result was replaced:\n%s", show(before))
	}
}

// A conversation may be looked at while calls are open, and goes on as if it had not been.
func TestLookingAtAConversationDoesNotChangeIt(t *testing.T) {
	m := started(t)
	m.answer(allowed("c1"), allowed("c2"))
	m.addResult("c1", "first")
	m.context.Messages()
	m.addResult("c2", "second")
	asked := m.begin()
	again := session.NewContext("m1", nil)
	m.fold(again, m.log)
	if diff := cmp.Diff(again.Messages(), asked); diff != "" {
		t.Errorf("conversation that was looked at (-not +looked at):\n%s", diff)
	}
}

// C60: of a mixed batch the free call runs at once, and its result is kept until the gated one has one too.
func TestMixedBatchKeepsTheFinishedResult(t *testing.T) {
	m := started(t)
	m.answer(asking("a"), allowed("b"))
	if calls := m.want(session.RunCalls).Calls; len(calls) != 1 || calls[0].ID != "b" {
		t.Fatalf("calls to run: %+v", calls)
	}
	m.addResult("b", "b's output")
	m.want(session.Rest)
	stop(t, m, session.RequiresAction)
	m.state = reloaded(t, m.refold())
	m.mustAccept(allow("a"))
	if calls := m.want(session.RunCalls).Calls; len(calls) != 1 || calls[0].ID != "a" {
		t.Fatalf("calls to run: %+v", calls)
	}
	m.addResult("a", "a's output")
	asked := m.answer(text("ok"))
	wantValid(t, asked)
	want := `[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"a's output"}]},{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"b's output"}]}]`
	if got := string(asked[2].Content); got != want {
		t.Errorf("results are %s, want %s", got, want)
	}
	m.checked(t)
}

// C61: each of several approvals is its own, in any order, and the remainder is said again after each.
func TestApprovalsAreAddressedByID(t *testing.T) {
	batch := []session.AnswerBlock{asking("c1"), asking("c2"), asking("c3"), asking("c4"), asking("c5")}
	decisions := []session.Input{allow("c4"), allow("c1"), allow("c5"), deny("c3", "not that"), allow("c2")}
	ask := func(t *testing.T) *machine {
		m := started(t)
		m.answer(batch...)
		stop(t, m, session.RequiresAction)
		return m
	}
	finish := func(t *testing.T, m *machine) {
		var ran []string
		for m.state.Status == session.Running && !m.state.Settled() {
			for _, c := range m.want(session.RunCalls).Calls {
				ran = append(ran, c.ID)
				m.addResult(c.ID, "ran")
			}
			m.settle()
		}
		if diff := cmp.Diff([]string{"c1", "c2", "c4", "c5"}, ran); diff != "" {
			t.Errorf("calls that ran (-want +got):\n%s", diff)
		}
		asked := m.answer(text("ok"))
		wantValid(t, asked)
		if got := string(asked[2].Content); !strings.Contains(got, "Rejection message: not that") {
			t.Errorf("results are %s", got)
		}
		m.checked(t)
	}
	t.Run("one by one", func(t *testing.T) {
		m := ask(t)
		for i, d := range decisions {
			m.mustAccept(d)
			if left := 4 - i; left > 0 && len(m.state.Stop.EventIDs) != left {
				t.Errorf("after %d decisions it waits for %v", i+1, m.state.Stop.EventIDs)
			}
			if _, _, err := m.accept(d); err == nil {
				t.Errorf("the decision about %s counts twice", d.Call)
			}
		}
		finish(t, m)
	})
	t.Run("at once", func(t *testing.T) {
		m := ask(t)
		m.mustAccept(decisions...)
		finish(t, m)
	})
	t.Run("twice in one request", func(t *testing.T) {
		m := ask(t)
		if _, _, err := m.accept(allow("c1"), deny("c1", "")); err == nil {
			t.Error("a call is allowed and denied in one request")
		}
		m.mustAccept(deny("c1", ""))
		m.checked(t)
	})
}

// C68: after each wait only what is left is run, and the model is asked once more in all.
func TestResumingRepeatsNothing(t *testing.T) {
	m := started(t)
	m.answer(allowed("a"), asking("b"), asking("c"))
	var ran []string
	run := func() {
		for m.state.Status == session.Running {
			action := m.settle()
			if action.Kind != session.RunCalls {
				return
			}
			for _, c := range action.Calls {
				ran = append(ran, c.ID)
				m.addResult(c.ID, "ran")
			}
		}
	}
	for _, d := range []session.Input{{}, allow("b"), allow("c")} {
		if d.Type != "" {
			m.mustAccept(d)
		}
		m.state = reloaded(t, m.refold())
		run()
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, ran); diff != "" {
		t.Errorf("calls that ran (-want +got):\n%s", diff)
	}
	wantValid(t, m.answer(text("ok")))
	if n := m.requests(); n != 2 {
		t.Errorf("the model was asked %d times, want 2", n)
	}
}

func (m *machine) requests() int {
	return len(slices.DeleteFunc(types(m.log), func(s string) bool { return s != session.ModelRequestStart }))
}

// C70: an interrupt closes every open approval, and the next message is taken at once.
func TestInterruptClosesApprovals(t *testing.T) {
	for name, together := range map[string]bool{"one request": true, "two requests": false} {
		t.Run(name, func(t *testing.T) {
			m := started(t)
			m.answer(asking("c1"), asking("c2"), asking("c3"))
			m.mustAccept(allow("c1"), deny("c2", "no"))
			if together {
				m.mustAccept(interrupt(), message("go on"))
			} else {
				m.mustAccept(interrupt())
				stop(t, m, session.EndTurn)
				m.mustAccept(message("go on"))
			}
			wantValid(t, m.answer(text("ok")))
			stop(t, m, session.EndTurn)
			m.checked(t)
		})
	}
	t.Run("late approval", func(t *testing.T) {
		m := started(t)
		m.answer(asking("c1"))
		m.mustAccept(interrupt())
		if _, _, err := m.accept(allow("c1")); err == nil {
			t.Error("a call that was interrupted is approved")
		}
		m.want(session.Rest)
		m.checked(t)
	})
}

// An interrupt ends the turn also when the last answer to it came just before, in the same request.
func TestInterruptAfterTheLastAnswer(t *testing.T) {
	for name, answer := range map[string]session.Input{"result": customResult("c1", "found"), "approval": allow("c1")} {
		t.Run(name, func(t *testing.T) {
			m := started(t)
			block := custom("c1")
			if answer.Type == session.UserToolConfirmation {
				block = asking("c1")
			}
			m.answer(block)
			m.mustAccept(answer, interrupt())
			m.want(session.Rest)
			stop(t, m, session.EndTurn)
			if n := m.requests(); n != 1 {
				t.Errorf("the model was asked %d times, want 1", n)
			}
			m.checked(t)
		})
	}
}

// C72: entries have an order and a time of their own even if the clock stands still or goes back.
func TestTimesIncreaseWhateverTheClock(t *testing.T) {
	m := newMachine(t, config())
	for range 50 {
		m.mustAccept(message("a"), message("b"))
		m.now = m.now.Add(-time.Hour)
	}
	m.checked(t)
}

func TestTimesAreUTCWhateverTheZone(t *testing.T) {
	zone := time.FixedZone("east", 5*3600)
	m := newMachine(t, config())
	m.state = &session.State{}
	for _, e := range m.log {
		e.At = e.At.In(zone)
		if err := m.state.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	m.now = noon.Add(-time.Hour).In(zone)
	m.mustAccept(message("hello"))
	m.checked(t)
}

// A conversation cannot begin with a system.message: the model's API refuses one that does.
func TestSystemMessageDoesNotComeFirst(t *testing.T) {
	m := newMachine(t, config())
	if _, _, err := m.accept(systemMessage("be brief")); err == nil {
		t.Error("a system.message is taken as the first of a conversation")
	}
	m.mustAccept(message("hello"), systemMessage("be brief"))
	wantValid(t, m.answer(text("ok")))
	m.mustAccept(systemMessage("be long"))
	wantValid(t, m.answer(text("ok")))
	m.checked(t)
}

func TestSystemMessagePlace(t *testing.T) {
	for name, inputs := range map[string][]session.Input{
		"not last":             {message("a"), systemMessage("s"), message("b")},
		"twice":                {message("a"), systemMessage("s"), systemMessage("s")},
		"after an interrupt":   {message("a"), interrupt(), systemMessage("s")},
		"after a confirmation": {allow("c1"), systemMessage("s")},
	} {
		m := started(t)
		m.answer(asking("c1"))
		if _, _, err := m.accept(inputs...); err == nil {
			t.Errorf("%s: it is taken", name)
		}
		m.checked(t)
	}
}

// What a client denied, or the server runs, is not answered by a client's result.
func TestResultsAreOnlyTakenForCallsThatWaitForThem(t *testing.T) {
	c := config()
	c.SelfHosted = true
	remote := func(b session.AnswerBlock) session.AnswerBlock {
		b.Call.Remote = true
		return b
	}
	result := func(call string) session.Input {
		return session.Input{Type: session.UserToolResult, Call: call, Content: session.TextContent("done")}
	}
	m := newMachine(t, c)
	m.mustAccept(message("hello"))
	m.answer(remote(asking("c1")), remote(asking("c2")), allowed("c3"), remote(allowed("c4")), custom("c5"))
	m.mustAccept(deny("c1", "no"))
	for _, in := range []session.Input{result("c1"), result("c2"), result("c3"), result("c5"), customResult("c4", "done"), allow("c4"), allow("c5")} {
		if _, _, err := m.accept(in); err == nil {
			t.Errorf("a %s is taken for %s", in.Type, in.Call)
		}
	}
	m.mustAccept(result("c4"), customResult("c5", "done"))
	m.checked(t)
}

// A driver that does not know whether its last step was appended logs the outcome of its request again.
func TestOutcomeIsLoggedOnce(t *testing.T) {
	answer := session.Answer{Blocks: []session.AnswerBlock{text("ok"), allowed("c1")}, Model: "m1"}
	failure := session.Failure{Type: "model_overloaded_error", Message: "overloaded"}
	for name, log := range map[string]func(*session.Step){
		"answer":    func(s *session.Step) { s.EndRequest(answer) },
		"refusal":   func(s *session.Step) { s.EndRequest(session.Answer{StopReason: session.Refusal, Model: "m1"}) },
		"retry":     func(s *session.Step) { s.RetryRequest(session.Usage{}, failure, noon.Add(time.Minute)) },
		"failure":   func(s *session.Step) { s.FailTurn(session.Usage{}, failure) },
		"abandoned": func(s *session.Step) { s.AbandonRequest() },
	} {
		t.Run(name, func(t *testing.T) {
			m := started(t)
			m.begin()
			step := m.step()
			log(step)
			m.commit(step)
			step = m.step()
			log(step)
			if events := m.commit(step); len(events) > 0 {
				t.Errorf("the second time adds %v", types(events))
			}
			m.checked(t)
		})
	}
}

// FailTurn also ends a turn that has no request open, as after a panic of its driver.
func TestFailTurnWithoutARequest(t *testing.T) {
	m := started(t)
	m.answer(allowed("c1"))
	m.mustAccept(message("queued"))
	step := m.step()
	step.FailTurn(session.Usage{}, session.Failure{Type: "unknown_error", Message: "internal error"})
	m.commit(step)
	stop(t, m, session.RetriesExhausted)
	m.checked(t)
}

// A turn that fails while an interrupt waits has been interrupted: it is not ended a second time.
func TestFailTurnAppliesAWaitingInterrupt(t *testing.T) {
	m := started(t)
	m.begin()
	m.mustAccept(interrupt())
	step := m.step()
	step.FailTurn(session.Usage{}, session.Failure{Type: "unknown_error", Message: "internal error"})
	m.commit(step)
	m.want(session.Rest)
	m.mustAccept(message("go on"))
	m.answer(text("ok"))
	stop(t, m, session.EndTurn)
	m.checked(t)
}

// Nothing is logged after the end of a session.
func TestNothingFollowsTheEnd(t *testing.T) {
	title := "late"
	for name, end := range map[string]func(*session.Step) error{"archived": (*session.Step).Archive, "deleted": (*session.Step).Delete} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, config())
			step := m.step()
			if err := end(step); err != nil {
				t.Fatal(err)
			}
			m.commit(step)
			if _, _, err := m.accept(message("hello")); err == nil {
				t.Error("a message is taken")
			}
			step = m.step()
			if err := step.Update(session.Change{Retitle: true, Title: &title}); err == nil {
				t.Error("an update is taken")
			}
			step = m.step()
			if err := step.SetResources(nil); err == nil {
				t.Error("resources are changed")
			}
			step = m.step()
			_ = step.Archive() // archiving twice is harmless: it adds nothing
			if len(step.Events) > 0 {
				t.Errorf("archiving adds %v", types(step.Events))
			}
		})
	}
	t.Run("deleted twice", func(t *testing.T) {
		m := newMachine(t, config())
		step := m.step()
		if err := step.Delete(); err != nil {
			t.Fatal(err)
		}
		m.commit(step)
		step = m.step()
		_ = step.Delete()
		if len(step.Events) > 0 {
			t.Errorf("deleting again adds %v", types(step.Events))
		}
	})
}

// A log that this package did not write is refused, not guessed at.
func TestApplyRefusesWhatItDidNotWrite(t *testing.T) {
	m := started(t)
	for name, e := range map[string]session.Event{
		"a gap":              {Seq: 9, Type: session.StatusRunning},
		"a repetition":       {Seq: 4, Type: session.StatusRunning},
		"another beginning":  {Seq: 5, Type: "perdure.created", Private: m.log[0].Private},
		"a call that is not": {Seq: 5, Type: session.AgentToolUse, Body: jsontext.Value(`[]`)},
		"an idle without":    {Seq: 5, Type: session.StatusIdle},
		"a duplicate member": {Seq: 5, Type: session.UserToolConfirmation, Body: jsontext.Value(`{"tool_use_id":"a","tool_use_id":"b"}`)},
	} {
		s := m.state.Clone()
		if err := s.Apply(e); err == nil {
			t.Errorf("%s: it is applied", name)
		}
		sameState(t, name+": state after the refusal", m.state, s)
	}
	if err := (&session.State{}).Apply(session.Event{Seq: 1, Type: session.StatusRunning}); err == nil {
		t.Error("a log that does not begin with its creation is applied")
	}
}

// A log with holes is read so that the model's API takes it.
func TestConversationIsMended(t *testing.T) {
	entries := []session.Event{
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"hello"}]}`)},
		{Type: session.AgentToolUse, ID: "c1", Body: jsontext.Value(`{"name":"bash","input":null}`)},
		{Type: session.AgentToolUse, ID: "c2", Body: jsontext.Value(`{"name":"bash","input":"cut"}`)},
		{Type: session.AgentToolUse, ID: "c3", Body: jsontext.Value(`{"name":"bash"}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c8","content":[{"type":"text","text":"of nothing"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c9","content":[{"type":"text","text":"of nothing"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c2","content":[{"type":"text","text":"first"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c2","content":[{"type":"text","text":"second"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c1","content":[{"type":"text","text":"in time"}]}`)},
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"between"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c3","content":[{"type":"text","text":"late"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c9","content":[{"type":"text","text":"of nothing"}]}`)},
		{Type: session.AgentMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":" "}]}`)},
		{Type: session.AgentThinking, Private: jsontext.Value(`{"model":"m1","block":{"type":"thinking","signature":"signed by m1"}}`)},
		{Type: session.ModelRequestEnd},
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"\t"},{"type":"text","text":"last"}]}`)},
	}
	c := session.NewContext("m1", nil)
	for i, e := range entries {
		e.Seq = int64(i) + 1
		if err := c.Fold(e); err != nil {
			t.Fatal(err)
		}
	}
	wantValid(t, c.Messages())
	if all := show(c.Messages()); strings.Contains(all, "nothing") || strings.Contains(all, "second") || strings.Contains(all, "late") || !strings.Contains(all, "first") || !strings.Contains(all, "in time") {
		t.Errorf("results that answer nothing are shown, or a good one is not:\n%s", all)
	}
}

// A request that begins while a call lacks its result, which only a log with a hole has, shows one.
func TestRequestWithAnOpenCallIsMended(t *testing.T) {
	c := session.NewContext("m1", nil)
	for i, e := range []session.Event{
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"hello"}]}`)},
		{Type: session.AgentToolUse, ID: "c1", Body: jsontext.Value(`{"name":"bash","input":{}}`)},
		{Type: session.ModelRequestStart},
	} {
		e.Seq = int64(i) + 1
		if err := c.Fold(e); err != nil {
			t.Fatal(err)
		}
	}
	wantValid(t, c.Messages())
}

// What a request was made of stays as it was while the log goes on.
func TestMessagesDoNotChange(t *testing.T) {
	m := started(t)
	asked := m.begin()
	before := show(asked)
	step := m.step()
	step.RetryRequest(session.Usage{}, session.Failure{Type: "unknown_error"}, noon)
	m.commit(step)
	m.mustAccept(message("more"))
	step = m.step()
	step.Resume()
	m.commit(step)
	m.answer(text("ok"))
	if after := show(asked); after != before {
		t.Errorf("the messages of a request became\n%swere\n%s", after, before)
	}
}

// Each call is in exactly one situation.
func TestCallsAreInOneSituation(t *testing.T) {
	for _, permission := range []string{"allow", "ask", "deny"} {
		for _, confirmed := range []string{"", "allow", "deny"} {
			if confirmed != "" && permission != "ask" {
				continue
			}
			for _, remote := range []bool{false, true} {
				for _, answered := range []bool{false, true} {
					c := session.Call{Permission: permission, Confirmed: confirmed, Remote: remote, Answered: answered}
					n := 0
					for _, is := range []bool{c.Answered, c.Waiting(), c.Runnable(), c.Refused()} {
						if is {
							n++
						}
					}
					if n != 1 {
						t.Errorf("%+v: answered %t, waiting %t, runnable %t, refused %t", c, c.Answered, c.Waiting(), c.Runnable(), c.Refused())
					}
				}
			}
		}
	}
	if c := (session.Call{Type: session.AgentCustomToolUse, Remote: true}); !c.Waiting() || c.Runnable() || c.Refused() {
		t.Errorf("a custom call does not wait: %+v", c)
	}
}

// An answer of nothing but thinking leaves nothing in the conversation, neither then nor later.
func TestThinkingAloneIsLeftOut(t *testing.T) {
	m := started(t)
	m.answer(thinking("m1", "lonely"))
	m.mustAccept(message("again"))
	m.answer(thinking("m1", "useful"), text("ok"), thinking("m1", "trailing"))
	m.mustAccept(message("and again"))
	asked := m.begin()
	wantValid(t, asked)
	if all := show(asked); strings.Contains(all, "lonely") || strings.Contains(all, "trailing") || !strings.Contains(all, "useful") {
		t.Errorf("the model is asked\n%s", all)
	}
}

// A turn is bounded, also across the waits in it.
func TestTurnsAreBounded(t *testing.T) {
	cut := func(id string) session.AnswerBlock {
		b := allowed(id)
		b.Call.Refusal, b.Call.Cut = "cut off", true
		return b
	}
	t.Run("answers", func(t *testing.T) {
		m := started(t)
		m.limits.Requests = 3
		for i := range 3 {
			id := fmt.Sprint("c", i)
			m.answer(custom(id))
			m.mustAccept(customResult(id, "found"))
		}
		m.want(session.Rest)
		stop(t, m, session.RetriesExhausted)
		m.mustAccept(message("go on"))
		m.answer(text("ok"))
		stop(t, m, session.EndTurn)
		m.checked(t)
	})
	t.Run("calls that are cut off", func(t *testing.T) {
		m := started(t)
		m.limits.Truncated = 2
		m.answer(cut("c1"))
		m.answer(allowed("c2"))
		m.addResult("c2", "ran")
		m.answer(cut("c3"))
		m.answer(cut("c4"))
		stop(t, m, session.RetriesExhausted)
		m.checked(t)
	})
	t.Run("requests that are lost", func(t *testing.T) {
		m := started(t)
		m.limits.Lost = 2
		abandon := func() {
			m.begin()
			step := m.step()
			step.AbandonRequest()
			m.commit(step)
		}
		abandon()
		m.answer(allowed("c1"))
		m.addResult("c1", "ran")
		abandon()
		abandon()
		m.want(session.Rest)
		stop(t, m, session.RetriesExhausted)
		m.checked(t)
	})
}

// A message that comes while the model refuses starts the next turn.
func TestMessageDuringARefusal(t *testing.T) {
	m := started(t)
	m.begin()
	m.mustAccept(message("something else"))
	m.end(session.Answer{StopReason: session.Refusal, Model: "m1"})
	wantValid(t, m.answer(text("ok")))
	stop(t, m, session.EndTurn)
	m.checked(t)
}

// A step leaves the state that it is built on as it was, whatever it does.
func TestStepsDoNotShareTheirState(t *testing.T) {
	m := started(t)
	m.begin()
	for range 5 {
		m.mustAccept(message("queued"))
		before := reloaded(t, m.state)
		step := m.step()
		step.FailTurn(session.Usage{}, session.Failure{Type: "unknown_error"})
		other := m.step()
		if _, err := other.Accept(m, []session.Input{message("x")}); err != nil {
			t.Fatal(err)
		}
		sameState(t, "the state that two steps were built on", before, m.state)
	}
	m.end(session.Answer{Blocks: []session.AnswerBlock{asking("c1"), asking("c2")}, Model: "m1"})
	before := reloaded(t, m.state)
	step := m.step()
	if _, err := step.Accept(m, []session.Input{deny("c1", "no"), interrupt()}); err != nil {
		t.Fatal(err)
	}
	sameState(t, "the state that a step was built on", before, m.state)
}

// Many blocks cost what they weigh, not their square.
func TestLargeMessageIsFoldedInLinearTime(t *testing.T) {
	block := object("type", "text", "text", strings.Repeat("x", 20_000))
	body := append([]byte(`{"content":[`), slices.Repeat(append(slices.Clone(block), ','), 999)...)
	body = append(append(body, block...), `]}`...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := session.NewContext("m1", nil)
	if err := c.Fold(session.Event{Seq: 1, Type: session.UserMessage, Body: body}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 20*uint64(len(body)) {
		t.Errorf("folding %d bytes allocates %d", len(body), allocated)
	}
}

func outcome(max int) session.Input {
	return session.Input{Type: session.UserDefineOutcome, Description: "a report", Rubric: "it has a title", Max: max}
}

// evaluate has the outcome judged, which must be what comes next.
func (m *machine) evaluate(result string) {
	m.t.Helper()
	m.want(session.Evaluate)
	step := m.step()
	step.BeginEvaluation()
	m.commit(step)
	step = m.step()
	step.EndEvaluation(result, "because", usage())
	step.Settle(m.limits)
	m.commit(step)
}

// An outcome that is defined while the model answers is shown to the model before it is judged, and does not change what
// the model was asked.
func TestOutcomeDuringARequest(t *testing.T) {
	m := started(t)
	before := m.begin()
	m.mustAccept(outcome(0))
	m.end(session.Answer{Blocks: []session.AnswerBlock{text("ok")}, Model: "m1"})
	asked := m.answer(text("here is the report"))
	wantValid(t, asked)
	if err := checkPrefix(before, asked); err != nil {
		t.Error(err)
	}
	if last := asked[len(asked)-1]; !strings.Contains(string(last.Content), "it has a title") {
		t.Errorf("the model is asked\n%s", show(asked))
	}
	m.evaluate(session.OutcomeSatisfied)
	stop(t, m, session.EndTurn)
	m.checked(t)
}

// A message that comes while an outcome is judged waits until it was.
func TestMessageDuringAnEvaluation(t *testing.T) {
	m := newMachine(t, config())
	m.mustAccept(outcome(0))
	m.answer(text("here is the report"))
	m.want(session.Evaluate)
	step := m.step()
	step.BeginEvaluation()
	m.commit(step)
	m.mustAccept(message("also a date"))
	m.evaluate(session.OutcomeNeedsRevision)
	asked := m.answer(text("with a date"))
	wantValid(t, asked)
	if last := string(asked[len(asked)-1].Content); !strings.Contains(last, "because") || !strings.Contains(last, "also a date") {
		t.Errorf("the model is asked %s", last)
	}
	m.evaluate(session.OutcomeSatisfied)
	stop(t, m, session.EndTurn)
	m.checked(t)
}

// A grader's finding counts once, though it may be logged again by a driver that does not know whether it was.
func TestEvaluationCountsOnce(t *testing.T) {
	m := newMachine(t, config())
	m.mustAccept(outcome(3))
	m.answer(text("a draft"))
	m.evaluate(session.OutcomeNeedsRevision)
	step := m.step()
	step.EndEvaluation(session.OutcomeNeedsRevision, "because", usage())
	if events := m.commit(step); len(events) > 0 {
		t.Errorf("the second time adds %v", types(events))
	}
}

// The last evaluation ends the outcome, after the agent has said so.
func TestOutcomeIsBounded(t *testing.T) {
	m := newMachine(t, config())
	m.mustAccept(outcome(2))
	m.answer(text("a draft"))
	m.evaluate(session.OutcomeNeedsRevision)
	if _, _, err := m.accept(outcome(1)); err == nil {
		t.Error("a second outcome is taken while one is worked on")
	}
	m.answer(text("another draft"))
	m.evaluate(session.OutcomeNeedsRevision)
	m.answer(text("not done"))
	stop(t, m, session.EndTurn)
	if o := m.state.Outcomes[0]; o.Result != session.OutcomeMaxIterations || o.Completed.IsZero() || o.Iteration != 1 {
		t.Errorf("the outcome is %+v", o)
	}
	m.mustAccept(outcome(1))
	m.checked(t)
}

// A running evaluation is not cut off by the budget, and an interrupt ends it with the outcome.
func TestOutcomeIsInterrupted(t *testing.T) {
	m := newMachine(t, config())
	m.mustAccept(outcome(0))
	m.answer(text("a draft"))
	m.want(session.Evaluate)
	step := m.step()
	step.BeginEvaluation()
	m.commit(step)
	m.mustAccept(interrupt())
	m.interrupt(nil)
	stop(t, m, session.EndTurn)
	if o := m.state.Outcomes[0]; o.Result != session.OutcomeInterrupted || o.Completed.IsZero() {
		t.Errorf("the outcome is %+v", o)
	}
	m.mustAccept(message("go on"))
	wantValid(t, m.answer(text("ok")))
	stop(t, m, session.EndTurn)
	m.checked(t)
}

// An interrupt of a session that waits for the client ends the outcome too.
func TestOutcomeIsInterruptedWhileWaiting(t *testing.T) {
	m := newMachine(t, config())
	m.mustAccept(outcome(0))
	m.answer(asking("c1"))
	m.mustAccept(interrupt())
	stop(t, m, session.EndTurn)
	if m.state.Outcome() != nil || m.state.Outcomes[0].Result != session.OutcomeInterrupted {
		t.Errorf("the outcomes are %+v", m.state.Outcomes)
	}
	m.checked(t)
}

func TestBudgetDoesNotCutAnEvaluation(t *testing.T) {
	c := config()
	c.BudgetCents = 8
	m := newMachine(t, c)
	m.mustAccept(outcome(0))
	m.answer(text("a draft"))
	m.want(session.Evaluate)
	step := m.step()
	step.BeginEvaluation()
	m.commit(step)
	m.now = m.now.Add(2 * time.Hour)
	step = m.step()
	title := "an entry of the log, to which running time counts"
	if err := step.Update(session.Change{Retitle: true, Title: &title}); err != nil {
		t.Fatal(err)
	}
	m.commit(step)
	m.evaluate(session.OutcomeSatisfied)
	stop(t, m, session.EndTurn)
	m.checked(t)
}
