package resource

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// Bounds of any JSON that a client sends. They keep the memory that a hostile body costs near its own size.
const (
	maxDepth   = 100
	maxMembers = 4_096   // of one object
	maxValues  = 500_000 // in one body, counting object keys
)

// checkSyntax refuses anything but one JSON value in valid Unicode, without a repeated key and within the bounds. The
// base is the path of the value in the request.
func checkSyntax(base string, raw []byte) *problem.Error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw[:len(raw):len(raw)]))
	for count := 0; ; count++ {
		if _, err := dec.ReadToken(); err != nil {
			return syntaxProblem(base, dec, err)
		}
		depth := dec.StackDepth()
		if depth == 0 {
			break
		}
		if depth > maxDepth {
			return problem.Invalidf("%s: nested more than %d levels deep", place(base), maxDepth)
		}
		if count >= maxValues {
			return problem.Invalidf("%s: more than %d values", place(base), maxValues)
		}
		if kind, length := dec.StackIndex(depth); kind == '{' && length > 2*maxMembers {
			path := pathOf(base, dec, dec.StackPointer().Parent())
			return problem.Invalidf("%s: more than %d fields in one object", place(path), maxMembers)
		}
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return problem.Invalidf("%s: invalid JSON at offset %d: data after the end", place(base), dec.InputOffset())
	}
	return nil
}

func syntaxProblem(base string, dec *jsontext.Decoder, err error) *problem.Error {
	if errors.Is(err, io.EOF) {
		return problem.Invalidf("%s: is empty, expected JSON", place(base))
	}
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return problem.Invalidf("%s: invalid JSON: %v", place(base), err)
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		path := pathOf(base, dec, syntactic.JSONPointer.Parent())
		return problem.Invalidf("%s: duplicate key %s", place(path), quote(syntactic.JSONPointer.LastToken()))
	}
	cause := syntactic.Err
	if errors.Is(cause, io.ErrUnexpectedEOF) {
		cause = errors.New("unexpected end")
	}
	path := pathOf(base, dec, syntactic.JSONPointer)
	return problem.Invalidf("%s: invalid JSON at offset %d: %v", place(path), syntactic.ByteOffset, cause)
}

// pathOf writes a pointer into the value that dec reads in the form that our errors use. Only the decoder's stack knows
// whether a step is an index or a key that looks like one.
func pathOf(base string, dec *jsontext.Decoder, pointer jsontext.Pointer) string {
	path, level := base, 0
	for step := range pointer.Tokens() {
		level++
		kind := jsontext.Kind('{')
		if level <= dec.StackDepth() {
			kind, _ = dec.StackIndex(level)
		}
		if kind == '[' {
			path += "[" + step + "]"
		} else {
			path = join(path, step)
		}
	}
	return path
}

// place names a path in a sentence; the request itself has no path. A path that a client has made long is cut.
func place(path string) string {
	const most = 400
	switch {
	case path == "":
		return "request body"
	case len(path) > most:
		return strings.ToValidUTF8(path[:most/2], "") + "…" + strings.ToValidUTF8(path[len(path)-most/2:], "")
	default:
		return path
	}
}

// join makes the path of a field. A name that is not a plain word is quoted and cut, for it comes from the client.
func join(path, name string) string {
	if !plain(name) {
		return path + "[" + quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func plain(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// quote shows text of a client in an error: quoted, and cut when long.
func quote(text string) string {
	const most = 80
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text[:min(len(text), most*utf8.UTFMax)])[:most]) + "…"
	}
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '\uFFFD'
		}
		return r
	}, text) + `"`
}
