package session

import (
	"maps"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
)

func newEventID() string { return id.New(id.Event) }

// Change is what the owner of a session changes in it. Members that are nil are left as they are.
type Change struct {
	Retitle   bool
	Title     *string            // with Retitle: nil clears
	Metadata  map[string]*string // merged; nil deletes a key
	Agent     jsontext.Value     // the whole agent, as served in the session
	Rebudget  bool
	BudgetCap int64 // with Rebudget: cents; 0 removes the budget
}

// Update applies a change. A change that changes nothing adds nothing. A budget that no longer binds lets paused work go
// on.
func (s *Step) Update(change Change) error {
	state := s.State
	if state.Status == Terminated || state.Deleted {
		return problem.Invalidf("Session %s is terminated and cannot be updated.", state.Config.ID)
	}
	type fields struct {
		Title    **string          `json:"title,omitzero"`
		Metadata map[string]string `json:"metadata,omitempty"`
		Agent    jsontext.Value    `json:"agent,omitzero"`
		Budget   **BudgetView      `json:"budget,omitzero"`
	}
	var f fields
	var private configChange
	changed := false
	if change.Retitle && !equalText(change.Title, state.Config.Title) {
		private.Retitled, private.Title = true, change.Title
		f.Title, changed = &change.Title, true
	}
	if merged := mergeMetadata(state.Config.Metadata, change.Metadata); !maps.Equal(merged, state.Config.Metadata) {
		private.Metadata, f.Metadata, changed = &merged, merged, true
	}
	if change.Agent != nil && string(change.Agent) != string(state.Config.Agent) {
		if state.Status != Idle {
			return problem.Invalidf("agent: the tools of session %s can be changed only while it is idle; it is %s", state.Config.ID, state.Status)
		}
		private.Agent, f.Agent, changed = change.Agent, change.Agent, true
	}
	if change.Rebudget && change.BudgetCap != state.Config.BudgetCents {
		if err := s.checkBudget(change.BudgetCap); err != nil {
			return err
		}
		private.BudgetCents, changed = &change.BudgetCap, true
		c := Config{BudgetCents: change.BudgetCap}
		budget := NewBudgetView(&c)
		f.Budget = &budget
	}
	if !changed {
		return s.err
	}
	s.add(entry{kind: SessionUpdated, fields: f, private: private})
	if s.err == nil && state.Status == Idle && state.Stop != nil && state.Stop.Type == BudgetReached && !state.OverBudget() {
		s.run()
	}
	return s.err
}

func (s *Step) checkBudget(cents int64) error {
	switch {
	case cents == 0:
		return nil
	case !s.State.Config.Budgeted():
		return problem.Invalidf("budget: a budget can be set only when a session is created").WithCode("budget_create_only")
	case Cents(cents) <= s.State.CostAt(s.nextTime()):
		return problem.Invalidf("budget.max_list_cost must be greater than the session's consumed list cost").WithCode("budget_not_raised")
	}
	return nil
}

func equalText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func mergeMetadata(current map[string]string, patch map[string]*string) map[string]string {
	merged := maps.Clone(current)
	for k, v := range patch {
		if v == nil {
			delete(merged, k)
			continue
		}
		if merged == nil {
			merged = map[string]string{}
		}
		merged[k] = *v
	}
	return merged
}

// SetResources replaces the list of the session's resources.
func (s *Step) SetResources(resources []jsontext.Value) error {
	if s.State.Status == Terminated || s.State.Deleted {
		return problem.Invalidf("Session %s is terminated; its resources cannot be changed.", s.State.Config.ID)
	}
	if resources == nil {
		resources = []jsontext.Value{}
	}
	s.add(entry{kind: resourcesChanged, hidden: true, private: resources})
	return s.err
}

// Archive ends the session for good and keeps its history.
func (s *Step) Archive() error {
	switch s.State.Status {
	case Terminated, Deleted:
		return s.err
	case Running, Rescheduling:
		return problem.Invalidf(`Session %s cannot be archived while its status is "%s". Only pending or idle sessions may be archived.`, s.State.Config.ID, s.State.Status)
	}
	s.endOutcome(Usage{})
	s.add(entry{kind: ThreadStatusTerminated, thread: true, fields: s.threadStatus()})
	s.add(entry{kind: StatusTerminated})
	return s.err
}

// Delete logs the last event of a session, which ends the streams that follow it, and is the intent to erase it.
func (s *Step) Delete() error {
	if s.State.Status == Running || s.State.Status == Rescheduling {
		return problem.Invalidf("Cannot delete session while it is running. Send an interrupt event or wait for the session to complete.")
	}
	if !s.State.Deleted {
		s.add(entry{kind: SessionDeleted})
	}
	return s.err
}
