//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/sandbox/journal"
	"github.com/perdure/perdure/internal/sandbox/tooltext"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// call is one that has been asked for and has not ended, or whose receipt exists only here.
type call struct {
	wire.Call
	interrupted chan struct{} // closed when it is to end
	interrupt   func()
	done        chan struct{} // closed when result or failure is set
	result      wire.Result
	failure     error // it was not run, and can be asked for again
}

// begin returns the receipt of a call that has ended, or the call to wait for.
func (s *supervisor) begin(asked wire.Call, spec wire.Spec) (*call, wire.Result, error) {
	if !journal.ValidID(asked.ID) {
		return nil, wire.Result{}, &wire.Failure{Code: wire.CodeInvalid, Message: fmt.Sprintf("%q cannot be the id of a call", asked.ID)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.calls[asked.ID]; ok {
		return c, wire.Result{}, nil
	}
	state, receipt, err := s.journal.Lookup(asked.ID)
	if err != nil {
		return nil, wire.Result{}, err
	}
	switch {
	case state == journal.Ended:
		return nil, receipt, nil
	case state == journal.Acknowledged:
		return nil, wire.Result{}, &wire.Failure{Code: wire.CodeAcknowledged, Message: "the call has ended and its result was said to be in the log"}
	case state == journal.Started && !asked.Repeatable:
		return nil, wire.Result{}, &wire.Failure{Code: wire.CodeUnknown, Message: "the call was started by a supervisor that is gone"}
	case s.closing:
		return nil, wire.Result{}, &wire.Failure{Code: wire.CodeClosing, Message: "the supervisor is ending"}
	}
	interrupted := make(chan struct{})
	c := &call{
		Call:        asked,
		interrupted: interrupted,
		interrupt:   sync.OnceFunc(func() { close(interrupted) }),
		done:        make(chan struct{}),
	}
	s.calls[c.ID] = c
	s.active++
	s.idle = time.Duration(spec.Limits.Idle)
	s.performing.Go(func() { s.perform(c, spec) })
	return c, wire.Result{}, nil
}

// perform takes a call from being asked for to its receipt.
func (s *supervisor) perform(c *call, spec wire.Spec) {
	lane := s.fileLane
	if c.Tool == "bash" || c.Tool == "grep" {
		lane = s.shellLane
	}
	select {
	case lane <- struct{}{}:
		defer func() { <-lane }()
	case <-c.interrupted:
		s.end(c, tooltext.NotRun, true)
		return
	case <-s.stopping:
		s.fail(c, &wire.Failure{Code: wire.CodeClosing, Message: "the supervisor is ending"})
		return
	}
	box, err := s.ready(spec)
	if err != nil {
		s.fail(c, err)
		return
	}
	select {
	case <-c.interrupted:
		s.end(c, tooltext.NotRun, true)
		return
	default:
	}
	if err := s.journal.Start(c.ID); err != nil {
		s.fail(c, err)
		return
	}
	text, isError := box.run(c, time.Duration(spec.Limits.Call))
	s.end(c, text, isError)
}

// end makes the receipt durable and then known. If it cannot be made durable, whoever asks is still told, since the log
// is durable too, and it is kept in memory.
func (s *supervisor) end(c *call, text string, isError bool) {
	content, err := tooltext.Content(text)
	if err != nil {
		s.log.Error("encode a result", "call", c.ID, "error", err) // text that is valid can be encoded
	}
	c.result = wire.Result{Content: content, IsError: isError}
	durable := s.journal.End(c.ID, c.result)
	if durable != nil {
		s.log.Error("a receipt could not be written", "call", c.ID, "error", durable)
	}
	s.leave(c, durable == nil)
}

// fail says that the call was not run, without a trace of it.
func (s *supervisor) fail(c *call, err error) {
	c.failure = err
	s.leave(c, true)
}

func (s *supervisor) leave(c *call, forget bool) {
	s.mu.Lock()
	if forget {
		delete(s.calls, c.ID)
	}
	s.active--
	s.lastActive = time.Now()
	s.mu.Unlock()
	close(c.done)
	s.nudge()
}

// interrupt ends a call that runs, and keeps one that was not heard of from ever being run.
func (s *supervisor) interrupt(id string) error {
	if !journal.ValidID(id) {
		return &wire.Failure{Code: wire.CodeInvalid, Message: fmt.Sprintf("%q cannot be the id of a call", id)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.calls[id]; ok {
		c.interrupt()
		return nil
	}
	return Forestall(s.journal, id)
}

// Forestall gives a call that was not heard of the receipt that it did not run.
func Forestall(j *journal.Journal, id string) error {
	state, _, err := j.Lookup(id)
	if err != nil || state != journal.NeverHeard {
		return err
	}
	content, err := tooltext.Content(tooltext.NotRun)
	if err != nil {
		return err
	}
	return j.End(id, wire.Result{Content: content, IsError: true})
}

func (s *supervisor) acknowledge(ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	for _, id := range ids {
		if c, ok := s.calls[id]; ok {
			select {
			case <-c.done:
				delete(s.calls, id)
			default: // it runs, so its result cannot be in the log
				failed = errors.Join(failed, &wire.Failure{Code: wire.CodeInvalid, Message: "call " + id + " is running, so that its result cannot be acknowledged"})
				continue
			}
		}
		failed = errors.Join(failed, s.journal.Acknowledge(id))
	}
	return failed
}
