//go:build linux

package behaviour

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/internal/model/mockserver"
	"github.com/perdure/perdure/internal/model/scripted"
)

// strictModel is a model that plays scripts and refuses what the real one refuses. Each conversation has a model of its own
// name, which tells requests apart.
type strictModel struct {
	*mockserver.Server
	library *scripted.Library
	web     *httptest.Server

	mu      sync.Mutex
	traffic map[string]*traffic
}

// traffic is the requests of one conversation.
type traffic struct {
	arrived int
	running map[*request]bool
	overlap bool          // a request was made before the one before it had ended
	gone    bool          // the last request that ended was given up by the server
	changed chan struct{} // closed with the next change
	gates   map[int]*gate
}

// request is one that is being answered.
type request struct {
	gone  bool          // it was given up by the server
	ended chan struct{} // closed when it is not answered any more
}

// arrival is a header that numbers the requests of a conversation.
const arrival = "X-Arrival"

// gate holds one answer of the model.
type gate struct {
	frames  int           // that are sent first; 0 holds before the first byte
	reached chan struct{} // closed when the answer is held
	open    chan struct{} // closed to let it go on
	once    sync.Once
}

func startModel() *strictModel {
	library := scripted.NewLibrary()
	m := &strictModel{library: library, traffic: map[string]*traffic{}, Server: mockserver.New(mockserver.Config{
		Library: library, Strict: true, APIKey: providerKey, MaxRecords: 100_000, MaxPromptTokens: 10_000_000,
	})}
	m.web = httptest.NewServer(http.HandlerFunc(m.serve))
	return m
}

func (m *strictModel) close() {
	m.web.CloseClientConnections() // some answers never end
	m.web.Close()
}

func (m *strictModel) of(name string) *traffic {
	if m.traffic[name] == nil {
		m.traffic[name] = &traffic{changed: make(chan struct{}), gates: map[int]*gate{}, running: map[*request]bool{}}
	}
	return m.traffic[name]
}

// note changes what is known of a conversation's requests.
func (m *strictModel) note(name string, change func(*traffic)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.of(name)
	change(t)
	close(t.changed)
	t.changed = make(chan struct{})
}

func (m *strictModel) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server gave up while it sent
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	name := gjson.GetBytes(body, "model").String()
	r.Header.Set(mockserver.SessionHeader, name)
	own := &request{ended: make(chan struct{})}
	var held *gate
	var others []*request
	m.note(name, func(t *traffic) {
		t.arrived++
		held = t.gates[t.arrived]
		others = slices.Collect(maps.Keys(t.running))
		t.running[own] = true
		r.Header.Set(arrival, strconv.Itoa(t.arrived))
	})
	defer m.note(name, func(t *traffic) {
		delete(t.running, own)
		own.gone = r.Context().Err() != nil
		t.gone = own.gone
		close(own.ended)
	})
	if !abandoned(others) {
		// One that was given up at once may arrive here after the next.
		select {
		case <-r.Context().Done():
			return
		case <-time.After(patience):
			m.note(name, func(t *traffic) { t.overlap = true })
		}
	}
	if held != nil {
		if held.frames == 0 {
			held.wait(r.Context())
		} else {
			w = &gatedWriter{ResponseWriter: w, gate: held, ctx: r.Context()}
		}
	}
	m.ServeHTTP(w, r)
}

// patience is how much later it may show here that the server has given up a request.
const patience = 5 * time.Second

// abandoned reports whether requests were given up by the server.
func abandoned(requests []*request) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, r := range requests {
		select {
		case <-r.ended:
			if !r.gone {
				return false
			}
		case <-timer.C:
			return false
		}
	}
	return true
}

func (g *gate) wait(ctx context.Context) {
	close(g.reached)
	select {
	case <-g.open:
	case <-ctx.Done():
	}
}

// release lets the answer go on.
func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// await waits until the answer is held.
func (g *gate) await(t *testing.T) {
	t.Helper()
	await(t, g.reached, "the model was not asked")
}

func await[T any](t *testing.T, signal <-chan T, missing string) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-signal:
	case <-timer.C:
		t.Fatalf("%s within %v", missing, limit)
	}
}

// gatedWriter holds an answer after a number of its frames.
type gatedWriter struct {
	http.ResponseWriter
	gate *gate
	ctx  context.Context
	sent int
}

func (w *gatedWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if w.sent++; w.sent == w.gate.frames {
		w.gate.wait(w.ctx)
	}
	return err
}

// hold holds the answer to the n-th request of a conversation, after a number of frames. It is let go when the test ends.
func (m *strictModel) hold(t *testing.T, name string, n, frames int) *gate {
	g := &gate{frames: frames, reached: make(chan struct{}), open: make(chan struct{})}
	m.note(name, func(t *traffic) { t.gates[n] = g })
	t.Cleanup(g.release)
	return g
}

// awaitTraffic waits until something holds for the requests of a conversation.
func (m *strictModel) awaitTraffic(t *testing.T, name, what string, holds func(*traffic) bool) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		m.mu.Lock()
		now := m.of(name)
		changed, ok := now.changed, holds(now)
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// asked is how many requests of a conversation have arrived.
func (m *strictModel) asked(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name).arrived
}

// awaitAfter waits until the answer to what do causes is held.
func (g *gate) awaitAfter(t *testing.T, do func()) {
	t.Helper()
	do()
	g.await(t)
}
