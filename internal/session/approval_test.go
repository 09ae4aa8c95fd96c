package session_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/session"
)

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
