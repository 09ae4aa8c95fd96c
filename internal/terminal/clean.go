package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Clean makes untrusted text fit for a terminal. Line ends become LF; tabs stay; control characters are shown as their
// pictures (␛); characters that reorder, hide or tag text are shown as <U+202E>; invalid UTF-8 becomes U+FFFD. What is
// left prints and nothing more.
func Clean(text string) string {
	var c Cleaner
	return c.Clean(text)
}

// CleanLine is Clean for one line: line ends are shown as ⏎ and tabs as spaces.
func CleanLine(text string) string {
	return strings.NewReplacer("\n", "⏎", "\t", " ").Replace(Clean(text))
}

// Cleaner cleans text that comes in pieces. A piece must not end within a character.
type Cleaner struct{ afterCR bool }

// Clean cleans the next piece.
func (c *Cleaner) Clean(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		if r == '\n' && c.afterCR {
			c.afterCR = false
			continue
		}
		c.afterCR = r == '\r'
		switch {
		case r == '\n' || r == '\r':
			b.WriteByte('\n')
		case r == '\t':
			b.WriteByte('\t')
		case r < 0x20:
			b.WriteRune(0x2400 + r)
		case r == 0x7f:
			b.WriteRune(0x2421)
		case deceptive(r):
			fmt.Fprintf(&b, "<U+%04X>", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// deceptive reports whether a character is not seen as itself: C1 controls, marks of direction, line separators,
// invisible operators and tags. The joiners of emoji and of scripts that need them are not among these.
func deceptive(r rune) bool {
	switch {
	case r < 0x80:
		return false
	case r <= 0x9f, r == 0xad, r == 0x61c, r == 0x180e, r == 0x200b, r == 0x200e, r == 0x200f, r == 0xfeff:
		return true
	case r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r >= 0xfff9 && r <= 0xfffb:
		return true
	case r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return unicode.Is(unicode.Co, r) || unicode.Is(unicode.Noncharacter_Code_Point, r)
}

// EscapeJSON makes a JSON text fit for a terminal without changing what it means: what Clean would replace is written as
// \u escapes. Such characters only occur inside strings.
func EscapeJSON(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case r != 0x7f && !deceptive(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// shorten cuts a clean line to a width in cells.
func shorten(line string, width int) string { return ansi.Truncate(line, max(width, 1), "…") }
