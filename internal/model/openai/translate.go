package openai

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/sashabaranov/go-openai"

	"github.com/perdure/perdure/internal/model"
)

// newNames begin the names of models that take max_completion_tokens and refuse max_tokens. Most other servers know only
// the older name.
var newNames = []string{"o1", "o3", "o4", "gpt-5", "gpt-6"}

func (p *Provider) translate(request model.Request) (sdk.ChatCompletionRequest, error) {
	out := sdk.ChatCompletionRequest{
		Model:           request.Model,
		Stream:          true,
		StreamOptions:   &sdk.StreamOptions{IncludeUsage: true},
		ReasoningEffort: p.effort(request.Effort),
	}
	if p.official || hasPrefix(request.Model, newNames) {
		out.MaxCompletionTokens = request.MaxTokens
	} else {
		out.MaxTokens = request.MaxTokens //nolint:staticcheck // deprecated by OpenAI, and all that most other servers know
	}
	for i, tool := range request.Tools {
		if tool.InputSchema.Kind() != '{' || !tool.InputSchema.IsValid() {
			return out, fmt.Errorf("tools.%d.input_schema is not a JSON object", i)
		}
		out.Tools = append(out.Tools, sdk.Tool{Type: sdk.ToolTypeFunction, Function: &sdk.FunctionDefinition{
			Name: tool.Name, Description: tool.Description, Parameters: tool.InputSchema,
		}})
	}
	if request.System != "" {
		out.Messages = append(out.Messages, sdk.ChatCompletionMessage{Role: "system", Content: request.System})
	}
	for i, message := range request.Messages {
		blocks, err := readBlocks(message.Content)
		if err != nil {
			return out, fmt.Errorf("messages.%d.content: %w", i, err)
		}
		switch message.Role {
		case "assistant":
			if said, ok := p.assistant(blocks); ok {
				out.Messages = append(out.Messages, said)
			}
		case "system":
			if text := textOf(blocks); text != "" {
				out.Messages = append(out.Messages, sdk.ChatCompletionMessage{Role: "user", Content: "<system>\n" + text + "\n</system>"})
			}
		default:
			out.Messages = append(out.Messages, user(blocks)...)
		}
	}
	return out, nil
}

// effort keeps to the choices that servers of one's own know. More is not an error there but a refusal of the request.
func (p *Provider) effort(effort string) string {
	if !p.official && (effort == "xhigh" || effort == "max") {
		return "high"
	}
	return effort
}

func hasPrefix(text string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// block holds the members of all kinds of blocks that are translated.
type block struct {
	Type      string         `json:"type"`
	Text      string         `json:"text"`
	Thinking  string         `json:"thinking"`
	Signature string         `json:"signature"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID string         `json:"tool_use_id"`
	Content   jsontext.Value `json:"content"`
	IsError   bool           `json:"is_error"`
	Title     string         `json:"title"`
	Source    jsontext.Value `json:"source"` // an object, except for search results
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
	URL       string `json:"url"`
}

func readBlocks(content jsontext.Value) ([]block, error) {
	switch content.Kind() {
	case '"':
		var text string
		err := json.Unmarshal(content, &text)
		return []block{{Type: "text", Text: text}}, err
	case '[':
		var blocks []block
		err := json.Unmarshal(content, &blocks)
		return blocks, err
	case 'n', 0:
		return nil, nil
	}
	return nil, errors.New("neither a string nor an array")
}

func textOf(blocks []block) string {
	var texts []string
	for _, b := range blocks {
		if b.Type == "text" && strings.TrimSpace(b.Text) != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n\n")
}

// assistant translates an answer. An answer of which nothing is left is not worth a message.
func (p *Provider) assistant(blocks []block) (sdk.ChatCompletionMessage, bool) {
	message := sdk.ChatCompletionMessage{Role: "assistant", Content: textOf(blocks)}
	for _, b := range blocks {
		switch {
		case b.Type == "tool_use":
			message.ToolCalls = append(message.ToolCalls, sdk.ToolCall{ID: b.ID, Type: sdk.ToolTypeFunction,
				Function: sdk.FunctionCall{Name: b.Name, Arguments: string(b.Input)}})
		case b.Type == "thinking" && b.Signature == "" && !p.config.DropReasoning:
			message.ReasoningContent += b.Thinking
		}
	}
	return message, message.Content != "" || len(message.ToolCalls) > 0
}

// user translates a user message: first its tool results, one message each, then everything else.
func user(blocks []block) []sdk.ChatCompletionMessage {
	var messages []sdk.ChatCompletionMessage
	var parts []sdk.ChatMessagePart
	for _, b := range blocks {
		if b.Type != "tool_result" {
			continue
		}
		text, pictures := result(b)
		messages = append(messages, sdk.ChatCompletionMessage{Role: "tool", ToolCallID: b.ToolUseID, Content: text})
		parts = append(parts, pictures...)
	}
	for _, b := range blocks {
		if b.Type != "tool_result" {
			parts = append(parts, part(b)...)
		}
	}
	if len(parts) == 0 {
		return messages
	}
	message := sdk.ChatCompletionMessage{Role: "user"}
	var texts []string
	for _, p := range parts {
		if p.Type != sdk.ChatMessagePartTypeText {
			message.MultiContent = parts
			return append(messages, message)
		}
		texts = append(texts, p.Text)
	}
	// The plain form is understood by every server.
	message.Content = strings.Join(texts, "\n\n")
	return append(messages, message)
}

// result is the text of a tool result, never empty, and the pictures that have to follow it.
func result(b block) (text string, pictures []sdk.ChatMessagePart) {
	inner, err := readBlocks(b.Content)
	if err != nil {
		inner = []block{{Type: "text", Text: string(b.Content)}}
	}
	var texts []string
	for _, p := range inner {
		for _, translated := range part(p) {
			if translated.Type == sdk.ChatMessagePartTypeText {
				texts = append(texts, translated.Text)
				continue
			}
			pictures = append(pictures,
				sdk.ChatMessagePart{Type: sdk.ChatMessagePartTypeText, Text: "Image from the result of tool call " + b.ToolUseID + ":"}, translated)
			texts = append(texts, "[The image follows in the next message.]")
		}
	}
	text = strings.Join(texts, "\n")
	if text == "" {
		text = "(no output)"
	}
	if b.IsError {
		text = "Error: " + text
	}
	return text, pictures
}

// part translates one block of what the model is told.
func part(b block) []sdk.ChatMessagePart {
	text := func(text string) []sdk.ChatMessagePart {
		if strings.TrimSpace(text) == "" {
			return nil
		}
		return []sdk.ChatMessagePart{{Type: sdk.ChatMessagePartTypeText, Text: text}}
	}
	var from source
	if b.Source.Kind() == '{' && json.Unmarshal(b.Source, &from) != nil {
		from = source{}
	}
	switch b.Type {
	case "text":
		return text(b.Text)
	case "image":
		switch from.Type {
		case "base64":
			return picture("data:" + from.MediaType + ";base64," + from.Data)
		case "url":
			return picture(from.URL)
		}
		return text("[An image that cannot be shown to this model was left out.]")
	case "document":
		if from.Type == "text" {
			return text(strings.TrimSpace(b.Title + "\n\n" + from.Data))
		}
		return text(strings.TrimSpace("[A document that cannot be shown to this model was left out. "+b.Title) + "]")
	case "search_result":
		inner, err := readBlocks(b.Content)
		if err != nil {
			return nil
		}
		return text(strings.TrimSpace(b.Title+"\n"+words(b.Source)) + "\n\n" + textOf(inner))
	}
	return nil
}

func picture(url string) []sdk.ChatMessagePart {
	return []sdk.ChatMessagePart{{Type: sdk.ChatMessagePartTypeImageURL, ImageURL: &sdk.ChatMessageImageURL{URL: url}}}
}
