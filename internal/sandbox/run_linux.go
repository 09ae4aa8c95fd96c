package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/journal"
	"github.com/perdure/perdure/internal/sandbox/sessiondir"
	"github.com/perdure/perdure/internal/sandbox/supervisor"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// maxLosses is how often a supervisor may go away under one Run.
const maxLosses = 5

var tools = []string{"bash", "read", "write", "edit", "glob", "grep"}

// Run implements Sandboxes.
func (l *Local) Run(ctx context.Context, spec Spec, call Call) (Result, error) {
	if l.report.Isolation == "unavailable" {
		return Result{}, &UnavailableError{Problems: l.report.Problems}
	}
	if err := checkSession(spec.Session); err != nil {
		return Result{}, err
	}
	return l.run(ctx, spec, call)
}

func (l *Local) run(ctx context.Context, spec Spec, call Call) (Result, error) {
	if !slices.Contains(tools, call.Tool) {
		return Result{}, fmt.Errorf("sandbox: there is no tool %q", call.Tool)
	}
	wireSpec, err := specOnWire(spec)
	if err != nil {
		return Result{}, err
	}
	request := wire.Request{
		Op:   wire.OpRun,
		Spec: &wireSpec,
		Call: &wire.Call{ID: call.ID, Tool: call.Tool, Input: call.Input, Repeatable: call.Repeatable},
	}
	losses := 0
	for {
		conn, err := l.dial(ctx, spec.Session)
		if errors.Is(err, errGone) {
			if err := l.start(ctx, spec.Session); errors.Is(err, errGone) && losses < maxLosses {
				losses++
			} else if err != nil {
				return Result{}, fmt.Errorf("sandbox: %w", err)
			}
			// It may be another's that is not ready yet, or an old one that still holds the session.
			if err := pause(ctx); err != nil {
				return Result{}, err
			}
			continue
		}
		var response wire.Response
		if err == nil {
			response, err = l.ask(ctx, conn, request)
			if errors.Is(err, errGone) {
				losses++
			}
		}
		if err == nil && response.Result == nil {
			err = wire.ErrFrame
		}
		switch {
		case err == nil:
			return Result{Content: response.Result.Content, IsError: response.Result.IsError}, nil
		case retriable(err) && losses < maxLosses:
			if err := pause(ctx); err != nil {
				return Result{}, err
			}
		default:
			return Result{}, fromWire(err)
		}
	}
}

func fromWire(err error) error {
	var f *wire.Failure
	if !errors.As(err, &f) {
		return err
	}
	switch f.Code {
	case wire.CodeUnknown:
		return ErrOutcomeUnknown
	case wire.CodeAcknowledged:
		return ErrAcknowledged
	case wire.CodeUnavailable:
		return &UnavailableError{Problems: problemsFromWire(f.Problems)}
	}
	return fmt.Errorf("sandbox: %w", f)
}

func problemsFromWire(problems []wire.Problem) []Problem {
	var out []Problem
	for _, p := range problems {
		out = append(out, Problem(p))
	}
	return out
}

func specOnWire(spec Spec) (wire.Spec, error) {
	d, l := DefaultLimits(), spec.Limits
	w := wire.Spec{
		Network: wire.Network{Mode: cmp.Or(spec.Network.Mode, "none"), Allow: spec.Network.Allow},
		Limits: wire.Limits{
			CPUs:        cmp.Or(l.CPUs, d.CPUs),
			MemoryBytes: cmp.Or(l.MemoryBytes, d.MemoryBytes),
			Processes:   cmp.Or(l.Processes, d.Processes),
			OpenFiles:   cmp.Or(l.OpenFiles, d.OpenFiles),
			FileBytes:   cmp.Or(l.FileBytes, d.FileBytes),
			TmpBytes:    cmp.Or(l.TmpBytes, d.TmpBytes),
			Call:        wire.Duration(cmp.Or(l.Call, d.Call)),
			Idle:        wire.Duration(cmp.Or(l.Idle, d.Idle)),
		},
	}
	if !slices.Contains([]string{"none", "limited", "unrestricted"}, w.Network.Mode) {
		return w, fmt.Errorf("sandbox: there is no network mode %q", w.Network.Mode)
	}
	if l := w.Limits; l.CPUs < 0 || l.MemoryBytes < 0 || l.Processes < 0 || l.OpenFiles < 0 || l.FileBytes < 0 || l.TmpBytes < 0 || l.Call < 0 || l.Idle < 0 {
		return w, errors.New("sandbox: a limit is negative")
	}
	for _, u := range spec.Uploads {
		w.Uploads = append(w.Uploads, wire.Upload(u))
	}
	return w, nil
}

// Interrupt implements Sandboxes.
func (l *Local) Interrupt(ctx context.Context, session, call string) error {
	if err := checkSession(session); err != nil {
		return err
	}
	// A call that no supervisor has heard of must be kept from running, so there must be a directory to say so in.
	if _, err := l.prepare(session); err != nil {
		return fmt.Errorf("sandbox: make the session's directory: %w", err)
	}
	request := wire.Request{Op: wire.OpInterrupt, Calls: []string{call}}
	return l.with(ctx, session, request, func(dir sessiondir.Dir) error {
		return onJournal(dir, func(j *journal.Journal) error { return supervisor.Forestall(j, call) })
	})
}

// Acknowledge implements Sandboxes.
func (l *Local) Acknowledge(ctx context.Context, session string, calls ...string) error {
	if err := checkSession(session); err != nil {
		return err
	}
	if len(calls) == 0 || !l.exists(session) {
		return nil
	}
	request := wire.Request{Op: wire.OpAcknowledge, Calls: calls}
	return l.with(ctx, session, request, func(dir sessiondir.Dir) error {
		return onJournal(dir, func(j *journal.Journal) error {
			var failed error
			for _, call := range calls {
				failed = errors.Join(failed, j.Acknowledge(call))
			}
			return failed
		})
	})
}

func (l *Local) exists(session string) bool {
	_, err := os.Stat(l.dir(session).Calls())
	return !errors.Is(err, os.ErrNotExist)
}

func onJournal(dir sessiondir.Dir, do func(*journal.Journal) error) error {
	j, err := journal.Open(dir.Calls())
	if err != nil {
		return err
	}
	return errors.Join(do(j), j.Close())
}

// stopPatience is how long a supervisor may take to stop before it is killed.
const stopPatience = 3 * time.Second

// Stop implements Sandboxes.
func (l *Local) Stop(ctx context.Context, session string) error {
	if err := checkSession(session); err != nil {
		return err
	}
	if !l.exists(session) {
		return nil
	}
	lock, err := l.stop(ctx, session)
	if err != nil {
		return fmt.Errorf("sandbox: stop %s: %w", session, err)
	}
	return lock.Close()
}

// StopAll stops every sandbox of this server.
func (l *Local) StopAll(ctx context.Context) error {
	entries, err := os.ReadDir(l.options.Dir)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	for _, entry := range entries {
		if session := entry.Name(); entry.IsDir() && checkSession(session) == nil && l.dir(session).InUse() {
			err = errors.Join(err, l.Stop(ctx, session))
		}
	}
	return err
}

// stop ends the session's supervisor and returns the session's lock.
func (l *Local) stop(ctx context.Context, session string) (*os.File, error) {
	dir := l.dir(session)
	patient, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	// Whatever answer there is or is not, the lock tells whether it has ended.
	if conn, err := l.dial(patient, session); err == nil {
		_, _ = l.ask(patient, conn, wire.Request{Op: wire.OpStop})
	}
	lock, err := dir.LockWithin(patient)
	if err != nil && ctx.Err() == nil {
		if holder := dir.Holder(); holder > 1 {
			l.options.Logger.Warn("a supervisor does not stop and is killed", "session", session, "pid", holder)
			_ = unix.Kill(holder, unix.SIGKILL) // it may just have ended
		}
		last, cancel := context.WithTimeout(ctx, stopPatience)
		defer cancel()
		lock, err = dir.LockWithin(last)
	}
	if err != nil {
		return nil, err
	}
	if err := l.sweep(ctx, session); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// Destroy implements Sandboxes.
func (l *Local) Destroy(ctx context.Context, session string) error {
	if err := checkSession(session); err != nil {
		return err
	}
	return l.destroy(ctx, session)
}

func (l *Local) destroy(ctx context.Context, session string) error {
	dir := string(l.dir(session))
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := l.stop(ctx, session)
	if err != nil {
		return fmt.Errorf("sandbox: stop %s: %w", session, err)
	}
	if err := errors.Join(l.discard(session), lock.Close()); err != nil {
		return fmt.Errorf("sandbox: remove %s: %w", session, err)
	}
	return nil
}
