// Package engine keeps sessions going: it notices which ones want to be driven and sees that each is, by one driver.
//
// # Authority
//
// The store. A session wants to be driven when its row's Wake is not after now. Wake calls are hints that shorten the
// wait; timers only wait for the earliest Wake; a sweep finds what hints and timers missed, so that no session stays
// running without a driver for longer than the sweep's interval (I9). Leases are the store's, too (I3): an engine that is
// wrong cannot corrupt a session.
//
// # Invariants
//
//   - At most one drive of a session at a time in this process; across processes the lease decides.
//   - A hint that comes while the session is driven is not lost: the drive sees the log move, or the session is looked at
//     again when the drive ends.
//   - A session that rests has no goroutine and no timer.
//   - The node says that it is alive well within the time for which that is believed. If it cannot, it stops driving before
//     anybody may take over. A process that was stopped for too long (a paused machine, a closed laptop) ends its drives
//     and begins again as another node.
//
// # Failures
//
//	a drive fails            the session is tried again after a wait that grows with each failure in a row
//	the node was stopped     its leases are taken over by whoever starts or is alive; what it still appends is refused
//	the store is away        nothing is driven; the sweep goes on trying
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/store"
)

// Drive drives a session until it rests or waits. See runner.Runner.Drive.
type Drive func(ctx context.Context, lease store.Lease) error

// Options is what an Engine is made of. Store, Drive, NewNode and Log are required.
type Options struct {
	Store store.Store
	Drive Drive
	// NewNode makes an id for this process as a driver, which was never used before.
	NewNode func() string
	Log     *slog.Logger
	// Concurrent bounds the sessions that are driven at once; default 1024. Others wait in the order of their Wake.
	Concurrent int
	// Sweep is how often the store is asked for sessions that nobody hinted at; default 2 s.
	Sweep time.Duration
	// Alive is for how long this node is believed to be alive after it last said so; default 10 s.
	Alive time.Duration
}

// Engine drives sessions in this process.
type Engine struct {
	Options
	hints chan struct{}

	mu      sync.Mutex
	hinted  map[string]bool // sessions that Wake named and that have no drive
	driving map[string]bool // true: look at it again when the drive ends
	failed  map[string]failure
	// sweepSoon says that sessions may have been left out for lack of room, and that there is room.
	sweepSoon bool
}

// failure is a session whose last drives failed.
type failure struct {
	times int
	until time.Time
}

// New makes an Engine. Run starts it.
func New(options Options) *Engine {
	if options.Concurrent == 0 {
		options.Concurrent = 1024
	}
	if options.Sweep == 0 {
		options.Sweep = 2 * time.Second
	}
	if options.Alive == 0 {
		options.Alive = 10 * time.Second
	}
	return &Engine{
		Options: options, hints: make(chan struct{}, 1),
		hinted: map[string]bool{}, driving: map[string]bool{}, failed: map[string]failure{},
	}
}

// Wake says that there may be work for a session. It is cheap and never blocks.
func (e *Engine) Wake(session string) {
	e.mu.Lock()
	if _, ok := e.driving[session]; ok {
		e.driving[session] = true
	} else {
		e.hinted[session] = true
	}
	e.mu.Unlock()
	e.hint()
}

func (e *Engine) hint() {
	select {
	case e.hints <- struct{}{}:
	default:
	}
}

// Run drives sessions until ctx ends, and then waits until nothing is driven any more. It returns an error only if the
// first node could not be made known.
func (e *Engine) Run(ctx context.Context) error {
	for began := false; ; began = true {
		err := e.runAs(ctx, e.NewNode())
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was told to end
		case err != nil && !began:
			return err
		case err != nil:
			e.Log.Error("this process cannot drive sessions; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(e.Sweep):
		}
	}
}

// runAs drives sessions as a node until ctx ends or the node is no longer known as alive.
func (e *Engine) runAs(ctx context.Context, node string) error {
	if err := e.Store.Join(ctx, node, e.Alive); err != nil {
		return fmt.Errorf("engine: join as node %s: %w", node, err)
	}
	driveCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var group sync.WaitGroup
	group.Go(func() { e.stayAlive(driveCtx, stop, node) })
	e.loop(driveCtx, &group, node)
	group.Wait()
	if err := e.Store.Leave(context.WithoutCancel(ctx), node); err != nil {
		e.Log.Warn("the node could not sign off; its leases end by themselves", "node", node, "error", err)
	}
	return nil
}

// stayAlive renews the node. When it has not been able to for most of the time for which it is believed alive, or the
// store says that it is not, it stops all drives.
func (e *Engine) stayAlive(ctx context.Context, stop context.CancelCauseFunc, node string) {
	ticker := time.NewTicker(e.Alive / 4)
	defer ticker.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		began := time.Now() // the store counts from when it hears of us: later than this
		err := e.Store.Renew(ctx, node, e.Alive)
		switch {
		case err == nil:
			renewed = began
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrFenced) || time.Since(renewed) > e.Alive*3/4:
			e.Log.Warn("this node is no longer known as alive; its drives end, and another takes its place", "node", node, "error", err)
			stop(fmt.Errorf("engine: node %s is no longer known as alive: %w", node, err))
			return
		default:
			e.Log.Warn("the node could not say that it is alive; trying again", "node", node, "error", err)
		}
	}
}

func (e *Engine) loop(ctx context.Context, group *sync.WaitGroup, node string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	swept := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.hints:
			e.startHinted(ctx, group, node)
			if e.takeSweepSoon() {
				e.sweep(ctx, group, node)
			}
		case <-timer.C:
			swept = time.Now()
			e.sweep(ctx, group, node)
		}
		next := time.Until(swept.Add(e.Sweep))
		if wake, err := e.Store.NextWake(ctx, time.Now()); err == nil && !wake.IsZero() {
			next = min(next, time.Until(wake))
		}
		timer.Reset(max(next, 0))
	}
}

func (e *Engine) sweep(ctx context.Context, group *sync.WaitGroup, node string) {
	if err := e.startDue(ctx, group, node); err != nil && ctx.Err() == nil {
		e.Log.Error("the store cannot say which sessions want to be driven; trying again", "error", err)
	}
}

func (e *Engine) takeSweepSoon() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	soon := e.sweepSoon
	e.sweepSoon = false
	return soon
}

// startHinted starts a drive for each session that was named, as far as there is room. Those left out stay due.
func (e *Engine) startHinted(ctx context.Context, group *sync.WaitGroup, node string) {
	e.mu.Lock()
	hinted := e.hinted
	e.hinted = map[string]bool{}
	e.mu.Unlock()
	for session := range hinted {
		e.start(ctx, group, node, session)
	}
}

// startDue starts a drive for each session that wants one and has none.
func (e *Engine) startDue(ctx context.Context, group *sync.WaitGroup, node string) error {
	e.mu.Lock()
	busy, failed := len(e.driving), len(e.failed)
	e.mu.Unlock()
	if busy >= e.Concurrent {
		return nil
	}
	// Those that are driven, and those that failed and wait, are due as well: they must not crowd out the others.
	due, err := e.Store.Due(ctx, time.Now(), e.Concurrent+busy+failed)
	if err != nil {
		return err
	}
	for _, d := range due {
		e.start(ctx, group, node, d.Session)
	}
	return nil
}

func (e *Engine) start(ctx context.Context, group *sync.WaitGroup, node, session string) {
	if e.claim(session) {
		group.Go(func() { e.drive(ctx, node, session) })
	}
}

// claim reports whether a drive of the session may start now.
func (e *Engine) claim(session string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.driving[session]; ok || len(e.driving) >= e.Concurrent || time.Now().Before(e.failed[session].until) {
		return false
	}
	e.driving[session] = false
	return true
}

func (e *Engine) drive(ctx context.Context, node, session string) {
	err := e.driveOnce(ctx, node, session)
	e.mu.Lock()
	again := e.driving[session]
	delete(e.driving, session)
	if err == nil || errors.Is(err, store.ErrHeld) || errors.Is(err, store.ErrNotFound) {
		delete(e.failed, session)
	} else if ctx.Err() == nil {
		f := e.failed[session]
		f.times++
		f.until = time.Now().Add(min(time.Minute, 100*time.Millisecond<<min(f.times, 10)))
		e.failed[session] = f
	}
	full := len(e.driving) == e.Concurrent-1 // others may have been left out
	if full {
		e.sweepSoon = true
	}
	e.mu.Unlock()
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrHeld) && !errors.Is(err, store.ErrNotFound) {
		e.Log.Error("a session could not be driven; it is tried again", "session", session, "error", err)
	}
	if again {
		e.Wake(session)
	} else if full || err == nil {
		e.hint()
	}
}

func (e *Engine) driveOnce(ctx context.Context, node, session string) error {
	lease, err := e.Store.Acquire(ctx, node, session)
	if err != nil {
		return err
	}
	return e.Drive(ctx, lease)
}
