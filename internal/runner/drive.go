package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// drive is one session being driven. Only its own goroutine touches it.
type drive struct {
	*Runner
	lease store.Lease
	log   *slog.Logger
	sub   *bus.Subscription
	state *session.State
	agent *agent // of state.Config

	request *request // the model request that this drive made
	outcome *outcome // what became of it, not in the log yet
	calls   *calls   // the tool calls that this drive runs
	grading *grading // the evaluation that this drive makes
	grade   *grade   // what it found, not in the log yet
	results map[string]callResult
	used    bool             // a tool ran in the sandbox, which may have left outputs
	context *session.Context // what the model sees, as far as it was folded
}

// Drive does what a session needs until it rests, waits for a time, or ctx ends. It returns nil when there is nothing to
// do before the session's Wake, and store.ErrFenced when somebody else drives the session. After any other error the
// session may be driven again.
func (r *Runner) Drive(ctx context.Context, lease store.Lease) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	d := &drive{
		Runner: r, lease: lease, results: map[string]callResult{},
		log: r.Log.With("session", lease.Session),
		sub: r.Bus.Subscribe(lease.Session, false),
	}
	defer func() {
		cancel()
		d.sub.Close()
		d.request.wait()
		d.calls.wait()
		d.grading.wait()
		r.contexts.put(lease.Session, d.context)
		if p := recover(); p != nil {
			err = fmt.Errorf("runner: drive of session %s panicked: %v\n%s", lease.Session, p, debug.Stack())
			r.abort(context.WithoutCancel(ctx), lease, err)
		}
	}()
	if err := d.reload(ctx); err != nil {
		return err
	}
	for {
		done, err := d.advance(ctx)
		if err != nil && ctx.Err() != nil {
			d.handOver(ctx)
		}
		if done || err != nil {
			return err
		}
	}
}

// handOverLimit bounds how long a drive that is told to end takes to say so.
const handOverLimit = 2 * time.Second

// handOver closes the model request of a drive that is told to end, so that it does not look like one whose driver died.
// What runs in the sandbox goes on.
func (d *drive) handOver(ctx context.Context) {
	if d.request == nil || errors.Is(context.Cause(ctx), store.ErrFenced) {
		return
	}
	d.request.stop()
	o := <-d.request.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverLimit)
	defer cancel()
	if d.reload(ctx) != nil || d.state.Request == nil || d.state.Request.ID != d.request.id {
		return
	}
	step := session.NewStep(d.state, time.Now())
	step.HandOver(o.usage())
	if err := d.Ledger.Append(ctx, d.lease.Workspace, step, &d.lease, nil); err != nil {
		d.log.Warn("a model request is left open; the next driver closes it", "error", err)
	}
}

// advance appends what follows from the log and from what the effects brought, and then performs or awaits one effect.
func (d *drive) advance(ctx context.Context) (done bool, err error) {
	step := session.NewStep(d.state, time.Now())
	if step.State.Interrupt == nil {
		d.incorporate(step)
	}
	action := step.Settle(d.Limits)
	switch action.Kind {
	case session.Abandon:
		if d.request == nil {
			step.AbandonRequest()
		}
	case session.Stop:
		d.Failpoint("interrupt-found")
		if !d.running() {
			d.takeUp(ctx)
		}
		if d.running() {
			d.stopEffects(ctx)
			return false, d.await(ctx)
		}
		step.ApplyInterrupt(d.spent(), d.interruptedResults())
	case session.WaitUntil:
		if !time.Now().Before(action.At) {
			step.Resume()
		}
	case session.Sample:
		step.BeginRequest()
	case session.Evaluate:
		step.BeginEvaluation()
	}
	if action.Kind == session.Erase {
		return true, d.Erase(ctx, d.lease.Workspace, d.lease.Session)
	}
	if rests(step.State) {
		d.collect(ctx)
	}
	appended, err := d.commit(ctx, step)
	if err != nil || !appended {
		return false, err
	}
	return d.perform(ctx, action)
}

func rests(s *session.State) bool { return s.Status == session.Idle || s.Status == session.Terminated }

// perform does what the state asks for, now that the intent is durable.
func (d *drive) perform(ctx context.Context, action session.Action) (done bool, err error) {
	switch action.Kind {
	case session.Rest:
		return true, nil
	case session.WaitUntil:
		return d.state.Status != session.Running, nil
	case session.Stop:
		return false, nil
	case session.Abandon:
		if d.request == nil {
			return false, nil
		}
		return false, d.await(ctx)
	case session.Sample:
		d.Failpoint("request-started")
		if d.request == nil {
			d.begin(ctx)
		}
		return false, d.await(ctx)
	case session.Evaluate:
		if d.grading == nil {
			d.beginGrading(ctx)
		}
		return false, d.await(ctx)
	case session.RunCalls:
		if d.calls == nil {
			d.Failpoint("calls-logged")
			d.run(ctx, action.Calls)
		}
		return false, d.await(ctx)
	default:
		return false, fmt.Errorf("runner: session %s asks for an unknown action %d", d.lease.Session, action.Kind)
	}
}

// running reports whether an effect of this drive has not ended.
func (d *drive) running() bool { return d.request != nil || d.calls != nil || d.grading != nil }

// spent is what effects are known to have used that is not in the log yet.
func (d *drive) spent() session.Usage {
	u := d.outcome.usage()
	if d.grade != nil {
		u.Add(d.grade.usage)
	}
	return u
}

// incorporate adds what the effects brought.
func (d *drive) incorporate(step *session.Step) {
	if d.outcome != nil {
		d.outcome.log(step)
	}
	if d.grade != nil {
		step.EndEvaluation(d.grade.result, d.grade.explanation, d.grade.usage)
	}
	for _, c := range step.State.Calls {
		if r, ok := d.results[c.ID]; ok {
			step.AddResult(c.ID, r.Result)
		}
	}
}

func (d *drive) interruptedResults() map[string]session.Result {
	results := make(map[string]session.Result, len(d.results))
	for id, r := range d.results {
		results[id] = r.Result
	}
	return results
}

// commit appends a step. If the log has moved on it reloads instead, and appended is false. It tries until the store takes
// the step, the lease is over, or ctx ends.
func (d *drive) commit(ctx context.Context, step *session.Step) (appended bool, err error) {
	if err := step.Err(); err != nil {
		return false, fmt.Errorf("runner: build a step of session %s: %w", d.lease.Session, err)
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := d.Ledger.Append(ctx, d.lease.Workspace, step, &d.lease, nil)
		switch {
		case err == nil:
			d.committed(ctx, step)
			return true, nil
		case errors.Is(err, store.ErrConflict):
			return false, d.reload(ctx)
		case errors.Is(err, store.ErrOutcomeUnknown):
			if d.reload(ctx) == nil {
				return false, nil
			}
		case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrClosed), ctx.Err() != nil:
			return false, err
		}
		d.log.Error("the log cannot be written; trying again", "error", err, "wait", wait)
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
	}
}

// committed forgets what is in the log now.
func (d *drive) committed(ctx context.Context, step *session.Step) {
	if len(step.Events) == 0 {
		return
	}
	d.state = step.State
	d.outcome, d.grade = nil, nil
	d.foldContext(step)
	var acknowledged []string
	for id, r := range d.results {
		if c := callOf(d.state, id); c == nil || c.Answered {
			delete(d.results, id)
			if r.receipt {
				acknowledged = append(acknowledged, id)
			}
		}
	}
	d.Failpoint("step-appended")
	if len(acknowledged) > 0 {
		if err := d.Sandboxes.Acknowledge(ctx, d.lease.Session, acknowledged...); err != nil && ctx.Err() == nil {
			d.log.Warn("the sandbox keeps receipts that are not needed any more", "error", err)
		}
	}
}

func callOf(s *session.State, id string) *session.Call {
	for i := range s.Calls {
		if s.Calls[i].ID == id {
			return &s.Calls[i]
		}
	}
	return nil
}

func (d *drive) reload(ctx context.Context) error {
	state, err := d.Ledger.State(ctx, d.lease.Workspace, d.lease.Session)
	if err != nil {
		return err
	}
	d.state = state
	return nil
}

// await waits until an effect has brought something, the log has moved on, or ctx ends.
func (d *drive) await(ctx context.Context) error {
	for {
		select {
		case o := <-d.request.ended():
			o.request = d.request.id
			d.request, d.outcome = nil, &o
			d.Failpoint("answer-arrived")
			return nil
		case g := <-d.grading.ended():
			d.grading, d.grade = nil, &g
			return nil
		case r, ok := <-d.calls.finished():
			if !ok {
				d.calls = nil
				return nil
			}
			d.results[r.call] = r
			d.used = d.used || r.receipt
			d.Failpoint("result-arrived")
			return nil
		case <-d.sub.Ready():
			if d.moved() {
				return d.reload(ctx)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// moved reports whether the log may have entries that this drive has not seen.
func (d *drive) moved() bool {
	messages, lagged := d.sub.Take()
	for _, m := range messages {
		for _, e := range m.Events {
			if e.Seq > d.state.Seq {
				return true
			}
		}
	}
	return lagged
}

// stopEffects ends what runs. What it brought still arrives.
func (d *drive) stopEffects(ctx context.Context) {
	d.request.stop()
	d.calls.stop(ctx)
	d.grading.stop()
}

// collect makes files of what the agent left, before clients are told that it is done.
func (d *drive) collect(ctx context.Context) {
	if !d.used {
		return
	}
	d.used = false
	if err := d.Files.Collect(ctx, d.lease.Workspace, d.lease.Session); err != nil && ctx.Err() == nil {
		d.log.Warn("the session's outputs could not be collected; they are collected when its files are listed", "error", err)
	}
}

// Erase removes a session that was deleted: first what is outside the store, so that a crash in between leaves a session
// that is erased again. Who deleted the session and who drives it share one removal.
func (r *Runner) Erase(ctx context.Context, workspace, id string) error {
	_, err, _ := r.erasures.Do(id, func() (any, error) { return nil, r.erase(ctx, workspace, id) })
	return err
}

func (r *Runner) erase(ctx context.Context, workspace, id string) error {
	if err := r.Sandboxes.Destroy(ctx, id); err != nil {
		return fmt.Errorf("runner: destroy the sandbox of session %s: %w", id, err)
	}
	err := r.Store.In(workspace).Update(ctx, func(w store.Writer) error { return w.DeleteSession(id) })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("runner: erase session %s: %w", id, err)
	}
	r.Ledger.Forget(id)
	r.contexts.forget(id)
	return nil
}

// abort ends the turn of a session whose drive panicked, so that it does not panic for ever.
func (r *Runner) abort(ctx context.Context, lease store.Lease, cause error) {
	r.Log.Error("a drive panicked; its turn ends", "session", lease.Session, "error", cause)
	state, err := r.Ledger.State(ctx, lease.Workspace, lease.Session)
	if err == nil && (state.Status == session.Running || state.Status == session.Rescheduling) {
		for _, c := range state.Calls {
			if c.Runnable() {
				err = errors.Join(err, r.Sandboxes.Interrupt(ctx, lease.Session, c.ID))
			}
		}
		step := session.NewStep(state, time.Now())
		step.FailTurn(session.Usage{}, session.Failure{
			Type:    "unknown_error",
			Message: "The server met an internal error and ended the turn. Send a message to go on; if it happens again, the server's log says more.",
		})
		err = errors.Join(err, r.Ledger.Append(ctx, lease.Workspace, step, &lease, nil))
	}
	if err != nil {
		r.Log.Error("the turn could not be ended cleanly", "session", lease.Session, "error", err)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
