// Package conversation is one run of a session on behalf of a person: send a message, show the work, ask for approvals,
// and know when it is over and how.
//
// # Protocol
//
// The server is authoritative: what the run knows of the session comes from its events, and a decision counts when the
// server has taken it. One goroutine (Run's) owns all state and writes to the screen; others only feed it: the one that
// follows the events, the one that reads lines that are typed, and the one that looks at the cost.
//
//   - Nothing is sent before the stream of events is open, so that nothing of what follows is missed.
//   - The run is over at the first idle of the session after its message was taken up. An idle before that belongs to
//     what the session did before.
//   - A call is asked about once. If somebody else decides about it in the meantime, the question is withdrawn.
//   - The first interruption stops the session's turn and goes on watching; the second ends the run at once, whatever it
//     waits for. The session is not harmed by the end of a run.
//   - What was typed before a question was shown does not answer it.
package conversation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/terminal"
)

// Server is what a run needs of the server; *client.Client is one.
type Server interface {
	Session(ctx context.Context, id string) (*client.Session, error)
	Send(ctx context.Context, session string, events ...any) ([]client.Event, error)
	Latest(ctx context.Context, session string, types ...string) (*client.Event, error)
	FindEvents(ctx context.Context, session string, ids []string, types ...string) (map[string]client.Event, error)
	Follow(ctx context.Context, session string, o client.FollowOptions, yield func(client.Event) error) error
}

// Approve says what happens to calls that wait for permission.
type Approve string

// The ways to approve.
const (
	Ask  Approve = "ask"  // somebody at the terminal is asked; if nobody is there the run ends
	All  Approve = "all"  // all are allowed
	None Approve = "none" // none is decided about: the run ends and the call stays pending
)

// Options say what a run does. Session and Screen are required.
type Options struct {
	Session string
	// Message is what is sent; "" only settles and watches what the session is at.
	Message string
	Approve Approve
	// Lines are what a person types; nil if nobody is there.
	Lines <-chan string
	// Interrupts are the person's wishes to stop.
	Interrupts <-chan struct{}
	Screen     *terminal.Screen
	// JSON writes each event as a line of JSON in place of a transcript.
	JSON bool
	// Look, if set, returns the session for the running cost. It should not be patient.
	Look func(ctx context.Context) (*client.Session, error)
}

// Outcome is how a run ended.
type Outcome int

// The outcomes.
const (
	Done        Outcome = iota + 1
	Failed              // the turn failed, or the session is gone
	Waiting             // the session waits for somebody
	Interrupted         // the turn was interrupted
	Left                // the run ended before the turn did
)

// Result is how a run ended.
type Result struct {
	Outcome Outcome
	// Why says more, in one sentence without a full stop; "" if Outcome says all.
	Why string
	// Pending are the calls that wait for a decision or a result.
	Pending []string
}

// errLeft ends a run at the second interruption.
var errLeft = errors.New("the run was left")

// Run has a conversation. An error means that it could not be told how it ended.
func Run(ctx context.Context, server Server, o Options) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &run{
		o: o, server: server, transcript: terminal.NewTranscript(o.Screen), began: time.Now(),
		events: make(chan client.Event), opened: make(chan struct{}), ended: make(chan error, 1),
		interrupt: make(chan struct{}, 1), usage: make(chan client.Usage), calls: map[string]client.Event{}, settled: map[string]bool{},
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.ended <- server.Follow(ctx, o.Session, client.FollowOptions{Previews: !o.JSON, OnOpen: func() { close(r.opened) }},
			func(e client.Event) error {
				select {
				case r.events <- e:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
	}()
	go r.heed(ctx, cancel)
	if o.Look != nil {
		go r.look(ctx)
	}
	defer func() {
		cancel(nil)
		<-stopped
		o.Screen.HideStatus()
		o.Screen.EndWords()
	}()
	result, err := r.loop(ctx)
	if errors.Is(err, errLeft) {
		return Result{Outcome: Left, Pending: r.pending}, nil
	}
	return result, err
}

type run struct {
	o          Options
	server     Server
	transcript *terminal.Transcript
	began      time.Time

	events    chan client.Event
	opened    chan struct{}
	ended     chan error
	interrupt chan struct{}
	usage     chan client.Usage

	begun       bool   // what the session is at is known
	sent        string // the id of the message that was sent
	taken       bool   // it was taken up
	interrupted bool
	trouble     string                  // what the last session.error said
	cost        client.Usage            // the newest that is known
	calls       map[string]client.Event // calls without a result
	pending     []string                // calls that the session waits for
	settled     map[string]bool         // calls that were decided about in this run
	asking      *terminal.Approval
	about       string // the call that is asked about
	over        *Result
}

// heed passes the first interruption on and ends the run at the second.
func (r *run) heed(ctx context.Context, cancel context.CancelCauseFunc) {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-r.o.Interrupts:
			if i > 0 {
				cancel(errLeft)
				return
			}
			r.interrupt <- struct{}{}
		}
	}
}

// look keeps the running cost.
func (r *run) look(ctx context.Context) {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s, err := r.o.Look(ctx)
		if err != nil {
			// The one that follows the events tells about troubles with the server.
			continue
		}
		select {
		case <-ctx.Done():
			return
		case r.usage <- s.Usage:
		}
	}
}

func (r *run) loop(ctx context.Context) (Result, error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	opened := r.opened
	for r.over == nil {
		var lines <-chan string
		if r.asking != nil {
			lines = r.o.Lines
		}
		var err error
		select {
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		case err = <-r.ended:
			if err == nil {
				return Result{Outcome: Failed, Why: "the session was deleted"}, nil
			}
		case <-opened:
			opened = nil
			err = r.begin(ctx)
		case e := <-r.events:
			err = r.event(ctx, e)
		case line, ok := <-lines:
			err = r.typed(ctx, line, ok)
		case <-r.interrupt:
			err = r.stop(ctx)
		case r.cost = <-r.usage:
			r.status()
		case <-ticker.C:
			r.status()
		}
		if err == nil {
			err = r.o.Screen.Err()
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return Result{}, err
		}
	}
	return *r.over, nil
}

func (r *run) end(outcome Outcome, format string, args ...any) {
	r.over = &Result{Outcome: outcome, Why: fmt.Sprintf(format, args...), Pending: r.pending}
}

func (r *run) status() {
	if r.asking != nil || r.o.JSON {
		return
	}
	doing := "working"
	if r.interrupted {
		doing = "stopping"
	}
	r.o.Screen.Status(fmt.Sprintf("%s · %s · %s · Ctrl-C stops", doing, terminal.Cost(r.cost.ListCost), terminal.Duration(time.Since(r.began).Truncate(time.Second))))
}
