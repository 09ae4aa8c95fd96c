package model

import (
	"crypto/rand"
	"fmt"
	"regexp"

	"github.com/go-json-experiment/json"
)

// soundCallID is what Anthropic's API takes as the id of a tool call.
var soundCallID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// CallIDs makes the ids of an answer's tool calls unique in the conversation. Models and gateways repeat ids, or count
// them from zero in every answer, and a conversation with an id twice is refused from then on. It is for one answer.
type CallIDs struct {
	messages []Message
	taken    map[string]bool // nil until the first call, since most answers have none
}

// NewCallIDs returns the ids for an answer to these messages.
func NewCallIDs(messages []Message) *CallIDs { return &CallIDs{messages: messages} }

// Unique returns the id itself if it can stay, and otherwise another that the conversation does not have: made from the
// id if it repeats one, and made up if the model gave none or one that a conversation may not hold.
func (c *CallIDs) Unique(id string) string {
	if c.taken == nil {
		c.taken = callIDs(c.messages)
	}
	if !soundCallID.MatchString(id) {
		id = "call_" + rand.Text()
	}
	unique := id
	for n := 2; c.taken[unique]; n++ {
		unique = fmt.Sprintf("%.100s_%d", id, n)
	}
	c.taken[unique] = true
	return unique
}

func callIDs(messages []Message) map[string]bool {
	taken := map[string]bool{}
	for _, message := range messages {
		if message.Role != "assistant" || message.Content.Kind() != '[' {
			continue
		}
		var blocks []struct {
			Type string `json:"type"`
			ID   string `json:"id"`
		}
		if json.Unmarshal(message.Content, &blocks) != nil {
			continue // such a message holds no id that could be repeated
		}
		for _, block := range blocks {
			if block.Type == "tool_use" {
				taken[block.ID] = true
			}
		}
	}
	return taken
}
