package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
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
	for range 2 * defaultReaders {
		readers.Go(func() {
			for ctx.Err() == nil {
				err := w.View(ctx, func(r store.Reader) error {
					_, err := r.Events("sesn", store.EventQuery{Limit: 20, Descending: true})
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
	for head := int64(0); head < 200; head++ {
		err := w.Update(t.Context(), func(w store.Writer) error {
			return w.Append(store.Append{Session: "sesn", Head: head, Events: []session.Event{
				{Seq: head + 1, ID: fmt.Sprint(head), Type: "agent.tool_result", At: time.Now(), Body: make([]byte, 1<<20)},
			}})
		})
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, fileLength(t, filepath.Join(dir, fileName)+"-wal"))
	}
	cancel()
	readers.Wait()
	t.Logf("the log had at most %d MB", largest>>20)
	if largest > 64<<20 {
		t.Errorf("the write-ahead log grew to %d MB", largest>>20)
	}
}
