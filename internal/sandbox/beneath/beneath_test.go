//go:build linux

package beneath_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure/internal/sandbox/beneath"
)

func TestWalkIsBounded(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	deep := filepath.Join(path, strings.Repeat("d/", 40))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := os.WriteFile(filepath.Join(path, fmt.Sprintf("f%02d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(deep, "too-deep"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := beneath.Directory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	files, cut, err := beneath.Walk(dir, 100)
	if err != nil || !cut || len(files) != 50 {
		t.Errorf("%d files, cut %v, %v", len(files), cut, err)
	}
	files, cut, err = beneath.Walk(dir, 3)
	if err != nil || !cut || len(files) != 3 || files[2].Path != "f02" {
		t.Errorf("%+v, cut %v, %v", files, cut, err)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	inside := filepath.Join(path, "in")
	if err := os.MkdirAll(filepath.Join(inside, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"secret": "secret", "in/a": "a", "in/d/b": "b"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"out": "../secret", "up": "..", "magic": "/proc/self/root/etc/passwd", "fine": "a", "dir": "d"} {
		if err := os.Symlink(target, filepath.Join(inside, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(inside, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := beneath.Directory(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, name := range []string{"a", "d/b"} {
		f, info, err := beneath.File(dir, name)
		if err != nil || info.Size() != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"out", "up/secret", "magic", "fine", "dir/b", "../secret", "/etc/passwd", "", ".", "d/", "d//b", "./a", "none"} {
		if f, _, err := beneath.File(dir, name); err == nil {
			t.Errorf("%q was opened", name)
			_ = f.Close()
		}
	}
	for _, name := range []string{"fifo", "d"} {
		if _, _, err := beneath.File(dir, name); !errors.Is(err, beneath.ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
