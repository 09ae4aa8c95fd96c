//go:build linux

package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/sandbox/journal"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

func open(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() }) // a test may have closed it
	return j
}

func check(t *testing.T, j *journal.Journal, id string, want journal.State) wire.Result {
	t.Helper()
	state, result, err := j.Lookup(id)
	if err != nil || state != want {
		t.Fatalf("%s is in state %d (%v), want %d", id, state, err, want)
	}
	return result
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLifeOfACall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	receipt := wire.Result{Content: jsontext.Value(`[{"type":"text","text":"done"}]`), IsError: true}
	// What was durable at each point is what a successor sees.
	successor := func() *journal.Journal {
		must(t, j.Close())
		j = open(t, dir)
		return j
	}
	check(t, j, "a", journal.NeverHeard)
	must(t, j.Start("a"))
	check(t, successor(), "a", journal.Started)
	must(t, j.Start("a")) // a repeatable one
	must(t, j.End("a", receipt))
	if got := check(t, successor(), "a", journal.Ended); string(got.Content) != string(receipt.Content) || !got.IsError {
		t.Errorf("got %+v", got)
	}
	must(t, j.Acknowledge("a"))
	check(t, j, "a", journal.Acknowledged)
	check(t, successor(), "a", journal.Acknowledged)
	must(t, j.Acknowledge("a"))
	must(t, j.Acknowledge("b"))
	check(t, successor(), "b", journal.Acknowledged)
	check(t, j, "c", journal.NeverHeard)
	left, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// A receipt that was being written when the power failed is no receipt, and a mark that was is none.
func TestTornWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir)
	must(t, j.Start("a"))
	must(t, os.WriteFile(filepath.Join(dir, "a.receipt.part"), []byte(`{"content":[`), 0o600))
	check(t, j, "a", journal.Started)
	for i := range 3 {
		must(t, j.Acknowledge(fmt.Sprintf("x%d", i)))
	}
	must(t, j.Close())
	marks := filepath.Join(dir, "acknowledged")
	must(t, os.Truncate(marks, 3*16-5))
	j = open(t, dir)
	check(t, j, "x1", journal.Acknowledged)
	check(t, j, "x2", journal.NeverHeard)
	must(t, j.Acknowledge("x3"))
	must(t, j.Close())
	j = open(t, dir)
	check(t, j, "x3", journal.Acknowledged)

	must(t, os.WriteFile(filepath.Join(dir, "b.receipt"), []byte(`{"content":[`), 0o600))
	if _, _, err := j.Lookup("b"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged receipt: %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir())
	for _, id := range []string{"", ".", "..", "../a", "a/b", "a.started", "acknowledged.x", "a\x00", strings.Repeat("a", 129), "é"} {
		if _, _, err := j.Lookup(id); err == nil {
			t.Errorf("%q was looked up", id)
		}
		if err := j.Acknowledge(id); err == nil {
			t.Errorf("%q was acknowledged", id)
		}
	}
}
