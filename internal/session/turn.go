package session

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
)

// Create begins a log. The caller appends the step together with the session's row.
func Create(config Config, now time.Time) *Step {
	step := NewStep(&State{}, now)
	config.Created = step.nextTime()
	step.add(entry{kind: created, hidden: true, private: config})
	return step
}

type threadStatus struct {
	Thread string `json:"session_thread_id"`
	Agent  string `json:"agent_name"`
}

func (s *Step) threadStatus() threadStatus {
	return threadStatus{Thread: s.State.Config.Thread, Agent: s.State.Config.AgentName}
}

// run logs that the session and its primary thread run.
func (s *Step) run() {
	s.add(entry{kind: StatusRunning})
	s.add(entry{kind: ThreadStatusRunning, thread: true, fields: s.threadStatus()})
}

type threadIdle struct {
	threadStatus `json:",inline"`
	Stop         StopReason     `json:"stop_reason"`
	Details      jsontext.Value `json:"stop_details"`
}

type sessionIdle struct {
	Stop    StopReason     `json:"stop_reason"`
	Details jsontext.Value `json:"stop_details"`
}

type usageReport struct {
	Usage  UsageView   `json:"usage"`
	Budget *BudgetView `json:"budget"`
}

// rest logs that the session is idle and why. Session.usage comes directly before every session.status_idle.
func (s *Step) rest(stop StopReason, details jsontext.Value) {
	if details == nil {
		details = jsontext.Value("null")
	}
	s.add(entry{kind: ThreadStatusIdle, thread: true, fields: threadIdle{s.threadStatus(), stop, details}})
	s.add(entry{kind: SessionUsage, fields: usageReport{NewUsageView(s.State, s.nextTime()), NewBudgetView(s.State.Config)}})
	s.add(entry{kind: StatusIdle, fields: sessionIdle{stop, details}})
}

// Settle adds everything that follows from the log alone, until something from outside is needed, and returns what that
// is.
func (s *Step) Settle(limits Limits) Action {
	for s.err == nil {
		action := Decide(s.State, limits)
		switch action.Kind {
		case startTurn:
			s.run()
		case refuseCalls:
			s.refuseCalls()
		case suspend:
			s.rest(StopReason{Type: RequiresAction, EventIDs: s.State.Waiting()}, nil)
		case pauseAtBudget:
			s.rest(StopReason{Type: BudgetReached}, nil)
		case stopAtLimit:
			s.giveUp(Failure{Type: "tool_use_limit_reached_error", Message: limitText})
		case giveUp:
			s.giveUp(Failure{Type: "unknown_error", Message: lostText})
		case finish:
			s.rest(StopReason{Type: EndTurn}, nil)
		default:
			return action
		}
	}
	return Action{Kind: Rest}
}

const (
	limitText = "The turn was stopped: the model used tools too many times, or was cut off in a tool call too often, without coming to an end. Send a message to go on."
	lostText  = "The turn was stopped: the server was lost during the model request too many times. Send a message to try again."
)

// refuseCalls logs the results of calls that must not run.
func (s *Step) refuseCalls() {
	for _, c := range s.State.Calls {
		if !c.Refused() {
			continue
		}
		text := "Permission to use " + c.Name + " has been denied."
		if c.Confirmed == "deny" {
			text = "Permission to use " + c.Name + " has been rejected."
			if c.DenyMessage != "" {
				text += " Rejection message: " + c.DenyMessage
			}
		}
		s.AddResult(c.ID, Result{Content: TextContent(text), IsError: true})
	}
}

// Result is the outcome of a call, as the model is told.
type Result struct {
	Content jsontext.Value // an array of content blocks
	IsError bool
	// Usage is what the call itself used: searches.
	Usage Usage
}

// AddResult logs the result of a call. It adds nothing if the call has one already, or is not of the last answer.
func (s *Step) AddResult(call string, result Result) {
	c := s.State.call(call)
	if c == nil || c.Answered {
		return
	}
	type fields struct {
		Tool    string         `json:"tool_use_id,omitzero"`
		MCP     string         `json:"mcp_tool_use_id,omitzero"`
		Custom  string         `json:"custom_tool_use_id,omitzero"`
		Content jsontext.Value `json:"content"`
		IsError bool           `json:"is_error"`
	}
	f := fields{Content: result.Content, IsError: result.IsError}
	kind := AgentToolResult
	switch c.Type {
	case AgentMCPToolUse:
		kind, f.MCP = AgentMCPToolResult, c.ID
	case AgentCustomToolUse:
		kind, f.Custom = UserCustomToolResult, c.ID
	default:
		f.Tool = c.ID
	}
	e := entry{kind: kind, thread: true, fields: f}
	if result.Usage != (Usage{}) {
		e.private = resultPrivate{result.Usage}
	}
	s.add(e)
}

// BeginRequest delivers what is queued and logs the start of a model request. It returns the id of the request.
func (s *Step) BeginRequest() string {
	s.deliver()
	return s.add(entry{kind: ModelRequestStart, thread: true})
}

// deliver logs the queued messages as processed.
func (s *Step) deliver() {
	for len(s.State.Queue) > 0 && s.err == nil {
		q := s.State.Queue[0]
		s.add(entry{id: q.ID, kind: q.Type, thread: true, fields: messageFields{q.Content}})
	}
}

type messageFields struct {
	Content jsontext.Value `json:"content"`
}

// Answer is a complete answer of the model.
type Answer struct {
	Blocks     []AnswerBlock
	StopReason string
	Details    jsontext.Value // with a refusal
	Usage      Usage
	Model      string // the model that was asked
	Provider   string // the provider's id of the answer
}

// AnswerBlock is one block of an answer.
type AnswerBlock struct {
	// Event is the id that the block's event was announced under in previews; "" if it was not. Text blocks that follow
	// one another are one event, named by the first.
	Event string
	Type  string         // text | thinking | redacted_thinking | tool_use | anything else
	Raw   jsontext.Value // the block as the provider wrote it
	Text  string         // with text
	Call  *AnswerCall    // with tool_use
}

// AnswerCall is a tool call as the tools of the session judge it.
type AnswerCall struct {
	Provider   string // the id that the provider gave it
	Type       string // the type of its event
	Server     string // with an MCP call: the name of the server
	Name       string
	Input      jsontext.Value
	Permission string         // allow | ask | deny; "" for a custom call
	Evaluation jsontext.Value // how the permission was found; nil if the tool is not enabled
	Remote     bool
	// Refusal is the text of the result that the call gets at once, without having been run: it names no tool that
	// there is, its input is broken, or it was cut off. "" for a call that may run.
	Refusal string
	Cut     bool
}

// EndRequest logs a complete answer and the end of the request. It adds nothing if no request is open, so that an answer
// whose append had an unknown outcome can be logged again.
func (s *Step) EndRequest(answer Answer) {
	if s.State.Request == nil {
		return
	}
	end := requestEnd{Usage: answer.Usage, Model: answer.Model, Provider: answer.Provider, Stop: answer.StopReason}
	refused := answer.StopReason == Refusal
	blocks := slices.Clone(answer.Blocks)
	for i := range blocks {
		if blocks[i].Event == "" {
			blocks[i].Event = id.New(id.Event)
		}
	}
	for i := 0; i < len(blocks); {
		i += s.addBlocks(blocks[i:], answer.Model, refused)
	}
	var refusals []AnswerBlock
	for _, b := range blocks {
		if b.Call != nil && !refused && b.Call.Refusal != "" {
			refusals = append(refusals, b)
			end.Truncated = end.Truncated || b.Call.Cut
		}
	}
	s.endRequest(end)
	for _, b := range refusals {
		s.AddResult(b.Event, Result{Content: TextContent(b.Call.Refusal), IsError: true})
	}
	if refused {
		s.rest(StopReason{Type: Refusal}, answer.Details)
	}
}

// addBlocks logs the event of the first of blocks, with the text blocks that follow if it is one, and returns how many
// blocks that took.
func (s *Step) addBlocks(blocks []AnswerBlock, model string, refused bool) int {
	switch b := blocks[0]; b.Type {
	case "text":
		n := 0
		var content []textBlock
		for ; n < len(blocks) && blocks[n].Type == "text"; n++ {
			if !blank(blocks[n].Text) {
				content = append(content, textBlock{"text", validText(blocks[n].Text)})
			}
		}
		if len(content) > 0 {
			type fields struct {
				Content []textBlock `json:"content"`
			}
			s.add(entry{id: b.Event, kind: AgentMessage, thread: true, fields: fields{content}})
		}
		return n
	case "thinking", "redacted_thinking":
		s.add(entry{id: b.Event, kind: AgentThinking, thread: true, private: thinkingPrivate{model, b.Raw}})
	case "tool_use":
		if !refused {
			s.addCall(b)
		}
	default:
		s.add(entry{id: b.Event, kind: opaqueBlock, thread: true, hidden: true, private: thinkingPrivate{model, b.Raw}})
	}
	return 1
}

func (s *Step) addCall(b AnswerBlock) {
	type fields struct {
		Server     string         `json:"mcp_server_name,omitzero"`
		Name       string         `json:"name"`
		Input      jsontext.Value `json:"input"`
		Permission string         `json:"evaluated_permission,omitzero"`
		Evaluation jsontext.Value `json:"evaluation,omitzero"`
		Thread     *string        `json:"session_thread_id"`
	}
	c := b.Call
	s.add(entry{
		id: b.Event, kind: c.Type, thread: true,
		fields:  fields{Server: c.Server, Name: c.Name, Input: c.Input, Permission: c.Permission, Evaluation: c.Evaluation},
		private: callPrivate{Provider: c.Provider, Remote: c.Remote},
	})
}

type modelUsage struct {
	Input      int64   `json:"input_tokens"`
	Output     int64   `json:"output_tokens"`
	CacheRead  int64   `json:"cache_read_input_tokens"`
	CacheWrite int64   `json:"cache_creation_input_tokens"`
	Speed      *string `json:"speed"`
}

func newModelUsage(u Usage) modelUsage {
	v := modelUsage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite5m + u.CacheWrite1h}
	if u.Fast {
		fast := "fast"
		v.Speed = &fast
	}
	return v
}

func (s *Step) endRequest(end requestEnd) {
	request := s.State.Request
	if request == nil {
		return
	}
	type fields struct {
		Start   string     `json:"model_request_start_id"`
		IsError *bool      `json:"is_error"`
		Usage   modelUsage `json:"model_usage"`
	}
	f := fields{Start: request.ID, Usage: newModelUsage(end.Usage)}
	if end.Failed || end.Discarded || end.Lost {
		failed := true
		f.IsError = &failed
	}
	s.add(entry{kind: ModelRequestEnd, thread: true, fields: f, private: end})
}

// Failure is what a client is told of something that went wrong.
type Failure struct {
	Type    string // one of the wire's error types
	Message string
	Retry   string // retrying | exhausted | terminal
}

func (s *Step) fail(f Failure) {
	type status struct {
		Type string `json:"type"`
	}
	type failure struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Retry   status `json:"retry_status"`
	}
	type fields struct {
		Error failure `json:"error"`
	}
	s.add(entry{kind: SessionError, thread: true, fields: fields{failure{f.Type, validText(f.Message), status{f.Retry}}}})
}

// RetryRequest logs that an attempt failed and that the next is due at a time. It adds nothing if no request is open.
func (s *Step) RetryRequest(usage Usage, f Failure, until time.Time) {
	if s.State.Request == nil {
		return
	}
	s.endRequest(requestEnd{Usage: usage, Failed: true})
	f.Retry = "retrying"
	s.fail(f)
	s.add(entry{kind: StatusRescheduled, private: rescheduled{Until: until.UTC()}})
	s.add(entry{kind: ThreadStatusRescheduled, thread: true, fields: s.threadStatus()})
}

// FailTurn logs that an attempt failed and that no other is made. What was queued becomes part of the history, and waits
// for the next message to be answered with it. An interrupt that waits has nothing left to do. It adds nothing if no turn
// is under way.
func (s *Step) FailTurn(usage Usage, f Failure) {
	if s.State.Status != Running && s.State.Status != Rescheduling {
		return
	}
	s.interrupted()
	s.endRequest(requestEnd{Usage: usage, Failed: true})
	s.giveUp(f)
}

// giveUp ends the turn without an answer.
func (s *Step) giveUp(f Failure) {
	f.Retry = "exhausted"
	s.fail(f)
	s.closeCalls(nil)
	s.deliver()
	s.rest(StopReason{Type: RetriesExhausted}, nil)
}

// HandOver closes a model request that its maker gives up because it is told to end. Whoever drives the session next makes
// it again.
func (s *Step) HandOver(usage Usage) { s.endRequest(requestEnd{Usage: usage, Discarded: true}) }

// AbandonRequest closes a model request whose maker died. What it cost is not known.
func (s *Step) AbandonRequest() { s.endRequest(requestEnd{Lost: true}) }

// Resume ends the wait for the next attempt.
func (s *Step) Resume() { s.run() }

// Texts of results for calls that an interrupt ended. Running says that the call may have had effects.
const (
	notRunText     = "Tool execution was interrupted before completion. Please retry."
	unansweredText = "The turn was interrupted before this call was answered."
)

// ApplyInterrupt ends the turn. Usage is what the open request or evaluation is known to have used. Results holds those
// of calls that were running or had ended; every other open call gets one that says that it did not run.
func (s *Step) ApplyInterrupt(usage Usage, results map[string]Result) {
	if s.State.Interrupt == nil {
		return
	}
	s.interrupted()
	if s.State.Request != nil {
		s.endRequest(requestEnd{Usage: usage, Discarded: true})
		usage = Usage{}
	}
	s.closeCalls(results)
	s.endOutcome(usage)
	s.rest(StopReason{Type: EndTurn}, nil)
}

// interrupted logs the interrupt that waits, if one does, as applied.
func (s *Step) interrupted() {
	if i := s.State.Interrupt; i != nil {
		s.add(entry{id: i.ID, kind: UserInterrupt, thread: true, fields: interruptFields{i.Thread}})
	}
}

type interruptFields struct {
	Thread string `json:"session_thread_id,omitzero"`
}

func (s *Step) closeCalls(results map[string]Result) {
	for _, c := range s.State.Calls {
		if c.Answered {
			continue
		}
		result, ok := results[c.ID]
		if !ok {
			text := notRunText
			if c.Remote {
				text = unansweredText
			}
			result = Result{Content: TextContent(text), IsError: true}
		}
		s.AddResult(c.ID, result)
	}
}
