package session_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/session"
)

// seeds are the entries of a session in which much happened.
func seeds(f *testing.F) []session.Event {
	m := newMachine(f, config())
	m.mustAccept(message("hello"), systemMessage("be brief"))
	m.answer(thinking("m1", "hm"), text("ok"), asking("c1"), custom("c2"), call("c3", session.AgentMCPToolUse, "allow"))
	m.addResult("c3", "found")
	m.settle()
	m.mustAccept(deny("c1", "no"), customResult("c2", "two"))
	m.begin()
	step := m.step()
	step.RetryRequest(session.Usage{}, session.Failure{Type: "unknown_error", Message: "again"}, noon)
	m.commit(step)
	m.mustAccept(message("queued"), interrupt())
	m.interrupt(nil)
	step = m.step()
	title := "t"
	if err := step.Update(session.Change{Retitle: true, Title: &title}); err != nil {
		f.Fatal(err)
	}
	m.commit(step)
	return m.log
}

// FuzzApply folds an entry with any body and any private part into a session at work. It never panics; an entry that is
// refused changes nothing; one that is taken leaves a state that can be stored, and decided about.
func FuzzApply(f *testing.F) {
	for _, e := range seeds(f) {
		f.Add(e.Type, e.ID, []byte(e.Body), []byte(e.Private), e.Queued)
	}
	f.Fuzz(func(t *testing.T, kind, id string, body, private []byte, queued bool) {
		m := newMachine(t, config())
		m.mustAccept(message("hello"))
		m.answer(asking("c1"), allowed("c2"))
		m.addResult("c2", "two")
		e := session.Event{
			Seq: m.state.Seq + 1, ID: id, Type: kind, At: m.state.At.Add(time.Second),
			Body: jsontext.Value(body), Private: jsontext.Value(private), Queued: queued,
		}
		state := m.state.Clone()
		if err := state.Apply(e); err != nil {
			sameState(t, "state after an entry that is refused", m.state, state)
			return
		}
		if state.Config == nil {
			t.Fatal("the config is gone")
		}
		session.Decide(state, m.limits)
		session.NewView(state, m.now)
		state.OverBudget()
		_, _ = session.NewStep(state, m.now).Accept(m, []session.Input{message("more"), allow("c1")})
	})
}

// FuzzContext folds two entries with any content into a conversation. It never panics, and what comes of it does not
// depend on whether it is folded at once.
func FuzzContext(f *testing.F) {
	all := seeds(f)
	for i, e := range all[1:] {
		f.Add(all[i].Type, all[i].ID, []byte(all[i].Body), []byte(all[i].Private), e.Type, e.ID, []byte(e.Body), []byte(e.Private))
	}
	f.Fuzz(func(t *testing.T, kind1, id1 string, body1, private1 []byte, kind2, id2 string, body2, private2 []byte) {
		log := []session.Event{
			{Seq: 1, Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"hello"}]}`)},
			{Seq: 2, Type: session.ModelRequestStart},
			{Seq: 3, Type: kind1, ID: id1, Body: body1, Private: private1},
			{Seq: 4, Type: kind2, ID: id2, Body: body2, Private: private2},
			{Seq: 5, Type: session.ModelRequestEnd},
			{Seq: 6, Type: session.ModelRequestStart},
		}
		step := session.NewContext("m1", resolveFile)
		for _, e := range log {
			if step.Fold(e) != nil {
				return
			}
			step.Messages()
		}
		whole := session.NewContext("m1", resolveFile)
		if err := whole.Fold(log...); err != nil {
			t.Fatalf("it can be folded step by step, and not at once: %v", err)
		}
		if diff := cmp.Diff(whole.Messages(), step.Messages()); diff != "" {
			t.Errorf("at once and step by step (-at once +step by step):\n%s", diff)
		}
		for _, m := range whole.Messages() {
			if !m.Content.IsValid() {
				t.Errorf("content is not valid JSON: %q", m.Content)
			}
		}
	})
}
