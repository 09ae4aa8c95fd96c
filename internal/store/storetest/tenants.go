package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/store"
)

// Every method is called with the ids of one tenant through another.
func testIsolation(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	mine, theirs := s.In(id.New(id.Workspace)), s.In(id.New(id.Workspace))
	log := entries(0, 3)
	name := create(t, mine, log...)
	document := store.Document{ID: id.New(id.File), Body: []byte("mine"), Created: epoch, Scope: name}
	version := store.Version{ID: document.ID, Version: 1, Body: []byte("mine"), Created: epoch}
	answer := store.Remembered{Status: 200, Body: []byte("mine"), At: epoch}
	update(t, mine, func(w store.Writer) error {
		if err := w.Put(store.Files, document); err != nil {
			return err
		}
		if err := w.PutVersion(store.Files, version); err != nil {
			return err
		}
		return w.Remember("key", "print", answer)
	})
	must(t, s.Join(t.Context(), "node", 1<<50))
	lease, err := s.Acquire(t.Context(), "node", name)
	must(t, err)

	foreign := document
	foreign.Body = []byte("theirs")
	refused := func(err, want error) error {
		if !errors.Is(err, want) {
			return fmt.Errorf("got error %w, want %w", err, want)
		}
		return nil
	}
	notFound := func(_ any, err error) error { return refused(err, store.ErrNotFound) }
	empty := func(rows any, err error) error {
		if n := reflect.ValueOf(rows).Len(); err == nil && n != 0 {
			return fmt.Errorf("got %d rows of another tenant", n)
		}
		return err
	}
	reads := map[string]func(store.Reader) error{
		"Document": func(r store.Reader) error { return notFound(r.Document(store.Files, document.ID)) },
		"Version":  func(r store.Reader) error { return notFound(r.Version(store.Files, document.ID, 1)) },
		"Session":  func(r store.Reader) error { return notFound(r.Session(name)) },
		"Event":    func(r store.Reader) error { return notFound(r.Event(name, log[0].ID)) },
		"Recall":   func(r store.Reader) error { return notFound(r.Recall("key", "print")) },
		"Documents": func(r store.Reader) error {
			return errors.Join(
				empty(r.Documents(store.Files, store.DocumentQuery{Limit: 9})),
				empty(r.Documents(store.Files, store.DocumentQuery{Limit: 9, Scope: name})),
				empty(r.Documents(store.Files, store.DocumentQuery{Limit: 9, IDs: []string{document.ID}})))
		},
		"Versions": func(r store.Reader) error { return empty(r.Versions(store.Files, document.ID, 0, 9)) },
		"Sessions": func(r store.Reader) error { return empty(r.Sessions(store.SessionQuery{Limit: 9})) },
		"Events":   func(r store.Reader) error { return empty(r.Events(name, store.EventQuery{Limit: 9, All: true})) },
	}
	writes := map[string]func(store.Writer) error{
		"Delete":        func(w store.Writer) error { return notFound(nil, w.Delete(store.Files, document.ID)) },
		"DeleteSession": func(w store.Writer) error { return notFound(nil, w.DeleteSession(name)) },
		"Append": func(w store.Writer) error {
			step := store.Append{Session: name, Head: 3, Events: entries(3, 1)}
			leased := step
			leased.Lease = &lease
			return errors.Join(notFound(nil, w.Append(step)), notFound(nil, w.Append(leased)))
		},
		"CreateSession": func(w store.Writer) error {
			return refused(w.CreateSession(store.Session{ID: name, Created: epoch}, nil), store.ErrConflict)
		},
		// These make something of the other tenant's own under the same name.
		"Put":        func(w store.Writer) error { return w.Put(store.Files, foreign) },
		"PutVersion": func(w store.Writer) error { v := version; v.Body = foreign.Body; return w.PutVersion(store.Files, v) },
		"Remember":   func(w store.Writer) error { return w.Remember("key", "another", store.Remembered{At: epoch}) },
	}
	for what, read := range reads {
		if err := theirs.View(context.Background(), read); err != nil {
			t.Errorf("%s in a view: %v", what, err)
		}
		writes[what] = func(w store.Writer) error { return read(w) }
	}
	undo := errors.New("undo")
	for method := range reflect.TypeFor[store.Writer]().Methods() {
		call, ok := writes[method.Name]
		if !ok {
			t.Errorf("no isolation test for %s", method.Name)
			continue
		}
		err := theirs.Update(context.Background(), func(w store.Writer) error {
			if err := call(w); err != nil {
				return err
			}
			return undo
		})
		wants(t, method.Name+" in an update", err, undo)
	}
	for _, method := range []string{"Put", "PutVersion", "Remember"} {
		update(t, theirs, writes[method])
	}

	if diff := cmp.Diff(log, wholeLog(t, mine, name, 9)); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(document, read(t, mine, func(r store.Reader) (store.Document, error) { return r.Document(store.Files, document.ID) })); diff != "" {
		t.Errorf("the document (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(version, read(t, mine, func(r store.Reader) (store.Version, error) { return r.Version(store.Files, document.ID, 1) })); diff != "" {
		t.Errorf("the version (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(answer, read(t, mine, func(r store.Reader) (store.Remembered, error) { return r.Recall("key", "print") })); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}

	// Deleting a session takes no other tenant's files along, even if they name it.
	update(t, mine, func(w store.Writer) error { return w.DeleteSession(name) })
	read(t, theirs, func(r store.Reader) (store.Document, error) { return r.Document(store.Files, foreign.ID) })
}

func testWorkspaces(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	var want []string
	for i := range 5 {
		want = append(want, id.New(id.Workspace))
		must(t, s.CreateWorkspace(t.Context(), want[i], "name"))
	}
	wants(t, "an id that is taken", s.CreateWorkspace(t.Context(), want[2], "other"), store.ErrConflict)
	got, err := s.Workspaces(t.Context())
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	must(t, s.Ping(t.Context()))
	must(t, s.Ping(t.Context()))
}

func testKeys(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	ctx := t.Context()
	workspace := id.New(id.Workspace)
	must(t, s.CreateWorkspace(ctx, workspace, ""))
	key := func(n byte) store.Key {
		return store.Key{ID: id.New(id.APIKey), Workspace: workspace, Name: "name", Hint: "sk-ant", Hash: [32]byte{31: n}, Created: at(int64(n))}
	}
	a, b := key(0), key(1)
	b.Revoked = at(5)
	must(t, s.PutKey(ctx, a))
	must(t, s.PutKey(ctx, b))
	got, err := s.Keys(ctx)
	must(t, err)
	if diff := cmp.Diff([]store.Key{a, b}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	byHash, err := s.KeyByHash(ctx, b.Hash)
	must(t, err)
	if diff := cmp.Diff(b, byHash); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = s.KeyByHash(ctx, [32]byte{9})
	wants(t, "unknown hash", err, store.ErrNotFound)

	same := key(2)
	same.Hash = a.Hash
	wants(t, "a hash that is taken", s.PutKey(ctx, same), store.ErrConflict)
	same = key(3)
	same.ID = a.ID
	wants(t, "an id that is taken", s.PutKey(ctx, same), store.ErrConflict)
	nowhere := key(4)
	nowhere.Workspace = id.New(id.Workspace)
	wants(t, "a workspace that does not exist", s.PutKey(ctx, nowhere), store.ErrNotFound)

	must(t, s.RevokeKey(ctx, a.ID, at(7)))
	must(t, s.RevokeKey(ctx, a.ID, at(8)))
	wants(t, "revoking an unknown key", s.RevokeKey(ctx, id.New(id.APIKey), at(7)), store.ErrNotFound)
	byHash, err = s.KeyByHash(ctx, a.Hash)
	must(t, err)
	if !byHash.Revoked.Equal(at(7)) {
		t.Errorf("revoked at %s, want the first time it was", byHash.Revoked)
	}
}
