package scripted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

// Provider plays the scripts of a library in this process.
type Provider struct{ library *Library }

var _ model.Provider = (*Provider)(nil)

// New returns a provider that plays the scripts of a library.
func New(library *Library) *Provider { return &Provider{library: library} }

// Library returns the scripts that are played.
func (p *Provider) Library() *Library { return p.library }

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, request model.Request, preview func(model.Delta)) (*model.Response, error) {
	answer, err := p.library.Answer(request)
	if err != nil {
		return nil, err
	}
	if answer.Failure != nil {
		if err := wait(ctx, answer.delay); err != nil {
			return nil, fmt.Errorf("model request: %w", err)
		}
		return nil, answer.Failure.Err()
	}
	to := &listener{answer: answer, preview: preview, ids: model.NewCallIDs(request.Messages), response: &model.Response{
		ID: answer.ID, Model: answer.Model, StopReason: answer.StopReason, StopDetails: answer.StopDetails, Usage: answer.Usage,
	}}
	err = answer.Play(ctx, to)
	switch {
	case err == nil:
		return to.response, nil
	case errors.Is(err, ErrBroken):
		return nil, answer.brokenError()
	case ctx.Err() != nil:
		return nil, fmt.Errorf("model request: %w", err)
	default:
		return nil, &model.Error{Class: model.RequestFailed, Message: "the scripted answer cannot be made", Cause: err}
	}
}

// Delay is how long the answer, or the failure in its place, lets wait before its first byte.
func (a *Answer) Delay(ctx context.Context) error { return wait(ctx, a.delay) }

// Err is the error that a provider makes of the failure.
func (f *Failure) Err() *model.Error {
	status, wireType, message := f.Filled()
	return model.Rejected(status, wireType, message, f.RetryAfter)
}

// Filled returns the failure with what the script left out.
func (f *Failure) Filled() (status int, wireType, message string) {
	status, wireType, message = f.Status, f.Type, f.Message
	if status == 0 {
		status = 529
	}
	if wireType == "" {
		wireType = errorTypes[status]
	}
	if wireType == "" && status >= 500 {
		wireType = "api_error"
	}
	if wireType == "" {
		wireType = "invalid_request_error"
	}
	if message == "" {
		message = fmt.Sprintf("the script answers with status %d", status)
	}
	return status, wireType, message
}

var errorTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusPaymentRequired:       "billing_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusGatewayTimeout:        "timeout_error",
	529:                              "overloaded_error",
}

// Filled returns the error event of a break with what the script left out.
func (b *Break) Filled() (wireType, message string) {
	wireType, message = b.Type, b.Message
	if wireType == "" {
		wireType = "overloaded_error"
	}
	if message == "" {
		message = "the script breaks the stream"
	}
	return wireType, message
}

// brokenError is what a client of the stream would make of the break. The input is paid for: usage came with the start.
func (a *Answer) brokenError() *model.Error {
	var failed *model.Error
	if a.Break.How == "error" {
		wireType, message := a.Break.Filled()
		failed = model.Rejected(http.StatusOK, wireType, message, 0)
	} else {
		failed = &model.Error{Class: model.RequestFailed, Retryable: true, Message: "the model's answer ended before it was complete"}
	}
	failed.Usage = a.Usage
	if !a.Break.BeforeStop {
		failed.Usage.OutputTokens = 0
	}
	return failed
}

// listener collects the response in the way in which a real provider's adapter does.
type listener struct {
	answer   *Answer
	preview  func(model.Delta)
	ids      *model.CallIDs
	response *model.Response
}

func (l *listener) Start() error      { return nil }
func (l *listener) BeforeStop() error { return nil }
func (l *listener) Ping() error       { return nil }

func (l *listener) BlockStart(block int, part Part) error {
	l.tell(block, part, "")
	return nil
}

func (l *listener) Delta(block int, part Part, text string) error {
	l.tell(block, part, text)
	return nil
}

func (l *listener) tell(block int, part Part, text string) {
	if l.preview != nil && (part.Type == "text" || part.Type == "thinking") {
		l.preview(model.Delta{Block: block, Type: part.Type, Text: text})
	}
}

func (l *listener) BlockStop(block int, part Part) error {
	input := jsontext.Value(nil)
	if part.Type == "tool_use" {
		cut := model.Truncated(l.answer.StopReason) && block == len(l.answer.Parts)-1
		sound, ok := model.ToolInput(part.Text)
		if !ok || cut && part.Text == "" {
			l.response.Broken = append(l.response.Broken, model.NewBrokenCall(block, cut, part.Text))
		}
		input = sound
		part.ID = l.ids.Unique(part.ID)
	}
	raw, err := part.Block(input)
	if err != nil {
		return fmt.Errorf("block %d: %w", block, err)
	}
	l.response.Content = append(l.response.Content, raw)
	return nil
}

// Block is the content block of a part in Anthropic's form, with the given input for tool_use.
func (p Part) Block(input jsontext.Value) (jsontext.Value, error) {
	switch p.Type {
	case "text":
		return object("type", p.Type, "text", p.Text)
	case "thinking":
		return object("type", p.Type, "thinking", p.Text, "signature", p.Signature)
	case "redacted_thinking":
		return object("type", p.Type, "data", p.Text)
	case "tool_use":
		return object("type", p.Type, "id", p.ID, "name", p.Name, "input", input)
	}
	return jsontext.Value(p.Text), nil
}

// object writes a JSON object of alternating names and values, which are strings or raw JSON.
func object(members ...any) (jsontext.Value, error) {
	var out bytes.Buffer
	// What a script says may hold text that is no Unicode only through its own insertions; it is replaced, as a real
	// provider's adapter does.
	encoder := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
	if err := encoder.WriteToken(jsontext.BeginObject); err != nil {
		return nil, err
	}
	for _, member := range members {
		var err error
		switch member := member.(type) {
		case string:
			err = encoder.WriteToken(jsontext.String(member))
		case jsontext.Value:
			err = encoder.WriteValue(member)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := encoder.WriteToken(jsontext.EndObject); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
