package anthropic

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// joined is a string member as announced with what came after, as JSON.
func joined(start jsontext.Value, member, grown string) (jsontext.Value, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(start, &members); err != nil {
		return nil, err
	}
	if before := members[member]; before.Kind() == '"' {
		head, err := text(before)
		if err != nil {
			return nil, err
		}
		grown = head + grown
	}
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(grown, "\uFFFD"))
	return quoted, err
}

func text(raw jsontext.Value) (string, error) {
	var s string
	if raw.Kind() != '"' {
		return "", errors.New("a string was expected")
	}
	err := json.Unmarshal(raw, &s, lenient)
	return s, err
}

func sortedNames(members map[string]jsontext.Value) []string {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// setMember gives an object's member a new value, at its place, or at the end if the object has none of that name. Every
// other byte stays.
func setMember(object jsontext.Value, name string, value jsontext.Value) (jsontext.Value, error) {
	decoder := jsontext.NewDecoder(strings.NewReader(string(object)))
	if _, err := decoder.ReadToken(); err != nil {
		return nil, err
	}
	count := 0
	for decoder.PeekKind() == '"' {
		key, err := decoder.ReadToken()
		if err != nil {
			return nil, err
		}
		found := key.String() == name
		old, err := decoder.ReadValue()
		if err != nil {
			return nil, err
		}
		if end := int(decoder.InputOffset()); found {
			return slices.Concat(object[:end-len(old)], value, object[end:]), nil
		}
		count++
	}
	end := strings.LastIndexByte(string(object), '}')
	if end < 0 {
		return nil, errors.New("not an object")
	}
	var member []byte
	if count > 0 {
		member = append(member, ',')
	}
	member = append(appendString(member, name), ':')
	return slices.Concat(object[:end], jsontext.Value(member), value, object[end:]), nil
}
