package client

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Event is an event of a session, or a preview of one. Only the fields that its type has are set.
type Event struct {
	ID          string  `json:"id"` // "" for previews
	Type        string  `json:"type"`
	ProcessedAt *string `json:"processed_at"`

	// Content of messages and tool results. Blocks that are no text have an empty Text.
	Content []Block `json:"content"`

	// Name, Input and Permission belong to calls of tools.
	Name       string         `json:"name"`
	Input      jsontext.Value `json:"input"`
	Permission string         `json:"evaluated_permission"` // allow | ask | deny
	MCPServer  string         `json:"mcp_server_name"`

	// ToolUse and its siblings name the call that a result or a confirmation belongs to; see Call.
	ToolUse       string `json:"tool_use_id"`
	CustomToolUse string `json:"custom_tool_use_id"`
	MCPToolUse    string `json:"mcp_tool_use_id"`
	IsError       *bool  `json:"is_error"`
	Result        string `json:"result"` // of a confirmation: allow | deny

	StopReason *StopReason   `json:"stop_reason"`
	Error      *SessionError `json:"error"`
	Usage      *Usage        `json:"usage"`

	// ModelRequestStart is what a span.model_request_end closes.
	ModelRequestStart string `json:"model_request_start_id"`

	// Start is what an event_start announces.
	Start *Event `json:"event"`
	// EventID and Delta belong to an event_delta.
	EventID string `json:"event_id"`
	Delta   *Delta `json:"delta"`

	// Raw is the event as the server sent it.
	Raw jsontext.Value `json:"-"`
}

// Block is a block of content.
type Block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// Delta is a piece of a message that is being written.
type Delta struct {
	Index   int   `json:"index"`
	Content Block `json:"content"`
}

// StopReason says why a session is idle.
type StopReason struct {
	Type     string   `json:"type"`
	EventIDs []string `json:"event_ids"`
}

// SessionError is what a session.error tells.
type SessionError struct {
	Type        string `json:"type"`
	Message     string `json:"message"`
	RetryStatus struct {
		Type string `json:"type"` // retrying | exhausted | terminal
	} `json:"retry_status"`
}

// Usage is the part of a session's usage that is shown.
type Usage struct {
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	ListCost     *Money `json:"list_cost"` // nil if a model without a list price was used
}

// Money is an amount in whole cents.
type Money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

// Call is the id of the tool call that a result or a confirmation belongs to, or "".
func (e *Event) Call() string {
	switch {
	case e.ToolUse != "":
		return e.ToolUse
	case e.MCPToolUse != "":
		return e.MCPToolUse
	default:
		return e.CustomToolUse
	}
}

// Failed reports whether the event is a result or a span that says it failed.
func (e *Event) Failed() bool { return e.IsError != nil && *e.IsError }

// Persisted reports whether the event is in the log.
func (e *Event) Persisted() bool { return e.ID != "" }

// ParseEvent reads an event as it is on the wire. Fields that are not known are ignored.
func ParseEvent(data []byte) (Event, error) {
	raw := jsontext.Value(data).Clone()
	var e Event
	if err := json.Unmarshal(raw, &e); err != nil {
		// The cause may quote what the server sent, which is not fit for a terminal or a log.
		return Event{}, &unreadableError{cause: err}
	}
	if e.Type == "" {
		return Event{}, &unreadableError{cause: errors.New("it has no type")}
	}
	e.Raw = raw
	return e, nil
}

type unreadableError struct{ cause error }

func (e *unreadableError) Error() string { return "the server sent an event that cannot be read" }
func (e *unreadableError) Unwrap() error { return e.cause }

func (e Event) String() string { return fmt.Sprintf("%s %s", e.Type, e.ID) }
