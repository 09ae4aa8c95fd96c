package anthropic

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

// lenient reads what a provider says. A stream may hold half a surrogate pair, which becomes U+FFFD here, and may repeat
// names; what is kept of it is made strict before it is stored.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// assembly puts an answer together from the events of a stream.
type assembly struct {
	preview func(model.Delta)
	ids     *model.CallIDs
	started bool
	id      string
	model   string
	drafts  []*draft
	stop    string
	details jsontext.Value
	usage   model.Usage
}

// draft is a block of which more may come.
type draft struct {
	kind  string
	start jsontext.Value // the block as it was announced
	// grown holds the text by the member that it belongs to, in the order of first appearance.
	grown    []*growth
	replaced []replacement
	stopped  bool
}

type growth struct {
	member string
	text   strings.Builder
}

type replacement struct {
	member string
	value  jsontext.Value
}

type streamEvent struct {
	Type         string         `json:"type"`
	Index        *int           `json:"index"`
	Message      startMessage   `json:"message"`
	ContentBlock jsontext.Value `json:"content_block"`
	Delta        jsontext.Value `json:"delta"`
	Usage        *usage         `json:"usage"`
	Error        streamError    `json:"error"`
}

type startMessage struct {
	ID    string `json:"id"`
	Model string `json:"model"`
	Usage *usage `json:"usage"`
}

type streamError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type usage struct {
	Input         *int64 `json:"input_tokens"`
	Output        *int64 `json:"output_tokens"`
	CacheRead     *int64 `json:"cache_read_input_tokens"`
	CacheCreation *int64 `json:"cache_creation_input_tokens"`
	ByLife        *struct {
		FiveMinutes int64 `json:"ephemeral_5m_input_tokens"`
		OneHour     int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	ServerTools *struct {
		WebSearches int64 `json:"web_search_requests"`
	} `json:"server_tool_use"`
	Speed *string `json:"speed"`
}

// take reads one event. It returns true when the model said that it is done.
func (a *assembly) take(name string, data []byte) (done bool, err error) {
	var event streamEvent
	switch name {
	case "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop", "error":
		if err := json.Unmarshal(data, &event, lenient); err != nil {
			return false, fmt.Errorf("event %s: %w", name, err)
		}
	default:
		return false, nil // the API may add events at any time
	}
	switch name {
	case "error":
		return false, model.Rejected(http.StatusOK, event.Error.Type, event.Error.Message, 0)
	case "message_start":
		a.started, a.id, a.model = true, event.Message.ID, event.Message.Model
		a.count(event.Message.Usage)
		return false, nil
	}
	if !a.started {
		return false, fmt.Errorf("event %s came before message_start", name)
	}
	switch name {
	case "content_block_start":
		err = a.begin(event)
	case "content_block_delta":
		err = a.grow(event)
	case "content_block_stop":
		var d *draft
		if d, err = a.draft(event.Index); err == nil {
			d.stopped = true
		}
	case "message_delta":
		a.count(event.Usage)
		err = a.ending(event.Delta)
	case "message_stop":
		if a.stop == "" {
			return false, errors.New("message_stop came without a stop reason")
		}
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("event %s: %w", name, err)
	}
	return false, nil
}

func (a *assembly) begin(event streamEvent) error {
	if event.Index == nil || *event.Index != len(a.drafts) {
		return fmt.Errorf("block %d was expected", len(a.drafts))
	}
	start := event.ContentBlock
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(start, &head, lenient); err != nil || start.Kind() != '{' {
		return errors.New("the block is no object")
	}
	if !start.IsValid() {
		healed, err := model.Heal(start)
		if err != nil {
			return err
		}
		start = healed
	}
	a.drafts = append(a.drafts, &draft{kind: head.Type, start: start.Clone()})
	a.tell(len(a.drafts)-1, head.Type, "")
	return nil
}

func (a *assembly) tell(block int, kind, text string) {
	if a.preview != nil && (kind == "text" || kind == "thinking") {
		a.preview(model.Delta{Block: block, Type: kind, Text: text})
	}
}

func (a *assembly) draft(index *int) (*draft, error) {
	if index == nil || *index < 0 || *index >= len(a.drafts) {
		return nil, errors.New("there is no such block")
	}
	d := a.drafts[*index]
	if d.stopped {
		return nil, fmt.Errorf("block %d has ended", *index)
	}
	return d, nil
}

// grow adds a delta to its block. The kinds of deltas share one form: a string is added to the member of its name, and
// anything else takes that member's place. Only tool input and citations differ. So kinds that came after this was
// written are most likely kept as well.
func (a *assembly) grow(event streamEvent) error {
	d, err := a.draft(event.Index)
	if err != nil {
		return err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(event.Delta, &members, lenient); err != nil {
		return err
	}
	kind, err := text(members["type"])
	if err != nil {
		return err
	}
	delete(members, "type")
	switch kind {
	case "input_json_delta":
		piece, err := text(members["partial_json"])
		if err != nil {
			return err
		}
		d.add("input", piece)
		return nil
	case "citations_delta":
		return d.cite(members["citation"])
	}
	for _, name := range sortedNames(members) {
		value := members[name]
		if value.Kind() != '"' {
			if value.Kind() != 'n' {
				d.replace(name, value)
			}
			continue
		}
		piece, err := text(value)
		if err != nil {
			return err
		}
		d.add(name, piece)
		if kind == "text_delta" && name == "text" || kind == "thinking_delta" && name == "thinking" {
			a.tell(*event.Index, name, piece)
		}
	}
	return nil
}

func (d *draft) add(member, piece string) {
	for _, g := range d.grown {
		if g.member == member {
			g.text.WriteString(piece)
			return
		}
	}
	g := &growth{member: member}
	g.text.WriteString(piece)
	d.grown = append(d.grown, g)
}

func (d *draft) replace(member string, value jsontext.Value) {
	d.replaced = slices.DeleteFunc(d.replaced, func(r replacement) bool { return r.member == member })
	d.replaced = append(d.replaced, replacement{member, value.Clone()})
}

// cite adds one citation to the block's array of them.
func (d *draft) cite(citation jsontext.Value) error {
	if citation.Kind() != '{' {
		return errors.New("the citation is no object")
	}
	list := "[" + string(citation) + "]"
	for _, r := range d.replaced {
		if r.member == "citations" {
			list = strings.TrimSuffix(string(r.value), "]") + "," + string(citation) + "]"
		}
	}
	d.replace("citations", jsontext.Value(list))
	return nil
}

func (a *assembly) ending(delta jsontext.Value) error {
	var ending struct {
		StopReason  *string        `json:"stop_reason"`
		StopDetails jsontext.Value `json:"stop_details"`
	}
	if err := json.Unmarshal(delta, &ending, lenient); err != nil {
		return err
	}
	if ending.StopReason != nil {
		a.stop = *ending.StopReason
	}
	if ending.StopDetails.Kind() == '{' {
		healed, err := model.Heal(ending.StopDetails)
		if err != nil {
			return err
		}
		a.details = healed
	}
	return nil
}

// count takes over what is said; numbers are totals so far, and what is left out has not changed.
func (a *assembly) count(u *usage) {
	if u == nil {
		return
	}
	set := func(to *int64, from *int64) {
		if from != nil {
			*to = max(*from, 0)
		}
	}
	set(&a.usage.InputTokens, u.Input)
	set(&a.usage.OutputTokens, u.Output)
	set(&a.usage.CacheReadTokens, u.CacheRead)
	if u.ByLife != nil {
		a.usage.CacheWrite5mTokens, a.usage.CacheWrite1hTokens = max(u.ByLife.FiveMinutes, 0), max(u.ByLife.OneHour, 0)
	} else if u.CacheCreation != nil && *u.CacheCreation != a.usage.CacheWrite5mTokens+a.usage.CacheWrite1hTokens {
		a.usage.CacheWrite5mTokens, a.usage.CacheWrite1hTokens = max(*u.CacheCreation, 0), 0
	}
	if u.ServerTools != nil {
		a.usage.WebSearchRequests = max(u.ServerTools.WebSearches, 0)
	}
	if u.Speed != nil {
		a.usage.Fast = *u.Speed == "fast"
	}
}

func (a *assembly) response() (*model.Response, error) {
	response := &model.Response{ID: a.id, Model: a.model, StopReason: a.stop, StopDetails: a.details, Usage: a.usage}
	for i, d := range a.drafts {
		cut := model.Truncated(a.stop) && i == len(a.drafts)-1
		if cut && d.kind == "thinking" && !d.has("signature") {
			// Thinking without its signature cannot be sent back, and the model has said nothing after it.
			continue
		}
		raw, err := a.finish(response, d, cut)
		if err != nil {
			return nil, &model.Error{Class: model.RequestFailed, Retryable: true, Usage: a.usage, Cause: err,
				Message: fmt.Sprintf("block %d of the model's answer makes no sense", i)}
		}
		response.Content = append(response.Content, raw)
	}
	return response, nil
}

func (d *draft) has(member string) bool {
	return slices.ContainsFunc(d.grown, func(g *growth) bool { return g.member == member && g.text.Len() > 0 })
}

func (a *assembly) finish(response *model.Response, d *draft, cut bool) (jsontext.Value, error) {
	raw := d.start
	var err error
	for _, g := range d.grown {
		member, grown := g.member, g.text.String()
		var value jsontext.Value
		if member == "input" {
			input, ok := model.ToolInput(grown)
			if !ok && d.kind == "tool_use" {
				response.Broken = append(response.Broken, model.NewBrokenCall(len(response.Content), cut, grown))
			}
			value = input
		} else if value, err = joined(d.start, member, grown); err != nil {
			return nil, err
		}
		if raw, err = setMember(raw, member, value); err != nil {
			return nil, err
		}
	}
	if d.kind == "tool_use" && cut && !d.has("input") {
		response.Broken = append(response.Broken, model.NewBrokenCall(len(response.Content), true, ""))
	}
	for _, r := range d.replaced {
		if raw, err = setMember(raw, r.member, r.value); err != nil {
			return nil, err
		}
	}
	if d.kind == "tool_use" {
		if raw, err = a.uniqueID(raw); err != nil {
			return nil, err
		}
	}
	if raw.IsValid() {
		return raw, nil
	}
	return model.Heal(raw)
}

func (a *assembly) uniqueID(raw jsontext.Value) (jsontext.Value, error) {
	var call struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(raw, &call); err != nil {
		return nil, err
	}
	if unique := a.ids.Unique(call.ID); unique != call.ID {
		return setMember(raw, "id", appendString(nil, unique))
	}
	return raw, nil
}
