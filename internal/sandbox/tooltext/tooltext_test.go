//go:build linux

package tooltext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/sandbox/tooltext"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                         "",
		"\n\na\n\n":                "a",
		"\x1b[1;31mred\x1b[0m\r\n": "red",
		"a\x00b":                   "a\uFFFDb",
		"\xff\xfe":                 "\uFFFD",
		"caf\xc3":                  "caf\uFFFD",
		"  indented\n":             "  indented",
		"50%\r100%\n":              "50%100%",
	} {
		if got := tooltext.Clean([]byte(raw)); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}

func TestContentIsNeverEmpty(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": `[{"type":"text","text":"(no output)"}]`, " \n\t": `[{"type":"text","text":"(no output)"}]`, "a\"b": `[{"type":"text","text":"a\"b"}]`, "\x00": `[{"type":"text","text":"` + "\uFFFD" + `"}]`,
	} {
		got, err := tooltext.Content(text)
		if err != nil || string(got) != want {
			t.Errorf("%q: got %s %v, want %s", text, got, err, want)
		}
	}
}

// Whatever a tool prints becomes valid text of a bounded length.
func FuzzText(f *testing.F) {
	f.Add([]byte("plain"), int64(0))
	f.Add([]byte(strings.Repeat("é", 100_001)), int64(7))
	f.Add([]byte("\x1b[\x00\xff"), int64(1<<40))
	f.Fuzz(func(t *testing.T, head []byte, more int64) {
		head = head[:min(len(head), tooltext.HeadBytes)]
		o := tooltext.Output{Head: head, Tail: head[max(0, len(head)-tooltext.TailBytes):], Total: int64(len(head)) + max(0, more), File: "/f", Lost: max(0, more)}
		text := o.Text()
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") || utf8.RuneCountInString(text) > tooltext.MaxCharacters+1000 {
			t.Errorf("%d characters, valid %v", utf8.RuneCountInString(text), utf8.ValidString(text))
		}
		if content, err := tooltext.Content(text); err != nil || json.Unmarshal(content, &[]map[string]string{}) != nil {
			t.Errorf("content %v", err)
		}
	})
}
