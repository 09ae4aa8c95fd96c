package terminal

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/client"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestTranscripts shows the events of testdata/*.jsonl and compares with *.golden, in which the words of the agent and
// all else stand together as a terminal has them.
func TestTranscripts(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, input := range inputs {
		t.Run(strings.TrimSuffix(filepath.Base(input), ".jsonl"), func(t *testing.T) {
			source, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			var shown bytes.Buffer
			transcript := NewTranscript(NewPlainScreen(&shown, &shown))
			for _, line := range bytes.Split(bytes.TrimSpace(source), []byte("\n")) {
				e, err := client.ParseEvent(line)
				if err != nil {
					t.Fatalf("%s: %v", line, errors.Unwrap(err))
				}
				transcript.Show(e)
			}
			golden := strings.TrimSuffix(input, ".jsonl") + ".golden"
			if *rewrite {
				if err := os.WriteFile(golden, shown.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), shown.String()); diff != "" {
				t.Error(diff)
			}
			if strings.ContainsAny(shown.String(), "\x1b\u202e\r\x07") {
				t.Errorf("hostile text came through: %q", shown.String())
			}
		})
	}
}

func TestWordsGoToStandardOutputAlone(t *testing.T) {
	var out, err bytes.Buffer
	screen := NewPlainScreen(&out, &err)
	screen.Note("a note")
	screen.Words("The answer")
	screen.Note("in between")
	screen.Words("is 42.\n")
	screen.EndWords()
	if out.String() != "The answer\nis 42.\n" {
		t.Errorf("standard output: %q", out.String())
	}
	if err.String() != "a note\nin between\n" {
		t.Errorf("standard error: %q", err.String())
	}
}

func TestStatusLineComesAndGoes(t *testing.T) {
	var shown bytes.Buffer
	screen := NewPlainScreen(&shown, &shown)
	screen.Status("not shown, since this is no terminal")
	screen.control = &shown
	screen.width = func() int { return 12 }
	screen.Status("working for long")
	screen.Status("still")
	screen.Words("word")
	screen.Status("not within a line of words")
	screen.Words("s\n")
	screen.Status("evil \x1b[2J")
	screen.HideStatus()
	screen.HideStatus()
	want := "working fo…" + eraseLine + "still" + eraseLine + "words\n" + "evil ␛[2J" + eraseLine
	if diff := cmp.Diff(want, shown.String()); diff != "" {
		t.Error(diff)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestScreenKeepsTheFirstFailure(t *testing.T) {
	screen := NewPlainScreen(brokenWriter{}, &bytes.Buffer{})
	if screen.Err() != nil {
		t.Error("failed before it wrote")
	}
	screen.Words("x")
	if !errors.Is(screen.Err(), os.ErrClosed) {
		t.Errorf("Err is %v", screen.Err())
	}
}

func TestFigures(t *testing.T) {
	for want, got := range map[string]string{
		"$0.00":                        Cost(&client.Money{Amount: "0", Currency: "USD"}),
		"$12.05":                       Cost(&client.Money{Amount: "1205", Currency: "USD"}),
		"cost unknown":                 Cost(nil),
		"␛[31m EUR":                    Cost(&client.Money{Amount: "\x1b[31m", Currency: "EUR"}),
		"950 ms":                       Duration(950 * time.Millisecond),
		"9.5 s":                        Duration(9500 * time.Millisecond),
		"3 s":                          Duration(3 * time.Second),
		"59 s":                         Duration(59 * time.Second),
		"2 min 5 s":                    Duration(125 * time.Second),
		"1 h 1 min":                    Duration(61*time.Minute + 5*time.Second),
		"999 B":                        Size(999),
		"1.5 KiB":                      Size(1536),
		"2.0 MiB":                      Size(2 << 20),
		`perdure run 'it'\''s $HOME'`:  Quote("perdure", "run", "it's $HOME"),
		`'' --url=http://127.0.0.1:80`: Quote("", "--url=http://127.0.0.1:80"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestEnd(t *testing.T) {
	var shown bytes.Buffer
	NewPlainScreen(&shown, &shown).End(Ending{
		How: "done", Good: true, Session: "sesn_1", Cost: &client.Money{Amount: "3", Currency: "USD"}, Took: 12 * time.Second,
		Files:    []client.File{{ID: "file_1", Filename: "report\x1b[2J.md", Size: 412}},
		Continue: `perdure run --session sesn_1 "…"`,
	})
	want := "\n✓ done · $0.03 · 12 s · session sesn_1\n  file report␛[2J.md (412 B) file_1\n  go on: perdure run --session sesn_1 \"…\"\n"
	if diff := cmp.Diff(want, shown.String()); diff != "" {
		t.Error(diff)
	}
}
