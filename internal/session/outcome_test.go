package session_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/session"
)

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

// An interrupt ends the evaluation that is under way, and the outcome with it.
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

// An evaluation that was begun within the budget is ended, though it has been used up meanwhile.
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
