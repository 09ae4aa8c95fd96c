package session

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// State is the fold of a log: all that is needed to decide what comes next. It is small, whatever the length of the log.
// The zero State is that of an empty log.
type State struct {
	Seq    int64       `json:"seq"` // of the last entry folded in
	At     time.Time   `json:"at"`  // of the last entry folded in
	Status Status      `json:"status"`
	Stop   *StopReason `json:"stop,omitzero"` // set while idle after work
	// Queue holds the messages that were accepted and have not been delivered, in order.
	Queue []Queued `json:"queue,omitzero"`
	// Interrupt is an interrupt that was accepted and has not been applied.
	Interrupt *Queued `json:"interrupt,omitzero"`
	// Request is the model request that was begun and has not ended.
	Request *Attempt `json:"request,omitzero"`
	// Calls are those of the last answer, until all have results and the model is asked again.
	Calls []Call `json:"calls,omitzero"`
	// Unanswered says that the conversation ends with something that the model has not answered.
	Unanswered bool `json:"unanswered,omitzero"`
	// Requests counts the model's answers in this turn, Truncated those in a row that were cut off in a call, Failures
	// the failed attempts in a row, and Lost the attempts in a row whose maker died.
	Requests  int `json:"requests,omitzero"`
	Truncated int `json:"truncated,omitzero"`
	Failures  int `json:"failures,omitzero"`
	Lost      int `json:"lost,omitzero"`
	// RetryAt is when the next attempt is due, while rescheduling.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Outcomes are those that were defined, the oldest first. Only the last can be unfinished.
	Outcomes []Outcome `json:"outcomes,omitzero"`

	Usage        Usage     `json:"usage"`
	ActiveNanos  int64     `json:"active_nanos"`           // running time, without the present run
	RunningSince time.Time `json:"running_since,omitzero"` // zero if not running
	Begun        bool      `json:"begun,omitzero"`         // it has run
	Paused       bool      `json:"paused,omitzero"`        // it has been idle after running
	Updated      time.Time `json:"updated"`
	Archived     time.Time `json:"archived,omitzero"`
	Deleted      bool      `json:"deleted,omitzero"`

	// Config is kept beside the state and not in it, because it is large and changes seldom.
	Config *Config `json:"-"`
}

// Clone returns a state that can be advanced without changing s.
func (s *State) Clone() *State {
	c := *s
	c.Queue = slices.Clone(s.Queue)
	c.Calls = slices.Clone(s.Calls)
	c.Outcomes = slices.Clone(s.Outcomes)
	return &c
}

// Settled reports whether every call of the last answer has its result.
func (s *State) Settled() bool {
	return !slices.ContainsFunc(s.Calls, func(c Call) bool { return !c.Answered })
}

// Waiting returns the ids of the calls that cannot go on without a client, in the order of the log.
func (s *State) Waiting() []string {
	var ids []string
	for _, c := range s.Calls {
		if c.Waiting() {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// call returns the call with this id, if it belongs to the last answer.
func (s *State) call(id string) *Call {
	for i := range s.Calls {
		if s.Calls[i].ID == id {
			return &s.Calls[i]
		}
	}
	return nil
}

// RunningTime is how long the session had run at a time.
func (s *State) RunningTime(at time.Time) time.Duration {
	if s.RunningSince.IsZero() || at.Before(s.RunningSince) {
		return time.Duration(s.ActiveNanos)
	}
	return time.Duration(s.ActiveNanos) + at.Sub(s.RunningSince)
}

// CostAt is the list cost at a time: requests and running time.
func (s *State) CostAt(at time.Time) Cost {
	return s.Usage.Cost + RuntimeCost(s.RunningTime(at), s.Config.RuntimeRate)
}

// OverBudget reports whether no further model request may be made. Running time counts up to the last entry, so that
// the answer is a function of the log.
func (s *State) OverBudget() bool {
	if !s.Config.Budgeted() {
		return false
	}
	return s.Usage.Unpriced > 0 || s.CostAt(s.At) >= Cents(s.Config.BudgetCents)
}

// Fold applies events in order.
func (s *State) Fold(events ...Event) error {
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return err
		}
	}
	return nil
}

// Apply folds in the next entry. An error means that the log is not one that this package wrote: the session cannot be
// driven until that is understood.
func (s *State) Apply(e Event) error {
	if e.Seq != s.Seq+1 {
		return fmt.Errorf("session: entry %d follows entry %d of the log", e.Seq, s.Seq)
	}
	if (s.Config == nil) != (e.Type == created) {
		return fmt.Errorf("session: entry %d of the log is %s", e.Seq, e.Type)
	}
	e.At = e.At.UTC()
	if err := s.apply(e); err != nil {
		return fmt.Errorf("session: entry %d (%s %s): %w", e.Seq, e.Type, e.ID, err)
	}
	s.Seq, s.At = e.Seq, e.At
	return nil
}

func (s *State) apply(e Event) error {
	switch e.Type {
	case created:
		var c Config
		if err := json.Unmarshal(e.Private, &c); err != nil {
			return err
		}
		s.Config, s.Status, s.Updated = &c, Idle, e.At
	case resourcesChanged:
		c := *s.Config
		c.Resources = nil
		if err := json.Unmarshal(e.Private, &c.Resources); err != nil {
			return err
		}
		s.Config, s.Updated = &c, e.At
	case UserMessage, SystemMessage:
		return s.applyMessage(e)
	case UserInterrupt:
		if e.Queued {
			var body struct {
				Thread string `json:"session_thread_id"`
			}
			if err := json.Unmarshal(e.Body, &body); err != nil {
				return err
			}
			s.Interrupt = &Queued{Seq: e.Seq, ID: e.ID, Type: e.Type, Thread: body.Thread}
		} else if s.Interrupt != nil && s.Interrupt.ID == e.ID {
			s.Interrupt = nil
		}
	case UserToolConfirmation:
		return s.applyConfirmation(e)
	case AgentToolUse, AgentMCPToolUse, AgentCustomToolUse:
		return s.applyCall(e)
	case AgentToolResult, AgentMCPToolResult, UserToolResult, UserCustomToolResult:
		id, err := answeredCall(e)
		if err != nil {
			return err
		}
		if c := s.call(id); c != nil {
			c.Answered, c.Input = true, nil
		}
		if e.Private != nil {
			var private resultPrivate
			if err := json.Unmarshal(e.Private, &private); err != nil {
				return err
			}
			s.Usage.Add(private.Usage)
		}
	case ModelRequestStart:
		s.Request, s.Unanswered = &Attempt{ID: e.ID, At: e.At}, true
		s.Calls = nil
		if o := s.Outcome(); o != nil && o.Result == OutcomePending {
			o.Result = OutcomeRunning
		}
	case UserDefineOutcome:
		return s.applyOutcome(e)
	case OutcomeEvaluationStart, OutcomeEvaluationEnd:
		return s.applyEvaluation(e)
	case ModelRequestEnd:
		return s.applyRequestEnd(e)
	case StatusRunning:
		s.Status, s.Stop, s.RetryAt = Running, nil, time.Time{}
		s.RunningSince, s.Begun = e.At, true
	case StatusRescheduled:
		var private rescheduled
		if err := json.Unmarshal(e.Private, &private); err != nil {
			return err
		}
		s.stopClock(e.At)
		s.Status, s.RetryAt = Rescheduling, private.Until
	case StatusIdle:
		var body struct {
			Stop StopReason `json:"stop_reason"`
		}
		if err := json.Unmarshal(e.Body, &body); err != nil {
			return err
		}
		s.stopClock(e.At)
		s.Status, s.Stop, s.Paused, s.RetryAt = Idle, &body.Stop, true, time.Time{}
		if body.Stop.Type != RequiresAction {
			s.Requests, s.Truncated, s.Failures, s.Lost = 0, 0, 0, 0
		}
	case StatusTerminated:
		s.stopClock(e.At)
		s.Status, s.Stop, s.Archived, s.RetryAt = Terminated, nil, e.At, time.Time{}
		s.Queue, s.Interrupt, s.Request, s.Updated = nil, nil, nil, e.At
	case SessionUpdated:
		return s.applyUpdate(e)
	case SessionDeleted:
		s.Status, s.Deleted = Deleted, true
	}
	return nil
}

func (s *State) stopClock(at time.Time) {
	s.ActiveNanos = s.RunningTime(at).Nanoseconds()
	s.RunningSince = time.Time{}
}

func (s *State) applyMessage(e Event) error {
	if e.Queued {
		var body struct {
			Content jsontext.Value `json:"content"`
		}
		if err := json.Unmarshal(e.Body, &body); err != nil {
			return err
		}
		s.Queue = append(s.Queue, Queued{Seq: e.Seq, ID: e.ID, Type: e.Type, Content: body.Content})
		return nil
	}
	s.Queue = slices.DeleteFunc(s.Queue, func(q Queued) bool { return q.ID == e.ID })
	s.Unanswered = true
	return nil
}

func (s *State) applyConfirmation(e Event) error {
	var body struct {
		Call    string `json:"tool_use_id"`
		Result  string `json:"result"`
		Message string `json:"deny_message"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	if c := s.call(body.Call); c != nil && c.Confirmed == "" {
		c.Confirmed, c.DenyMessage = body.Result, body.Message
	}
	return nil
}

func (s *State) applyCall(e Event) error {
	var body struct {
		Name       string         `json:"name"`
		Input      jsontext.Value `json:"input"`
		Permission string         `json:"evaluated_permission"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	call := Call{ID: e.ID, Type: e.Type, Name: body.Name, Permission: body.Permission, Input: body.Input}
	if e.Private != nil {
		var private callPrivate
		if err := json.Unmarshal(e.Private, &private); err != nil {
			return err
		}
		call.Remote = private.Remote
	}
	s.Calls = append(s.Calls, call)
	return nil
}

func (s *State) applyRequestEnd(e Event) error {
	var private requestEnd
	if err := json.Unmarshal(e.Private, &private); err != nil {
		return err
	}
	s.Request = nil
	s.Usage.Add(private.Usage)
	switch {
	case private.Failed:
		s.Failures++
	case private.Lost:
		s.Lost++
	case private.Discarded:
	default:
		s.Failures, s.Lost = 0, 0
		s.Requests++
		// An outcome that was defined during the request is pending still: the model has not seen it.
		outcome := s.Outcome()
		s.Unanswered = len(s.Calls) > 0 || outcome != nil && outcome.Result == OutcomePending
		if private.Truncated {
			s.Truncated++
		} else {
			s.Truncated = 0
		}
	}
	return nil
}

func (s *State) applyUpdate(e Event) error {
	var change configChange
	if err := json.Unmarshal(e.Private, &change); err != nil {
		return err
	}
	c := *s.Config
	if change.Retitled {
		c.Title = change.Title
	}
	if change.Metadata != nil {
		c.Metadata = maps.Clone(*change.Metadata)
	}
	if change.Agent != nil {
		c.Agent = change.Agent
	}
	if change.BudgetCents != nil {
		c.BudgetCents = *change.BudgetCents
	}
	s.Config, s.Updated = &c, e.At
	return nil
}

// answeredCall returns the id of the call that a result answers.
func answeredCall(e Event) (string, error) {
	var body struct {
		Tool   string `json:"tool_use_id"`
		MCP    string `json:"mcp_tool_use_id"`
		Custom string `json:"custom_tool_use_id"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return "", err
	}
	switch e.Type {
	case AgentMCPToolResult:
		return body.MCP, nil
	case UserCustomToolResult:
		return body.Custom, nil
	default:
		return body.Tool, nil
	}
}

// The private parts of events.
type (
	rescheduled struct {
		Until time.Time `json:"until"`
	}
	callPrivate struct {
		// Provider is the id that the provider gave the call.
		Provider string `json:"provider_id,omitzero"`
		Remote   bool   `json:"remote,omitzero"`
	}
	resultPrivate struct {
		Usage Usage `json:"usage"`
	}
	requestEnd struct {
		Usage Usage `json:"usage"`
		// Failed says that there is no answer. Lost says that whoever made the request died. Discarded says that there
		// was an answer, or might have been, which was not taken because the turn was interrupted.
		Failed    bool   `json:"failed,omitzero"`
		Lost      bool   `json:"lost,omitzero"`
		Discarded bool   `json:"discarded,omitzero"`
		Truncated bool   `json:"truncated,omitzero"`
		Model     string `json:"model,omitzero"`
		Provider  string `json:"provider_id,omitzero"`
		Stop      string `json:"stop,omitzero"`
	}
	// configChange holds what an update changed. An absent member was not changed.
	configChange struct {
		Retitled    bool               `json:"retitled,omitzero"`
		Title       *string            `json:"title,omitzero"`
		Metadata    *map[string]string `json:"metadata,omitzero"`
		Agent       jsontext.Value     `json:"agent,omitzero"`
		BudgetCents *int64             `json:"budget_cents,omitzero"`
	}
	thinkingPrivate struct {
		Model string         `json:"model"`
		Block jsontext.Value `json:"block"`
	}
)
