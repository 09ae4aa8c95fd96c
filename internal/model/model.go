// Package model is what the runner needs of a language model, whoever serves it.
//
// The message format is that of the Anthropic Messages API: a list of roles and content blocks, kept as raw JSON so that
// what a provider said (thinking blocks with their signatures, tool inputs with their number text and key order) goes
// back to it byte for byte. Providers of other formats translate at their own edge.
//
// A provider makes one attempt. It never retries: the runner owns retries, because each attempt is durable.
package model

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/session"
)

// Request is one sampling request. It is a function of the session's log alone: the same log gives the same bytes, so a
// provider's prompt cache finds the prefix of the request before.
type Request struct {
	Model  string
	Effort string // low | medium | high | xhigh | max; "" leaves it to the provider
	Speed  string // standard | fast; "" is standard
	// InferenceGeo confines where the model runs: us | global; "" leaves it to the provider.
	InferenceGeo string
	System       string // "" for none
	Tools        []Tool
	Messages     []Message
	MaxTokens    int // upper bound of the answer; 0 leaves it to the provider's adapter
	// Session is the id of the session, for scripted models and for the provider's logs. It is not part of the prompt.
	Session string
}

// Tool is one tool as offered to the model.
type Tool struct {
	Name        string
	Description string
	InputSchema jsontext.Value // a JSON Schema object
}

// Message is one entry of the conversation, as the session's log projects it.
type Message = session.Message

// Response is a complete answer. A provider returns one only if the model said that it was done: a stream that ends
// early is an *Error, whatever has arrived.
type Response struct {
	ID    string // the provider's id of the answer, "" if it gives none
	Model string // the model that answered
	// Content holds the blocks in order, each in Anthropic's form: text, thinking, redacted_thinking, tool_use. Blocks
	// of the model's own that the provider knows nothing of are passed on as they came. The ids of tool_use blocks are
	// unique in the conversation of the request, also if the model repeated one.
	Content []jsontext.Value
	// StopReason is end_turn | tool_use | max_tokens | stop_sequence | refusal | pause_turn | model_context_window_exceeded.
	StopReason  string
	StopDetails jsontext.Value // with refusal: {type, category, explanation}; nil otherwise
	// Broken names the tool_use blocks whose input is not what the model meant to send. Their input is {} in Content, so
	// that the answer can be stored and replayed, but the calls must not be run: they are to be answered with an error
	// result that says why. It is nil when every call is sound.
	Broken []BrokenCall
	Usage  Usage
}

// BrokenCall is a tool call that must not be run.
type BrokenCall struct {
	Block int    // index in Response.Content
	Cut   bool   // the output limit cut the input; otherwise the input is not a JSON object
	Input string // what arrived, for the error result: at most 1,000 bytes, not trusted
}

// Usage is what the provider reported for one attempt.
type Usage struct {
	InputTokens        int64 `json:"input_tokens"` // not counting cache reads and writes
	OutputTokens       int64 `json:"output_tokens"`
	CacheReadTokens    int64 `json:"cache_read_input_tokens"`
	CacheWrite5mTokens int64 `json:"cache_write_5m_input_tokens"`
	CacheWrite1hTokens int64 `json:"cache_write_1h_input_tokens"`
	WebSearchRequests  int64 `json:"web_search_requests"`
	Fast               bool  `json:"fast,omitzero"` // served at the fast speed, which has its own prices
}

// Delta is a piece of an answer that is still being written. Deltas are a preview: only a Response counts.
type Delta struct {
	Block int    // index of the block in Response.Content
	Type  string // text | thinking
	// Text is the new text. The first delta of a block may be empty: it announces that the block has begun.
	Text string
}

// Provider samples a model.
type Provider interface {
	// Stream makes one attempt. It calls preview, from this goroutine, for each delta as it arrives. It returns promptly
	// when ctx ends, with an error that wraps context.Cause(ctx). Every other error is an *Error. When an attempt fails
	// after the provider reported usage, Error.Usage holds it.
	Stream(ctx context.Context, request Request, preview func(Delta)) (*Response, error)
}

// Class says what kind of failure an attempt met. It decides what clients are told and whether another attempt is made.
type Class string

// The classes, by the name that session.error gives them.
const (
	Overloaded    Class = "model_overloaded_error"
	RateLimited   Class = "model_rate_limited_error"
	RequestFailed Class = "model_request_failed_error"
	Billing       Class = "billing_error"
)

// Error is a failed attempt.
type Error struct {
	Class   Class
	Status  int    // the HTTP status, 0 if there was no answer
	Message string // safe to show to the session's owner: no key, no header
	// Retryable says that the same request may succeed later.
	Retryable bool
	// RetryAfter is how long the provider asked us to wait, 0 if it did not say.
	RetryAfter time.Duration
	// Usage is what the failed attempt cost, as far as the provider said.
	Usage Usage
	Cause error
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Class, e.Message, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Class, e.Message)
}

func (e *Error) Unwrap() error { return e.Cause }

// Info is what the server tells of a model in GET /v1/models.
type Info struct {
	ID          string
	DisplayName string
	CreatedAt   time.Time
}
