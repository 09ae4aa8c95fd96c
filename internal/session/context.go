package session

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Message is one entry of the conversation as the model sees it. Content is a JSON array of content blocks in the form
// of the Anthropic Messages API.
type Message struct {
	Role    string
	Content jsontext.Value
}

// Context is the fold of a log into the conversation that the model sees. Folding in more of the log only appends to it,
// so that the provider's prompt cache finds the prefix of the request before.
//
// What the model's API would refuse for ever is mended here and not in the log, so that a log which was written wrongly
// is read rightly: a call without a result gets one; a result without a call, or a second one, is left out; blank text
// is left out; thinking of another model is left out; an input that is no object is empty; roles take turns.
type Context struct {
	model    string
	resolve  func(block jsontext.Value) jsontext.Value
	seq      int64
	messages []Message
	bytes    int
	// held are thinking blocks that no other block has followed yet. An answer of nothing but thinking is left out.
	held []jsontext.Value
	// noted are texts of ours that came during a request, or while calls were open: they follow the answer and the results.
	noted []string
	// asking says that a request is open: what it was asked must not change.
	asking bool
	// open are the calls of the last answer, in order, and results what has come for them.
	open    []string
	results map[string]jsontext.Value
}

// NewContext begins a conversation with a model. Resolve turns a block whose source is a file into one that holds the
// content; it must give the same bytes for the same block.
func NewContext(model string, resolve func(block jsontext.Value) jsontext.Value) *Context {
	return &Context{model: model, resolve: resolve, results: map[string]jsontext.Value{}}
}

// Seq is the position of the last entry folded in.
func (c *Context) Seq() int64 { return c.seq }

// Model is the model that the conversation is with.
func (c *Context) Model() string { return c.model }

// Bytes is the size of the conversation.
func (c *Context) Bytes() int { return c.bytes }

// Fold applies entries in order. Entries that were folded in already are skipped.
func (c *Context) Fold(events ...Event) error {
	for _, e := range events {
		if e.Seq <= c.seq {
			continue
		}
		if err := c.apply(e); err != nil {
			return err
		}
		c.seq = e.Seq
	}
	return nil
}

func (c *Context) apply(e Event) error {
	switch e.Type {
	case UserMessage, SystemMessage:
		if e.Queued {
			return nil
		}
		role := "user"
		if e.Type == SystemMessage {
			role = "system"
		}
		blocks, err := contentBlocks(e.Body)
		if err != nil {
			return err
		}
		for i := range blocks {
			blocks[i] = c.resolved(blocks[i])
		}
		c.closeCalls()
		c.add(role, blocks...)
	case AgentMessage:
		blocks, err := contentBlocks(e.Body)
		if err != nil {
			return err
		}
		c.answer(blocks...)
	case AgentThinking, opaqueBlock:
		var private thinkingPrivate
		if e.Private == nil {
			return nil
		}
		if err := json.Unmarshal(e.Private, &private); err != nil {
			return err
		}
		if private.Model == c.model {
			c.held = append(c.held, private.Block)
		}
	case AgentToolUse, AgentMCPToolUse, AgentCustomToolUse:
		return c.call(e)
	case AgentToolResult, AgentMCPToolResult, UserToolResult, UserCustomToolResult:
		return c.result(e)
	case UserDefineOutcome:
		var body outcomeFields
		if err := json.Unmarshal(e.Body, &body); err != nil {
			return err
		}
		c.note(outcomePrompt(body))
	case OutcomeEvaluationEnd:
		var body struct {
			Result      string `json:"result"`
			Explanation string `json:"explanation"`
		}
		if err := json.Unmarshal(e.Body, &body); err != nil {
			return err
		}
		c.note(evaluationPrompt(body.Result, body.Explanation))
	case ModelRequestStart:
		c.closeCalls()
		c.asking = true
	case ModelRequestEnd:
		c.held, c.asking = nil, false
		if len(c.open) == 0 {
			c.closeCalls()
		}
	}
	return nil
}

// contentBlocks returns the blocks of a body's content, without blank text.
func contentBlocks(raw jsontext.Value) ([]jsontext.Value, error) {
	var body struct {
		Content []jsontext.Value `json:"content"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(body.Content, blankBlock), nil
}

func blankBlock(raw jsontext.Value) bool {
	var b textBlock
	return json.Unmarshal(raw, &b) == nil && b.Type == "text" && blank(b.Text)
}

func (c *Context) resolved(block jsontext.Value) jsontext.Value {
	var b struct {
		Source struct {
			Type string `json:"type"`
		} `json:"source"`
	}
	if c.resolve == nil || json.Unmarshal(block, &b) != nil || b.Source.Type != "file" {
		return block
	}
	return c.resolve(block)
}

// add appends blocks to the last message if it has the role, or begins a message.
func (c *Context) add(role string, blocks ...jsontext.Value) {
	if len(blocks) == 0 {
		return
	}
	if n := len(c.messages); n == 0 || c.messages[n-1].Role != role {
		c.messages = append(c.messages, Message{Role: role, Content: jsontext.Value("[]")})
	}
	m := &c.messages[len(c.messages)-1]
	// The array may be shared with a request that is under way: it is never written to in place.
	size := len(m.Content)
	for _, b := range blocks {
		size += len(b) + len(",")
		c.bytes += len(b)
	}
	content := append(make(jsontext.Value, 0, size), m.Content[:len(m.Content)-1]...)
	for _, b := range blocks {
		if len(content) > 1 {
			content = append(content, ',')
		}
		content = append(content, b...)
	}
	m.Content = append(content, ']')
}

// answer appends blocks of the model's answer.
func (c *Context) answer(blocks ...jsontext.Value) {
	if len(blocks) == 0 {
		return
	}
	c.add("assistant", append(c.held, blocks...)...)
	c.held = nil
}

func (c *Context) call(e Event) error {
	var body struct {
		Name   string         `json:"name"`
		Server string         `json:"mcp_server_name"`
		Input  jsontext.Value `json:"input"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	type use struct {
		Type  string         `json:"type"`
		ID    string         `json:"id"`
		Name  string         `json:"name"`
		Input jsontext.Value `json:"input"`
	}
	if body.Input.Kind() != '{' {
		body.Input = jsontext.Value(`{}`)
	}
	name := body.Name
	if e.Type == AgentMCPToolUse {
		name = MCPToolName(body.Server, body.Name)
	}
	block, err := encode(use{"tool_use", e.ID, name, body.Input})
	if err != nil {
		return err
	}
	c.answer(block)
	c.open = append(c.open, e.ID)
	return nil
}

// MCPToolName is the name under which a tool of an MCP server is offered to the model.
func MCPToolName(server, name string) string { return "mcp__" + server + "__" + name }

func (c *Context) result(e Event) error {
	id, err := answeredCall(e)
	if err != nil {
		return err
	}
	if _, done := c.results[id]; done || !slices.Contains(c.open, id) {
		return nil
	}
	var body struct {
		IsError bool `json:"is_error"`
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	blocks, err := contentBlocks(e.Body)
	if err != nil {
		return err
	}
	for i := range blocks {
		blocks[i] = c.resolved(blocks[i])
	}
	if body.IsError && slices.ContainsFunc(blocks, func(b jsontext.Value) bool { return !isText(b) }) {
		// The model's API takes only text in an error: the error becomes a text, so that nothing is lost.
		body.IsError = false
		blocks = slices.Insert(blocks, 0, failedResult)
	}
	c.results[id], err = resultBlock(id, blocks, body.IsError)
	if err == nil && len(c.results) == len(c.open) {
		c.closeCalls()
	}
	return err
}

func resultBlock(call string, content []jsontext.Value, isError bool) (jsontext.Value, error) {
	type result struct {
		Type    string         `json:"type"`
		Call    string         `json:"tool_use_id"`
		Content jsontext.Value `json:"content"`
		IsError bool           `json:"is_error,omitzero"`
	}
	raw := TextContent("(no output)")
	if len(content) > 0 {
		var err error
		if raw, err = encode(content); err != nil {
			return nil, err
		}
	}
	return encode(result{"tool_result", call, raw, isError})
}

// closeCalls puts the results directly after the calls, in the order of the calls, and then what was noted. A result that
// is missing says so.
func (c *Context) closeCalls() {
	blocks := make([]jsontext.Value, 0, len(c.open))
	for _, id := range c.open {
		block, ok := c.results[id]
		if !ok {
			block, _ = resultBlock(id, []jsontext.Value{missingResult}, true)
		}
		blocks = append(blocks, block)
	}
	c.add("user", blocks...)
	c.open = nil
	clear(c.results)
	noted := c.noted
	c.noted = nil
	for _, text := range noted {
		c.note(text)
	}
}

// note adds a text of ours to what the user says.
func (c *Context) note(text string) {
	switch {
	case blank(text):
	case c.asking || len(c.open) > 0:
		c.noted = append(c.noted, text)
	default:
		block, err := encode(textBlock{"text", text})
		if err == nil { // the text came out of a log, whose text is valid
			c.add("user", block)
		}
	}
}

var failedResult = jsontext.Value(`{"type":"text","text":"The tool reported an error."}`)

func isText(block jsontext.Value) bool {
	var b textBlock
	return json.Unmarshal(block, &b) == nil && b.Type == "text"
}

var missingResult = jsontext.Value(`{"type":"text","text":"The result of this call was not recorded; its outcome is unknown."}`)

// Messages is the conversation so far. Calls are open in it only until a model request begins, whose start gives each the
// result that it lacks. What it returns does not change when more of the log is folded in later.
func (c *Context) Messages() []Message { return slices.Clone(c.messages) }
