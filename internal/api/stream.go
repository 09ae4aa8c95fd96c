package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// stream is one client that follows a session.
//
// It subscribes before it answers, so that nothing falls between what the client lists afterwards and what it is sent. It
// sends events in the order of their positions, each once: what the bus brings in sequence is sent as it is; when something
// is missing before it, or was dropped because the client is slow, the stream reads the log from where it stands. The
// writer of the log never waits for it.
type stream struct {
	c       *call
	out     *http.ResponseController
	sub     *bus.Subscription
	session string
	thread  string // "" for the whole session
	// seq is the position up to which everything was sent.
	seq int64
	// previews are the types that the client wants previews of, and begun the events whose preview it has seen begin.
	previews map[string]bool
	begun    map[string]bool
}

// Bounds of a stream.
const (
	writeTimeout = 30 * time.Second // for a client that does not read
	catchUpPage  = 256
	catchUpBytes = 4 << 20
)

func streamEvents(c *call) (*reply, error) {
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	return nil, c.stream(state, "")
}

func streamThread(c *call) (*reply, error) {
	state, err := c.thread()
	if err != nil {
		return nil, err
	}
	return nil, c.stream(state, state.Config.Thread)
}

func (c *call) stream(state *session.State, thread string) error {
	s := &stream{
		c: c, out: http.NewResponseController(c.w), session: state.Config.ID, thread: thread,
		previews: map[string]bool{}, begun: map[string]bool{},
	}
	kinds := c.values("event_deltas")
	if len(kinds) > 100 {
		return problem.Invalidf("event_deltas: at most 100 values are allowed, got %d", len(kinds))
	}
	for _, kind := range kinds {
		if kind != session.AgentMessage && kind != session.AgentThinking {
			return problem.Invalidf("event_deltas: %q is not a valid value; expected one of agent.message, agent.thinking", kind)
		}
		s.previews[kind] = true
	}
	after, resumes, err := c.position()
	if err != nil {
		return err
	}
	s.sub = c.Bus.Subscribe(s.session, len(s.previews) > 0)
	defer s.sub.Close()
	// The log is read after the subscription, so that what is appended in between comes by one of the two.
	if state, err = c.state(); err != nil {
		return err
	}
	s.seq = state.Seq
	if resumes {
		if after > state.Seq {
			return problem.Invalidf("after: session %s has no position %d", s.session, after)
		}
		s.seq = after
	}
	return s.run(resumes)
}

// run sends until the client goes, the session is deleted, or the server stops. Errors after the headers cannot be told:
// the connection ends, and the client comes back with its position.
func (s *stream) run(resumes bool) error {
	h := s.c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	s.c.w.WriteHeader(http.StatusOK)
	if err := s.flush(); err != nil {
		return nil
	}
	keepalive := time.NewTicker(s.c.Keepalive)
	defer keepalive.Stop()
	if resumes {
		if done, err := s.catchUp(s.c.ctx); done || err != nil {
			return s.end(err)
		}
	}
	for {
		var done bool
		var err error
		select {
		case <-s.c.ctx.Done():
			return nil
		case <-s.sub.Ready():
			done, err = s.take()
		case <-keepalive.C:
			err = s.write("event: ping\ndata: {\"type\":\"ping\"}\n\n")
			if err == nil {
				err = s.flush()
			}
		}
		if done || err != nil {
			return s.end(err)
		}
	}
}

// end logs why a stream ended, unless the client went.
func (s *stream) end(err error) error {
	if err != nil && s.c.ctx.Err() == nil {
		s.c.Log.Info("a stream ended", "session", s.session, "error", err)
	}
	return nil
}

// take sends what the bus has brought.
func (s *stream) take() (done bool, err error) {
	messages, lagged := s.sub.Take()
	if lagged {
		// Previews may be among what was lost: those that had begun are not continued.
		clear(s.begun)
		if done, err = s.catchUp(s.c.ctx); done || err != nil {
			return done, err
		}
	}
	for _, m := range messages {
		if m.Preview != nil {
			err = s.preview(m)
		} else {
			done, err = s.events(m.Events)
		}
		if done || err != nil {
			return done, err
		}
	}
	return false, s.flush()
}

// events sends what follows what was sent. If there is a gap the log fills it.
func (s *stream) events(events []session.Event) (done bool, err error) {
	for _, e := range events {
		if e.Seq <= s.seq {
			continue
		}
		if e.Seq > s.seq+1 && e.Type != session.SessionDeleted {
			return s.catchUp(s.c.ctx)
		}
		if done, err = s.send(e); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// catchUp sends what the log has after what was sent.
func (s *stream) catchUp(ctx context.Context) (done bool, err error) {
	for {
		var events []session.Event
		err := s.c.workspace().View(ctx, func(r store.Reader) (err error) {
			events, err = r.Events(s.session, store.EventQuery{After: s.seq, Limit: catchUpPage, MaxBytes: catchUpBytes, All: true})
			return err
		})
		if err != nil {
			return false, err
		}
		if len(events) == 0 {
			return false, s.flush()
		}
		for _, e := range events {
			if done, err := s.send(e); done || err != nil {
				return done, err
			}
		}
	}
}

// send sends an event if it is for the client: not one of ours, not an input that still waits, not of another thread.
func (s *stream) send(e session.Event) (done bool, err error) {
	s.seq = e.Seq
	delete(s.begun, e.ID)
	if e.Type == session.SessionDeleted && s.thread != "" {
		return true, s.flush()
	}
	if !e.Public() || e.Queued || s.thread != "" && e.Thread != s.thread {
		return false, nil
	}
	if err := s.write(fmt.Sprintf("event: %s\nid: %d\ndata: ", e.Type, e.Seq)); err != nil {
		return false, err
	}
	if _, err := s.c.w.Write(e.Body); err != nil {
		return false, err
	}
	if err := s.write("\n\n"); err != nil {
		return false, err
	}
	if e.Type == session.SessionDeleted {
		return true, s.flush()
	}
	return false, nil
}

// preview sends a frame of a preview whose beginning the client has seen.
func (s *stream) preview(m bus.Message) error {
	if !s.previews[m.Kind] {
		return nil
	}
	var frame struct {
		Type  string `json:"type"`
		Of    string `json:"event_id"`
		Event struct {
			ID string `json:"id"`
		} `json:"event"`
	}
	if err := json.Unmarshal(m.Preview, &frame); err != nil {
		return err
	}
	if frame.Type == "event_start" {
		s.begun[frame.Event.ID] = true
	} else if !s.begun[frame.Of] {
		return nil
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", frame.Type, m.Preview))
}

func (s *stream) write(text string) error {
	if err := s.out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := io.WriteString(s.c.w, text)
	return err
}

func (s *stream) flush() error {
	if err := s.out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
