package resource

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/session"
)

// Limits of the events of one request.
const (
	maxEvents         = 1_000
	maxDenyMessage    = 10_000 // characters
	maxFileDocuments  = 100
	eventReadOnlyKeys = "id processed_at session_thread_id created_at"
)

// DecodeEvents reads the body of POST /v1/sessions/{id}/events. Each event is valid in itself; whether the session takes
// it is for session.Accept to say. Every error is a *problem.Error.
func DecodeEvents(body []byte) ([]session.Input, error) {
	root, err := readBody(body)
	if err != nil {
		return nil, err
	}
	events := root.object("events").field("events")
	inputs := list(events, maxEvents, readEvent)
	if root.ok() && len(inputs) == 0 {
		events.refuse(events.path, "must have at least one event")
	}
	return inputs, root.err()
}

// DecodeInitialEvents reads the initial_events of a session, which must each start work.
func DecodeInitialEvents(raw []jsontext.Value) ([]session.Input, error) {
	inputs := make([]session.Input, 0, len(raw))
	documents := 0
	for i, event := range raw {
		n, err := readValue(index("initial_events", i), event)
		if err != nil {
			return nil, err
		}
		switch n.variant(session.UserMessage, session.UserDefineOutcome) {
		case session.UserDefineOutcome:
			n.refuse(join(n.path, "type"), "%s is %s", quote(session.UserDefineOutcome), unsupported)
		}
		input := readEvent(n)
		if err := n.err(); err != nil {
			return nil, err
		}
		documents += strings.Count(string(input.Content), `{"type":"document","source":{"type":"file"`)
		inputs = append(inputs, input)
	}
	if documents > maxFileDocuments {
		return nil, problem.Invalidf("initial_events: at most %d documents may be files, got %d", maxFileDocuments, documents)
	}
	return inputs, nil
}

func readEvent(n node) session.Input {
	kind := n.eventKind()
	if !n.ok() {
		return session.Input{}
	}
	in := session.Input{Type: kind}
	switch kind {
	case session.UserMessage:
		o := n.event("content")
		in.Content = readContent(o.field("content"), UserContent)
	case session.SystemMessage:
		o := n.event("content")
		in.Content = readContent(o.field("content"), ContentText)
	case session.UserInterrupt:
		o := n.event()
		in.Thread = optional(o.field("session_thread_id"), node.text).Or("")
	case session.UserToolConfirmation:
		o := n.event("tool_use_id", "result", "deny_message")
		in.Call = o.field("tool_use_id").text()
		in.Result = o.field("result").word("allow", "deny")
		message := o.field("deny_message")
		in.Message = optional(message, node.text).Or("")
		n.length(message.path, in.Message, 0, maxDenyMessage)
		if n.ok() && in.Message != "" && in.Result == "allow" {
			message.refuse(message.path, `may be given only with result "deny"`)
		}
	case session.UserCustomToolResult, session.UserToolResult:
		id := "tool_use_id"
		if kind == session.UserCustomToolResult {
			id = "custom_tool_use_id"
		}
		o := n.event(id, "content", "is_error")
		in.Call = o.field(id).text()
		in.IsError = optional(o.field("is_error"), node.boolean).Or(false)
		if content := o.field("content"); !content.missing() {
			in.Content = readContent(content, ResultContent)
		}
	case session.UserDefineOutcome:
		n.refuse(join(n.path, "type"), "%s is %s", quote(kind), unsupported)
	}
	return in
}

// event reads an event. What only the server says of an event is known and not used, so that an event as served can be
// sent again.
func (n node) event(known ...string) object {
	return n.object(append(append([]string{"type"}, known...), strings.Fields(eventReadOnlyKeys)...)...)
}

// eventKind reads the type of an event that a client may send.
func (n node) eventKind() string {
	if !n.is('{', "an object") {
		return ""
	}
	at := node{n.verdict, join(n.path, "type"), nil}
	for name, value := range n.members() {
		if name == "type" {
			at = value
		}
	}
	kind := at.text()
	switch kind {
	case session.UserMessage, session.UserInterrupt, session.UserToolConfirmation, session.UserCustomToolResult,
		session.UserToolResult, session.UserDefineOutcome, session.SystemMessage:
	default:
		at.refuse(at.path, "%s is not a valid value", quote(kind))
	}
	return kind
}

func readContent(n node, allow ContentKinds) jsontext.Value {
	if !n.ok() {
		return nil
	}
	content, err := DecodeContent(n.path, n.raw, allow)
	if err != nil {
		n.refuseError(err)
	}
	return content
}

// refuseError makes an error of a part the error of the whole.
func (v *verdict) refuseError(err error) {
	if p, ok := problem.As(err); ok {
		v.refuseAs(p)
		return
	}
	v.refuseAs(problem.Invalidf("%s", err))
}
