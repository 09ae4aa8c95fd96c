//go:build linux

// Package tooltext makes text for the model out of what a tool printed: valid, never empty, and never longer than a
// model should be given.
package tooltext

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// MaxCharacters is the longest text that the model is given whole.
	MaxCharacters = 100_000
	// previewCharacters is how much of the beginning and of the end a preview shows.
	previewCharacters = 10_000
	// HeadBytes of an output hold at least MaxCharacters characters, whatever they are.
	HeadBytes = utf8.UTFMax * MaxCharacters
	// TailBytes of an output hold at least the characters that a preview shows of the end.
	TailBytes = utf8.UTFMax * previewCharacters
)

// What the model is told of a call that did not end by itself. The three are different on purpose: only the first says
// that nothing happened.
const (
	NotRun      = "The call was interrupted before it started. It did not run and had no effects."
	Interrupted = "The call was interrupted while it was running, and was killed with everything that it had started. It may have had effects."
	shellReset  = " The shell was restarted: its working directory, variables and jobs are gone."
)

// TimedOut is what the model is told of a call that was killed because it took too long.
func TimedOut(limit time.Duration) string {
	return fmt.Sprintf("The call timed out after %s and was killed with everything that it had started. It may have had effects.", limit)
}

// SandboxEnded is what the model is told of a call whose sandbox ended under it.
func SandboxEnded(why string) string {
	return fmt.Sprintf("The sandbox ended while the call was running (%s). It may have had effects. The files are kept; everything that ran is gone.", why)
}

// WithShellReset adds that the shell is not the one of the calls before.
func WithShellReset(text string) string { return text + shellReset }

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// Clean removes terminal escapes and carriage returns, the blank lines around the text, and what is not text.
func Clean(raw []byte) string {
	raw = escapes.ReplaceAll(raw, nil)
	raw = bytes.ReplaceAll(raw, []byte("\r"), nil)
	return strings.Trim(Valid(string(raw)), "\n")
}

// Valid replaces NULs and invalid UTF-8, which no JSON decoder or database can be trusted with, by U+FFFD.
func Valid(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Output is what a tool printed. Head is all of it, or the first HeadBytes; Tail is the end of it.
type Output struct {
	Head  []byte
	Tail  []byte
	Total int64
	// File is where the whole output can be read, as the agent knows the path; "" if it was not kept.
	File string
	// Lost is how many bytes at the end are not in File.
	Lost int64
}

// Fits says whether the model can be given the whole text.
func (o Output) Fits() bool {
	return o.Total <= int64(len(o.Head)) && utf8.RuneCount(o.Head) <= MaxCharacters
}

// Text is the whole text, or a preview that says where the rest is.
func (o Output) Text() string {
	if o.Fits() {
		return Clean(o.Head)
	}
	head := []rune(Clean(o.Head))
	tail := []rune(Clean(o.Tail))
	head = head[:min(len(head), previewCharacters)]
	tail = tail[max(0, len(tail)-previewCharacters):]
	where := "The output was not kept."
	if o.File != "" {
		where = "The whole output is in " + o.File
		if o.Lost > 0 {
			where = fmt.Sprintf("All but the last %d bytes are in %s", o.Lost, o.File)
		}
	}
	return fmt.Sprintf("[output truncated: %d bytes. %s; this is its beginning and its end.]\n%s\n[...]\n%s",
		o.Total, where, string(head), string(tail))
}

// Join puts a sentence about a call below what it printed.
func Join(output, sentence string) string {
	if output == "" {
		return sentence
	}
	return output + "\n\n" + sentence
}

// Content is text as an array of one content block. Empty text, which the API refuses, becomes "(no output)".
func Content(text string) (jsontext.Value, error) {
	if strings.TrimSpace(text) == "" {
		text = "(no output)"
	}
	type block struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return json.Marshal([]block{{Type: "text", Text: Valid(text)}})
}
