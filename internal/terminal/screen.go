package terminal

import (
	"io"
	"os"
	"strings"
	"sync"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
)

const eraseLine = "\r\x1b[K"

var (
	faint  = lipgloss.NewStyle().Faint(true)
	bold   = lipgloss.NewStyle().Bold(true)
	red    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	yellow = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	green  = lipgloss.NewStyle().Foreground(lipgloss.Green)
)

// Screen writes to a terminal, or to whatever stands in its place. It is safe for concurrent use. A failed write to
// standard output is kept, for Err; one to standard error has nobody left to be told.
type Screen struct {
	mu      sync.Mutex
	out     io.Writer // the agent's words
	err     io.Writer // all else, with colours as far as it takes them
	control io.Writer // err without the filter; nil if it is no terminal, so that there is no status line
	width   func() int
	words   Cleaner
	midLine bool // the words on out have not ended their line
	status  bool // a status line is being shown
	failed  error
}

// NewScreen writes to these files. Environ decides about colours (NO_COLOR, TERM).
func NewScreen(out, err *os.File, environ []string) *Screen {
	s := &Screen{out: out, err: colorprofile.NewWriter(err, environ), width: func() int { return 100 }}
	if term.IsTerminal(err.Fd()) && !dumb(environ) {
		s.control = err
		s.width = func() int {
			width, _, sizeErr := term.GetSize(err.Fd())
			if sizeErr != nil || width <= 0 {
				return 80
			}
			return width
		}
	}
	return s
}

func dumb(environ []string) bool {
	for _, e := range environ {
		if e == "TERM=dumb" {
			return true
		}
	}
	return false
}

// NewPlainScreen writes to these without colours and without a status line.
func NewPlainScreen(out, err io.Writer) *Screen {
	return &Screen{out: out, err: &colorprofile.Writer{Forward: err, Profile: colorprofile.NoTTY}, width: func() int { return 100 }}
}

// Live reports whether there is a status line.
func (s *Screen) Live() bool { return s.control != nil }

// Err is the first failure to write the agent's words: nobody may be reading any more.
func (s *Screen) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Words writes a piece of what the agent says.
func (s *Screen) Words(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text = s.words.Clean(text)
	if text == "" {
		return
	}
	s.hideStatus()
	s.write(text)
	s.midLine = !strings.HasSuffix(text, "\n")
}

// EndWords ends the line that the agent's words are on.
func (s *Screen) EndWords() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWords()
}

func (s *Screen) endWords() {
	s.words = Cleaner{}
	if s.midLine {
		s.write("\n")
		s.midLine = false
	}
}

func (s *Screen) write(text string) {
	if _, err := io.WriteString(s.out, text); err != nil && s.failed == nil {
		s.failed = err
	}
}

// Raw writes a line to standard output, below no words of the agent. The line must be fit for a terminal.
func (s *Screen) Raw(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideStatus()
	s.write(line + "\n")
}

// line writes one or more styled lines to standard error. All text in it must be clean.
func (s *Screen) line(styled string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideStatus()
	s.endWords()
	_, _ = io.WriteString(s.err, styled+"\n")
}

// prompt writes text and leaves the cursor after it.
func (s *Screen) prompt(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideStatus()
	s.endWords()
	_, _ = io.WriteString(s.err, text)
}

// Note tells something in a faint line.
func (s *Screen) Note(text string) { s.line(faint.Render(CleanLine(text))) }

// Warn tells something that a person should see.
func (s *Screen) Warn(text string) { s.line(yellow.Render("! " + CleanLine(text))) }

// Fail tells what went wrong.
func (s *Screen) Fail(text string) { s.line(red.Render("✗ " + CleanLine(text))) }

// Status shows a status line below all else. It is not shown while the agent's words are within a line.
func (s *Screen) Status(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control == nil || s.midLine {
		return
	}
	s.hideStatus()
	_, _ = io.WriteString(s.err, faint.Render(shorten(CleanLine(text), s.width()-1)))
	s.status = true
}

// HideStatus removes the status line until it is shown again.
func (s *Screen) HideStatus() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideStatus()
}

func (s *Screen) hideStatus() {
	if s.status {
		_, _ = io.WriteString(s.control, eraseLine)
		s.status = false
	}
}

// Write takes lines of a log. They are cleaned and go to standard error.
func (s *Screen) Write(lines []byte) (int, error) {
	s.line(faint.Render(strings.TrimRight(Clean(string(lines)), "\n")))
	return len(lines), nil
}
