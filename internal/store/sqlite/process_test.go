package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/sqlite"
)

// childDir makes this test binary a process that owns a store: it appends to a log for ever, and says so after each
// acknowledged step.
const childDir = "PERDURE_TEST_STORE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, appendForEver(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func appendForEver(dir string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		return err
	}
	if err := s.Join(ctx, "child", time.Hour); err != nil {
		return err
	}
	w := s.In("wrkspc")
	create := func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: "sesn", Status: "running", Created: time.Now()}, nil)
	}
	if err := w.Update(ctx, create); err != nil {
		return err
	}
	lease, err := s.Acquire(ctx, "child", "sesn")
	if err != nil {
		return err
	}
	for head := int64(0); ; head += 3 {
		var events []session.Event
		for seq := head + 1; seq <= head+3; seq++ {
			events = append(events, session.Event{Seq: seq, ID: fmt.Sprint("e", seq), Type: "t", At: time.Now(), Body: []byte("{}")})
		}
		step := store.Append{Session: "sesn", Head: head, Events: events, Lease: &lease, Status: "running"}
		if err := w.Update(ctx, func(w store.Writer) error { return w.Append(step) }); err != nil {
			return err
		}
		fmt.Println(head + 3)
	}
}

// A process that is killed at any moment leaves what it acknowledged, and the directory to the next.
func TestKilledOwner(t *testing.T) {
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	var complaint strings.Builder
	child.Stderr = &complaint
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var acknowledged int64
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
			t.Fatal(err)
		}
		switch i {
		case 20:
			_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
			var locked *sqlite.LockedError
			if !errors.As(err, &locked) || locked.PID != child.Process.Pid || !strings.Contains(err.Error(), fmt.Sprint(child.Process.Pid)) {
				t.Errorf("a second owner beside process %d got: %v", child.Process.Pid, err)
			}
		case 60:
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); acknowledged < 3*60 {
		t.Fatalf("the child ended early: %v: %s", err, complaint.String())
	}

	s := open(t, dir)
	defer s.Close()
	err = s.In("wrkspc").View(t.Context(), func(r store.Reader) error {
		row, err := r.Session("sesn")
		if err != nil {
			return err
		}
		log, err := r.Events("sesn", store.EventQuery{Limit: 1 << 20})
		if err != nil {
			return err
		}
		if row.Head < acknowledged || row.Head%3 != 0 || int64(len(log)) != row.Head {
			t.Errorf("acknowledged %d entries; found head %d and %d entries", acknowledged, row.Head, len(log))
		}
		for i, e := range log {
			if e.Seq != int64(i)+1 {
				t.Fatalf("entry %d has position %d", i, e.Seq)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	// The child's hour is not over, but it is known to be dead.
	if err := s.Renew(t.Context(), "child", time.Hour); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a node of the dead process renews: %v", err)
	}
	if err := s.Join(t.Context(), "next", time.Hour); err != nil {
		t.Fatal(err)
	}
	lease, err := s.Acquire(t.Context(), "next", "sesn")
	if err != nil || lease.Epoch != 2 {
		t.Errorf("the next process gets %+v, %v", lease, err)
	}
}

func TestSecondOwnerInOneProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	var locked *sqlite.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
}

// The names of directories are not part of a URL.
func TestOddDirectory(t *testing.T) {
	dir := t.TempDir() + "/a b?c=d#e%2f&_pragma=query_only(1)"
	s := open(t, dir)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dir + "/perdure.db"); err != nil || info.Size() == 0 {
		t.Errorf("the database is not where it should be: %v", err)
	}
}
