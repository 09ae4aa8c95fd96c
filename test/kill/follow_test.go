//go:build linux

package kill

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/test/harness/raw"
)

// event is one event of a session's stream.
type event struct {
	gjson.Result
	kind string
	at   time.Time // when the client had it
}

func (e event) id() string { return e.Get("id").String() }

// follower is a client that reads the stream of a session from its beginning, and comes back after each death of the
// server with the position that it has.
type follower struct {
	done chan struct{}
	stop func()

	mu     sync.Mutex
	events []event
	more   chan struct{} // closed and made again with each event
	fault  string        // why it gave up
}

func (w *world) follow(session string) *follower {
	stopped := make(chan struct{})
	f := &follower{done: make(chan struct{}), more: make(chan struct{}), stop: sync.OnceFunc(func() { close(stopped) })}
	go func() {
		defer close(f.done)
		f.run(w, session, stopped)
	}()
	return f
}

func (f *follower) run(w *world, session string, stopped <-chan struct{}) {
	position := "0"
	for {
		life := w.life()
		stream, refused, err := w.client.TryStream("/v1/sessions/"+session+"/events/stream", "Last-Event-ID", position)
		if refused != nil {
			if refused.Status != 404 {
				f.give("the stream was refused: " + refused.String())
			}
			return
		}
		if err == nil {
			position = f.read(w, stream, position, stopped)
		}
		select {
		case <-stopped:
			return
		default:
		}
		if err == nil {
			continue
		}
		select {
		case <-w.born(life): // there is nothing to try before
		case <-stopped:
			return
		}
	}
}

func (f *follower) read(w *world, stream *raw.Stream, position string, stopped <-chan struct{}) string {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-stopped:
		case <-ended:
		}
		stream.Close()
	}()
	for {
		frame, err := stream.Next()
		if err != nil {
			return position
		}
		position = frame.ID
		f.mu.Lock()
		f.events = append(f.events, event{gjson.Parse(frame.Data), frame.Event, time.Now()})
		close(f.more)
		f.more = make(chan struct{})
		f.mu.Unlock()
		w.saw()
	}
}

func (f *follower) give(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = why
	close(f.more)
	f.more = make(chan struct{})
}

// close ends the follower and returns all that it saw.
func (f *follower) close() []event {
	f.stop()
	<-f.done
	return f.events
}

// from returns the events from a position of this client's own on, and a channel that is closed when there are more.
func (f *follower) from(n int) (events []event, more <-chan struct{}, fault string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events[n:], f.more, f.fault
}

// next returns the first event after those that were awaited before for which found holds.
func (c *conversation) next(what string, found func(event) bool) (event, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		events, more, fault := c.follower.from(c.awaited)
		for _, e := range events {
			c.awaited++
			if found(e) {
				return e, nil
			}
		}
		if fault != "" {
			return event{}, errors.New(fault)
		}
		select {
		case <-more:
		case <-timer.C:
			return event{}, fmt.Errorf("%s did not come within %v; the stream had %s", what, limit, c.story())
		}
	}
}

// await is next for what must come.
func (c *conversation) await(what string, found func(event) bool) event {
	c.t.Helper()
	e, err := c.next(what, found)
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

func (c *conversation) awaitType(kind string) event {
	c.t.Helper()
	return c.await(kind, func(e event) bool { return e.kind == kind })
}

// awaitIdle awaits that the session rests and returns why.
func (c *conversation) awaitIdle() string {
	c.t.Helper()
	return c.awaitType("session.status_idle").Get("stop_reason.type").String()
}

// wantIdle awaits that the session rests for this reason.
func (c *conversation) wantIdle(reason string) {
	c.t.Helper()
	if got := c.awaitIdle(); got != reason {
		c.t.Fatalf("the session is idle because of %s, want %s; the stream had %s", got, reason, c.story())
	}
}

// story is what the stream had, in short.
func (c *conversation) story() string {
	events, _, _ := c.follower.from(0)
	return story(events)
}

func story(events []event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("\n  " + e.Raw)
	}
	return b.String()
}
