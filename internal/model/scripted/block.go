package scripted

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
)

func (b *Block) prepare() error {
	kinds := 0
	for _, given := range []bool{b.Text != nil, b.Thinking != nil, b.RedactedThinking != "", b.Tool != "", b.Raw != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return errors.New("a block is exactly one of text, thinking, redacted_thinking, tool and raw")
	}
	if b.Signature != "" && b.Thinking == nil {
		return errors.New("signature belongs to thinking")
	}
	if b.Tool == "" && (b.ID != "" || b.Input != nil || b.RawInput != nil) {
		return errors.New("id, input and raw_input belong to tool")
	}
	if b.Input != nil && b.RawInput != nil {
		return errors.New("give either input or raw_input, not both")
	}
	if b.Raw != "" && (jsontext.Value(b.Raw).Kind() != '{' || !jsontext.Value(b.Raw).IsValid()) {
		return errors.New("raw must be a JSON object")
	}
	var err error
	b.input, err = b.inputText()
	return err
}

// inputText is the tool input as JSON text, in the key order of the file.
func (b *Block) inputText() (string, error) {
	if b.RawInput != nil {
		return *b.RawInput, nil
	}
	switch input := b.Input.(type) {
	case nil:
		return "{}", nil
	case string:
		if jsontext.Value(input).Kind() != '{' || !jsontext.Value(input).IsValid() {
			return "", errors.New("input, given as a string, must be a JSON object; use raw_input for anything else")
		}
		return input, nil
	case yaml.MapSlice:
		var out bytes.Buffer
		encoder := jsontext.NewEncoder(&out)
		if err := writeYAML(encoder, input); err != nil {
			return "", fmt.Errorf("input: %w", err)
		}
		return string(bytes.TrimSpace(out.Bytes())), nil
	default:
		return "", errors.New("input must be a mapping or a string that holds a JSON object")
	}
}

// longNumber is what the YAML reader makes a string of because no integer holds it.
var longNumber = regexp.MustCompile(`^[-+]?[0-9]{20,}$`)

func writeYAML(encoder *jsontext.Encoder, value any) error {
	switch value := value.(type) {
	case nil:
		return encoder.WriteToken(jsontext.Null)
	case bool:
		return encoder.WriteToken(jsontext.Bool(value))
	case string:
		if longNumber.MatchString(value) {
			return fmt.Errorf("%s: a whole number of more than 64 bits cannot be told from text here; write the whole input as a string of JSON", value)
		}
		return encoder.WriteToken(jsontext.String(value))
	case int:
		return encoder.WriteToken(jsontext.Int(int64(value)))
	case int64:
		return encoder.WriteToken(jsontext.Int(value))
	case uint64:
		return encoder.WriteToken(jsontext.Uint(value))
	case float64:
		if math.IsInf(value, 0) || math.IsNaN(value) {
			return errors.New("a number that JSON has not; write the whole input as a string of JSON to keep its text")
		}
		return encoder.WriteToken(jsontext.Float(value))
	case []any:
		if err := encoder.WriteToken(jsontext.BeginArray); err != nil {
			return err
		}
		for _, element := range value {
			if err := writeYAML(encoder, element); err != nil {
				return err
			}
		}
		return encoder.WriteToken(jsontext.EndArray)
	case yaml.MapSlice:
		if err := encoder.WriteToken(jsontext.BeginObject); err != nil {
			return err
		}
		for _, member := range value {
			if err := encoder.WriteToken(jsontext.String(fmt.Sprint(member.Key))); err != nil {
				return err
			}
			if err := writeYAML(encoder, member.Value); err != nil {
				return err
			}
		}
		return encoder.WriteToken(jsontext.EndObject)
	default:
		return fmt.Errorf("a value of type %T, which JSON has not", value)
	}
}
