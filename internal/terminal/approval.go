package terminal

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/client"
)

// maxInputLines and maxInputLine bound what is shown of an input before it is asked for.
const (
	maxInputLines = 24
	maxInputLine  = 400
)

// Decision is what a person decided about a call.
type Decision int

// The decisions.
const (
	Undecided Decision = iota
	AllowOnce
	AllowAll // this call, and all that follow in this run
	Deny
)

// Approval is the question about one call. Ask it once, then give it the lines that the person types until it is decided.
type Approval struct {
	screen *Screen
	call   client.Event
	reason bool // the next line is the reason of a denial
	// Reason is what the person said with Deny; "" for nothing.
	Reason string
}

// NewApproval prepares the question about a call.
func NewApproval(screen *Screen, call client.Event) *Approval {
	return &Approval{screen: screen, call: call}
}

// Ask shows the call and asks.
func (a *Approval) Ask() {
	a.screen.line(yellow.Render("? " + toolName(a.call) + " waits for your permission"))
	a.show(maxInputLines)
	a.question()
}

func (a *Approval) show(most int) {
	lines := inputLines(a.call)
	hidden, cut := max(0, len(lines)-most), false
	lines = lines[:len(lines)-hidden]
	for i, line := range lines {
		if most == maxInputLines && len(line) > maxInputLine {
			line, cut = shorten(line, maxInputLine), true
		}
		lines[i] = "  " + yellow.Render("│") + " " + line
	}
	if hidden > 0 {
		lines = append(lines, "  "+yellow.Render("│ … "+more(hidden)+"; v shows all"))
	} else if cut {
		lines = append(lines, "  "+yellow.Render("│ long lines are cut; v shows all"))
	}
	if len(lines) > 0 {
		a.screen.line(strings.Join(lines, "\n"))
	}
}

func (a *Approval) question() {
	a.screen.prompt(bold.Render("  [y]es once  [n]o  [a]ll for this run  [v]iew all") + " > ")
}

// Answer takes a line that was typed. Undecided means that another line is needed, which was asked for.
//
//	y, yes           this call may run
//	a, all           this one and all later ones of this run
//	n, no            it may not; a reason is asked for
//	n REASON         it may not, for this reason
//	v, view          shows the whole input
//
// Nothing else decides, an empty line in particular.
func (a *Approval) Answer(line string) Decision {
	line = strings.TrimSpace(strings.ToValidUTF8(line, ""))
	if a.reason {
		a.Reason = line
		return Deny
	}
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToLower(word) {
	case "n", "no":
		if rest != "" {
			a.Reason = rest
			return Deny
		}
		a.reason = true
		a.screen.prompt("  why (the agent is told; empty for no reason) > ")
		return Undecided
	case "y", "yes":
		if rest == "" {
			return AllowOnce
		}
	case "a", "all":
		if rest == "" {
			return AllowAll
		}
	case "v", "view":
		a.show(1 << 30)
	default:
		a.screen.line(fmt.Sprintf("  %q is none of the answers", shorten(CleanLine(line), 40)))
	}
	a.question()
	return Undecided
}

// Settled ends the question because it was answered elsewhere.
func (a *Approval) Settled(how string) { a.screen.line("\n" + faint.Render("  "+CleanLine(how))) }
