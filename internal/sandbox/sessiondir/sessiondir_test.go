//go:build linux

package sessiondir_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/sandbox/sessiondir"
)

func TestLock(t *testing.T) {
	t.Parallel()
	dir := sessiondir.Dir(filepath.Join(t.TempDir(), "s"))
	if err := dir.Make(0); err != nil {
		t.Fatal(err)
	}
	first, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Lock(); !errors.Is(err, sessiondir.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if dir.Holder() != os.Getpid() {
		t.Errorf("held by %d", dir.Holder())
	}
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := dir.LockWithin(impatient); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waited for in vain: %v", err)
	}
	// A directory that was removed and made again is another, whoever still holds the lock of the former one.
	if err := os.RemoveAll(string(dir)); err != nil {
		t.Fatal(err)
	}
	if err := dir.Make(0); err != nil {
		t.Fatal(err)
	}
	second, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	third, err := dir.LockWithin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSocketWithALongPath(t *testing.T) {
	t.Parallel()
	dir := sessiondir.Dir(filepath.Join(t.TempDir(), strings.Repeat("long/", 60)))
	if err := dir.Make(0); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time in place of the first one's remains
		listener, err := dir.Listen()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := dir.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Close(), listener.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEndGuest(t *testing.T) {
	t.Parallel()
	dir := sessiondir.Dir(filepath.Join(t.TempDir(), "s"))
	if err := dir.Make(0); err != nil {
		t.Fatal(err)
	}
	left := exec.Command("sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	if err := dir.RecordGuest(left.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := dir.EndGuest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
	// A number that belongs to another process by now is left alone; here, this one.
	for _, record := range []string{"", "x", "1 1", strings.Repeat("9", 30), "-1 5", "7", strings.Join([]string{pid(), "12345"}, " ")} {
		if err := os.WriteFile(filepath.Join(string(dir), "guest"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := dir.EndGuest(t.Context()); err != nil {
			t.Errorf("%q: %v", record, err)
		}
	}
}

func pid() string {
	target, err := os.Readlink("/proc/self")
	if err != nil {
		return ""
	}
	return target
}
