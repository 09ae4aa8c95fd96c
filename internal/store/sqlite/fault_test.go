package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/prerequisite"
	"github.com/perdure/perdure/internal/store"
)

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(s *Store, id string, size int) error {
	return s.In("w").Update(context.Background(), func(w store.Writer) error {
		return w.Put(store.Files, store.Document{ID: id, Body: make([]byte, size), Created: time.Now()})
	})
}

func get(s *Store, id string) error {
	return s.In("w").View(context.Background(), func(r store.Reader) error {
		_, err := r.Document(store.Files, id)
		return err
	})
}

// hold keeps the committer busy until release is called, so that what is sent meanwhile shares the next commits.
func hold(s *Store) (release func()) {
	entered, released := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.system(context.Background(), func(*conn) error { close(entered); <-released; return nil })
	}()
	<-entered
	return func() { close(released) }
}

func TestPanicsConcernTheirCallerOnly(t *testing.T) {
	s := openStore(t, t.TempDir())
	release := hold(s)
	cause := errors.New("the cause")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if i%2 == 0 {
				if err := put(s, fmt.Sprint(i), 10); err != nil {
					t.Errorf("beside a panic: %v", err)
				}
				return
			}
			err := s.In("w").Update(context.Background(), func(w store.Writer) error {
				if err := w.Put(store.Files, store.Document{ID: fmt.Sprint(i), Body: []byte("1"), Created: time.Now()}); err != nil {
					return err
				}
				panic(cause)
			})
			var p *PanicError
			if !errors.As(err, &p) || !errors.Is(err, cause) || !strings.Contains(string(p.Stack), "TestPanicsConcernTheirCallerOnly") {
				t.Errorf("a panic is returned as %v", err)
			}
		})
	}
	release()
	all.Wait()
	for i := range 20 {
		if err := get(s, fmt.Sprint(i)); (err == nil) != (i%2 == 0) {
			t.Errorf("document %d: %v", i, err)
		}
	}
}

func TestFunctionThatEndsItsGoroutine(t *testing.T) {
	s := openStore(t, t.TempDir())
	for range 3 {
		err := s.In("w").Update(t.Context(), func(w store.Writer) error {
			if err := w.Put(store.Files, store.Document{ID: "gone", Body: []byte("1"), Created: time.Now()}); err != nil {
				return err
			}
			runtime.Goexit()
			return nil
		})
		if !errors.Is(err, errExited) {
			t.Errorf("got %v", err)
		}
	}
	if err := put(s, "next", 1); err != nil {
		t.Errorf("the next update: %v", err)
	}
	if err := get(s, "gone"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what it wrote: %v", err)
	}
}

func TestFaultCannotBeOverlooked(t *testing.T) {
	s := openStore(t, t.TempDir())
	err := s.system(t.Context(), func(c *conn) error {
		_, _ = c.exec(sqlAddWorkspace, "before", "")
		_, _ = c.exec(`INSERT INTO nowhere VALUES (1)`)
		_, _ = c.exec(sqlAddWorkspace, "after", "")
		return nil
	})
	var f *Fault
	if !errors.As(err, &f) {
		t.Errorf("got %v, want a fault", err)
	}
	if ids, err := s.Workspaces(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("written all the same: %v, %v", ids, err)
	}
}

// A transaction that the database rolls back in the middle takes all its members along, and nothing escapes from it.
func TestTransactionLostInTheMiddle(t *testing.T) {
	s := openStore(t, t.TempDir())
	release := hold(s)
	var all sync.WaitGroup
	outcomes := make([]error, 12)
	for i := range outcomes {
		all.Go(func() {
			outcomes[i] = s.system(context.Background(), func(c *conn) error {
				_, err := c.exec(sqlAddWorkspace, fmt.Sprint(i), "")
				if i == 5 {
					_, _ = c.exec(sqlRollback) // as the database does it on some faults
					_, _ = c.exec(sqlAddWorkspace, "escaped", "")
					return errors.New("something failed")
				}
				return err
			})
		})
	}
	release()
	all.Wait()
	ids, err := s.Workspaces(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]bool{}
	for _, id := range ids {
		stored[id] = true
	}
	for i, err := range outcomes {
		if stored[fmt.Sprint(i)] != (err == nil) {
			t.Errorf("member %d was told %v, and is stored: %t", i, err, stored[fmt.Sprint(i)])
		}
	}
}

// A full database refuses writes with a cause, keeps its readers, and goes on when there is room.
func TestFull(t *testing.T) {
	s := openStore(t, t.TempDir())
	if err := put(s, "first", 100); err != nil {
		t.Fatal(err)
	}
	limit := func(pages int) {
		c := s.committer.conn
		if _, err := c.raw.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(100)
	err := put(s, "large", 4<<20)
	if !errors.Is(err, ErrDiskFull) || errors.Is(err, store.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("a large write: %v", err)
	}
	if err := get(s, "first"); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if err := get(s, "large"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what was refused: %v", err)
	}
	if err := put(s, "small", 100); err != nil {
		t.Errorf("a small write that fits: %v", err)
	}
	limit(1 << 30)
	if err := put(s, "large", 4<<20); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// The same on a file system that is really full, where the commit fails and with it everybody in it.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
		prerequisite.Missing(t, "needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := openStore(t, dir)
	if err := put(s, "first", 100); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = file.Write(make([]byte, 64<<10))
	}
	file.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	release := hold(s)
	var all sync.WaitGroup
	outcomes := make([]error, 40)
	for i := range outcomes {
		all.Go(func() { outcomes[i] = put(s, fmt.Sprint(i), 40<<10) })
	}
	release()
	all.Wait()
	refused := 0
	for i, err := range outcomes {
		switch {
		case err == nil:
			if err := get(s, fmt.Sprint(i)); err != nil {
				t.Errorf("an acknowledged write: %v", err)
			}
		case !errors.Is(err, ErrDiskFull):
			t.Errorf("a write without room: %v", err)
		default:
			refused++
			if err := get(s, fmt.Sprint(i)); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("a refused write left something: %v", err)
			}
		}
	}
	if refused == 0 {
		t.Error("40 writes fit on a full disk")
	}
	if err := s.Ping(t.Context()); err != nil && !errors.Is(err, ErrDiskFull) {
		t.Errorf("ping: %v", err)
	}
	if err := get(s, "first"); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := put(s, "last", 40<<10); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping with room again: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	s := openStore(t, t.TempDir())
	if err := put(s, "first", 100); err != nil {
		t.Fatal(err)
	}
	set := func(value int) {
		if _, err := s.committer.conn.raw.ExecContext(t.Context(), fmt.Sprintf("PRAGMA query_only = %d", value)); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	if err := put(s, "second", 1); !errors.Is(err, ErrReadOnly) {
		t.Errorf("got %v", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, ErrReadOnly) {
		t.Errorf("ping: %v", err)
	}
	if err := get(s, "first"); err != nil {
		t.Errorf("a reader: %v", err)
	}
	set(0)
	if err := put(s, "second", 1); err != nil {
		t.Errorf("writable again: %v", err)
	}
}

func TestReadersCannotWrite(t *testing.T) {
	s := openStore(t, t.TempDir())
	err := s.read(t.Context(), func(c *conn) error {
		_, err := c.exec(sqlAddWorkspace, "x", "")
		return err
	})
	if !errors.Is(err, ErrReadOnly) {
		t.Errorf("got %v", err)
	}
}

func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), dir, Options{})
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	// What could not be opened is not locked either.
	if err := os.Remove(filepath.Join(dir, fileName)); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir)
}

// A view that panics neither keeps its connection nor gives it to others in the middle of a transaction.
func TestViewsThatPanic(t *testing.T) {
	s := openStore(t, t.TempDir())
	if err := put(s, "first", 1); err != nil {
		t.Fatal(err)
	}
	for range 3 * defaultReaders {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a view swallowed its panic")
				}
			}()
			_ = s.In("w").View(t.Context(), func(r store.Reader) error {
				_, _ = r.Document(store.Files, "first")
				panic("view")
			})
		}()
	}
	if err := put(s, "second", 1); err != nil {
		t.Fatal(err)
	}
	for range 2 * defaultReaders {
		if err := get(s, "second"); err != nil {
			t.Errorf("a view after panics: %v", err)
		}
	}
}

// Whatever Close meets, each update is either acknowledged and stored, or refused and not.
func TestCloseWhileWriting(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	var all sync.WaitGroup
	outcomes := make([]error, 200)
	some := make(chan struct{}, len(outcomes))
	for i := range outcomes {
		all.Go(func() {
			outcomes[i] = put(s, fmt.Sprint(i), 1)
			some <- struct{}{}
		})
	}
	<-some
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	s = openStore(t, dir)
	for i, err := range outcomes {
		if err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("update %d: %v", i, err)
		}
		if stored := get(s, fmt.Sprint(i)) == nil; stored != (err == nil) {
			t.Errorf("update %d was told %v, and is stored: %t", i, err, stored)
		}
	}
}
