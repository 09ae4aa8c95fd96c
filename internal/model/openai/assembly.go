package openai

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

// assembly puts an answer together from the chunks of a stream.
type assembly struct {
	preview func(model.Delta)
	ids     *model.CallIDs
	id      string
	model   string
	drafts  []*draft
	blank   string // white space that came where no text had begun
	finish  string
	usage   model.Usage
}

// draft is a block of which more may come.
type draft struct {
	kind  string // text | thinking | tool_use
	text  strings.Builder
	id    string
	name  string
	index *int // as the server counts its calls; nil if it does not
}

type chunk struct {
	ID      string         `json:"id"`
	Model   string         `json:"model"`
	Choices []choice       `json:"choices"`
	Usage   *usage         `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

type choice struct {
	Index        int            `json:"index"`
	Delta        delta          `json:"delta"`
	Message      delta          `json:"message"` // of an answer that came whole
	FinishReason *string        `json:"finish_reason"`
	Error        jsontext.Value `json:"error"`
}

type delta struct {
	Content          jsontext.Value `json:"content"` // a string, null, or with some servers an array of parts
	ReasoningContent *string        `json:"reasoning_content"`
	Reasoning        *string        `json:"reasoning"`
	Refusal          *string        `json:"refusal"`
	ToolCalls        []call         `json:"tool_calls"`
	FunctionCall     *function      `json:"function_call"`
}

type call struct {
	Index    *int     `json:"index"`
	ID       string   `json:"id"`
	Function function `json:"function"`
}

type function struct {
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"` // a string, or with some servers an object
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Details    *struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func newAssembly(request model.Request, preview func(model.Delta)) *assembly {
	return &assembly{preview: preview, ids: model.NewCallIDs(request.Messages), model: request.Model}
}

// take reads one chunk.
func (a *assembly) take(raw []byte) error {
	var c chunk
	if err := json.Unmarshal(raw, &c, lenient); err != nil {
		return fmt.Errorf("a chunk of the stream cannot be read: %w", err)
	}
	if err := streamError(c.Error); err != nil {
		return err
	}
	if c.ID != "" {
		a.id = c.ID
	}
	if c.Model != "" {
		a.model = c.Model
	}
	if c.Usage != nil {
		cached := int64(0)
		if c.Usage.Details != nil {
			cached = min(max(c.Usage.Details.Cached, 0), max(c.Usage.Prompt, 0))
		}
		a.usage = model.Usage{InputTokens: max(c.Usage.Prompt, 0) - cached, CacheReadTokens: cached, OutputTokens: max(c.Usage.Completion, 0)}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // one answer was asked for
		}
		if err := streamError(choice.Error); err != nil {
			return err
		}
		a.add(choice.Delta)
		a.add(choice.Message)
		if choice.FinishReason != nil && *choice.FinishReason != "" {
			a.finish = *choice.FinishReason
		}
	}
	if a.finish == "error" {
		return &model.Error{Class: model.RequestFailed, Retryable: true, Message: "the model provider broke the answer off"}
	}
	return nil
}

// streamError is the error of a chunk, if it has one.
func streamError(raw jsontext.Value) error {
	if raw == nil || raw.Kind() == 'n' {
		return nil
	}
	if raw.Kind() == '"' {
		return rejected(http.StatusOK, failure{Message: words(raw)}, 0)
	}
	return rejected(http.StatusOK, readFailure(raw), 0)
}

func (a *assembly) add(d delta) {
	for _, reasoning := range []*string{d.ReasoningContent, d.Reasoning} {
		// Servers that send both names send the same text under both.
		if reasoning != nil && *reasoning != "" {
			a.say("thinking", *reasoning)
			break
		}
	}
	a.say("text", contentText(d.Content))
	if d.Refusal != nil {
		a.say("text", *d.Refusal)
	}
	for _, call := range d.ToolCalls {
		a.call(call)
	}
	if d.FunctionCall != nil {
		first := 0
		a.call(call{Index: &first, Function: *d.FunctionCall})
	}
}

func contentText(content jsontext.Value) string {
	if content.Kind() == '"' {
		return words(content)
	}
	if content.Kind() != '[' {
		return ""
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts, lenient) != nil {
		return ""
	}
	var text strings.Builder
	for _, part := range parts {
		if part.Type == "text" {
			text.WriteString(part.Text)
		}
	}
	return text.String()
}

// say adds text or thinking. A block does not begin with white space alone, which many models write before a call and
// which no conversation may hold.
func (a *assembly) say(kind, text string) {
	if text == "" {
		return
	}
	last := len(a.drafts) - 1
	if last < 0 || a.drafts[last].kind != kind {
		if strings.TrimSpace(text) == "" {
			if kind == "text" {
				a.blank += text
			}
			return
		}
		if kind == "text" {
			text = a.blank + text
			a.blank = ""
		}
		a.drafts = append(a.drafts, &draft{kind: kind})
		last++
		a.tell(last, kind, "")
	}
	a.drafts[last].text.WriteString(text)
	a.tell(last, kind, text)
}

func (a *assembly) tell(block int, kind, text string) {
	if a.preview != nil {
		a.preview(model.Delta{Block: block, Type: kind, Text: text})
	}
}

// call adds a piece of a tool call. A piece with a name begins a new call if its id is not that of the call it seems to
// belong to, or, from servers that give no ids, if that call is complete. The index alone does not say, since some servers
// give all calls the same, and neither does the id, since some make one up for every piece.
func (a *assembly) call(c call) {
	d := a.open(c)
	another := d != nil && c.Function.Name != "" && (c.ID != "" && d.id != "" && c.ID != d.id || c.ID == "" && d.name != "" && d.whole())
	if d == nil || another {
		d = &draft{kind: "tool_use", index: c.Index}
		a.drafts = append(a.drafts, d)
	}
	if d.id == "" {
		d.id = c.ID
	}
	if d.name == "" {
		d.name = c.Function.Name
	}
	if c.Function.Arguments.Kind() == '"' {
		d.text.WriteString(words(c.Function.Arguments))
	} else if c.Function.Arguments.Kind() == '{' {
		d.text.Write(c.Function.Arguments)
	}
}

// open finds the call that a piece belongs to: the latest with its id or index, or without either the latest of all.
func (a *assembly) open(c call) *draft {
	for i := len(a.drafts) - 1; i >= 0; i-- {
		d := a.drafts[i]
		switch {
		case d.kind != "tool_use":
			continue
		case c.Index != nil && d.index != nil:
			if *c.Index == *d.index {
				return d
			}
		case c.ID != "":
			if c.ID == d.id {
				return d
			}
		default:
			return d
		}
	}
	return nil
}

// whole reports whether the arguments so far are a complete object.
func (d *draft) whole() bool {
	value := jsontext.Value(d.text.String())
	return value.Kind() == '{' && value.IsValid(lenient)
}

// stopReasons gives Anthropic's names to the finish reasons. Others mean that the model was done.
var stopReasons = map[string]string{"length": "max_tokens", "content_filter": "refusal", "max_tokens": "max_tokens"}

func (a *assembly) response() (*model.Response, error) {
	r := &model.Response{ID: a.id, Model: a.model, StopReason: stopReasons[a.finish], Usage: a.usage}
	if r.StopReason == "refusal" {
		r.StopDetails = jsontext.Value(`{"type":"refusal","category":null,"explanation":"The provider's content filter ended the answer."}`)
	}
	for i, d := range a.drafts {
		var raw jsontext.Value
		var err error
		switch d.kind {
		case "text":
			raw, err = object("type", "text", "text", d.text.String())
		case "thinking":
			raw, err = object("type", "thinking", "thinking", d.text.String(), "signature", "")
		case "tool_use":
			if r.StopReason == "" {
				r.StopReason = "tool_use"
			}
			cut := model.Truncated(r.StopReason) && i == len(a.drafts)-1
			input, ok := model.ToolInput(d.text.String())
			if !ok || cut && d.text.Len() == 0 {
				r.Broken = append(r.Broken, model.NewBrokenCall(i, cut, d.text.String()))
			}
			raw, err = object("type", "tool_use", "id", a.ids.Unique(d.id), "name", callName(d.name), "input", input)
		}
		if err != nil {
			return nil, &model.Error{Class: model.RequestFailed, Retryable: true, Usage: a.usage, Cause: err, Message: "the model's answer makes no sense"}
		}
		r.Content = append(r.Content, raw)
	}
	if r.StopReason == "" {
		r.StopReason = "end_turn"
	}
	return r, nil
}

var unsound = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// callName makes a name that a conversation may hold. A name that has to be changed is that of no tool.
func callName(name string) string {
	if name == "" {
		return "unnamed"
	}
	name = unsound.ReplaceAllString(name, "_")
	return name[:min(len(name), 128)]
}

// object writes a JSON object of alternating names and values, which are strings or raw JSON.
func object(members ...any) (jsontext.Value, error) {
	var out bytes.Buffer
	encoder := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
	if err := encoder.WriteToken(jsontext.BeginObject); err != nil {
		return nil, err
	}
	for _, member := range members {
		var err error
		switch member := member.(type) {
		case string:
			err = encoder.WriteToken(jsontext.String(strings.ToValidUTF8(member, "\uFFFD")))
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
