package scripted

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

// heard is what reached the model between two of its answers.
type heard struct {
	user    string // text of user messages
	results string // tool results
	last    string // the last tool result alone
	failed  bool   // a tool result is an error
	any     bool   // there was a tool result
}

// turn is the part of a conversation between two answers: messages[from:to].
type turn struct{ from, to int }

// split cuts the conversation at the model's answers. The last element is what came after the last answer, so that the
// number of answers is one less than the length.
func split(messages []model.Message) []turn {
	turns := []turn{{0, len(messages)}}
	for i, message := range messages {
		if message.Role == "assistant" {
			turns[len(turns)-1].to = i
			turns = append(turns, turn{i + 1, len(messages)})
		}
	}
	return turns
}

// listen reads what reached the model in a turn.
func (t turn) listen(messages []model.Message) (heard, error) {
	var h heard
	for i := t.from; i < t.to; i++ {
		if messages[i].Role != "user" {
			continue
		}
		if err := h.add(messages[i].Content); err != nil {
			return heard{}, fmt.Errorf("messages.%d.content: %w", i, err)
		}
	}
	return h, nil
}

type contentBlock struct {
	Type    string         `json:"type"`
	Text    string         `json:"text"`
	Content jsontext.Value `json:"content"`
	IsError bool           `json:"is_error"`
}

func (h *heard) add(content jsontext.Value) error {
	blocks, err := readBlocks(content)
	if err != nil {
		return err
	}
	for _, block := range blocks {
		switch block.Type {
		case "text":
			h.user = joinLines(h.user, block.Text)
		case "tool_result":
			parts, err := readBlocks(block.Content)
			if err != nil {
				return err
			}
			h.last = ""
			for _, part := range parts {
				h.last = joinLines(h.last, part.Text)
			}
			h.results = joinLines(h.results, h.last)
			h.failed = h.failed || block.IsError
			h.any = true
		}
	}
	return nil
}

// readBlocks reads an array of blocks, or the short form in which a string stands for one text block.
func readBlocks(content jsontext.Value) ([]contentBlock, error) {
	switch content.Kind() {
	case '"':
		var text string
		err := json.Unmarshal(content, &text)
		return []contentBlock{{Type: "text", Text: text}}, err
	case '[':
		var blocks []contentBlock
		err := json.Unmarshal(content, &blocks)
		return blocks, err
	case 'n', 0:
		return nil, nil
	}
	return nil, errors.New("neither a string nor an array")
}

func joinLines(before, after string) string {
	if before == "" {
		return after
	}
	return before + "\n" + after
}

func (w *When) matches(system string, h heard) bool {
	return strings.Contains(system, w.System) && strings.Contains(h.user, w.User) && (w.Result == "" || h.any && strings.Contains(h.results, w.Result)) &&
		(w.Error == nil || h.any && h.failed == *w.Error)
}

// choice is the step to play and where it stands.
type choice struct {
	step   *Step
	answer int    // number of answers before this one
	where  string // for errors and counters: steps[2], rules[0], otherwise
	heard  heard
}

// choose finds the step that answers the request. It plays through the answers that the request already holds, because a
// step counts as used only if it, and not a rule, gave the answer. It knows nothing but the request.
func (s *Script) choose(request model.Request) (choice, error) {
	turns := split(request.Messages)
	var chosen choice
	at, played := 0, 0 // the current step and how often it has been played
	for answer, turn := range turns {
		if at >= len(s.Steps) && answer < len(turns)-1 {
			continue // no step is left to be used up: what was said does not matter any more, however long it is
		}
		heard, err := turn.listen(request.Messages)
		if err != nil {
			return choice{}, err
		}
		chosen = choice{answer: answer, heard: heard}
		if i := s.rule(request.System, heard); i >= 0 {
			chosen.step, chosen.where = &s.Rules[i], fmt.Sprintf("rules[%d]", i)
			continue
		}
		for at < len(s.Steps) && (played >= s.Steps[at].Repeat || s.Steps[at].When != nil && !s.Steps[at].When.matches(request.System, heard)) {
			at, played = at+1, 0
		}
		switch {
		case at < len(s.Steps):
			chosen.step, chosen.where = &s.Steps[at], fmt.Sprintf("steps[%d]", at)
			played++
		case s.Otherwise != nil:
			chosen.step, chosen.where = s.Otherwise, "otherwise"
		}
	}
	if chosen.step == nil {
		return choice{}, fmt.Errorf("script %s has no step for answer %d: add a step, or otherwise", s.Name, chosen.answer+1)
	}
	return chosen, nil
}

func (s *Script) rule(system string, h heard) int {
	for i := range s.Rules {
		if s.Rules[i].When.matches(system, h) {
			return i
		}
	}
	return -1
}
