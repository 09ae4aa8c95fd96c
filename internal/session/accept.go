package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// Input is an event that a client sends, decoded and valid in itself. Whether the session takes it depends on its state.
type Input struct {
	Type    string
	Content jsontext.Value // of messages and results: an array of valid blocks; nil if the client gave none
	Thread  string         // of an interrupt: the thread that it names
	Call    string         // of confirmations and results: the call
	Result  string         // of a confirmation: allow | deny
	Message string         // of a denial
	IsError bool           // of a result
	// Of an outcome:
	Description string
	Rubric      string
	RubricFile  string // the file that holds the rubric: whoever calls Accept has read it into Rubric
	Max         int    // evaluations; 0 if the client does not say
}

// History answers what a State does not hold.
type History interface {
	// CallType returns the type of the event with this id if it is a tool call of the session.
	CallType(id string) (string, bool)
}

// Accept judges the inputs of one request against the state, all or none, and adds what takes them to the step. It
// returns the events as the client is shown them, in the order of the inputs. An error is a *problem.Error that names the
// input; the step must then be dropped.
func (s *Step) Accept(history History, inputs []Input) (echoes []jsontext.Value, err error) {
	if s.State.Status == Terminated || s.State.Deleted {
		return nil, problem.Invalidf("Session %s is terminated and accepts no new events.", s.State.Config.ID)
	}
	a := &acceptance{step: s, history: history}
	for i, in := range inputs {
		if err := a.check(i, in, inputs); err != nil {
			return nil, err
		}
		a.take(in)
	}
	a.settle()
	return a.echoes, s.err
}

type acceptance struct {
	step    *Step
	history History
	echoes  []jsontext.Value
	// answered says that a call got an answer: the session may go on, or must say again what it waits for.
	answered bool
	// delivered says that a message was taken while idle: it was logged as processed, after the session's running.
	delivered bool
}

func at(i int, field string) string { return fmt.Sprintf("events[%d]%s", i, field) }

// check refuses an input that the session cannot take in the state that the inputs before it leave.
func (a *acceptance) check(i int, in Input, all []Input) error {
	s := a.step.State
	atBudget := s.Status == Idle && len(s.Waiting()) == 0 && s.OverBudget()
	switch in.Type {
	case UserMessage, SystemMessage, UserDefineOutcome:
		if in.Type == UserDefineOutcome && s.Outcome() != nil {
			return problem.Invalidf("%s: outcome %s is not finished; send user.interrupt to end it before you define another", at(i, ""), s.Outcome().ID)
		}
		if in.Type == SystemMessage {
			if err := a.checkSystemMessage(i, all); err != nil {
				return err
			}
		}
		if atBudget {
			return problem.Invalidf("%s: the session has reached its budget; until the budget is raised or removed only user.tool_confirmation, user.tool_result, user.custom_tool_result and user.interrupt are accepted", at(i, ""))
		}
		if waiting := s.Waiting(); s.Status == Idle && len(waiting) > 0 {
			return problem.Invalidf("%s: the session waits for %s; answer these calls, or send user.interrupt, before a new message", at(i, ""), strings.Join(waiting, ", "))
		}
	case UserInterrupt:
		if in.Thread != "" && in.Thread != s.Config.Thread {
			return problem.Invalidf("%s: session %s has no thread %q", at(i, ".session_thread_id"), s.Config.ID, in.Thread)
		}
	case UserToolConfirmation:
		return a.checkConfirmation(i, in)
	case UserCustomToolResult, UserToolResult:
		return a.checkResult(i, in)
	default:
		return problem.Invalidf("%s: %q events are not supported by this server", at(i, ".type"), in.Type)
	}
	return nil
}

func (a *acceptance) checkSystemMessage(i int, all []Input) error {
	// The model's API refuses a conversation that begins with one. The first message that a session takes starts it.
	if i == 0 && !a.step.State.Begun {
		return problem.Invalidf("%s: a conversation cannot begin with a system.message; send it after a user.message", at(i, ""))
	}
	if i != len(all)-1 {
		return problem.Invalidf("%s: a system.message must be the last event of its request", at(i, ""))
	}
	if i > 0 && !slices.Contains([]string{UserMessage, UserToolResult, UserCustomToolResult}, all[i-1].Type) {
		return problem.Invalidf("%s: a system.message must directly follow the user.message, user.tool_result or user.custom_tool_result that it accompanies", at(i, ""))
	}
	return nil
}

func (a *acceptance) checkConfirmation(i int, in Input) error {
	c := a.step.State.call(in.Call)
	switch {
	case c == nil:
		kind, ok := a.history.CallType(in.Call)
		if !ok {
			return problem.Invalidf("%s: session %s has no tool call %q", at(i, ".tool_use_id"), a.step.State.Config.ID, in.Call)
		}
		if kind == AgentCustomToolUse {
			return problem.Invalidf("%s: %s is a custom tool call; answer it with user.custom_tool_result", at(i, ".tool_use_id"), in.Call)
		}
		return problem.Invalidf("%s: tool call %s does not wait for a confirmation", at(i, ".tool_use_id"), in.Call)
	case c.Permission != "ask":
		return problem.Invalidf("%s: tool call %s does not wait for a confirmation", at(i, ".tool_use_id"), in.Call)
	case c.Confirmed != "" || c.Answered:
		return problem.Invalidf("%s: tool call %s was already answered; a confirmation counts once", at(i, ".tool_use_id"), in.Call)
	}
	return nil
}

// checkResult refuses a result that answers no call of its kind. A second result for a call is taken and has no effect:
// the clients that retry do so without knowing whether the first arrived.
func (a *acceptance) checkResult(i int, in Input) error {
	field, want := ".custom_tool_use_id", AgentCustomToolUse
	if in.Type == UserToolResult {
		field, want = ".tool_use_id", AgentToolUse
		if !a.step.State.Config.SelfHosted {
			return problem.Invalidf("%s: user.tool_result is for sessions on a self_hosted environment; this server runs the tools of session %s itself", at(i, ".type"), a.step.State.Config.ID)
		}
	}
	c := a.step.State.call(in.Call)
	var kind string
	var ok bool
	if c != nil {
		kind, ok = c.Type, true
	} else {
		kind, ok = a.history.CallType(in.Call)
	}
	switch {
	case !ok:
		return problem.Invalidf("%s: session %s has no tool call %q", at(i, field), a.step.State.Config.ID, in.Call)
	case kind != want:
		return problem.Invalidf("%s: %s is an %s; it is not answered by a %s", at(i, field), in.Call, kind, in.Type)
	case c != nil && !c.Answered && c.Permission == "ask" && c.Confirmed == "":
		return problem.Invalidf("%s: tool call %s waits for a user.tool_confirmation first", at(i, field), in.Call)
	case c != nil && !c.Answered && !c.Waiting():
		return problem.Invalidf("%s: tool call %s was denied, or is run by this server; it does not wait for a result", at(i, field), in.Call)
	}
	return nil
}

// take adds the events of an input that was checked, and its echo.
func (a *acceptance) take(in Input) {
	s := a.step
	switch in.Type {
	case UserMessage, SystemMessage:
		a.takeMessage(in)
	case UserDefineOutcome:
		a.logged(func() { s.defineOutcome(in) })
		a.start()
	case UserInterrupt:
		a.takeInterrupt(in)
	case UserToolConfirmation:
		type fields struct {
			Call    string  `json:"tool_use_id"`
			Result  string  `json:"result"`
			Message *string `json:"deny_message"`
			Thread  *string `json:"session_thread_id"`
		}
		f := fields{Call: in.Call, Result: in.Result}
		if in.Message != "" {
			f.Message = &in.Message
		}
		a.log(entry{kind: in.Type, thread: true, fields: f})
		a.answered = true
	case UserCustomToolResult, UserToolResult:
		type fields struct {
			Tool    string         `json:"tool_use_id,omitzero"`
			Custom  string         `json:"custom_tool_use_id,omitzero"`
			Content jsontext.Value `json:"content"`
			IsError bool           `json:"is_error"`
			Thread  *string        `json:"session_thread_id"`
		}
		f := fields{Content: in.Content, IsError: in.IsError}
		if in.Content == nil {
			f.Content = jsontext.Value("[]")
		}
		if in.Type == UserToolResult {
			f.Tool = in.Call
		} else {
			f.Custom = in.Call
		}
		e := entry{kind: in.Type, thread: true, fields: f}
		if c := s.State.call(in.Call); c == nil || c.Answered {
			a.echoOnly(e)
			return
		}
		a.log(e)
		a.answered = true
	}
}

func (a *acceptance) takeMessage(in Input) {
	e := entry{kind: in.Type, thread: true, fields: messageFields{in.Content}}
	a.start()
	e.queued = !a.delivered
	a.log(e)
}

// start lets an idle session run.
func (a *acceptance) start() {
	s := a.step
	if s.State.Status == Idle {
		s.run()
		// A message never comes between calls and their results, nor before one that was accepted earlier.
		a.delivered = s.State.Settled() && len(s.State.Queue) == 0
	}
}

// takeInterrupt ends the wait of a session that is idle at once. One that runs is stopped by its driver, which knows what
// runs. An interrupt of a session that is paused at its budget is accepted, and has nothing to do.
func (a *acceptance) takeInterrupt(in Input) {
	s := a.step
	e := entry{kind: UserInterrupt, thread: true, fields: interruptFields{in.Thread}}
	switch {
	case s.State.Status == Idle && s.State.Stop != nil && s.State.Stop.Type == BudgetReached:
		a.echoOnly(e)
	case s.State.Status == Idle:
		a.log(e)
		waited := a.answered || !s.State.Settled()
		s.closeCalls(nil)
		s.endOutcome(Usage{})
		if waited {
			s.rest(StopReason{Type: EndTurn}, nil)
			a.answered = false
		}
	case s.State.Interrupt != nil:
		a.echoOnly(e)
	default:
		e.queued = true
		a.log(e)
		a.delivered = false
	}
}

// settle lets an idle session go on if its calls were answered, or say again what it waits for.
func (a *acceptance) settle() {
	s := a.step.State
	if !a.answered || s.Status != Idle {
		return
	}
	if waiting := s.Waiting(); len(waiting) > 0 {
		a.step.rest(StopReason{Type: RequiresAction, EventIDs: waiting}, nil)
		return
	}
	a.step.run()
}

func (a *acceptance) log(e entry) { a.logged(func() { a.step.add(e) }) }

func (a *acceptance) logged(add func()) {
	add()
	if n := len(a.step.Events); n > 0 && a.step.err == nil {
		a.echoes = append(a.echoes, a.step.Events[n-1].Body)
	}
}

// echoOnly answers an input that has no effect as if it had been taken.
func (a *acceptance) echoOnly(e entry) {
	e.id = newEventID()
	b, err := body(e, a.step.nextTime())
	if err != nil && a.step.err == nil {
		a.step.err = err
	}
	a.echoes = append(a.echoes, b)
}
