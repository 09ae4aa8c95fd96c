package anthropic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

// thinksOnRequest begins the names of models that think adaptively only if the request says so. Later models do it on
// their own, and earlier ones cannot.
var thinksOnRequest = []string{"claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-4-6", "claude-mythos-preview"}

// cacheable are the kinds of blocks that may carry a cache breakpoint.
var cacheable = []string{"text", "image", "document", "search_result", "tool_use", "tool_result"}

// body writes the request. Breakpoints are at the end of what never changes (system, or tools without one), at the end of
// the conversation, and where the conversation of the request before this one ended. The last is there because the
// provider looks back only twenty blocks from a breakpoint, and a step with many parallel tool calls is longer.
func (p *Provider) body(request model.Request) ([]byte, error) {
	maxTokens := request.MaxTokens
	if maxTokens <= 0 {
		maxTokens = p.config.MaxTokens
	}
	b := append([]byte(nil), `{"model":`...)
	b = appendString(b, request.Model)
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(maxTokens), 10)
	b = append(b, `,"stream":true`...)
	if request.Effort != "" {
		b = append(b, `,"output_config":{"effort":`...)
		b = append(appendString(b, request.Effort), '}')
	}
	if request.Speed != "" && request.Speed != "standard" {
		b = appendString(append(b, `,"speed":`...), request.Speed)
	}
	if request.InferenceGeo != "" {
		b = appendString(append(b, `,"inference_geo":`...), request.InferenceGeo)
	}
	if slices.ContainsFunc(thinksOnRequest, func(name string) bool { return strings.HasPrefix(request.Model, name) }) {
		b = append(b, `,"thinking":{"type":"adaptive"}`...)
	}
	var err error
	if len(request.Tools) > 0 {
		if b, err = p.appendTools(append(b, `,"tools":`...), request); err != nil {
			return nil, err
		}
	}
	if request.System != "" {
		b = appendString(append(b, `,"system":[{"type":"text","text":`...), request.System)
		b = append(p.appendBreakpoint(b), `}]`...)
	}
	if b, err = p.appendMessages(append(b, `,"messages":`...), request.Messages); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

func (p *Provider) appendTools(b []byte, request model.Request) ([]byte, error) {
	b = append(b, '[')
	for i, tool := range request.Tools {
		if i > 0 {
			b = append(b, ',')
		}
		if tool.InputSchema.Kind() != '{' || !tool.InputSchema.IsValid() {
			return nil, fmt.Errorf("tools.%d.input_schema is not a JSON object", i)
		}
		b = appendString(append(b, `{"name":`...), tool.Name)
		if tool.Description != "" {
			b = appendString(append(b, `,"description":`...), tool.Description)
		}
		b = append(append(b, `,"input_schema":`...), tool.InputSchema...)
		if request.System == "" && i == len(request.Tools)-1 {
			b = p.appendBreakpoint(b)
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

func (p *Provider) appendMessages(b []byte, messages []model.Message) ([]byte, error) {
	last := len(messages) - 1
	before := -1
	for i := last - 1; i >= 0 && before < 0; i-- {
		if messages[i+1].Role == "assistant" {
			before = i
		}
	}
	b = append(b, '[')
	for i, message := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		if kind := message.Content.Kind(); kind != '[' && kind != '"' || !message.Content.IsValid() {
			return nil, fmt.Errorf("messages.%d.content is not a JSON array", i)
		}
		b = appendString(append(b, `{"role":`...), message.Role)
		b = append(b, `,"content":`...)
		at := -1
		if i == last || i == before {
			at = breakpointAt(message.Content)
		}
		if at >= 0 {
			b = append(b, message.Content[:at]...)
			b = p.appendBreakpoint(b)
			b = append(b, message.Content[at:]...)
		} else {
			b = append(b, message.Content...)
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

func (p *Provider) appendBreakpoint(b []byte) []byte {
	if p.config.CacheTTL == "1h" {
		return append(b, `,"cache_control":{"type":"ephemeral","ttl":"1h"}`...)
	}
	return append(b, `,"cache_control":{"type":"ephemeral"}`...)
}

// breakpointAt is the offset in content of the closing brace of the last block that may carry a breakpoint, -1 if there is
// none.
func breakpointAt(content jsontext.Value) int {
	if content.Kind() != '[' {
		return -1
	}
	decoder := jsontext.NewDecoder(strings.NewReader(string(content)))
	if _, err := decoder.ReadToken(); err != nil {
		return -1
	}
	at := -1
	for decoder.PeekKind() != ']' {
		raw, err := decoder.ReadValue()
		if err != nil {
			return -1
		}
		var block struct {
			Type         string         `json:"type"`
			Text         string         `json:"text"`
			CacheControl jsontext.Value `json:"cache_control"`
		}
		end := int(decoder.InputOffset()) - 1
		if json.Unmarshal(raw, &block) != nil || block.CacheControl != nil || !slices.Contains(cacheable, block.Type) {
			continue
		}
		if block.Type != "text" || strings.TrimSpace(block.Text) != "" {
			at = end
		}
	}
	return at
}

// appendString writes a JSON string. What is no Unicode is replaced: strict parsers refuse it.
func appendString(b []byte, text string) []byte {
	quoted, err := jsontext.AppendQuote(b, text)
	if err != nil {
		quoted, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(text, "\uFFFD"))
	}
	return quoted
}
