package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/prerequisite"
)

// Close leaves no file of the data directory open: it can be moved, unmounted and opened by others.
func TestCloseLeavesNoFileOpen(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	for _, id := range []string{"a", "b"} {
		if err := put(s, id, 10); err != nil {
			t.Fatal(err)
		}
		if err := get(s, id); err != nil {
			t.Fatal(err)
		}
	}
	if files := openFiles(t, dir); len(files) == 0 {
		t.Fatal("an open store has no open files")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if files := openFiles(t, dir); len(files) > 0 {
		t.Errorf("still open: %v", files)
	}
}

// A connection that cannot be used again is closed, and another one takes its place.
func TestBrokenReaderIsReplaced(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	if err := put(s, "a", 10); err != nil {
		t.Fatal(err)
	}
	for range defaultReaders {
		if err := get(s, "a"); err != nil {
			t.Fatal(err)
		}
	}
	before := len(openFiles(t, dir))
	for range 3 * defaultReaders {
		err := s.read(t.Context(), func(c *conn) error {
			_, err := c.exec(sqlRollback)
			return err
		})
		if err == nil {
			t.Fatal("the end of a transaction that is not there went unnoticed")
		}
	}
	for range defaultReaders {
		if err := get(s, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if after := len(openFiles(t, dir)); after > before {
		t.Errorf("%d files were open, then %d", before, after)
	}
}

func openFiles(t *testing.T, dir string) []string {
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(links) == 0 {
		prerequisite.Missing(t, "needs /proc")
	}
	var files []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir) {
			files = append(files, target)
		}
	}
	return files
}
