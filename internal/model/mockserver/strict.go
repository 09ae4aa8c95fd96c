package mockserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const maxBreakpoints = 4

// checker walks a request in the order of the prompt (tools, system, messages) and keeps the first thing that is wrong.
type checker struct {
	request     *request
	refusal     *Refusal
	breakpoints int
	shortLife   bool // a breakpoint of five minutes has been seen
	images      []imageAt
	callIDs     map[string]string // id of a tool call → where it is
	before      []string          // sums of the conversation at the start of the turn and after each of its blocks so far
}

// bad notes that something is wrong at a path such as messages.3.content.0. Only the first is kept.
func (c *checker) bad(path, format string, arguments ...any) {
	if c.refusal == nil {
		c.refusal = invalid("%s: %s", path, fmt.Sprintf(format, arguments...))
	}
}

func (c *checker) run(config Config) {
	r := c.request
	c.callIDs = map[string]string{}
	switch {
	case r.Model == "":
		c.bad("model", "is required")
	case r.MaxTokens < 1:
		c.bad("max_tokens", "is required and must be at least 1")
	case len(r.Messages) == 0:
		c.bad("messages", "at least one message is required")
	case r.OutputConfig.Effort != "" && !slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, r.OutputConfig.Effort):
		c.bad("output_config.effort", "must be low, medium, high, xhigh or max")
	case r.Speed != "" && r.Speed != "standard" && r.Speed != "fast":
		c.bad("speed", "must be standard or fast")
	}
	c.thinkingConfig()
	c.tools()
	c.system()
	c.messages()
	c.checkImages()
	if c.refusal == nil && r.promptTokens() > config.MaxPromptTokens {
		c.refusal = invalid("prompt is too long: %d tokens are more than the maximum of %d", r.promptTokens(), config.MaxPromptTokens)
	}
}

func (c *checker) thinkingConfig() {
	if c.request.Thinking == nil {
		return
	}
	var thinking struct {
		Type         string         `json:"type"`
		BudgetTokens int64          `json:"budget_tokens"`
		Display      jsontext.Value `json:"display"`
	}
	if err := json.Unmarshal(c.request.Thinking, &thinking, json.RejectUnknownMembers(true)); err != nil {
		c.bad("thinking", "%v", err)
		return
	}
	switch thinking.Type {
	case "adaptive", "between_tools", "disabled":
	case "enabled":
		if thinking.BudgetTokens < 1024 || thinking.BudgetTokens >= c.request.MaxTokens {
			c.bad("thinking.enabled.budget_tokens", "must be at least 1024 and less than max_tokens")
		}
	default:
		c.bad("thinking.type", "must be adaptive, between_tools, disabled or enabled")
	}
}

func (c *checker) system() {
	switch kind := c.request.System.Kind(); kind {
	case 0, 'n':
	case '"':
	case '[':
		for i, block := range systemBlocks(c.request.System) {
			path := fmt.Sprintf("system.%d", i)
			members, ok := c.object(path, block)
			if !ok {
				return
			}
			if stringOf(members["type"]) != "text" {
				c.bad(path+".type", "only text is possible here")
			}
			c.textBlock(path, members)
			c.cacheControl(path, members)
		}
	default:
		c.bad("system", "must be a string or an array of text blocks")
	}
}

// cacheControl checks a block's breakpoint, if it has one.
func (c *checker) cacheControl(path string, members map[string]jsontext.Value) {
	raw, ok := members["cache_control"]
	if !ok || raw.Kind() == 'n' {
		return
	}
	var control struct {
		Type string `json:"type"`
		TTL  string `json:"ttl"`
	}
	if err := json.Unmarshal(raw, &control, json.RejectUnknownMembers(true)); err != nil {
		c.bad(path+".cache_control", "%v", err)
		return
	}
	switch {
	case control.Type != "ephemeral":
		c.bad(path+".cache_control.type", "must be ephemeral")
	case control.TTL != "" && control.TTL != "5m" && control.TTL != "1h":
		c.bad(path+".cache_control.ttl", "must be 5m or 1h")
	case control.TTL == "1h" && c.shortLife:
		c.bad(path+".cache_control.ttl", "a breakpoint of 1h must not come after one of 5m")
	}
	c.shortLife = c.shortLife || control.TTL != "1h"
	if c.breakpoints++; c.breakpoints > maxBreakpoints {
		c.bad(path+".cache_control", "at most %d blocks may have cache_control", maxBreakpoints)
	}
}

// object reads a JSON object without looking into its members.
func (c *checker) object(path string, raw jsontext.Value) (map[string]jsontext.Value, bool) {
	var members map[string]jsontext.Value
	if raw.Kind() != '{' {
		c.bad(path, "must be an object")
		return nil, false
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		c.bad(path, "%v", err)
		return nil, false
	}
	return members, true
}

// array reads a JSON array without looking into its elements.
func (c *checker) array(path string, raw jsontext.Value) []jsontext.Value {
	var elements []jsontext.Value
	if raw.Kind() != '[' {
		c.bad(path, "must be an array")
		return nil
	}
	if err := json.Unmarshal(raw, &elements); err != nil {
		c.bad(path, "%v", err)
	}
	return elements
}

// known refuses members that the kind of object does not have.
func (c *checker) known(path string, members map[string]jsontext.Value, names ...string) {
	for name := range members {
		if !slices.Contains(names, name) {
			c.bad(path+"."+name, "extra members are not permitted")
		}
	}
}

// stringOf is the text of a JSON string, "" for anything else.
func stringOf(raw jsontext.Value) string {
	var text string
	if raw.Kind() != '"' || json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

func (c *checker) textBlock(path string, members map[string]jsontext.Value) {
	c.known(path, members, "type", "text", "cache_control", "citations")
	switch text := members["text"]; {
	case text.Kind() != '"':
		c.bad(path+".text", "must be a string")
	case stringOf(text) == "":
		c.bad(path+".text", "text content blocks must not be empty")
	case strings.TrimSpace(stringOf(text)) == "":
		c.bad(path+".text", "text content blocks must contain more than whitespace")
	}
}
