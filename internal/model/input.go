package model

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxBrokenInput bounds what BrokenCall keeps of an input, in bytes.
const maxBrokenInput = 1000

// ToolInput turns what a model wrote as the input of a tool call into a value that can be stored, replayed and run.
// Sound JSON comes back as it is, with its number text and key order. Text that is no Unicode (half a surrogate pair, bad
// UTF-8) is replaced by U+FFFD, once, here, since strict parsers would refuse it in every later request. Nothing at all
// means no arguments. If the text is not a JSON object, or has a name twice, ok is false and the input is {}.
func ToolInput(text string) (input jsontext.Value, ok bool) {
	if strings.TrimSpace(text) == "" {
		return jsontext.Value("{}"), true
	}
	input = jsontext.Value(strings.TrimSpace(text))
	if input.Kind() != '{' {
		return jsontext.Value("{}"), false
	}
	if input.IsValid() {
		return input, true
	}
	healed, err := Heal(input)
	if err != nil {
		return jsontext.Value("{}"), false
	}
	return healed, true
}

// Heal rewrites one JSON value so that all of its strings are valid Unicode. Number text and key order stay. It fails if
// the value is not JSON for another reason.
func Heal(value jsontext.Value) (jsontext.Value, error) {
	lenient := jsontext.AllowInvalidUTF8(true)
	decoder := jsontext.NewDecoder(bytes.NewReader(value), lenient)
	var out bytes.Buffer
	encoder := jsontext.NewEncoder(&out, lenient)
	for done := false; ; done = decoder.StackDepth() == 0 {
		token, err := decoder.ReadToken()
		if done && errors.Is(err, io.EOF) {
			return jsontext.Value(bytes.TrimSuffix(out.Bytes(), []byte("\n"))), nil
		}
		if err != nil {
			return nil, err
		}
		if done {
			return nil, errors.New("there is more than one value")
		}
		if token.Kind() == '"' {
			token = jsontext.String(strings.ToValidUTF8(token.String(), "\uFFFD"))
		}
		if err := encoder.WriteToken(token); err != nil {
			return nil, err
		}
	}
}

// NewBrokenCall records a call whose input could not be used.
func NewBrokenCall(block int, cut bool, input string) BrokenCall {
	return BrokenCall{Block: block, Cut: cut, Input: Shorten(strings.ToValidUTF8(input, "\uFFFD"), maxBrokenInput)}
}

// Truncated reports whether a stop reason means that the answer was cut, so that its last block may be incomplete.
func Truncated(stopReason string) bool {
	return stopReason == "max_tokens" || stopReason == "model_context_window_exceeded"
}
