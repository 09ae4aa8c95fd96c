package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/store"
)

func testLease(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	ctx := t.Context()
	workspace := id.New(id.Workspace)
	name := create(t, s.In(workspace))
	must(t, s.Join(ctx, "a", time.Hour))
	must(t, s.Join(ctx, "b", time.Hour))

	lease, err := s.Acquire(ctx, "a", name)
	must(t, err)
	if want := (store.Lease{Session: name, Workspace: workspace, Node: "a", Epoch: lease.Epoch}); lease != want || lease.Epoch <= 0 {
		t.Errorf("got lease %+v", lease)
	}
	again, err := s.Acquire(ctx, "a", name)
	must(t, err)
	if again != lease {
		t.Errorf("the holder gets %+v, which is not its lease %+v", again, lease)
	}
	_, err = s.Acquire(ctx, "b", name)
	wants(t, "another node", err, store.ErrHeld)
	_, err = s.Acquire(ctx, "a", id.New(id.Session))
	wants(t, "unknown session", err, store.ErrNotFound)
	_, err = s.Acquire(ctx, "stranger", name)
	if err == nil {
		t.Error("a node that never joined got a lease that others hold")
	}
	_, err = s.Acquire(ctx, "stranger", create(t, s.In(workspace)))
	wants(t, "a node that never joined, a free session", err, store.ErrFenced)

	// The lease is no property of one session's neighbours.
	other, err := s.Acquire(ctx, "b", create(t, s.In(workspace)))
	must(t, err)
	if other.Node != "b" {
		t.Errorf("got lease %+v", other)
	}

	must(t, s.Leave(ctx, "a"))
	taken, err := s.Acquire(ctx, "b", name)
	must(t, err)
	if taken.Epoch != lease.Epoch+1 || taken.Node != "b" {
		t.Errorf("after %+v comes %+v", lease, taken)
	}
	must(t, s.Join(ctx, "a", time.Hour))
	_, err = s.Acquire(ctx, "a", name)
	wants(t, "the former holder", err, store.ErrHeld)
	must(t, s.Leave(ctx, "never seen"))
}

func testLeaseFences(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	ctx := t.Context()
	w := s.In(id.New(id.Workspace))
	name, other := create(t, w), create(t, w)
	must(t, s.Join(ctx, "a", time.Hour))
	old, err := s.Acquire(ctx, "a", name)
	must(t, err)
	must(t, appendTo(w, name, 0, &old, entry(1)))
	must(t, s.Leave(ctx, "a"))
	must(t, appendTo(w, name, 1, &old, entry(2))) // nobody took it: it is still the current one
	must(t, s.Join(ctx, "b", time.Hour))
	current, err := s.Acquire(ctx, "b", name)
	must(t, err)

	wants(t, "old lease, right head", appendTo(w, name, 2, &old, entry(3)), store.ErrFenced)
	wants(t, "old lease, wrong head", appendTo(w, name, 1, &old, entry(2)), store.ErrFenced)
	wants(t, "old lease, no entries", appendTo(w, name, 2, &old), store.ErrFenced)
	wants(t, "lease of another session", appendTo(w, other, 0, &current, entry(1)), store.ErrFenced)
	for what, forged := range map[string]store.Lease{
		"node":      {Session: name, Workspace: current.Workspace, Node: "a", Epoch: current.Epoch},
		"epoch":     {Session: name, Workspace: current.Workspace, Node: "b", Epoch: current.Epoch + 1},
		"workspace": {Session: name, Workspace: "other", Node: "b", Epoch: current.Epoch},
		"all":       {},
	} {
		wants(t, "forged "+what, appendTo(w, name, 2, &forged, entry(3)), store.ErrFenced)
	}
	never := store.Lease{Session: other, Workspace: current.Workspace}
	wants(t, "the lease that a session has before anybody took it", appendTo(w, other, 0, &never, entry(1)), store.ErrFenced)

	must(t, appendTo(w, name, 2, &current, entry(3)))
	must(t, appendTo(w, name, 3, nil, entry(4))) // a client's input needs no lease
	wants(t, "the holder, after an input", appendTo(w, name, 3, &current, entry(4)), store.ErrConflict)
	must(t, appendTo(w, name, 4, &current, entry(5)))
}

// A node that does not renew loses what it holds.
func testLeaseOfADeadNode(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := s.In(id.New(id.Workspace))
	name := create(t, w)
	must(t, s.Join(ctx, "b", time.Hour))
	must(t, s.Join(ctx, "a", 300*time.Millisecond))
	first, err := s.Acquire(ctx, "a", name)
	must(t, err)
	second, err := s.Acquire(ctx, "b", name)
	wants(t, "while the holder lives", err, store.ErrHeld)
	for errors.Is(err, store.ErrHeld) {
		second, err = s.Acquire(ctx, "b", name)
	}
	must(t, err)
	if second.Epoch != first.Epoch+1 {
		t.Errorf("after epoch %d comes %d", first.Epoch, second.Epoch)
	}
	wants(t, "a step of the dead node", appendTo(w, name, 0, &first, entry(1)), store.ErrFenced)
	wants(t, "renewing the dead node", s.Renew(ctx, "a", time.Hour), store.ErrFenced)
	_, err = s.Acquire(ctx, "a", create(t, w))
	wants(t, "the dead node acquires", err, store.ErrFenced)
	must(t, s.Join(ctx, "a", time.Hour))
	_, err = s.Acquire(ctx, "a", name)
	wants(t, "the dead node after it joined again", err, store.ErrHeld)
}

func testLeaseIsGivenToOne(t *testing.T, fresh Fresh) {
	const nodes, sessions = 8, 12
	s := fresh.open(t)
	w := s.In(id.New(id.Workspace))
	names := make([]string, sessions)
	for i := range names {
		names[i] = create(t, w)
	}
	var mu sync.Mutex
	holders := map[string]store.Lease{}
	var all sync.WaitGroup
	for n := range nodes {
		node := string(rune('a' + n))
		must(t, s.Join(t.Context(), node, time.Hour))
		all.Go(func() {
			for i := range names {
				name := names[(i+n)%sessions]
				lease, err := s.Acquire(context.Background(), node, name)
				if err != nil && !errors.Is(err, store.ErrHeld) {
					t.Error(err)
				}
				if err != nil {
					continue
				}
				mu.Lock()
				if other, taken := holders[name]; taken {
					t.Errorf("%+v and %+v were both given", other, lease)
				}
				holders[name] = lease
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(holders) != sessions {
		t.Errorf("%d of %d sessions have a holder", len(holders), sessions)
	}
}

func testRenew(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	ctx := t.Context()
	wants(t, "a node that never joined", s.Renew(ctx, "a", time.Hour), store.ErrFenced)
	must(t, s.Join(ctx, "a", time.Minute))
	must(t, s.Renew(ctx, "a", time.Hour))
	must(t, s.Join(ctx, "a", time.Hour))
	must(t, s.Leave(ctx, "a"))
	wants(t, "a node that left", s.Renew(ctx, "a", time.Hour), store.ErrFenced)
	if s.Join(ctx, "a", 0) == nil {
		t.Error("a node joined for no time")
	}
}

func testWake(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	ctx := t.Context()
	workspaces := []string{id.New(id.Workspace), id.New(id.Workspace)}
	var names []string
	for i := range 6 {
		name := id.New(id.Session)
		names = append(names, name)
		row := store.Session{ID: name, Status: "idle", Created: epoch, Wake: at(int64(10 * (6 - i)))}
		if i == 5 {
			row.Wake = time.Time{}
		}
		update(t, s.In(workspaces[i%2]), func(w store.Writer) error { return w.CreateSession(row, nil) })
	}
	due := func(now time.Time, limit int) []string {
		t.Helper()
		page, err := s.Due(ctx, now, limit)
		must(t, err)
		got := []string{}
		for _, d := range page {
			i := slices.Index(names, d.Session)
			if i < 0 || d.Workspace != workspaces[i%2] || !d.Wake.Equal(at(int64(10*(6-i)))) {
				t.Errorf("due is %+v", d)
			}
			got = append(got, d.Session)
		}
		return got
	}
	next := func(now time.Time) time.Time {
		t.Helper()
		got, err := s.NextWake(ctx, now)
		must(t, err)
		return got
	}
	for _, c := range []struct {
		now   time.Time
		limit int
		want  []string
	}{
		{at(19), 10, []string{}},
		{at(20), 10, []string{names[4]}},
		{at(39), 10, []string{names[4], names[3]}},
		{at(1000), 10, []string{names[4], names[3], names[2], names[1], names[0]}},
		{at(1000), 2, []string{names[4], names[3]}},
	} {
		if got := due(c.now, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("due at %s, at most %d:\ngot  %v\nwant %v", c.now, c.limit, got, c.want)
		}
	}
	for now, want := range map[int64]time.Time{0: at(20), 19: at(20), 20: at(30), 59: at(60), 60: {}, 900: {}} {
		if got := next(at(now)); !got.Equal(want) {
			t.Errorf("next wake after %d: got %s, want %s", now, got, want)
		}
	}
	// A time finer than the store's is never reached early.
	w := s.In(workspaces[0])
	update(t, w, func(w store.Writer) error {
		return w.Append(store.Append{Session: names[4], Status: "idle", Wake: at(5).Add(time.Nanosecond)})
	})
	if page, err := s.Due(ctx, at(5), 10); err != nil || len(page) != 0 {
		t.Errorf("due before its time: %v, %v", page, err)
	}
	update(t, w, func(w store.Writer) error { return w.Append(store.Append{Session: names[4], Status: "idle"}) })
	if got := due(at(1000), 10); slices.Contains(got, names[4]) || len(got) != 4 {
		t.Errorf("a session that rests is due: %v", got)
	}
	if _, err := s.Due(ctx, at(0), 0); err == nil {
		t.Error("a page without a limit was given")
	}
}
