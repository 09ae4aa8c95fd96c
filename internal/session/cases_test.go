package session_test

import (
	"fmt"
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
