package scripted

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
)

const (
	defaultDeltaSize = 24
	// maxInserted bounds what a template inserts, so that a script which echoes its input cannot grow without limit.
	maxInserted = 64 << 10
	// bytesPerToken is the usual rough measure.
	bytesPerToken = 4
)

// Answer is a step as it is played for one request: templates filled in, ids and signatures made.
type Answer struct {
	ID          string
	Model       string
	Parts       []Part
	StopReason  string
	StopDetails jsontext.Value // nil without a refusal
	Usage       model.Usage
	// UsageGiven says that the script wrote the usage itself; otherwise it is an estimate.
	UsageGiven bool
	Failure    *Failure // to be sent in place of the answer; nil if there is one
	Break      *Break   // where the answer stops short; nil if it does not

	delay, deltaDelay time.Duration
	deltaSize         int
}

// Part is one block of an answer.
type Part struct {
	Type      string // text | thinking | redacted_thinking | tool_use | "" for a raw block
	Text      string // the text, the thinking, the data, the input as JSON text, or the raw block: may be unsound for tool_use
	Signature string // of thinking
	ID, Name  string // of tool_use
}

func (c choice) render(request model.Request) *Answer {
	step := c.step
	tag := fingerprint(request)
	answer := &Answer{
		ID:         "msg_scripted_" + tag,
		Model:      request.Model,
		StopReason: step.Stop,
		deltaSize:  defaultDeltaSize,
	}
	if step.Delay != nil {
		answer.delay = *step.Delay
	}
	if step.DeltaDelay != nil {
		answer.deltaDelay = *step.DeltaDelay
	}
	if step.DeltaSize > 0 {
		answer.deltaSize = step.DeltaSize
	}
	fill := c.filler(request)
	called := false
	for i := range step.Answer {
		part := step.Answer[i].render(fill)
		if part.Type == "thinking" && part.Signature == "" {
			part.Signature = Signature(request.Model, part.Text, NewPast(request.Messages...))
		}
		if part.Type == "tool_use" {
			called = true
			if part.ID == "" {
				part.ID = fmt.Sprintf("toolu_%d_%d_%s", c.answer+1, i+1, tag)
			}
		}
		answer.Parts = append(answer.Parts, part)
	}
	switch {
	case step.Refusal != nil:
		answer.StopReason = "refusal"
		answer.StopDetails = refusalDetails(step.Refusal)
	case answer.StopReason == "" && called:
		answer.StopReason = "tool_use"
	case answer.StopReason == "":
		answer.StopReason = "end_turn"
	}
	answer.Usage = estimate(request, answer.Parts)
	if u := step.Usage; u != nil {
		answer.UsageGiven = true
		answer.Usage = model.Usage{
			InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.CacheRead, CacheWrite5mTokens: u.CacheWrite,
			CacheWrite1hTokens: u.CacheWrite1h, WebSearchRequests: u.WebSearches, Fast: u.Fast,
		}
	}
	return answer
}

func (b *Block) render(fill func(text string, asJSON bool) string) Part {
	switch {
	case b.Text != nil:
		return Part{Type: "text", Text: fill(*b.Text, false)}
	case b.Thinking != nil:
		return Part{Type: "thinking", Text: fill(*b.Thinking, false), Signature: b.Signature}
	case b.RedactedThinking != "":
		return Part{Type: "redacted_thinking", Text: b.RedactedThinking}
	case b.Tool != "":
		return Part{Type: "tool_use", Text: fill(b.input, true), ID: b.ID, Name: b.Tool}
	default:
		return Part{Text: b.Raw}
	}
}

// filler replaces the placeholders of a text, as JSON string contents where the text is JSON. What is inserted is not
// looked at again.
func (c choice) filler(request model.Request) func(text string, asJSON bool) string {
	values := [][2]string{
		{"{{user}}", c.heard.user},
		{"{{result}}", c.heard.last},
		{"{{session}}", request.Session},
		{"{{answer}}", strconv.Itoa(c.answer + 1)},
	}
	return func(text string, asJSON bool) string {
		if !strings.Contains(text, "{{") {
			return text
		}
		var pairs []string
		for _, value := range values {
			insert := model.Shorten(value[1], maxInserted)
			if asJSON {
				quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(insert, "\uFFFD"))
				insert = string(quoted[1 : len(quoted)-1])
			}
			pairs = append(pairs, value[0], insert)
		}
		return strings.NewReplacer(pairs...).Replace(text)
	}
}

func refusalDetails(refusal *Refusal) jsontext.Value {
	var out bytes.Buffer
	encoder := jsontext.NewEncoder(&out)
	// Writing valid tokens to a buffer in a valid order cannot fail; the strings come from a checked YAML file.
	for _, token := range []jsontext.Token{
		jsontext.BeginObject,
		jsontext.String("type"), jsontext.String("refusal"),
		jsontext.String("category"), stringOrNull(refusal.Category),
		jsontext.String("explanation"), stringOrNull(refusal.Explanation),
		jsontext.EndObject,
	} {
		_ = encoder.WriteToken(token)
	}
	return bytes.TrimSpace(out.Bytes())
}

func stringOrNull(text string) jsontext.Token {
	if text == "" {
		return jsontext.Null
	}
	return jsontext.String(strings.ToValidUTF8(text, "\uFFFD"))
}

// fingerprint tells requests apart, so that ids made from it and the number of the answer are unique within a session and
// the same on every attempt. What came before the last answer counts by the number of its messages alone, which is enough and does not
// cost more in a longer session.
func fingerprint(request model.Request) string {
	hash := sha256.New()
	hash.Write([]byte(request.Model + "\x00" + request.Session + "\x00" + strconv.Itoa(len(request.Messages)) + "\x00"))
	turns := split(request.Messages)
	for _, message := range request.Messages[max(0, turns[len(turns)-1].from-1):] {
		hash.Write([]byte(message.Role + "\x00" + strconv.Itoa(len(message.Content)) + "\x00"))
		hash.Write(message.Content)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12]
}

// estimate makes up plausible numbers: what the request before this one held counts as read from the cache.
func estimate(request model.Request, parts []Part) model.Usage {
	prefix := len(request.System)
	for _, tool := range request.Tools {
		prefix += len(tool.Name) + len(tool.Description) + len(tool.InputSchema)
	}
	lastAnswer := -1
	for i, message := range request.Messages {
		if message.Role == "assistant" {
			lastAnswer = i
		}
	}
	cached, fresh := 0, 0
	for i, message := range request.Messages {
		if i < lastAnswer {
			cached += len(message.Content)
		} else {
			fresh += len(message.Content)
		}
	}
	if lastAnswer < 0 {
		fresh += prefix
	} else {
		cached += prefix
	}
	written := 0
	for _, part := range parts {
		written += len(part.Text) + len(part.Name) + len(part.Type)
	}
	return model.Usage{
		InputTokens:     tokens(fresh),
		CacheReadTokens: tokens(cached),
		OutputTokens:    tokens(written),
	}
}

func tokens(size int) int64 { return int64((size + bytesPerToken - 1) / bytesPerToken) }

// characters is the length of what a part streams as deltas.
func (p Part) characters() int {
	if p.Type == "text" || p.Type == "thinking" || p.Type == "tool_use" {
		return utf8.RuneCountInString(p.Text)
	}
	return 0
}
