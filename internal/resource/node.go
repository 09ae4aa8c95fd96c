package resource

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// verdict keeps the first problem that was found in a request. Reading goes on after it with zero values, so that the
// code which reads says what it reads and no more; loops end early because a refused array has no elements.
type verdict struct{ first *problem.Error }

func (v *verdict) refuse(path, format string, args ...any) {
	if v.first == nil {
		p := problem.Invalidf(format, args...)
		p.Message = place(path) + ": " + p.Message
		v.first = p
	}
}

// refuseAs refuses with a problem whose words do not follow the usual form.
func (v *verdict) refuseAs(p *problem.Error) {
	if v.first == nil {
		v.first = p
	}
}

func (v *verdict) ok() bool { return v.first == nil }

func (v *verdict) err() error {
	if v.first == nil {
		return nil
	}
	return v.first
}

// length refuses text that has fewer or more characters (code points) than allowed.
func (v *verdict) length(path, text string, least, most int) {
	switch n := utf8.RuneCountInString(text); {
	case n == 0 && least > 0:
		v.refuse(path, "must not be empty")
	case n < least:
		v.refuse(path, "must be at least %d characters, got %d", least, n)
	case n > most:
		v.refuse(path, "must be at most %d characters, got %d", most, n)
	}
}

// node is one JSON value of a request together with the place where it stands, which every refusal names. Its syntax has
// been checked.
type node struct {
	*verdict
	path string
	raw  jsontext.Value // nil if the field was left out
}

// readBody checks the syntax of a request body. No body at all counts as an empty object.
func readBody(body []byte) (node, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	return readValue("", body)
}

func readValue(path string, raw []byte) (node, error) {
	if p := checkSyntax(path, raw); p != nil {
		return node{}, p
	}
	return node{verdict: new(verdict), path: path, raw: raw}, nil
}

func (n node) absent() bool { return n.raw == nil }
func (n node) null() bool   { return n.raw.Kind() == 'n' }

// missing reports whether there is no value: left out or null.
func (n node) missing() bool { return n.absent() || n.null() }

// is reports whether the node is of a kind, and refuses it otherwise.
func (n node) is(kind jsontext.Kind, expected string) bool {
	switch {
	case n.absent():
		n.refuse(n.path, "field is required")
	case n.raw.Kind() != kind:
		n.refuse(n.path, "expected %s, got %s", expected, kindName(n.raw.Kind()))
	default:
		return true
	}
	return false
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	default:
		return "an array"
	}
}

func (n node) text() string { return n.textAs("a string") }

func (n node) textAs(expected string) string {
	if !n.is('"', expected) {
		return ""
	}
	text, err := jsontext.AppendUnquote(nil, n.raw)
	if err != nil {
		n.refuse(n.path, "invalid string: %v", err)
		return ""
	}
	return string(text)
}

func (n node) boolean() bool {
	if n.raw.Kind() == 'f' {
		return false
	}
	return n.is('t', "a boolean")
}

func (n node) integer() int64 {
	if !n.is('0', "an integer") {
		return 0
	}
	i, err := strconv.ParseInt(string(n.raw), 10, 64)
	if err != nil {
		n.refuse(n.path, "expected an integer of at most 64 bits")
	}
	return i
}

// word reads a string that must be one of a few.
func (n node) word(allowed ...string) string {
	word := n.text()
	if n.ok() && !slices.Contains(allowed, word) {
		n.refuse(n.path, "%s is not a valid value; expected one of %s", quote(word), strings.Join(allowed, ", "))
	}
	return word
}

// variant reads the field type of an object, which decides what other fields it has.
func (n node) variant(allowed ...string) string {
	if !n.is('{', "an object") {
		return ""
	}
	kind := node{n.verdict, join(n.path, "type"), nil}
	for name, value := range n.members() {
		if name == "type" {
			kind = value
		}
	}
	return kind.word(allowed...)
}

// object is a JSON object of which only known fields may be given.
type object struct {
	node
	fields map[string]node
}

// field returns a field of the object; one that was left out is an absent node.
func (o object) field(name string) node {
	if field, ok := o.fields[name]; ok {
		return field
	}
	return node{o.verdict, join(o.path, name), nil}
}

// object reads an object and refuses fields other than these.
func (n node) object(known ...string) object {
	o := object{node: n, fields: make(map[string]node)}
	if !n.is('{', "an object") {
		return o
	}
	for name, value := range n.members() {
		if !slices.Contains(known, name) {
			n.refuse(value.path, "unknown field")
			break
		}
		o.fields[name] = value
	}
	return o
}

// members walks the fields of an object in the order of the request.
func (n node) members() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		dec := n.decoder()
		for dec.PeekKind() == '"' {
			token, err := dec.ReadToken()
			if err != nil {
				n.refuse(n.path, "invalid JSON: %v", err)
				return
			}
			name := token.String()
			value, ok := n.next(dec)
			if !ok || !yield(name, node{n.verdict, join(n.path, name), value}) {
				return
			}
		}
	}
}

// elements reads an array of at most so many entries.
func (n node) elements(most int) []node {
	if !n.is('[', "an array") {
		return nil
	}
	var all []node
	for dec := n.decoder(); dec.PeekKind() != ']'; {
		if len(all) == most {
			n.refuse(n.path, "at most %d entries are allowed", most)
			return nil
		}
		value, ok := n.next(dec)
		if !ok {
			return nil
		}
		all = append(all, node{n.verdict, index(n.path, len(all)), value})
	}
	return all
}

// list reads an array entry by entry, and stops at the first refusal. It is never nil.
func list[T any](n node, most int, read func(node) T) []T {
	all := []T{}
	for _, element := range n.elements(most) {
		if !n.ok() {
			break
		}
		all = append(all, read(element))
	}
	return all
}

// decoder stands behind the first delimiter of an object or array. The syntax was checked, so it is not checked again.
func (n node) decoder() *jsontext.Decoder {
	raw := n.raw[:len(n.raw):len(n.raw)]
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := dec.ReadToken(); err != nil {
		n.refuse(n.path, "invalid JSON: %v", err)
	}
	return dec
}

// next returns the next value as a part of the request's own bytes.
func (n node) next(dec *jsontext.Decoder) (jsontext.Value, bool) {
	value, err := dec.ReadValue()
	if err != nil {
		n.refuse(n.path, "invalid JSON: %v", err)
		return nil, false
	}
	end := int(dec.InputOffset())
	return n.raw[end-len(value) : end : end], true
}

// compact is a copy of the value without white space. The order of keys and the text of numbers stay as they are.
func (n node) compact() jsontext.Value {
	value := n.raw.Clone()
	if err := value.Format(); err != nil {
		n.refuse(n.path, "invalid JSON: %v", err)
	}
	return value
}
