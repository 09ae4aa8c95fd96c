package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// modelled is what the suite believes of one session.
type modelled struct {
	id     string
	log    []session.Event
	status string
	wake   time.Time
	state  []byte
	seq    int64 // of state
	node   string
	epoch  int64
	leases []store.Lease // all that were ever given
}

// GoString keeps rapid's account of a failure readable.
func (m *modelled) GoString() string {
	return fmt.Sprintf("%s at head %d, epoch %d of %q", m.id, m.head(), m.epoch, m.node)
}

func (m *modelled) head() int64 { return int64(len(m.log)) }

// model runs random operations on a store and on a few maps, and compares.
type model struct {
	store     store.Store
	workspace store.Workspace
	name      string
	nodes     []string
	alive     map[string]bool
	sessions  []*modelled
	deleted   []string
}

func testAgainstModel(t *testing.T, fresh Fresh) {
	s := fresh.open(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{store: s, name: id.New(id.Workspace), alive: map[string]bool{}}
		m.workspace = s.In(m.name)
		for range 3 {
			m.nodes = append(m.nodes, id.New(id.Node))
		}
		t.Repeat(map[string]func(*rapid.T){
			"create":     m.create,
			"append":     m.append,
			"appendMore": m.append, // the commonest operation
			"acquire":    m.acquire,
			"join":       m.join,
			"leave":      m.leave,
			"delete":     m.delete,
			"":           m.check,
		})
		for _, one := range m.sessions {
			m.checkLog(t, one)
		}
	})
}

func (m *model) pick(t *rapid.T) *modelled {
	if len(m.sessions) == 0 {
		t.Skip("no session")
	}
	return rapid.SampledFrom(m.sessions).Draw(t, "session")
}

func (m *model) create(t *rapid.T) {
	n := rapid.IntRange(0, 3).Draw(t, "entries")
	one := &modelled{id: id.New(id.Session), log: entries(0, n), status: "idle", wake: drawWake(t)}
	update(t, m.workspace, func(w store.Writer) error {
		return w.CreateSession(store.Session{ID: one.id, Status: one.status, Created: epoch, Head: one.head(), Wake: one.wake}, one.log)
	})
	m.sessions = append(m.sessions, one)
}

func drawWake(t *rapid.T) time.Time {
	micro := rapid.Int64Range(-1, 50).Draw(t, "wake")
	if micro < 0 {
		return time.Time{}
	}
	return at(micro)
}

func (m *model) append(t *rapid.T) {
	one := m.pick(t)
	step := store.Append{
		Session: one.id,
		Head:    one.head() + rapid.SampledFrom([]int64{0, 0, 0, 0, -1, 1}).Draw(t, "head off by"),
		Status:  rapid.SampledFrom([]string{"idle", "running"}).Draw(t, "status"),
		Wake:    drawWake(t),
	}
	step.Events = entries(step.Head, rapid.IntRange(0, 3).Draw(t, "entries"))
	waiting := one.waiting()
	for i := range step.Events {
		step.Events[i].Queued = rapid.Bool().Draw(t, "queued")
		if !step.Events[i].Queued && rapid.Bool().Draw(t, "delivers") {
			if len(waiting) > 0 {
				step.Events[i].ID, waiting = waiting[0].ID, waiting[1:]
			}
		}
	}
	if rapid.Bool().Draw(t, "state") {
		step.State = []byte{byte(len(one.log)), 0}
	}
	if len(one.leases) > 0 && rapid.Bool().Draw(t, "leased") {
		lease := rapid.SampledFrom(one.leases).Draw(t, "lease")
		step.Lease = &lease
	}
	var want error
	switch {
	case step.Lease != nil && (step.Lease.Epoch != one.epoch || step.Lease.Node != one.node):
		want = store.ErrFenced
	case step.Head != one.head():
		want = store.ErrConflict
	}
	err := m.workspace.Update(t.Context(), func(w store.Writer) error { return w.Append(step) })
	wants(t, "append", err, want)
	if want != nil {
		return
	}
	one.log, one.status, one.wake = append(one.log, step.Events...), step.Status, step.Wake
	if step.State != nil {
		one.state, one.seq = step.State, one.head()
	}
}

// waiting returns the inputs that were queued and not delivered.
func (m *modelled) waiting() []session.Event {
	return slices.DeleteFunc(m.visible(), func(e session.Event) bool { return !e.Queued })
}

// visible is what clients see: of each id the last entry.
func (m *modelled) visible() []session.Event {
	last := map[string]int64{}
	for _, e := range m.log {
		last[e.ID] = e.Seq
	}
	return slices.DeleteFunc(slices.Clone(m.log), func(e session.Event) bool { return last[e.ID] != e.Seq })
}

func (m *model) acquire(t *rapid.T) {
	one, node := m.pick(t), rapid.SampledFrom(m.nodes).Draw(t, "node")
	lease, err := m.store.Acquire(t.Context(), node, one.id)
	switch {
	case !m.alive[node]:
		wants(t, "a node that is not alive acquires", err, store.ErrFenced)
		return
	case one.node != node && m.alive[one.node]:
		wants(t, "acquire what is held", err, store.ErrHeld)
		return
	case one.node != node:
		one.node, one.epoch = node, one.epoch+1
	}
	must(t, err)
	if want := (store.Lease{Session: one.id, Workspace: m.name, Node: node, Epoch: one.epoch}); lease != want {
		t.Fatalf("got lease %+v, want %+v", lease, want)
	}
	if !slices.Contains(one.leases, lease) {
		one.leases = append(one.leases, lease)
	}
}

func (m *model) join(t *rapid.T) {
	node := rapid.SampledFrom(m.nodes).Draw(t, "node")
	must(t, m.store.Join(t.Context(), node, time.Hour))
	m.alive[node] = true
}

func (m *model) leave(t *rapid.T) {
	node := rapid.SampledFrom(m.nodes).Draw(t, "node")
	must(t, m.store.Leave(t.Context(), node))
	delete(m.alive, node)
}

func (m *model) delete(t *rapid.T) {
	one := m.pick(t)
	update(t, m.workspace, func(w store.Writer) error { return w.DeleteSession(one.id) })
	m.sessions = slices.DeleteFunc(m.sessions, func(other *modelled) bool { return other == one })
	m.deleted = append(m.deleted, one.id)
}

func (m *model) check(t *rapid.T) {
	rows := read(t, m.workspace, func(r store.Reader) ([]store.Session, error) {
		return r.Sessions(store.SessionQuery{Ascending: true, Limit: 1000})
	})
	if len(rows) != len(m.sessions) {
		t.Fatalf("the store has %d sessions, want %d", len(rows), len(m.sessions))
	}
	for i, one := range m.sessions {
		row := rows[i]
		if row.ID != one.id || row.Head != one.head() || row.Status != one.status || !row.Wake.Equal(one.wake) ||
			string(row.State) != string(one.state) || row.StateSeq != one.seq {
			t.Fatalf("session %+v, want %+v", row, one)
		}
	}
	if len(m.sessions) > 0 {
		m.checkLog(t, rapid.SampledFrom(m.sessions).Draw(t, "looked at"))
	}
	for _, name := range m.deleted {
		_, err := view(m.workspace, func(r store.Reader) (store.Session, error) { return r.Session(name) })
		wants(t, "deleted session", err, store.ErrNotFound)
	}
	m.checkDue(t)
}

func (m *model) checkLog(t *rapid.T, one *modelled) {
	if got := wholeLog(t, m.workspace, one.id, 4); !slices.EqualFunc(got, one.log, sameEvent) {
		t.Fatalf("log %+v, want %+v", got, one.log)
	}
	if got := pages(t, m.workspace, one.id, store.EventQuery{Limit: 3}); !slices.EqualFunc(got, one.visible(), sameEvent) {
		t.Fatalf("clients see %+v, want %+v", got, one.visible())
	}
}

func (m *model) checkDue(t *rapid.T) {
	now := at(rapid.Int64Range(-1, 51).Draw(t, "now"))
	due, err := m.store.Due(t.Context(), now, 100_000)
	must(t, err)
	due = slices.DeleteFunc(due, func(d store.Due) bool { return d.Workspace != m.name })
	var want []store.Due
	for _, one := range m.sessions {
		if !one.wake.IsZero() && !one.wake.After(now) {
			want = append(want, store.Due{Session: one.id, Workspace: m.name, Wake: one.wake})
		}
	}
	slices.SortStableFunc(want, func(a, b store.Due) int { return cmp.Or(a.Wake.Compare(b.Wake), cmp.Compare(a.Session, b.Session)) })
	slices.SortStableFunc(due, func(a, b store.Due) int { return cmp.Or(a.Wake.Compare(b.Wake), cmp.Compare(a.Session, b.Session)) })
	if !slices.Equal(due, want) {
		t.Fatalf("due at %s: %v, want %v", now, due, want)
	}
}

func sameEvent(a, b session.Event) bool {
	return a.Seq == b.Seq && a.ID == b.ID && a.Type == b.Type && a.At.Equal(b.At) && a.Queued == b.Queued && string(a.Body) == string(b.Body)
}
