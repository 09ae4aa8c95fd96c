package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/client"
)

// Cost shows a list cost, such as $0.42.
func Cost(m *client.Money) string {
	if m == nil {
		return "cost unknown"
	}
	cents, err := strconv.ParseInt(m.Amount, 10, 64)
	if err != nil || cents < 0 || m.Currency != "USD" {
		return CleanLine(m.Amount + " " + m.Currency)
	}
	return fmt.Sprintf("$%d.%02d", cents/100, cents%100)
}

// Duration shows a time as people say it.
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
}

// Size shows a number of bytes.
func Size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
}

// Quote writes words as a command line that a shell reads as the same words.
func Quote(words ...string) string {
	var quoted []string
	for _, w := range words {
		if w == "" || strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@,+") != "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted = append(quoted, w)
	}
	return strings.Join(quoted, " ")
}

// Ending is what is told when a run ends.
type Ending struct {
	How      string // such as done
	Good     bool
	Session  string
	Cost     *client.Money
	Took     time.Duration
	Files    []client.File
	Continue string // the command that goes on
}

// End tells how a run ended.
func (s *Screen) End(e Ending) {
	mark := green.Render("✓ " + CleanLine(e.How))
	if !e.Good {
		mark = yellow.Render("■ " + CleanLine(e.How))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s · %s · %s · session %s", mark, Cost(e.Cost), Duration(e.Took), CleanLine(e.Session))
	for i, f := range e.Files {
		if i == 5 {
			fmt.Fprintf(&b, "\n  … and %d files more", len(e.Files)-i)
			break
		}
		fmt.Fprintf(&b, "\n  file %s (%s) %s", CleanLine(f.Filename), Size(f.Size), CleanLine(f.ID))
	}
	if e.Continue != "" {
		fmt.Fprintf(&b, "\n  go on: %s", CleanLine(e.Continue))
	}
	s.line(b.String())
}
