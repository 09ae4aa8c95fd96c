package resource

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/session"
)

// Limits of the events of one request.
const (
	maxEvents         = 1_000
	maxOutcome        = 100_000 // characters of a description
	maxRubric         = 262_144 // characters
	maxIterations     = 20
	maxFileRubric     = 4 * maxRubric // bytes
	maxDenyMessage    = 10_000        // characters
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
	documents, outcomes := 0, 0
	for i, event := range raw {
		n, err := readValue(index("initial_events", i), event)
		if err != nil {
			return nil, err
		}
		n.variant(session.UserMessage, session.UserDefineOutcome)
		input := readEvent(n)
		if err := n.err(); err != nil {
			return nil, err
		}
		if input.Type == session.UserDefineOutcome {
			if outcomes++; outcomes > 1 {
				return nil, problem.Invalidf("initial_events[%d]: only one user.define_outcome is allowed", i)
			}
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
		readOutcome(n, &in)
	}
	return in
}

func readOutcome(n node, in *session.Input) {
	o := n.event("description", "rubric", "max_iterations", "outcome_id")
	description := o.field("description")
	in.Description = description.text()
	n.length(description.path, in.Description, 1, maxOutcome)
	most := o.field("max_iterations")
	in.Max = int(optional(most, node.integer).Or(session.DefaultIterations))
	if n.ok() && (in.Max < 1 || in.Max > maxIterations) {
		n.refuse(most.path, "must be from 1 to %d", maxIterations)
	}
	rubric := o.field("rubric")
	switch rubric.variant("text", "file") {
	case "text":
		content := rubric.object("type", "content").field("content")
		in.Rubric = content.text()
		n.checkRubric(content.path, in.Rubric)
	case "file":
		file := rubric.object("type", "file_id").field("file_id")
		in.RubricFile = file.text()
		n.checkID(id.File, in.RubricFile, "Invalid file ID.")
	}
}

func (v *verdict) checkRubric(path, text string) {
	if v.ok() && strings.TrimSpace(text) == "" {
		v.refuse(path, "must not be blank")
	}
	v.length(path, text, 1, maxRubric)
}

// RubricFromFile reads a rubric that is a file. The path says which event named it, for errors.
func RubricFromFile(path string, content io.Reader) (string, error) {
	raw, err := io.ReadAll(io.LimitReader(content, maxFileRubric+1))
	if err != nil {
		return "", err
	}
	var v verdict
	if len(raw) > maxFileRubric || !utf8.Valid(raw) {
		v.refuse(path, "the file of a rubric must be text in UTF-8 of at most %d characters", maxRubric)
	}
	v.checkRubric(path, string(raw))
	return string(raw), v.err()
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
