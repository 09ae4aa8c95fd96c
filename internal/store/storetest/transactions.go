package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/store"
)

// What was acknowledged is there when the database is opened again.
func testDurability(t *testing.T, fresh Fresh) {
	open := fresh(t)
	s := open(t)
	workspace := id.New(id.Workspace)
	must(t, s.CreateWorkspace(t.Context(), workspace, "name"))
	key := store.Key{ID: id.New(id.APIKey), Workspace: workspace, Name: "n", Hint: "h", Hash: [32]byte{7}, Created: at(1)}
	must(t, s.PutKey(t.Context(), key))
	must(t, s.Join(t.Context(), "node", time.Hour))

	w := s.In(workspace)
	document := store.Document{ID: id.New(id.Agent), Body: []byte("{}"), Created: at(1)}
	log := entries(0, 4)
	row := store.Session{ID: id.New(id.Session), Status: "idle", Created: at(1), Head: 4, Wake: at(5), State: []byte("s"), StateSeq: 4}
	update(t, w, func(w store.Writer) error {
		return errors.Join(
			w.Put(store.Agents, document), w.PutVersion(store.Agents, store.Version{ID: document.ID, Version: 1, Body: []byte("1"), Created: at(1)}),
			w.CreateSession(row, log), w.Remember("key", "print", store.Remembered{Status: 200, At: at(1)}))
	})
	lease, err := s.Acquire(t.Context(), "node", row.ID)
	must(t, err)
	must(t, s.Close())

	s = closeAtEnd(t, open(t))
	w = s.In(workspace)
	if diff := cmp.Diff(row, read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(row.ID) })); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(log, wholeLog(t, w, row.ID, 10)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(document, read(t, w, func(r store.Reader) (store.Document, error) { return r.Document(store.Agents, document.ID) })); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	read(t, w, func(r store.Reader) (store.Version, error) { return r.Version(store.Agents, document.ID, 1) })
	read(t, w, func(r store.Reader) (store.Remembered, error) { return r.Recall("key", "print") })
	got, err := s.KeyByHash(t.Context(), key.Hash)
	must(t, err)
	if diff := cmp.Diff(key, got); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	due, err := s.Due(t.Context(), at(5), 10)
	must(t, err)
	if len(due) != 1 {
		t.Errorf("%d sessions are due, want 1", len(due))
	}

	// Whoever drives next has another epoch, or is the same holder still.
	must(t, s.Leave(t.Context(), "node"))
	must(t, s.Join(t.Context(), "next", time.Hour))
	next, err := s.Acquire(t.Context(), "next", row.ID)
	must(t, err)
	if next.Epoch <= lease.Epoch {
		t.Errorf("epoch %d follows %d", next.Epoch, lease.Epoch)
	}
	wants(t, "a step under the old lease", appendTo(w, row.ID, 4, &lease, entry(5)), store.ErrFenced)
	must(t, appendTo(w, row.ID, 4, &next, entry(5)))
}

func testUpdateIsAtomic(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	name := create(t, w, entry(1))
	refusal := errors.New("the caller's own error")
	err := w.Update(t.Context(), func(w store.Writer) error {
		return errors.Join(
			w.Put(store.Agents, store.Document{ID: "agent_x", Body: []byte("1"), Created: epoch}),
			w.Append(store.Append{Session: name, Head: 1, Events: entries(1, 2), Status: "running", State: []byte("s")}),
			w.Remember("key", "print", store.Remembered{At: epoch}),
			refusal,
		)
	})
	wants(t, "an update that fails", err, refusal)
	err = w.Update(t.Context(), func(w store.Writer) error { return refusal })
	if err != refusal { //nolint:errorlint // it must be the very error
		t.Errorf("an error is returned as %v, not as it is", err)
	}
	_, err = view(w, func(r store.Reader) (store.Document, error) { return r.Document(store.Agents, "agent_x") })
	wants(t, "its document", err, store.ErrNotFound)
	_, err = view(w, func(r store.Reader) (store.Remembered, error) { return r.Recall("key", "print") })
	wants(t, "its answer", err, store.ErrNotFound)
	row := read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(name) })
	if row.Head != 1 || row.Status != "idle" || row.State != nil || len(wholeLog(t, w, name, 10)) != 1 {
		t.Errorf("a failed update left %+v", row)
	}
	if _, err := view(w, func(store.Reader) (int, error) { return 0, refusal }); err != refusal { //nolint:errorlint // it must be the very error
		t.Errorf("a view's error is returned as %v, not as it is", err)
	}
}

func testUpdateSeesItsWrites(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	name := id.New(id.Session)
	update(t, w, func(w store.Writer) error {
		if err := w.CreateSession(store.Session{ID: name, Status: "idle", Created: epoch, Head: 1}, entries(0, 1)); err != nil {
			return err
		}
		for head := int64(1); head < 5; head++ {
			row, err := w.Session(name)
			if err != nil || row.Head != head {
				return fmt.Errorf("head %d, want %d: %w", row.Head, head, err)
			}
			if err := w.Append(store.Append{Session: name, Head: head, Events: entries(head, 1)}); err != nil {
				return err
			}
			log, err := w.Events(name, store.EventQuery{Limit: 10})
			if err != nil || len(log) != int(head)+1 {
				return fmt.Errorf("%d entries, want %d: %w", len(log), head+1, err)
			}
		}
		if err := w.Append(store.Append{Session: name, Head: 4, Events: entries(4, 1)}); !errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("a second step for one head: %w", err)
		}
		return nil
	})
	if got := len(wholeLog(t, w, name, 10)); got != 5 {
		t.Errorf("the log has %d entries, want 5: a refused step must not undo what the caller keeps", got)
	}
}

// Of updates that share a commit each has its own outcome.
func testUpdatesFailAlone(t *testing.T, fresh Fresh) {
	const updates = 90
	w := fresh.workspace(t)
	refusal := errors.New("no")
	ids := make([]string, updates)
	var all sync.WaitGroup
	for i := range updates {
		ids[i] = id.New(id.Agent)
		all.Go(func() {
			err := w.Update(context.Background(), func(w store.Writer) error {
				if err := w.Put(store.Agents, store.Document{ID: ids[i], Body: []byte("1"), Created: epoch}); err != nil {
					return err
				}
				if i%3 == 1 {
					return refusal
				}
				return nil
			})
			if want := i%3 == 1; errors.Is(err, refusal) != want || (err != nil) != want {
				t.Errorf("update %d: %v", i, err)
			}
		})
	}
	all.Wait()
	for i, name := range ids {
		_, err := view(w, func(r store.Reader) (store.Document, error) { return r.Document(store.Agents, name) })
		if i%3 == 1 {
			wants(t, "a failed update", err, store.ErrNotFound)
		} else {
			wants(t, "an update beside failed ones", err, nil)
		}
	}
}

func testViewIsASnapshot(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	name := create(t, w, entry(1))
	must(t, w.View(t.Context(), func(r store.Reader) error {
		for range 3 {
			row, err := r.Session(name)
			if err != nil {
				return err
			}
			log, err := r.Events(name, store.EventQuery{Limit: 10})
			if err != nil {
				return err
			}
			if row.Head != 1 || len(log) != 1 {
				t.Errorf("a view sees head %d and %d entries that came after it began", row.Head, len(log))
			}
			head := read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(name) }).Head
			if err := appendTo(w, name, head, nil, entry(head+1)); err != nil {
				return err
			}
		}
		return nil
	}))
	if got := len(wholeLog(t, w, name, 10)); got != 4 {
		t.Errorf("the log has %d entries, want 4", got)
	}
}

func testContextEnds(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := w.Update(ctx, func(store.Writer) error { t.Error("an update ran after its context ended"); return nil })
	wants(t, "update", err, context.Canceled)
	err = w.View(ctx, func(store.Reader) error { t.Error("a view ran after its context ended"); return nil })
	wants(t, "view", err, context.Canceled)
	create(t, w)
}

func testClosed(t *testing.T, fresh Fresh) {
	s := fresh(t)(t)
	w := s.In("wrkspc")
	create(t, w)
	must(t, s.Close())
	ctx := t.Context()
	_, acquired := s.Acquire(ctx, "node", "sesn")
	_, due := s.Due(ctx, epoch, 1)
	for what, err := range map[string]error{
		"update":  w.Update(ctx, func(store.Writer) error { t.Error("an update ran after Close"); return nil }),
		"view":    w.View(ctx, func(store.Reader) error { t.Error("a view ran after Close"); return nil }),
		"join":    s.Join(ctx, "node", time.Hour),
		"acquire": acquired,
		"due":     due,
		"ping":    s.Ping(ctx),
	} {
		wants(t, what, err, store.ErrClosed)
	}
	must(t, s.Close())
}
