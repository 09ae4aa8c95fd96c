// Package bus tells those who listen that something happened to a session.
//
// The bus carries hints and previews; correctness comes from the log. A message may be lost: a subscription that is not
// read fast enough drops what it cannot hold and says so (Lagged), and its owner reads the log from where it stands.
// Messages of one session may also arrive in another order than that of the log: their positions tell. Publishing never
// waits for a subscriber, so a slow reader cannot slow a writer.
package bus

import (
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/session"
)

// Message is one thing that happened. It is shared among subscribers and must not be changed.
type Message struct {
	// Events were appended to the log.
	Events []session.Event
	// Preview is a frame about an event that is still being made: it is not in the log and never will be. Kind is the
	// type of the event that it previews.
	Preview jsontext.Value
	Kind    string
	Thread  string
}

// Bus is an in-process bus. The zero Bus is not usable.
type Bus struct {
	mu          sync.Mutex
	subscribers map[string]map[*Subscription]struct{}
}

// New makes a bus.
func New() *Bus { return &Bus{subscribers: map[string]map[*Subscription]struct{}{}} }

// Subscription receives what happens to one session after Subscribe returned.
type Subscription struct {
	bus      *Bus
	session  string
	previews bool
	ready    chan struct{}

	mu      sync.Mutex
	pending []Message
	size    int
	lagged  bool
}

// Bounds of what a subscription holds.
const (
	maxPending      = 1024
	maxPendingBytes = 4 << 20
)

// Subscribe begins to listen, to previews too if the subscriber wants them. Close ends it.
func (b *Bus) Subscribe(session string, previews bool) *Subscription {
	s := &Subscription{bus: b, session: session, previews: previews, ready: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers[session] == nil {
		b.subscribers[session] = map[*Subscription]struct{}{}
	}
	b.subscribers[session][s] = struct{}{}
	return s
}

// Close ends the subscription. It may be called more than once.
func (s *Subscription) Close() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	delete(s.bus.subscribers[s.session], s)
	if len(s.bus.subscribers[s.session]) == 0 {
		delete(s.bus.subscribers, s.session)
	}
}

// Ready receives when there may be something to Take.
func (s *Subscription) Ready() <-chan struct{} { return s.ready }

// Take returns what has come since the last Take, and whether something was dropped.
func (s *Subscription) Take() (messages []Message, lagged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages, lagged = s.pending, s.lagged
	s.pending, s.size, s.lagged = nil, 0, false
	return messages, lagged
}

// Publish hands a message to all who listen to the session now.
func (b *Bus) Publish(session string, m Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscribers[session] {
		if m.Preview == nil || s.previews {
			s.offer(m)
		}
	}
}

// Previewed reports whether anybody wants previews of the session: if not, they need not be made.
func (b *Bus) Previewed(session string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscribers[session] {
		if s.previews {
			return true
		}
	}
	return false
}

func (s *Subscription) offer(m Message) {
	size := len(m.Preview)
	for _, e := range m.Events {
		size += len(e.Body)
	}
	s.mu.Lock()
	if len(s.pending) >= maxPending || s.size+size > maxPendingBytes && len(s.pending) > 0 {
		s.lagged = true
	} else {
		s.pending = append(s.pending, m)
		s.size += size
	}
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
