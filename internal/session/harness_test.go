package session_test

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/session"
)

// noon is when the clock of every test starts.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func config() session.Config {
	return session.Config{
		ID: "sesn_1", Thread: "sthr_1", Agent: jsontext.Value(`{"type":"agent","id":"agent_1","version":1}`),
		AgentID: "agent_1", AgentVersion: 1, AgentName: "helper", Environment: "env_1",
		Metadata: map[string]string{}, Resources: []jsontext.Value{}, Vaults: []string{}, RuntimeRate: 8 * cent,
	}
}

const (
	dollar session.Cost = 1e12
	cent                = dollar / 100
)

// machine is a session as its owners see it: a log that only grows, and what was folded from it so far.
type machine struct {
	t       failer
	now     time.Time
	log     []session.Event
	state   *session.State
	limits  session.Limits
	model   string
	context *session.Context
	// asked is the conversation of the last model request to the present model.
	asked []session.Message
}

func newMachine(t failer, c session.Config) *machine {
	m := &machine{t: t, now: noon, state: &session.State{}, limits: session.DefaultLimits()}
	m.converse("m1")
	m.commit(session.Create(c, m.now))
	return m
}

// converse begins the conversation again, with a model.
func (m *machine) converse(model string) {
	m.model, m.context, m.asked = model, session.NewContext(model, resolveFile), nil
	m.fold(m.context, m.log)
}

// resolveFile stands for the file store: it gives the same bytes for the same block.
func resolveFile(jsontext.Value) jsontext.Value {
	return jsontext.Value(`{"type":"text","text":"content of the file"}`)
}

func (m *machine) fold(c *session.Context, events []session.Event) {
	m.t.Helper()
	if err := c.Fold(events...); err != nil {
		m.t.Fatalf("the conversation cannot be folded: %v", err)
	}
}

func (m *machine) step() *session.Step { return session.NewStep(m.state, m.now) }

// commit appends a step, as the store would.
func (m *machine) commit(step *session.Step) []session.Event {
	m.t.Helper()
	if err := step.Err(); err != nil {
		m.t.Fatalf("the step has an error: %v", err)
	}
	if step.Head() != m.state.Seq {
		m.t.Fatalf("the step belongs after entry %d of a log that has %d", step.Head(), m.state.Seq)
	}
	m.log = append(m.log, step.Events...)
	m.state = step.State
	m.fold(m.context, step.Events)
	return step.Events
}

// refold is the fold of the whole log.
func (m *machine) refold() *session.State {
	m.t.Helper()
	s := &session.State{}
	if err := s.Fold(m.log...); err != nil {
		m.t.Fatalf("the log cannot be folded: %v", err)
	}
	return s
}

// CallType makes the machine a session.History.
func (m *machine) CallType(id string) (string, bool) {
	for _, e := range m.log {
		if e.ID == id && isUse(e.Type) {
			return e.Type, true
		}
	}
	return "", false
}

// accept judges inputs, and commits the step if they are taken.
func (m *machine) accept(inputs ...session.Input) (echoes []jsontext.Value, events []session.Event, err error) {
	m.t.Helper()
	step := m.step()
	if echoes, err = step.Accept(m, inputs); err != nil {
		return nil, nil, err
	}
	return echoes, m.commit(step), nil
}

// mustAccept takes inputs that are right, and returns the new entries.
func (m *machine) mustAccept(inputs ...session.Input) []session.Event {
	m.t.Helper()
	_, events, err := m.accept(inputs...)
	if err != nil {
		m.t.Fatalf("the inputs are refused: %v", err)
	}
	return events
}

// settle adds what follows from the log alone.
func (m *machine) settle() session.Action {
	m.t.Helper()
	step := m.step()
	action := step.Settle(m.limits)
	m.commit(step)
	return action
}

// begin settles, begins the model request that must be next, and returns what the model is asked.
func (m *machine) begin() []session.Message {
	m.t.Helper()
	m.want(session.Sample)
	step := m.step()
	step.BeginRequest()
	m.commit(step)
	return m.context.Messages()
}

// want settles, and fails if something else comes next.
func (m *machine) want(kind session.ActionKind) session.Action {
	m.t.Helper()
	action := m.settle()
	if action.Kind != kind {
		m.t.Fatalf("the session needs %s next, not %s; it is %s", kindName(action.Kind), kindName(kind), m.state.Status)
	}
	return action
}

// answer makes a model request that is answered by blocks, and settles.
func (m *machine) answer(blocks ...session.AnswerBlock) []session.Message {
	m.t.Helper()
	asked := m.begin()
	m.end(session.Answer{Blocks: blocks, StopReason: "end_turn", Model: m.model})
	return asked
}

func (m *machine) end(answer session.Answer) session.Action {
	m.t.Helper()
	step := m.step()
	step.EndRequest(answer)
	action := step.Settle(m.limits)
	m.commit(step)
	return action
}

func (m *machine) interrupt(results map[string]session.Result) {
	m.t.Helper()
	m.want(session.Stop)
	step := m.step()
	step.ApplyInterrupt(session.Usage{}, results)
	m.commit(step)
}

func (m *machine) addResult(call, text string) {
	m.t.Helper()
	step := m.step()
	step.AddResult(call, session.Result{Content: session.TextContent(text)})
	m.commit(step)
}

// reloaded is a state after it was stored and read again.
func reloaded(t failer, s *session.State) *session.State {
	t.Helper()
	var again session.State
	roundTrip(t, s, &again)
	if s.Config != nil {
		again.Config = &session.Config{}
		roundTrip(t, s.Config, again.Config)
	}
	return &again
}

func roundTrip(t failer, from, to any) {
	t.Helper()
	b, err := json.Marshal(from, json.Deterministic(true), jsontext.PreserveRawStrings(true))
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		t.Fatalf("%T cannot be stored and read again: %v", from, err)
	}
}

func sameState(t failer, what string, want, got *session.State) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func kindName(k session.ActionKind) string {
	names := map[session.ActionKind]string{
		session.Rest: "rest", session.WaitUntil: "wait", session.Sample: "sample", session.RunCalls: "run calls",
		session.Abandon: "abandon", session.Erase: "erase", session.Evaluate: "evaluate", session.Stop: "stop",
	}
	if name, ok := names[k]; ok {
		return name
	}
	return fmt.Sprintf("action %d", k)
}

// Inputs and blocks, in short.

func message(text string) session.Input {
	return session.Input{Type: session.UserMessage, Content: session.TextContent(text)}
}

func systemMessage(text string) session.Input {
	return session.Input{Type: session.SystemMessage, Content: session.TextContent(text)}
}

func interrupt() session.Input { return session.Input{Type: session.UserInterrupt} }

func allow(call string) session.Input {
	return session.Input{Type: session.UserToolConfirmation, Call: call, Result: "allow"}
}

func deny(call, message string) session.Input {
	return session.Input{Type: session.UserToolConfirmation, Call: call, Result: "deny", Message: message}
}

func customResult(call, text string) session.Input {
	return session.Input{Type: session.UserCustomToolResult, Call: call, Content: session.TextContent(text)}
}

func text(s string) session.AnswerBlock {
	return session.AnswerBlock{Type: "text", Text: s, Raw: object("type", "text", "text", s)}
}

func thinking(model, s string) session.AnswerBlock {
	return session.AnswerBlock{Type: "thinking", Raw: object("type", "thinking", "thinking", s, "signature", "signed by "+model)}
}

// call is a tool call under an event id of the test's choice.
func call(id, kind, permission string) session.AnswerBlock {
	c := session.AnswerCall{Provider: "toolu_" + id, Type: kind, Name: "bash", Input: object("command", "ls"), Permission: permission}
	switch kind {
	case session.AgentCustomToolUse:
		c.Name, c.Remote = "lookup", true
	case session.AgentMCPToolUse:
		c.Name, c.Server = "search", "docs"
	}
	return session.AnswerBlock{Event: id, Type: "tool_use", Raw: object("type", "tool_use", "id", "toolu_"+id), Call: &c}
}

func allowed(id string) session.AnswerBlock { return call(id, session.AgentToolUse, "allow") }
func asking(id string) session.AnswerBlock  { return call(id, session.AgentToolUse, "ask") }
func denied(id string) session.AnswerBlock  { return call(id, session.AgentToolUse, "deny") }
func custom(id string) session.AnswerBlock  { return call(id, session.AgentCustomToolUse, "") }

// object is a JSON object of strings, in the order of the arguments.
func object(members ...string) jsontext.Value {
	b := []byte{'{'}
	for i := 0; i < len(members); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, members[i])
		b = append(b, ':')
		b, _ = jsontext.AppendQuote(b, members[i+1])
	}
	return append(b, '}')
}

// types are the types of entries, in order.
func types(events []session.Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.Type)
	}
	return all
}
