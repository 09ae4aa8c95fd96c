package session

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
)

// TimeFormat is the form of every public timestamp: UTC, six fractional digits, always.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// Step builds the next entries of a log. Each entry is folded in as it is added, so that the next one is built on the
// state that the one before it leaves. A Step has no effect until somebody appends its Events at its Head.
type Step struct {
	// State is the fold of the log and of Events.
	State  *State
	Events []Event

	head int64
	now  time.Time
	err  error
}

// NewStep begins a step after state, which it does not change.
func NewStep(state *State, now time.Time) *Step {
	return &Step{State: state.Clone(), head: state.Seq, now: now.UTC()}
}

// Head is the position after which Events belong.
func (s *Step) Head() int64 { return s.head }

// Err is the first error that building the step met. A step with an error must not be appended.
func (s *Step) Err() error { return s.err }

// ConfigChanged reports whether the step changes the session's Config.
func (s *Step) ConfigChanged() bool {
	for _, e := range s.Events {
		if e.Type == created || e.Type == resourcesChanged || e.Type == SessionUpdated {
			return true
		}
	}
	return false
}

// entry is an event that is about to be added.
type entry struct {
	id      string // made if empty
	kind    string
	thread  bool // belongs to the primary thread
	queued  bool
	hidden  bool // only we see it
	fields  any  // the members of the body besides id, type and processed_at
	private any
}

// add appends an entry and returns its id.
func (s *Step) add(e entry) string {
	if s.err != nil {
		return ""
	}
	if e.id == "" {
		e.id = id.New(id.Event)
	}
	event := Event{Seq: s.State.Seq + 1, ID: e.id, Type: e.kind, At: s.nextTime(), Queued: e.queued}
	if e.thread && s.State.Config != nil {
		event.Thread = s.State.Config.Thread
	}
	if !e.hidden {
		event.Body, s.err = body(e, event.At)
	}
	if e.private != nil && s.err == nil {
		event.Private, s.err = encode(e.private)
	}
	if s.err == nil {
		s.err = s.State.Apply(event)
	}
	if s.err != nil {
		return ""
	}
	s.Events = append(s.Events, event)
	return e.id
}

// nextTime is now, or the first microsecond after the entry before if the clock has not moved past it.
func (s *Step) nextTime() time.Time {
	at := s.now.Truncate(time.Microsecond)
	if !at.After(s.State.At) {
		at = s.State.At.Add(time.Microsecond)
	}
	return at
}

// encode writes JSON that is the same for the same value, and leaves raw members as they were written.
func encode(v any) (jsontext.Value, error) {
	return json.Marshal(v, json.Deterministic(true), jsontext.PreserveRawStrings(true))
}

func body(e entry, at time.Time) (jsontext.Value, error) {
	b := append([]byte(`{"id":`), strconv.Quote(e.id)...)
	b = append(b, `,"type":`...)
	b = append(b, strconv.Quote(e.kind)...)
	if e.fields != nil {
		fields, err := encode(e.fields)
		if err != nil {
			return nil, fmt.Errorf("session: encode %s: %w", e.kind, err)
		}
		if len(fields) < 2 || fields[0] != '{' {
			return nil, fmt.Errorf("session: the fields of %s are not an object", e.kind)
		}
		if len(fields) > 2 {
			b = append(append(b, ','), fields[1:len(fields)-1]...)
		}
	}
	b = append(b, `,"processed_at":`...)
	if e.queued {
		b = append(b, `null}`...)
	} else {
		b = append(at.AppendFormat(append(b, '"'), TimeFormat), `"}`...)
	}
	return b, nil
}

// Block shapes that are built here.
type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// TextContent is a content array of one text block. Text must not be blank: the model's API refuses that. What is not valid
// Unicode in it is replaced.
func TextContent(text string) jsontext.Value {
	b, _ := encode([]textBlock{{Type: "text", Text: validText(text)}}) // a valid string can always be encoded
	return b
}

// validText replaces what is not valid Unicode. Text from outside must not make a step that cannot be built: its session
// would never get past it.
func validText(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
