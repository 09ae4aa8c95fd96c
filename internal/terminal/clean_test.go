package terminal

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, 日本語, 👩‍👩‍👧, é": "plain text, 日本語, 👩‍👩‍👧, é",
		"a\tb\nc":                  "a\tb\nc",
		"a\r\nb\rc":                "a\nb\nc",
		"\x1b[2Jgone":              "␛[2Jgone",
		"\x1b]0;title\x07":         "␛]0;title␇",
		"\u009b31mred":             "<U+009B>31mred",
		"\x9b31m":                  "\uFFFD31m",
		"a\x00b\x08c\x7f":          "a␀b␈c␡",
		"rm \u202efdp.exe":         "rm <U+202E>fdp.exe",
		"\u2066x\u2069 \u200bz":    "<U+2066>x<U+2069> <U+200B>z",
		"line\u2028separator":      "line<U+2028>separator",
		"tag \U000E0041\U000E0042": "tag <U+E0041><U+E0042>",
		"bad \xff\xfe utf8":        "bad \uFFFD\uFFFD utf8",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := CleanLine("a\r\nb\tc"); got != "a⏎b c" {
		t.Errorf("CleanLine: %q", got)
	}
}

func TestCleanerJoinsPieces(t *testing.T) {
	var c Cleaner
	if got := c.Clean("a\r") + c.Clean("\nb\r") + c.Clean("c"); got != "a\nb\nc" {
		t.Errorf("got %q", got)
	}
}

// FuzzClean checks that nothing is left that a terminal would obey or hide.
func FuzzClean(f *testing.F) {
	f.Add("\x1b[31m\u202e\x9b\xe2\x80\xae")
	f.Fuzz(func(t *testing.T, in string) {
		out := Clean(in)
		if !utf8.ValidString(out) {
			t.Fatalf("%q is no UTF-8", out)
		}
		for _, r := range out {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
				t.Fatalf("%q has %U", out, r)
			}
		}
		if again := Clean(out); again != out {
			t.Fatalf("%q is changed again to %q", out, again)
		}
	})
}

// FuzzEscapeJSON checks that what a JSON text means is not changed.
func FuzzEscapeJSON(f *testing.F) {
	f.Add("a\u202e\u009b\U000E0041\x7f")
	f.Fuzz(func(t *testing.T, in string) {
		text, err := json.Marshal(in)
		if err != nil {
			t.Skip()
		}
		escaped := EscapeJSON(string(text))
		var before, after string
		if json.Unmarshal(text, &before) != nil || json.Unmarshal([]byte(escaped), &after) != nil || before != after {
			t.Fatalf("%s became %s", text, escaped)
		}
		if strings.ContainsFunc(escaped, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
			t.Fatalf("%q is not fit for a terminal", escaped)
		}
	})
}
