package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/ledger"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/sqlite"
)

type world struct {
	t         *testing.T
	store     *sqlite.Store
	bus       *bus.Bus
	ledger    *ledger.Ledger
	workspace string
}

func open(t *testing.T) *world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	b := bus.New()
	return &world{t, s, b, ledger.New(s, b), id.New(id.Workspace)}
}

func (w *world) create() string {
	w.t.Helper()
	name := id.New(id.Session)
	_, err := w.ledger.Create(w.t.Context(), w.workspace, func(store.Writer) (*session.Step, error) {
		return session.Create(session.Config{ID: name, Thread: id.New(id.Thread), Agent: []byte(`{}`), Environment: "env"}, time.Now()), nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return name
}

func retitle(title string) func(*session.State, time.Time) (*session.Step, error) {
	return func(state *session.State, now time.Time) (*session.Step, error) {
		step := session.NewStep(state, now)
		return step, step.Update(session.Change{Retitle: true, Title: &title})
	}
}

// fresh is the state as somebody sees it who keeps nothing.
func (w *world) fresh(name string) *session.State {
	w.t.Helper()
	state, err := ledger.New(w.store, w.bus).State(w.t.Context(), w.workspace, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

func (w *world) kept(name string) *session.State {
	w.t.Helper()
	state, err := w.ledger.State(w.t.Context(), w.workspace, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

func TestStateIsTheFoldOfTheLog(t *testing.T) {
	w := open(t)
	name := w.create()
	for i := range 600 { // more than are folded at once, and more than lie between two folds
		if _, err := w.ledger.Change(t.Context(), w.workspace, name, retitle(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	kept, fresh := w.kept(name), w.fresh(name)
	if diff := cmp.Diff(kept, fresh); diff != "" {
		t.Errorf("what is kept differs from the log (-kept +log):\n%s", diff)
	}
	if kept.Seq != 601 || *kept.Config.Title != "599" {
		t.Errorf("state at %d with title %s", kept.Seq, *kept.Config.Title)
	}
}

func TestOthersExtendTheLog(t *testing.T) {
	w := open(t)
	name := w.create()
	other := ledger.New(w.store, w.bus)
	for i := range 10 {
		if _, err := w.ledger.Change(t.Context(), w.workspace, name, retitle(fmt.Sprint("a", i)), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Change(t.Context(), w.workspace, name, retitle(fmt.Sprint("b", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := *w.kept(name).Config.Title; got != "b9" {
		t.Errorf("the title is %s, want b9", got)
	}
}

func TestConcurrentChangesAllHappen(t *testing.T) {
	w := open(t)
	name := w.create()
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for j := range 10 {
				key, value := fmt.Sprintf("k%d-%d", i, j), "v"
				_, err := w.ledger.Change(context.Background(), w.workspace, name, func(state *session.State, now time.Time) (*session.Step, error) {
					step := session.NewStep(state, now)
					return step, step.Update(session.Change{Metadata: map[string]*string{key: &value}})
				}, nil)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := len(w.fresh(name).Config.Metadata); n != 160 {
		t.Errorf("%d of 160 changes are there", n)
	}
}

func TestAChangeAndWhatGoesWithItHappenTogether(t *testing.T) {
	w := open(t)
	name := w.create()
	sub := w.bus.Subscribe(name, false)
	defer sub.Close()
	no := errors.New("no")
	_, err := w.ledger.Change(t.Context(), w.workspace, name, retitle("x"), func(store.Writer, *session.Step) error { return no })
	if !errors.Is(err, no) {
		t.Errorf("the error is %v", err)
	}
	if w.fresh(name).Config.Title != nil || w.kept(name).Config.Title != nil {
		t.Error("the title was changed all the same")
	}
	if messages, _ := sub.Take(); len(messages) != 0 {
		t.Errorf("what did not happen was published: %v", messages)
	}
	if _, err := w.ledger.Change(t.Context(), w.workspace, name, retitle("y"), nil); err != nil {
		t.Fatal(err)
	}
	if messages, _ := sub.Take(); len(messages) != 1 || len(messages[0].Events) != 1 {
		t.Errorf("published %v", messages)
	}
}

func TestAStaleStepIsRefused(t *testing.T) {
	w := open(t)
	name := w.create()
	title := "late"
	late := session.NewStep(w.kept(name), time.Now())
	if err := late.Update(session.Change{Retitle: true, Title: &title}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ledger.Change(t.Context(), w.workspace, name, retitle("first"), nil); err != nil {
		t.Fatal(err)
	}
	if err := w.ledger.Append(t.Context(), w.workspace, late, nil, nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the late step gets %v", err)
	}
}

func TestAnotherWorkspaceSeesNothing(t *testing.T) {
	w := open(t)
	name := w.create()
	w.kept(name)
	if _, err := w.ledger.State(t.Context(), id.New(id.Workspace), name); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another workspace gets %v", err)
	}
}

func TestWhatWasDeletedIsForgotten(t *testing.T) {
	w := open(t)
	name := w.create()
	err := w.store.In(w.workspace).Update(t.Context(), func(tx store.Writer) error { return tx.DeleteSession(name) })
	if err != nil {
		t.Fatal(err)
	}
	w.ledger.Forget(name)
	if _, err := w.ledger.State(t.Context(), w.workspace, name); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a deleted session gives %v", err)
	}
}

func TestRowsOfListsAreUpToDate(t *testing.T) {
	w := open(t)
	name := w.create()
	for i := range 3 {
		if _, err := w.ledger.Change(t.Context(), w.workspace, name, retitle(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	var rows []store.Session
	err := w.store.In(w.workspace).View(t.Context(), func(r store.Reader) (err error) {
		rows, err = r.Sessions(store.SessionQuery{Limit: 10})
		return err
	})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	state, err := w.ledger.RowState(t.Context(), w.workspace, rows[0])
	if err != nil || *state.Config.Title != "2" {
		t.Errorf("the row gives %+v, %v", state, err)
	}
}
