package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// logServer is a session's log behind the three requests that Follow makes.
type logServer struct {
	t       *testing.T
	cursors bool // it sends SSE ids and takes Last-Event-ID

	mu      sync.Mutex
	log     []string // ids of the events; the position is the cursor
	changed chan struct{}
	cut     chan struct{} // closing it cuts the open streams
	opened  chan string   // each opened stream: its Last-Event-ID
	refuse  []int         // status of the next requests of the stream
	preview string        // sent once at the beginning of each stream
}

func newLogServer(t *testing.T, cursors bool) (*logServer, *httptest.Server) {
	s := &logServer{t: t, cursors: cursors, changed: make(chan struct{}), cut: make(chan struct{}), opened: make(chan string, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sessions/s/events", s.list)
	mux.HandleFunc("GET /v1/sessions/s/events/stream", s.stream)
	server := httptest.NewServer(mux)
	t.Cleanup(func() { s.cutAll(); server.Close() })
	return s, server
}

func event(id string) string {
	return fmt.Sprintf(`{"id":%q,"type":"agent.message","processed_at":"2026-01-01T00:00:00.000000Z","content":[]}`, id)
}

func (s *logServer) add(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, ids...)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *logServer) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

func (s *logServer) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Clone(s.log)
	slices.Reverse(ids)
	if r.FormValue("order") != "desc" {
		s.t.Errorf("the order asked for is %q", r.FormValue("order"))
	}
	from, _ := strconv.Atoi(r.FormValue("page"))
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	limit = min(limit, 2) // so that there are pages
	ids = ids[min(from, len(ids)):]
	next := "null"
	if len(ids) > limit {
		ids, next = ids[:limit], strconv.Quote(strconv.Itoa(from+limit))
	}
	var events []string
	for _, id := range ids {
		events = append(events, event(id))
	}
	fmt.Fprintf(w, `{"data":[%s],"next_page":%s}`, strings.Join(events, ","), next)
}

func (s *logServer) stream(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if len(s.refuse) > 0 {
		status := s.refuse[0]
		s.refuse = s.refuse[1:]
		s.mu.Unlock()
		w.WriteHeader(status)
		fmt.Fprint(w, `{"type":"error","error":{"type":"x","message":"refused as planned"}}`)
		return
	}
	at := len(s.log)
	last := r.Header.Get("Last-Event-ID")
	if last != "" {
		at, _ = strconv.Atoi(last)
	}
	cut := s.cut
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	fmt.Fprint(w, "event: ping\ndata: {\"type\":\"ping\"}\n\n"+s.preview)
	w.(http.Flusher).Flush()
	s.opened <- last
	for {
		s.mu.Lock()
		news, changed := slices.Clone(s.log[at:]), s.changed
		s.mu.Unlock()
		for _, id := range news {
			at++
			if s.cursors {
				fmt.Fprintf(w, "id: %d\n", at)
			}
			fmt.Fprintf(w, "event: agent.message\ndata: %s\n\n", event(id))
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

type following struct {
	t      *testing.T
	events chan string
	open   chan struct{}
	done   chan error
	cancel context.CancelFunc
}

func follow(t *testing.T, c *Client) *following {
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{t: t, events: make(chan string, 100), open: make(chan struct{}), done: make(chan error, 1), cancel: cancel}
	go func() {
		f.done <- c.Follow(ctx, "s", FollowOptions{OnOpen: func() { close(f.open) }}, func(e Event) error {
			f.events <- e.Type[:1] + e.ID
			return nil
		})
	}()
	t.Cleanup(cancel)
	return f
}

func (f *following) want(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		select {
		case got := <-f.events:
			if got != "a"+id {
				f.t.Fatalf("got event %s, want %s", got, id)
			}
		case err := <-f.done:
			f.t.Fatalf("Follow ended with %v before %s", err, id)
		case <-time.After(10 * time.Second):
			f.t.Fatalf("event %s did not come", id)
		}
	}
}

func (f *following) end() error {
	f.t.Helper()
	select {
	case err := <-f.done:
		if len(f.events) > 0 {
			f.t.Errorf("there was one event more: %s", <-f.events)
		}
		return err
	case <-time.After(10 * time.Second):
		f.t.Fatal("Follow did not end")
		return nil
	}
}

func newClient(t *testing.T, url string, change func(*Options)) *Client {
	t.Helper()
	o := Options{BaseURL: url, Key: "test-key-of-no-server", MaxWait: time.Millisecond}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestFollowGivesEachEventOnceAcrossCuts(t *testing.T) {
	for name, cursors := range map[string]bool{"with cursors": true, "without cursors": false} {
		t.Run(name, func(t *testing.T) {
			s, server := newLogServer(t, cursors)
			s.add("old1", "old2", "old3")
			f := follow(t, newClient(t, server.URL, nil))
			<-f.open
			if got := <-s.opened; got != "" {
				t.Errorf("the first connection has the cursor %q", got)
			}
			s.add("1", "2")
			f.want("1", "2")
			for round := range 5 {
				// What is added while the connection is cut must come, and what was given must not come again.
				s.mu.Lock()
				s.refuse = []int{503}
				s.mu.Unlock()
				s.cutAll()
				ids := []string{fmt.Sprint(round, "a"), fmt.Sprint(round, "b"), fmt.Sprint(round, "c")}
				s.add(ids...)
				f.want(ids...)
				if got := <-s.opened; (got != "") != cursors {
					t.Errorf("the next connection has the cursor %q", got)
				}
			}
			f.cancel()
			if err := f.end(); !errors.Is(err, context.Canceled) {
				t.Errorf("ends with %v", err)
			}
		})
	}
}

func TestFollowFindsWhatCameBeforeTheFirstConnection(t *testing.T) {
	s, server := newLogServer(t, true)
	s.add("old")
	s.refuse = []int{503}
	waiting := make(chan struct{})
	c := newClient(t, server.URL, func(o *Options) {
		o.OnTrouble = func(error, time.Duration) { s.add("between"); close(waiting) }
	})
	f := follow(t, c)
	<-waiting
	<-f.open
	f.want("between")
	s.add("live")
	f.want("live")
	f.cancel()
	_ = f.end()
}

func TestFollowGoesOnWhenItsCursorIsRefused(t *testing.T) {
	s, server := newLogServer(t, true)
	f := follow(t, newClient(t, server.URL, nil))
	<-f.open
	<-s.opened
	s.add("1")
	f.want("1")
	s.mu.Lock()
	s.refuse = []int{400}
	s.mu.Unlock()
	s.cutAll()
	s.add("2")
	f.want("2")
	if got := <-s.opened; got != "" {
		t.Errorf("a cursor that was refused came again: %q", got)
	}
	f.cancel()
	_ = f.end()
}

func TestFollowEndsAtOnceWhenRefused(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 301} {
		s, server := newLogServer(t, true)
		s.refuse = []int{status}
		f := follow(t, newClient(t, server.URL, nil))
		var refused *Error
		if err := f.end(); !errors.As(err, &refused) || refused.Status != status {
			t.Errorf("%d: ends with %v", status, err)
		}
	}
}

func TestFollowGivesUpAfterItsPatience(t *testing.T) {
	s, server := newLogServer(t, true)
	f := follow(t, newClient(t, server.URL, func(o *Options) { o.Patience = 50 * time.Millisecond }))
	<-f.open
	<-s.opened
	s.add("1")
	f.want("1")
	server.Listener.Close()
	s.cutAll()
	server.CloseClientConnections()
	var unreachable *UnreachableError
	if err := f.end(); !errors.As(err, &unreachable) {
		t.Fatalf("ends with %v", err)
	} else if strings.Contains(err.Error(), "test-key") {
		t.Errorf("the key is in %q", err)
	}
}

func TestFollowLeavesAConnectionThatIsSilent(t *testing.T) {
	s, server := newLogServer(t, true)
	f := follow(t, newClient(t, server.URL, func(o *Options) { o.Silence = 30 * time.Millisecond }))
	<-s.opened
	// Nothing is cut here: only the silence can make it connect again.
	<-s.opened
	s.add("1")
	f.want("1")
	f.cancel()
	_ = f.end()
}

func TestFollowGivesPreviewsAndAProcessedEventAgain(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sessions/s/events", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"data":[]}`) })
	mux.HandleFunc("GET /v1/sessions/s/events/stream", func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query()["event_deltas[]"]; !slices.Equal(got, []string{"agent.message", "agent.thinking"}) {
			t.Errorf("previews asked for: %q", got)
		}
		for _, e := range []string{
			`{"id":"q","type":"user.message","processed_at":null}`,
			`{"type":"event_start","event":{"type":"agent.message","id":"m"}}`,
			`{"type":"event_delta","event_id":"m","delta":{"type":"content_delta","index":0,"content":{"type":"text","text":"hi"}}}`,
			`{"id":"q","type":"user.message","processed_at":null}`,
			`{"id":"q","type":"user.message","processed_at":"2026-01-01T00:00:00.000000Z"}`,
			`{"id":"q","type":"user.message","processed_at":"2026-01-01T00:00:00.000000Z"}`,
			`{"id":"d","type":"session.deleted","processed_at":"2026-01-01T00:00:00.000000Z"}`,
		} {
			fmt.Fprintf(w, "event: x\ndata: %s\n\n", e)
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	var got []string
	err := newClient(t, server.URL, nil).Follow(t.Context(), "s", FollowOptions{Previews: true}, func(e Event) error {
		got = append(got, strings.TrimSpace(e.Type+" "+e.ID))
		return nil
	})
	if err != nil {
		t.Errorf("a deleted session ends with %v", err)
	}
	want := []string{"user.message q", "event_start", "event_delta", "user.message q", "session.deleted d"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
