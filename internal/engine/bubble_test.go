package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/sqlite"
)

// world is a real store with sessions, in a bubble of virtual time.
type world struct {
	t         *testing.T
	store     *sqlite.Store
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
	return &world{t, s, id.New(id.Workspace)}
}

// session makes a session that wants to be driven at a time.
func (w *world) session(wake time.Time) string {
	w.t.Helper()
	name := id.New(id.Session)
	err := w.store.In(w.workspace).Update(w.t.Context(), func(tx store.Writer) error {
		return tx.CreateSession(store.Session{ID: name, Status: "running", Created: time.Now(), Wake: wake}, nil)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return name
}

// rest makes a session rest, as a drive does that has nothing left to do.
func (w *world) rest(ctx context.Context, lease store.Lease) error {
	return w.store.In(lease.Workspace).Update(ctx, func(tx store.Writer) error {
		return tx.Append(store.Append{Session: lease.Session, Lease: &lease, Status: string(session.Idle)})
	})
}

// rests reports whether a session has nothing left to be done. A session that was due a moment ago may be driven once more
// and then finds that out.
func (w *world) rests(name string) bool {
	var row store.Session
	err := w.store.In(w.workspace).View(context.Background(), func(r store.Reader) (err error) {
		row, err = r.Session(name)
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
	return row.Status == string(session.Idle)
}

// run runs an engine until the end of the test.
func (w *world) run(o engine.Options) (e *engine.Engine, stop func()) {
	w.t.Helper()
	o.Store, o.Log = w.store, slog.New(slog.DiscardHandler)
	if o.NewNode == nil {
		o.NewNode = func() string { return id.New(id.Node) }
	}
	e = engine.New(o)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	synctest.Wait()
	return e, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

// log counts drives.
type drives struct {
	mu    sync.Mutex
	times map[string][]time.Time
}

func (d *drives) add(session string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.times == nil {
		d.times = map[string][]time.Time{}
	}
	d.times[session] = append(d.times[session], time.Now())
	return len(d.times[session])
}

func (d *drives) of(session string) []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.times[session]
}

func TestSessionsThatWaitedForAServerAreDrivenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		var seen drives
		name := w.session(time.Now())
		_, stop := w.run(engine.Options{Drive: func(ctx context.Context, lease store.Lease) error {
			seen.add(lease.Session)
			return w.rest(ctx, lease)
		}})
		defer stop()
		if n := len(seen.of(name)); n != 1 {
			t.Errorf("driven %d times, want once", n)
		}
		time.Sleep(time.Minute)
		if n := len(seen.of(name)); n != 1 {
			t.Errorf("a session that rests was driven again: %d times", n)
		}
	})
}

func TestATimeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		var seen drives
		began := time.Now()
		name := w.session(began.Add(15 * time.Minute))
		_, stop := w.run(engine.Options{Drive: func(ctx context.Context, lease store.Lease) error {
			seen.add(lease.Session)
			return w.rest(ctx, lease)
		}})
		defer stop()
		time.Sleep(16 * time.Minute)
		times := seen.of(name)
		if len(times) != 1 {
			t.Fatalf("driven %d times, want once", len(times))
		}
		if late := times[0].Sub(began) - 15*time.Minute; late < 0 || late > 100*time.Millisecond {
			t.Errorf("driven %s after its time", late)
		}
	})
}

func TestASessionThatNobodyHintedAtIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		var seen drives
		_, stop := w.run(engine.Options{Drive: func(ctx context.Context, lease store.Lease) error {
			seen.add(lease.Session)
			return w.rest(ctx, lease)
		}})
		defer stop()
		name := w.session(time.Now()) // as if another process had made it
		time.Sleep(5 * time.Second)
		if n := len(seen.of(name)); n != 1 {
			t.Errorf("driven %d times within five seconds, want once", n)
		}
	})
}

func TestOneDriveAtATimeAndNoHintIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		var seen drives
		release := make(chan struct{})
		name := w.session(time.Now())
		e, stop := w.run(engine.Options{Drive: func(ctx context.Context, lease store.Lease) error {
			if seen.add(lease.Session) == 1 {
				<-release
			}
			return w.rest(ctx, lease)
		}})
		defer stop()
		for range 100 {
			e.Wake(name)
		}
		time.Sleep(time.Minute)
		if n := len(seen.of(name)); n != 1 {
			t.Fatalf("%d drives at once", n)
		}
		close(release)
		synctest.Wait()
		if n := len(seen.of(name)); n != 2 {
			t.Errorf("driven %d times, want once more for the hints", n)
		}
	})
}

func TestADriveThatFailsIsTriedAgainMoreAndMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		var seen drives
		name := w.session(time.Now())
		_, stop := w.run(engine.Options{Drive: func(_ context.Context, lease store.Lease) error {
			seen.add(lease.Session)
			return errors.New("no")
		}})
		defer stop()
		time.Sleep(15 * time.Minute)
		times := seen.of(name)
		if len(times) < 15 || len(times) > 40 {
			t.Errorf("tried %d times in a quarter of an hour", len(times))
		}
		for i := 3; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap > 65*time.Second {
				t.Errorf("the wait before try %d was %s", i+1, gap)
			}
		}
	})
}

func TestMoreSessionsThanRoomAreAllDriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		var seen drives
		var mu sync.Mutex
		at, most := 0, 0
		names := make([]string, 40)
		for i := range names {
			names[i] = w.session(time.Now())
		}
		_, stop := w.run(engine.Options{Concurrent: 3, Drive: func(ctx context.Context, lease store.Lease) error {
			if w.rests(lease.Session) {
				return nil
			}
			mu.Lock()
			at++
			most = max(most, at)
			mu.Unlock()
			seen.add(lease.Session)
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			at--
			mu.Unlock()
			return w.rest(ctx, lease)
		}})
		defer stop()
		time.Sleep(5 * time.Second)
		for _, name := range names {
			if n := len(seen.of(name)); n != 1 {
				t.Errorf("%s was driven %d times", name, n)
			}
		}
		if most != 3 {
			t.Errorf("%d at once, want 3", most)
		}
	})
}

func TestANodeThatIsNotKnownAsAliveStopsDriving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		ended := make(chan error, 2)
		name := w.session(time.Now())
		nodes := 0
		newNode := func() string {
			nodes++
			return fmt.Sprint("node", nodes)
		}
		const node = "node1"
		_, stop := w.run(engine.Options{NewNode: newNode, Drive: func(ctx context.Context, _ store.Lease) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		}})
		defer stop()
		// Another one has decided that this node is dead, and taken the session.
		if err := w.store.Leave(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := <-ended; !errors.Is(err, store.ErrFenced) {
			t.Errorf("the drive ended with %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it went on for %s", took)
		}
		if err := w.store.Join(t.Context(), "other", time.Minute); err != nil {
			t.Fatal(err)
		}
		lease, err := w.store.Acquire(t.Context(), "other", name)
		if err != nil || lease.Epoch != 2 {
			t.Errorf("the other gets lease %+v, %v", lease, err)
		}
	})
}

func TestAProcessThatWasPausedBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		var seen drives
		nodes := 0
		_, stop := w.run(engine.Options{
			NewNode: func() string {
				nodes++
				return fmt.Sprint("node", nodes)
			},
			Drive: func(ctx context.Context, lease store.Lease) error {
				seen.add(lease.Session)
				return w.rest(ctx, lease)
			},
		})
		defer stop()
		if err := w.store.Leave(t.Context(), "node1"); err != nil { // as the store sees a node that said nothing for too long
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		name := w.session(time.Now())
		time.Sleep(5 * time.Second)
		if n := len(seen.of(name)); n != 1 || nodes != 2 {
			t.Errorf("a session was driven %d times by %d nodes", n, nodes)
		}
	})
}
