package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// errSilent is why a connection without a sign of life was given up.
var errSilent = errors.New("nothing came from the server, not even a ping")

// FollowOptions say what Follow gives.
type FollowOptions struct {
	// Previews asks for event_start and event_delta of messages and thinking.
	Previews bool
	// OnOpen, if set, is called once, when the first connection is open: from here on nothing is missed. It is called
	// from a goroutine of its own.
	OnOpen func()
}

// Follow gives the events of a session, from now on, until ctx ends or yield returns an error; both are returned as they
// are. The package comment has what it promises. A session that is deleted ends it with nil.
func (c *Client) Follow(ctx context.Context, session string, o FollowOptions, yield func(Event) error) error {
	f := &follower{c: c, session: session, o: o, yield: yield, given: map[string]bool{}}
	if err := f.findBase(ctx); err != nil {
		return err
	}
	b := c.newBackoff()
	for {
		err := f.connect(ctx, b.reset)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case f.refusedCursor(err):
			f.cursor = ""
			continue
		}
		again, after := passing(err)
		if !again {
			return err
		}
		if err := b.wait(ctx, err, after); err != nil {
			return err
		}
	}
}

type follower struct {
	c       *Client
	session string
	o       FollowOptions
	yield   func(Event) error
	opened  bool
	cursor  string          // the last SSE id
	base    string          // the newest event that was in the log before, or the last that was given; "" for an empty log
	given   map[string]bool // ids of what was given, true once it was given processed
}

func (f *follower) findBase(ctx context.Context) error {
	page, err := f.c.events(ctx, f.session, url.Values{"order": {"desc"}, "limit": {"1"}})
	if err != nil {
		return err
	}
	if len(page.Data) > 0 {
		e, err := ParseEvent(page.Data[0])
		if err != nil {
			return err
		}
		f.base = e.ID
	}
	return nil
}

// refusedCursor reports whether the server did not take the cursor, so that the next connection goes without one.
func (f *follower) refusedCursor(err error) bool {
	var refused *Error
	return f.cursor != "" && errors.As(err, &refused) && refused.Status == http.StatusBadRequest
}

// connect gives what one connection brings. It returns nil when the session is gone.
func (f *follower) connect(ctx context.Context, alive func()) error {
	query := url.Values{}
	if f.o.Previews {
		query["event_deltas[]"] = []string{"agent.message", "agent.thinking"}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(f.c.o.Silence, func() { cancel(&transportError{errSilent}) })
	defer watchdog.Stop()
	response, err := f.c.send(ctx, http.MethodGet, "/v1/sessions/"+url.PathEscape(f.session)+"/events/stream", query, nil, func(h http.Header) {
		h.Set("Accept", "text/event-stream")
		if f.cursor != "" {
			h.Set("Last-Event-ID", f.cursor)
		}
	})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	frames := newFrameReader(&sign{r: response.Body, seen: func() { watchdog.Reset(f.c.o.Silence) }}, maxFrame)
	alive()
	if f.cursor == "" {
		if err := f.catchUp(ctx); err != nil {
			return err
		}
	}
	if !f.opened && f.o.OnOpen != nil {
		f.opened = true
		go f.o.OnOpen()
	}
	for {
		fr, err := frames.next()
		if err != nil {
			return f.broken(ctx, err)
		}
		if done, err := f.take(fr); done || err != nil {
			return err
		}
	}
}

// broken sorts out why a connection ended.
func (f *follower) broken(ctx context.Context, err error) error {
	if errors.Is(err, errFrameTooLarge) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed the stream")
	}
	return &transportError{err}
}

// take gives one frame. It reports whether the stream is at its end for good.
func (f *follower) take(fr frame) (done bool, err error) {
	switch fr.event {
	case "", "ping":
		return false, nil
	case "error":
		return false, streamError(fr.data)
	}
	e, err := ParseEvent(fr.data)
	if err != nil {
		return false, err
	}
	if !e.Persisted() {
		return false, f.yield(e)
	}
	if err := f.give(e); err != nil {
		return false, err
	}
	f.cursor = fr.id
	return e.Type == "session.deleted", nil
}

// give yields a persisted event that was not given before. A queued one is given again when it has been processed.
func (f *follower) give(e Event) error {
	processed, seen := f.given[e.ID]
	if seen && (processed || e.ProcessedAt == nil) {
		return nil
	}
	if err := f.yield(e); err != nil {
		return err
	}
	f.given[e.ID] = e.ProcessedAt != nil
	f.base = e.ID
	return nil
}

// streamError reads an error event. What it says decides whether the connection is worth another attempt.
func streamError(data []byte) error {
	e, err := parseEnvelope(data)
	if err != nil {
		return &transportError{err}
	}
	switch e.Type {
	case "authentication_error", "permission_error", "not_found_error", "invalid_request_error":
		return e
	}
	return &transportError{e}
}

// catchUp gives the end of the history, back to the newest event that is already known.
func (f *follower) catchUp(ctx context.Context) error {
	var missed []Event
	query := url.Values{"order": {"desc"}, "limit": {"100"}}
	for {
		page, err := f.c.events(ctx, f.session, query)
		if err != nil {
			return err
		}
		for _, raw := range page.Data {
			e, err := ParseEvent(raw)
			if err != nil {
				return err
			}
			if e.ID == f.base {
				page.NextPage = ""
				break
			}
			missed = append(missed, e)
		}
		if page.NextPage == "" {
			break
		}
		query.Set("page", page.NextPage)
	}
	for _, e := range slices.Backward(missed) {
		if err := f.give(e); err != nil {
			return err
		}
	}
	return nil
}

// sign tells of each sign of life.
type sign struct {
	r    io.Reader
	seen func()
}

func (s *sign) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.seen()
	}
	return n, err
}
