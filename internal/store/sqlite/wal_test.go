package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// Readers that never pause cannot make the write-ahead log grow without bound.
func TestLogIsBoundedUnderReaders(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	w := s.In("w")
	err := w.Update(t.Context(), func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: "sesn", Status: "idle", Created: time.Now()}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				err := w.View(ctx, func(r store.Reader) error {
					_, err := r.Events("sesn", store.EventQuery{Limit: 1, Descending: true})
					return err
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var largest int64
	for head := range int64(80) {
		if err := appendMegabyte(w, head); err != nil {
			t.Fatal(err)
		}
		largest = max(largest, fileLength(t, filepath.Join(dir, fileName)+"-wal"))
	}
	cancel()
	readers.Wait()
	if largest > logAlarm+logStep {
		t.Errorf("the write-ahead log grew to %d MB", largest>>20)
	}
}

func appendMegabyte(w store.Workspace, head int64) error {
	return w.Update(context.Background(), func(w store.Writer) error {
		return w.Append(store.Append{Session: "sesn", Head: head, Events: []session.Event{
			{Seq: head + 1, ID: fmt.Sprint(head), Type: "agent.tool_result", At: time.Now(), Body: make([]byte, 1<<20)},
		}})
	})
}

// A view that waits for updates is not waited for: the log grows until the view ends, and shrinks after.
func TestLogUnderAViewThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := s.In("w")
		err = w.Update(t.Context(), func(w store.Writer) error {
			return w.CreateSession(store.Session{ID: "sesn", Status: "idle", Created: time.Now()}, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		const updates = 60
		began := time.Now()
		err = w.View(t.Context(), func(r store.Reader) error {
			for head := range int64(updates) {
				if _, err := r.Session("sesn"); err != nil {
					return err
				}
				if err := appendMegabyte(w, head); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < viewsEndWithin || waited > 4*viewsEndWithin {
			t.Errorf("%d updates inside a view waited %s for it", updates, waited)
		}
		wal := filepath.Join(dir, fileName) + "-wal"
		for head := int64(updates); fileLength(t, wal) > logAlarm; head++ {
			if head > updates+20 {
				t.Fatalf("the log still has %d MB", fileLength(t, wal)>>20)
			}
			if err := appendMegabyte(w, head); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
