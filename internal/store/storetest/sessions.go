package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

func testCreateSession(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	w := s.In(id.New(id.Workspace))
	full := store.Session{
		ID: id.New(id.Session), AgentID: id.New(id.Agent), AgentVersion: 3, Environment: id.New(id.Environment),
		Deployment: "depl", Status: "idle", Created: at(1), Archived: at(2), Head: 2, Wake: at(3),
		Config: []byte("\x00c"), ConfigSeq: 2, State: []byte("\xffs"), StateSeq: 1,
	}
	plain := store.Session{ID: id.New(id.Session), Status: "idle", Created: at(4)}
	log := entries(0, 2)
	update(t, w, func(w store.Writer) error { return w.CreateSession(full, log) })
	update(t, w, func(w store.Writer) error { return w.CreateSession(plain, nil) })
	for _, want := range []store.Session{full, plain} {
		got := read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(want.ID) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(log, wholeLog(t, w, full.ID, 10)); diff != "" {
		t.Errorf("the first entries (-want +got):\n%s", diff)
	}

	again := func(w store.Workspace, row store.Session, log []session.Event) error {
		return w.Update(context.Background(), func(w store.Writer) error { return w.CreateSession(row, log) })
	}
	wants(t, "an id that is taken", again(w, plain, nil), store.ErrConflict)
	wants(t, "an id that is taken elsewhere", again(s.In(id.New(id.Workspace)), plain, nil), store.ErrConflict)
	for what, c := range map[string]struct {
		head int64
		log  []session.Event
	}{
		"head without entries": {1, nil},
		"entries without head": {0, entries(0, 1)},
		"a gap":                {1, entries(1, 1)},
	} {
		row := plain
		row.ID, row.Head = id.New(id.Session), c.head
		if again(w, row, c.log) == nil {
			t.Errorf("%s: was accepted", what)
		}
	}
	_, err := view(w, func(r store.Reader) (store.Session, error) { return r.Session(id.New(id.Session)) })
	wants(t, "unknown session", err, store.ErrNotFound)
}

func sessionPages(t checker, w store.Workspace, query store.SessionQuery) []string {
	t.Helper()
	ids := []string{}
	for {
		page := read(t, w, func(r store.Reader) ([]store.Session, error) { return r.Sessions(query) })
		if len(page) > query.Limit {
			t.Fatalf("page of %d sessions at limit %d", len(page), query.Limit)
		}
		if len(page) == 0 {
			return ids
		}
		for _, row := range page {
			ids = append(ids, row.ID)
		}
		query.After = ids[len(ids)-1]
	}
}

func testSessionPages(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	var want []string
	for range 23 {
		want = append(want, create(t, w))
	}
	if got := sessionPages(t, w, store.SessionQuery{Limit: 5, Ascending: true}); !slices.Equal(got, want) {
		t.Errorf("oldest first:\ngot  %v\nwant %v", got, want)
	}
	slices.Reverse(want)
	if got := sessionPages(t, w, store.SessionQuery{Limit: 5}); !slices.Equal(got, want) {
		t.Errorf("newest first:\ngot  %v\nwant %v", got, want)
	}
	page := read(t, w, func(r store.Reader) ([]store.Session, error) { return r.Sessions(store.SessionQuery{Limit: 5}) })
	update(t, w, func(w store.Writer) error { return w.DeleteSession(page[4].ID) })
	create(t, w)
	if got := sessionPages(t, w, store.SessionQuery{Limit: 5, After: page[4].ID}); !slices.Equal(got, want[5:]) {
		t.Errorf("a cursor moved when its session was deleted:\ngot  %v\nwant %v", got, want[5:])
	}
	if _, err := view(w, func(r store.Reader) ([]store.Session, error) { return r.Sessions(store.SessionQuery{}) }); err == nil {
		t.Error("a page without a limit was given")
	}
}

func testSessionFilters(t *testing.T, fresh Fresh) {
	w := fresh.workspace(t)
	rows := make([]store.Session, 6)
	for i := range rows {
		rows[i] = store.Session{ID: id.New(id.Session), AgentID: "agent_a", AgentVersion: 1, Environment: "env_a", Status: "idle", Created: at(int64(i / 2))}
	}
	rows[1].AgentID, rows[2].AgentVersion, rows[3].Environment = "agent_b", 2, "env_b"
	rows[3].Status, rows[4].Status, rows[4].Deployment = "running", "terminated", "depl_a"
	rows[5].Archived = at(9)
	update(t, w, func(w store.Writer) error {
		for _, row := range rows {
			if err := w.CreateSession(row, nil); err != nil {
				return err
			}
		}
		return nil
	})
	for what, c := range map[string]struct {
		query store.SessionQuery
		want  []int
	}{
		"default":            {store.SessionQuery{}, []int{0, 1, 2, 3, 4}},
		"archived too":       {store.SessionQuery{IncludeArchived: true}, []int{0, 1, 2, 3, 4, 5}},
		"agent":              {store.SessionQuery{AgentID: "agent_b"}, []int{1}},
		"agent and version":  {store.SessionQuery{AgentID: "agent_a", AgentVersion: 2}, []int{2}},
		"environment":        {store.SessionQuery{Environment: "env_b"}, []int{3}},
		"deployment":         {store.SessionQuery{Deployment: "depl_a"}, []int{4}},
		"one status":         {store.SessionQuery{Statuses: []string{"running"}}, []int{3}},
		"three statuses":     {store.SessionQuery{Statuses: []string{"running", "terminated", "none"}}, []int{3, 4}},
		"no status":          {store.SessionQuery{Statuses: []string{}}, []int{}},
		"created from":       {store.SessionQuery{CreatedFrom: at(1)}, []int{2, 3, 4}},
		"created after":      {store.SessionQuery{CreatedAfter: at(1)}, []int{4}},
		"created to":         {store.SessionQuery{CreatedTo: at(1)}, []int{0, 1, 2, 3}},
		"created before":     {store.SessionQuery{CreatedBefore: at(1)}, []int{0, 1}},
		"created in between": {store.SessionQuery{CreatedFrom: at(1), CreatedBefore: at(2)}, []int{2, 3}},
	} {
		want := []string{}
		for _, i := range c.want {
			want = append(want, rows[i].ID)
		}
		c.query.Limit, c.query.Ascending = 2, true
		if got := sessionPages(t, w, c.query); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %v\nwant %v", what, got, want)
		}
	}
}

func testDeleteSession(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	w := s.In(id.New(id.Workspace))
	gone, stays := create(t, w, entries(0, 5)...), create(t, w, entries(0, 5)...)
	files := map[string]store.Document{}
	for name, scope := range map[string]string{"gone": gone, "stays": stays, "free": ""} {
		files[name] = store.Document{ID: id.New(id.File), Body: []byte(name), Created: epoch, Scope: scope}
		update(t, w, func(w store.Writer) error { return w.Put(store.Files, files[name]) })
	}
	must(t, s.Join(t.Context(), "node", 1<<40))
	lease, err := s.Acquire(t.Context(), "node", gone)
	must(t, err)
	update(t, w, func(w store.Writer) error {
		return w.Append(store.Append{Session: gone, Head: 5, Wake: at(0), Config: []byte("c"), State: []byte("s")})
	})

	for name, session := range map[string]string{"gone": gone, "stays": stays, "free": ""} {
		update(t, w, func(w store.Writer) error {
			return w.Remember(name, "f", store.Remembered{Status: 200, Body: []byte(name), At: epoch, Session: session})
		})
	}

	update(t, w, func(w store.Writer) error { return w.DeleteSession(gone) })

	_, err = view(w, func(r store.Reader) (store.Remembered, error) { return r.Recall("gone", "f") })
	wants(t, "the answer about it", err, store.ErrNotFound)
	for _, name := range []string{"stays", "free"} {
		read(t, w, func(r store.Reader) (store.Remembered, error) { return r.Recall(name, "f") })
	}
	_, err = view(w, func(r store.Reader) (store.Session, error) { return r.Session(gone) })
	wants(t, "its row", err, store.ErrNotFound)
	if log := wholeLog(t, w, gone, 10); len(log) != 0 {
		t.Errorf("%d entries of its log are left", len(log))
	}
	_, err = view(w, func(r store.Reader) (store.Document, error) { return r.Document(store.Files, files["gone"].ID) })
	wants(t, "its file", err, store.ErrNotFound)
	wants(t, "a step under its lease", appendTo(w, gone, 5, &lease, entry(6)), store.ErrNotFound)
	_, err = s.Acquire(t.Context(), "node", gone)
	wants(t, "its lease", err, store.ErrNotFound)
	due, err := s.Due(t.Context(), at(100), 10)
	must(t, err)
	if len(due) != 0 {
		t.Errorf("it is still due: %v", due)
	}
	err = w.Update(t.Context(), func(w store.Writer) error { return w.DeleteSession(gone) })
	wants(t, "deleting it again", err, store.ErrNotFound)

	if log := wholeLog(t, w, stays, 10); len(log) != 5 {
		t.Errorf("another session has %d entries of 5", len(log))
	}
	for _, name := range []string{"stays", "free"} {
		read(t, w, func(r store.Reader) (store.Document, error) { return r.Document(store.Files, files[name].ID) })
	}

	// The id is free, and what comes back under it is empty.
	update(t, w, func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: gone, Status: "idle", Created: epoch}, nil)
	})
	row := read(t, w, func(r store.Reader) (store.Session, error) { return r.Session(gone) })
	if row.Config != nil || row.State != nil || len(wholeLog(t, w, gone, 10)) != 0 {
		t.Errorf("a session with the id of a deleted one inherits from it: %+v", row)
	}
	wants(t, "a step under the old lease", appendTo(w, gone, 0, &lease, entry(1)), store.ErrFenced)
}
