package mockserver

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model/scripted"
)

// turn is the neighbouring messages of one role, which the API takes as one.
type turn struct {
	role   string
	blocks []blockAt
}

type blockAt struct {
	path    string
	kind    string
	members map[string]jsontext.Value
	raw     jsontext.Value
}

func (c *checker) messages() {
	var turns []turn
	for i, m := range c.request.Messages {
		path := fmt.Sprintf("messages.%d", i)
		if !slices.Contains([]string{"user", "assistant", "system"}, m.Role) {
			c.bad(path+".role", "must be user, assistant or system")
			return
		}
		if i == 0 && m.Role != "user" {
			c.bad(path+".role", "the first message must be from the user")
			return
		}
		blocks := c.content(path+".content", m.Content)
		if c.refusal != nil {
			return
		}
		if n := len(turns); n > 0 && turns[n-1].role == m.Role {
			turns[n-1].blocks = append(turns[n-1].blocks, blocks...)
		} else {
			turns = append(turns, turn{m.Role, blocks})
		}
	}
	past := scripted.NewPast()
	for i, t := range turns {
		c.before = []string{past.Sum()}
		for _, block := range t.blocks {
			c.block(t.role, block)
			past.Add(t.role, block.raw)
			c.before = append(c.before, past.Sum())
		}
		switch t.role {
		case "assistant":
			c.ending(t, i == len(turns)-1)
			var next turn
			if i+1 < len(turns) {
				next = turns[i+1]
			}
			c.answered(t, next)
		case "user":
			var before turn
			if i > 0 {
				before = turns[i-1]
			}
			c.asked(before, t)
		}
	}
}

// content reads a message's content, which must not be empty.
func (c *checker) content(path string, raw jsontext.Value) []blockAt {
	if raw.Kind() == '"' {
		members := map[string]jsontext.Value{"type": jsontext.Value(`"text"`), "text": raw}
		return []blockAt{{path, "text", members, jsontext.Value(`{"type":"text","text":` + string(raw) + `}`)}}
	}
	elements := c.array(path, raw)
	if c.refusal == nil && len(elements) == 0 {
		c.bad(path, "must not be empty")
	}
	return c.blocks(path, elements)
}

func (c *checker) blocks(path string, elements []jsontext.Value) []blockAt {
	var blocks []blockAt
	for i, element := range elements {
		at := fmt.Sprintf("%s.%d", path, i)
		members, ok := c.object(at, element)
		if !ok {
			return blocks
		}
		blocks = append(blocks, blockAt{at, stringOf(members["type"]), members, element})
	}
	return blocks
}

// speakers says who may say a kind of block.
var speakers = map[string][]string{
	"text":              {"user", "assistant", "system"},
	"image":             {"user"},
	"document":          {"user"},
	"search_result":     {"user"},
	"tool_result":       {"user"},
	"tool_use":          {"assistant"},
	"thinking":          {"assistant"},
	"redacted_thinking": {"assistant"},
}

func (c *checker) block(role string, b blockAt) {
	if roles, ok := speakers[b.kind]; ok && !slices.Contains(roles, role) || !ok && role != "assistant" {
		c.bad(b.path+".type", "%q is not possible in a message of role %s", b.kind, role)
		return
	}
	switch b.kind {
	case "text":
		c.textBlock(b.path, b.members)
	case "image":
		c.known(b.path, b.members, "type", "source", "cache_control")
		c.image(b.path+".source", b.members["source"])
	case "document":
		c.known(b.path, b.members, "type", "source", "cache_control", "citations", "context", "title")
		c.object(b.path+".source", b.members["source"])
	case "tool_use":
		c.toolUse(b)
	case "tool_result":
		c.toolResult(b)
	case "thinking":
		c.thinking(b)
	case "redacted_thinking":
		c.known(b.path, b.members, "type", "data")
		if stringOf(b.members["data"]) == "" {
			c.bad(b.path+".data", "is required")
		}
	}
	c.cacheControl(b.path, b.members)
}

func (c *checker) toolUse(b blockAt) {
	c.known(b.path, b.members, "type", "id", "name", "input", "cache_control", "caller")
	id := stringOf(b.members["id"])
	if !toolName.MatchString(id) {
		c.bad(b.path+".id", "must match %s", toolName)
	}
	if first, taken := c.callIDs[id]; taken {
		c.bad(b.path+".id", "tool_use ids must be unique; %q is that of %s", id, first)
	}
	c.callIDs[id] = b.path
	if !toolName.MatchString(stringOf(b.members["name"])) {
		c.bad(b.path+".name", "must match %s", toolName)
	}
	if b.members["input"].Kind() != '{' {
		c.bad(b.path+".input", "must be an object")
	}
}

func (c *checker) toolResult(b blockAt) {
	c.known(b.path, b.members, "type", "tool_use_id", "content", "is_error", "cache_control")
	failed := b.members["is_error"]
	if failed != nil && failed.Kind() != 't' && failed.Kind() != 'f' {
		c.bad(b.path+".is_error", "must be true or false")
	}
	content := b.members["content"]
	switch content.Kind() {
	case 0, 'n':
		content = nil
	case '"':
		if stringOf(content) == "" {
			content = nil
		}
	default:
		inner := c.blocks(b.path+".content", c.array(b.path+".content", content))
		if len(inner) == 0 {
			content = nil
		}
		for _, part := range inner {
			if !slices.Contains([]string{"text", "image", "document", "search_result", "tool_reference"}, part.kind) {
				c.bad(part.path+".type", "%q is not possible in a tool result", part.kind)
			}
			c.block("user", part)
		}
	}
	if content == nil && failed.Kind() == 't' {
		c.bad(b.path+".content", "must not be empty if is_error is true")
	}
}

// thinking checks that the block is what the model said where it now stands. A signature that a script gave cannot be
// checked.
func (c *checker) thinking(b blockAt) {
	c.known(b.path, b.members, "type", "thinking", "signature")
	text, signature := b.members["thinking"], stringOf(b.members["signature"])
	if text.Kind() != '"' {
		c.bad(b.path+".thinking", "must be a string")
	}
	if signature == "" {
		c.bad(b.path+".signature", "is required")
	}
	// Where answers follow each other without a word of the user, thinking may stand after any block of the turn.
	if looksMade(signature) && !slices.ContainsFunc(c.before, func(before string) bool {
		return signature == scripted.SignatureAfter(c.request.Model, stringOf(text), before)
	}) {
		c.bad(b.path+".signature", "invalid signature: the thinking was changed, or what comes before it was, or it is that of another model than %s", c.request.Model)
	}
}

// looksMade tells signatures of scripted.Signature from those that a script gave.
func looksMade(signature string) bool {
	return len(signature) == len(scripted.SignatureAfter("", "", ""))
}

// ending checks how the model's part ends.
func (c *checker) ending(t turn, final bool) {
	last := t.blocks[len(t.blocks)-1]
	if last.kind == "thinking" || last.kind == "redacted_thinking" {
		c.bad(last.path, "the last block of an assistant message must not be thinking")
	}
	if final && last.kind == "text" {
		c.bad(last.path, "the conversation must end with a user message; beginning the model's answer for it is not supported")
	}
}

// answered checks that every call has its result in the very next message.
func (c *checker) answered(calls, next turn) {
	for _, call := range calls.blocks {
		if call.kind != "tool_use" {
			continue
		}
		id := stringOf(call.members["id"])
		if next.role != "user" || !slices.ContainsFunc(next.blocks, func(b blockAt) bool {
			return b.kind == "tool_result" && stringOf(b.members["tool_use_id"]) == id
		}) {
			c.bad(call.path, "the call %q has no tool_result in the next message", id)
		}
	}
}

// asked checks that every result answers a call of the message before, once, and that results come first.
func (c *checker) asked(before, t turn) {
	seen := map[string]bool{}
	other := ""
	for _, b := range t.blocks {
		if b.kind != "tool_result" {
			if other == "" {
				other = b.path
			}
			continue
		}
		id := stringOf(b.members["tool_use_id"])
		if before.role != "assistant" || !slices.ContainsFunc(before.blocks, func(call blockAt) bool {
			return call.kind == "tool_use" && stringOf(call.members["id"]) == id
		}) {
			c.bad(b.path, "unexpected tool_use_id %q: the message before has no such call", id)
		}
		if seen[id] {
			c.bad(b.path, "the call %q has more than one result", id)
		}
		seen[id] = true
		if other != "" {
			c.bad(b.path, "tool results must come before other content, here before %s", other)
		}
	}
}
