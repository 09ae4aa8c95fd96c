package mockserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/scripted"
)

// play answers a request that was understood and notes in the record how it ended.
func (s *Server) play(w http.ResponseWriter, r *http.Request, parsed *request, record *Record) {
	answer, err := s.config.Library.Answer(parsed.forLibrary(record.Session))
	if err != nil {
		refusal := &Refusal{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: err.Error()}
		var known *model.Error
		if errors.As(err, &known) {
			refusal.Status, refusal.Message = known.Status, known.Message
			if known.Status == http.StatusNotFound {
				refusal.Type = "not_found_error"
			}
		}
		record.Status, record.Outcome, record.Message = refusal.Status, Failed, refusal.Message
		s.end(record)
		writeError(w, refusal)
		return
	}
	if answer.Failure != nil {
		s.fail(w, r, answer, record)
		return
	}
	record.Status = http.StatusOK
	record.Usage = answer.Usage
	if !answer.UsageGiven {
		record.Usage = s.cache.usage(parsed, answer.Usage)
	}
	if parsed.Stream {
		s.stream(w, r, answer, record)
	} else {
		s.whole(w, r, answer, record)
	}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, answer *scripted.Answer, record *Record) {
	if answer.Delay(r.Context()) != nil {
		record.Outcome = Closed
		return
	}
	status, wireType, message := answer.Failure.Filled()
	record.Status, record.Outcome, record.Message = status, Failed, message
	s.end(record)
	writeError(w, &Refusal{Status: status, Type: wireType, Message: message, RetryAfter: answer.Failure.RetryAfter})
}

func (s *Server) stream(w http.ResponseWriter, r *http.Request, answer *scripted.Answer, record *Record) {
	to := &stream{w: w, flush: http.NewResponseController(w), answer: answer, usage: record.Usage}
	err := answer.Play(r.Context(), to)
	switch {
	case err == nil:
		record.Outcome = Complete
		s.end(record)
		// A client that went away at the very end has missed nothing but the end.
		_ = to.send("message_stop", map[string]string{"type": "message_stop"})
	case errors.Is(err, scripted.ErrBroken):
		record.Outcome, record.abort = Broken, answer.Break.How == "cut"
		if answer.Break.How == "error" {
			wireType, message := answer.Break.Filled()
			s.end(record)
			_ = to.send("error", errorBody{Type: "error", Error: errorDetail{Type: wireType, Message: message}})
		}
	default:
		// Playing and writing fail only when the client is gone.
		record.Outcome = Closed
	}
}

// stream writes an answer as server-sent events.
type stream struct {
	w      http.ResponseWriter
	flush  *http.ResponseController
	answer *scripted.Answer
	usage  model.Usage
	out    []byte
}

func (s *stream) send(event string, data any) error {
	body, err := json.Marshal(data, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("event %s: %w", event, err)
	}
	s.out = fmt.Appendf(s.out[:0], "event: %s\ndata: %s\n\n", event, body)
	if _, err := s.w.Write(s.out); err != nil {
		return err
	}
	return s.flush.Flush()
}

type cacheCreation struct {
	FiveMinutes int64 `json:"ephemeral_5m_input_tokens"`
	OneHour     int64 `json:"ephemeral_1h_input_tokens"`
}

type wireUsage struct {
	Input         int64          `json:"input_tokens"`
	CacheCreation int64          `json:"cache_creation_input_tokens"`
	CacheRead     int64          `json:"cache_read_input_tokens"`
	ByLife        cacheCreation  `json:"cache_creation"`
	Output        int64          `json:"output_tokens"`
	ServerTools   *serverToolUse `json:"server_tool_use"`
	Speed         string         `json:"speed,omitempty"`
	ServiceTier   string         `json:"service_tier"`
}

type serverToolUse struct {
	WebSearches int64 `json:"web_search_requests"`
}

func usageOnWire(usage model.Usage, output int64) wireUsage {
	wire := wireUsage{
		Input: usage.InputTokens, CacheCreation: usage.CacheWrite5mTokens + usage.CacheWrite1hTokens, CacheRead: usage.CacheReadTokens,
		ByLife: cacheCreation{usage.CacheWrite5mTokens, usage.CacheWrite1hTokens}, Output: output, ServiceTier: "standard",
	}
	if usage.WebSearchRequests > 0 {
		wire.ServerTools = &serverToolUse{usage.WebSearchRequests}
	}
	if usage.Fast {
		wire.Speed = "fast"
	}
	return wire
}

type wireMessage struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Role         string           `json:"role"`
	Model        string           `json:"model"`
	Content      []jsontext.Value `json:"content"`
	StopReason   *string          `json:"stop_reason"`
	StopSequence *string          `json:"stop_sequence"`
	StopDetails  jsontext.Value   `json:"stop_details"`
	Usage        wireUsage        `json:"usage"`
}

func (s *stream) Start() error {
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s.w.Header().Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
	return s.send("message_start", map[string]any{"type": "message_start", "message": wireMessage{
		ID: s.answer.ID, Type: "message", Role: "assistant", Model: s.answer.Model, Content: []jsontext.Value{}, Usage: usageOnWire(s.usage, 1),
	}})
}

func (s *stream) BlockStart(block int, part scripted.Part) error {
	switch part.Type {
	case "text", "thinking":
		part.Text, part.Signature = "", ""
	}
	raw, err := part.Block(jsontext.Value("{}"))
	if err != nil {
		return err
	}
	return s.send("content_block_start", map[string]any{"type": "content_block_start", "index": block, "content_block": raw})
}

func (s *stream) Delta(block int, part scripted.Part, text string) error {
	switch part.Type {
	case "text":
		return s.delta(block, map[string]any{"type": "text_delta", "text": text})
	case "thinking":
		return s.delta(block, map[string]any{"type": "thinking_delta", "thinking": text})
	default:
		return s.delta(block, map[string]any{"type": "input_json_delta", "partial_json": text})
	}
}

func (s *stream) delta(block int, delta map[string]any) error {
	return s.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": block, "delta": delta})
}

func (s *stream) BlockStop(block int, part scripted.Part) error {
	if part.Type == "thinking" {
		if err := s.delta(block, map[string]any{"type": "signature_delta", "signature": part.Signature}); err != nil {
			return err
		}
	}
	return s.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": block})
}

func (s *stream) BeforeStop() error {
	return s.send("message_delta", map[string]any{
		"type":  "message_delta",
		"delta": map[string]any{"stop_reason": s.answer.StopReason, "stop_sequence": nil, "stop_details": s.answer.StopDetails},
		"usage": usageOnWire(s.usage, s.usage.OutputTokens),
	})
}

func (s *stream) Ping() error { return s.send("ping", map[string]string{"type": "ping"}) }

// whole answers a request that did not ask for a stream. A break before the end can only be a dropped connection here, or
// an error status.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, answer *scripted.Answer, record *Record) {
	to := &collector{content: []jsontext.Value{}}
	err := answer.Play(r.Context(), to)
	switch {
	case errors.Is(err, scripted.ErrBroken) && answer.Break.How == "error":
		wireType, message := answer.Break.Filled()
		record.Status, record.Outcome = 529, Broken
		s.end(record)
		writeError(w, &Refusal{Status: 529, Type: wireType, Message: message})
	case errors.Is(err, scripted.ErrBroken):
		record.Outcome, record.abort = Broken, true
	case r.Context().Err() != nil || errors.Is(err, context.Canceled):
		record.Outcome = Closed
	case err != nil:
		record.Status, record.Outcome, record.Message = http.StatusInternalServerError, Failed, err.Error()
		s.end(record)
		writeError(w, &Refusal{Status: http.StatusInternalServerError, Type: "api_error", Message: err.Error()})
	default:
		record.Outcome = Complete
		s.end(record)
		writeJSON(w, http.StatusOK, wireMessage{
			ID: answer.ID, Type: "message", Role: "assistant", Model: answer.Model, Content: to.content, StopReason: &answer.StopReason,
			StopDetails: answer.StopDetails, Usage: usageOnWire(record.Usage, record.Usage.OutputTokens),
		})
	}
}

type collector struct{ content []jsontext.Value }

func (c *collector) Start() error                           { return nil }
func (c *collector) BlockStart(int, scripted.Part) error    { return nil }
func (c *collector) Delta(int, scripted.Part, string) error { return nil }
func (c *collector) BeforeStop() error                      { return nil }
func (c *collector) Ping() error                            { return nil }

func (c *collector) BlockStop(_ int, part scripted.Part) error {
	input, _ := model.ToolInput(part.Text)
	raw, err := part.Block(input)
	if err != nil {
		return err
	}
	c.content = append(c.content, raw)
	return nil
}
