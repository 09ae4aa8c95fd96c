// Package ledger reads and extends the logs of sessions: it folds a log into a state, and appends the steps that are built
// on such a state.
//
// # Authority
//
// The store. The ledger keeps the states of sessions that were used lately, each proven fresh by the head of the log
// before it is handed out. A step is appended at the head that it was built on, or not at all.
//
// # Invariants
//
//   - A state that was handed out is never changed.
//   - What was appended is published on the bus after it is durable, never before.
//   - Change builds its step again whenever the log has moved on: the build function must have no effect of its own.
//   - The changes of one session that this process makes come one after another, so that many at once do not keep each
//     other from ever succeeding. Who comes in from elsewhere meets them in the store.
package ledger

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

const (
	// maxStates bounds the states that are kept. A state is about a kilobyte, and its Config some tens.
	maxStates = 4096
	// snapshotEvery bounds how many entries are folded when a session is not in memory.
	snapshotEvery = 256
	// pageLimit and pageBytes bound one read of a log.
	pageLimit = 512
	pageBytes = 8 << 20
	// maxAttempts bounds how often a step is built again because others were faster.
	maxAttempts = 64
)

// Ledger is safe for concurrent use.
type Ledger struct {
	store store.Store
	bus   *bus.Bus

	mu     sync.Mutex
	states map[string]*list.Element // of held
	recent *list.List
	// changing has a channel for each session that is being changed, which is closed when that is done.
	changing map[string]chan struct{}
}

type held struct {
	workspace string
	session   string
	state     *session.State
	snapshot  int64 // position of the last fold that the store has
}

// New makes a ledger.
func New(s store.Store, b *bus.Bus) *Ledger {
	return &Ledger{store: s, bus: b, states: map[string]*list.Element{}, recent: list.New(), changing: map[string]chan struct{}{}}
}

// State is the fold of the whole log. store.ErrNotFound if the workspace has no such session.
func (l *Ledger) State(ctx context.Context, workspace, id string) (*session.State, error) {
	h, err := l.load(ctx, workspace, id)
	if err != nil {
		return nil, err
	}
	return h.state, nil
}

func (l *Ledger) load(ctx context.Context, workspace, id string) (held, error) {
	known, cached := l.recall(workspace, id)
	var result held
	err := l.store.In(workspace).View(ctx, func(r store.Reader) error {
		row, err := r.Session(id)
		if err != nil {
			return err
		}
		switch {
		case cached && known.state.Seq == row.Head:
			result = known
			return nil
		case cached && known.state.Seq < row.Head:
			result = held{workspace: workspace, session: id, state: known.state.Clone(), snapshot: known.snapshot}
		default:
			if result, err = snapshotOf(workspace, row); err != nil {
				return err
			}
		}
		return foldRest(r, id, result.state)
	})
	if err != nil {
		return held{}, err
	}
	l.remember(result)
	return result, nil
}

// RowState is the fold of the whole log of a session whose row was read already, as lists do.
func (l *Ledger) RowState(ctx context.Context, workspace string, row store.Session) (*session.State, error) {
	if row.StateSeq != row.Head {
		return l.State(ctx, workspace, row.ID)
	}
	h, err := snapshotOf(workspace, row)
	return h.state, err
}

// snapshotOf reads the folds that a row holds.
func snapshotOf(workspace string, row store.Session) (held, error) {
	state := &session.State{}
	if row.State != nil {
		if err := json.Unmarshal(row.State, state); err != nil {
			return held{}, fmt.Errorf("ledger: read the state of session %s: %w", row.ID, err)
		}
	}
	if row.Config != nil {
		var config session.Config
		if err := json.Unmarshal(row.Config, &config); err != nil {
			return held{}, fmt.Errorf("ledger: read the config of session %s: %w", row.ID, err)
		}
		state.Config = &config
	}
	return held{workspace: workspace, session: row.ID, state: state, snapshot: row.StateSeq}, nil
}

func foldRest(r store.Reader, id string, state *session.State) error {
	for {
		events, err := r.Events(id, store.EventQuery{After: state.Seq, Limit: pageLimit, MaxBytes: pageBytes, All: true})
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		if err := state.Fold(events...); err != nil {
			return fmt.Errorf("ledger: session %s: %w", id, err)
		}
	}
}

// Create makes a session with the first step of its log, which build makes inside the transaction.
func (l *Ledger) Create(ctx context.Context, workspace string, build func(store.Writer) (*session.Step, error)) (*session.Step, error) {
	var step *session.Step
	err := l.store.In(workspace).Update(ctx, func(w store.Writer) (err error) {
		if step, err = build(w); err != nil {
			return err
		}
		row, err := firstRow(step)
		if err != nil {
			return err
		}
		return w.CreateSession(row, step.Events)
	})
	if err != nil {
		return nil, err
	}
	l.committed(workspace, step, step.State.Seq)
	return step, nil
}

func firstRow(step *session.Step) (store.Session, error) {
	if err := step.Err(); err != nil {
		return store.Session{}, err
	}
	c := step.State.Config
	row := store.Session{
		ID: c.ID, AgentID: c.AgentID, AgentVersion: c.AgentVersion, Environment: c.Environment, Deployment: c.Deployment,
		Status: string(step.State.Status), Created: c.Created, Head: step.State.Seq,
		Wake:      session.WakeTime(step.State, step.State.At),
		ConfigSeq: step.State.Seq, StateSeq: step.State.Seq,
	}
	var err error
	if row.State, err = encode(step.State); err == nil {
		row.Config, err = encode(c)
	}
	return row, err
}

// Append appends a step that was built on the head of the log. Lease is nil for steps that clients cause. Also runs in
// the same transaction. It returns store.ErrConflict if the log has moved on, and store.ErrFenced if the lease is over.
func (l *Ledger) Append(ctx context.Context, workspace string, step *session.Step, lease *store.Lease, also func(store.Writer) error) error {
	if err := step.Err(); err != nil {
		return err
	}
	if len(step.Events) == 0 && also == nil {
		return nil
	}
	state := step.State
	entry := store.Append{
		Session: state.Config.ID, Head: step.Head(), Events: step.Events, Lease: lease,
		Status: string(state.Status), Wake: session.WakeTime(state, state.At), Archived: state.Archived,
	}
	snapshot := l.snapshotSeq(entry.Session)
	if err := fillFolds(&entry, step, snapshot); err != nil {
		return err
	}
	err := l.store.In(workspace).Update(ctx, func(w store.Writer) error {
		if len(step.Events) > 0 {
			if err := w.Append(entry); err != nil {
				return err
			}
		}
		if also == nil {
			return nil
		}
		return also(w)
	})
	if err != nil {
		return err
	}
	if entry.State != nil {
		snapshot = state.Seq
	}
	l.committed(workspace, step, snapshot)
	return nil
}

// fillFolds adds the folds that the row is to have: those that save reading the log when the session is next used.
func fillFolds(entry *store.Append, step *session.Step, snapshot int64) error {
	rests := step.State.Status != session.Running
	if !rests && step.State.Seq-snapshot < snapshotEvery && !step.ConfigChanged() {
		return nil
	}
	var err error
	if entry.State, err = encode(step.State); err == nil && step.ConfigChanged() {
		entry.Config, err = encode(step.State.Config)
	}
	return err
}

func encode(fold any) ([]byte, error) {
	b, err := json.Marshal(fold, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("ledger: write a fold: %w", err)
	}
	return b, nil
}

// Change appends the step that build makes of the session's state. It builds again when the log has moved on meanwhile.
func (l *Ledger) Change(ctx context.Context, workspace, id string,
	build func(*session.State, time.Time) (*session.Step, error), also func(store.Writer, *session.Step) error,
) (*session.Step, error) {
	release, err := l.takeTurn(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	for range maxAttempts {
		state, err := l.State(ctx, workspace, id)
		if err != nil {
			return nil, err
		}
		step, err := build(state, time.Now())
		if err != nil {
			return nil, err
		}
		var with func(store.Writer) error
		if also != nil {
			with = func(w store.Writer) error { return also(w, step) }
		}
		err = l.Append(ctx, workspace, step, nil, with)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		return step, err
	}
	return nil, fmt.Errorf("ledger: session %s is changed by others all the time: %w", id, store.ErrConflict)
}

// takeTurn waits until nobody in this process changes the session.
func (l *Ledger) takeTurn(ctx context.Context, id string) (release func(), err error) {
	for {
		l.mu.Lock()
		busy, taken := l.changing[id]
		if !taken {
			done := make(chan struct{})
			l.changing[id] = done
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.changing, id)
				l.mu.Unlock()
				close(done)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// committed makes known what is durable.
func (l *Ledger) committed(workspace string, step *session.Step, snapshot int64) {
	if len(step.Events) == 0 {
		return
	}
	l.remember(held{workspace: workspace, session: step.State.Config.ID, state: step.State, snapshot: snapshot})
	l.bus.Publish(step.State.Config.ID, bus.Message{Events: step.Events})
}

// Forget drops what is kept of a session that was deleted.
func (l *Ledger) Forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.states[id]; ok {
		l.recent.Remove(e)
		delete(l.states, id)
	}
}

func (l *Ledger) recall(workspace, id string) (held, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.states[id]
	if !ok || e.Value.(held).workspace != workspace {
		return held{}, false
	}
	l.recent.MoveToFront(e)
	return e.Value.(held), true
}

func (l *Ledger) snapshotSeq(id string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.states[id]; ok {
		return e.Value.(held).snapshot
	}
	return 0
}

// remember keeps a state, unless a later one is kept already.
func (l *Ledger) remember(h held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.states[h.session]; ok {
		if e.Value.(held).state.Seq <= h.state.Seq {
			e.Value = h
		}
		l.recent.MoveToFront(e)
		return
	}
	l.states[h.session] = l.recent.PushFront(h)
	if l.recent.Len() > maxStates {
		oldest := l.recent.Back()
		l.recent.Remove(oldest)
		delete(l.states, oldest.Value.(held).session)
	}
}
