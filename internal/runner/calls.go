package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/sandbox"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/tool"
	"github.com/perdure/perdure/internal/tool/web"
)

// calls are tool calls that run. Those in the sandbox run one after another, in the order in which the model made them,
// because a later one may count on an earlier one. Those on the web run beside them.
type calls struct {
	cancel context.CancelFunc
	ids    []string
	stops  func(ctx context.Context, call string)
	done   chan callResult // closed when nothing runs any more
	once   sync.Once
	// interrupted is closed when the calls are to end.
	interrupted chan struct{}
}

type callResult struct {
	session.Result
	call    string
	receipt bool // the sandbox keeps a receipt of it
}

func (c *calls) finished() <-chan callResult {
	if c == nil {
		return nil
	}
	return c.done
}

// stop ends the calls. What they brought so far still arrives.
func (c *calls) stop(ctx context.Context) {
	if c == nil {
		return
	}
	c.once.Do(func() {
		close(c.interrupted)
		for _, id := range c.ids {
			c.stops(ctx, id)
		}
	})
}

func (c *calls) isInterrupted() bool {
	select {
	case <-c.interrupted:
		return true
	default:
		return false
	}
}

// wait leaves the calls and waits until nothing of this process runs for them. The sandbox goes on.
func (c *calls) wait() {
	if c != nil {
		c.cancel()
		for range c.done {
		}
	}
}

// run runs calls that the log holds.
func (d *drive) run(ctx context.Context, list []session.Call) {
	ctx, cancel := context.WithCancel(ctx)
	c := &calls{cancel: cancel, done: make(chan callResult, len(list)), interrupted: make(chan struct{})}
	d.calls = c
	w, err := d.workplace(ctx)
	if err != nil {
		d.log.Error("tool calls are not run: what the session's log says of them cannot be read", "error", err)
		for _, call := range list {
			c.done <- callResult{Result: failed("The call was not run, because the server could not read the session's settings; its log says more."), call: call.ID}
		}
		cancel()
		close(c.done)
		return
	}
	var inSandbox, onServer []session.Call
	for _, call := range list {
		if w.agent.tools.Place(call.Name) == tool.Sandbox {
			inSandbox = append(inSandbox, call)
			c.ids = append(c.ids, call.ID)
		} else {
			onServer = append(onServer, call)
		}
	}
	c.stops = func(ctx context.Context, call string) {
		if err := d.Sandboxes.Interrupt(ctx, d.lease.Session, call); err != nil && ctx.Err() == nil {
			d.log.Error("a tool call could not be interrupted", "call", call, "error", err)
		}
	}
	var group sync.WaitGroup
	if len(inSandbox) > 0 {
		group.Go(func() { d.runInSandbox(ctx, c, w, inSandbox) })
	}
	for _, call := range onServer {
		group.Go(func() {
			if r, ok := d.guarded(call, func() (session.Result, bool) { return d.runOnServer(ctx, c, w, call) }); ok {
				c.done <- callResult{Result: r, call: call.ID}
			}
		})
	}
	go func() {
		group.Wait()
		cancel()
		close(c.done)
	}()
}

// takeUp makes the calls that an earlier drive may have left running in the sandbox this drive's own, after it has told the
// sandbox to end them. One that the sandbox has not heard of will not run any more.
func (d *drive) takeUp(ctx context.Context) {
	a, err := d.loadAgent()
	if err != nil {
		d.log.Error("the tools of an interrupted session cannot be read; its calls are not stopped", "error", err)
		return
	}
	var left []session.Call
	for _, call := range d.state.Calls {
		if _, ended := d.results[call.ID]; ended || !call.Runnable() || a.tools.Place(call.Name) != tool.Sandbox {
			continue
		}
		if r, ok := d.interrupt(ctx, call); !ok {
			d.results[call.ID] = r
			continue
		}
		left = append(left, call)
	}
	if len(left) > 0 {
		d.run(ctx, left)
	}
}

// interrupt has the sandbox end a call, or never begin it. If that fails, the call must not be run: its result says so.
func (d *drive) interrupt(ctx context.Context, call session.Call) (r callResult, ok bool) {
	err := d.Sandboxes.Interrupt(ctx, d.lease.Session, call.ID)
	if err == nil {
		return callResult{}, true
	}
	if ctx.Err() == nil {
		d.log.Error("a tool call could not be interrupted", "call", call.ID, "error", err)
	}
	return callResult{call: call.ID, Result: failed("The turn was interrupted, and the sandbox could not be told so. The outcome of this call is unknown.")}, false
}

// guarded turns a panic of a tool into a result.
func (d *drive) guarded(call session.Call, run func() (session.Result, bool)) (r session.Result, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			d.log.Error("a tool panicked", "call", call.ID, "tool", call.Name, "panic", p, "stack", string(debug.Stack()))
			r, ok = failed("The tool met an internal error; the call may have had effects."), true
		}
	}()
	return run()
}

// workplace is where calls run, as the log has it when they begin: it does not change under them.
type workplace struct {
	agent       *agent
	environment *resource.Environment
	spec        sandbox.Spec
}

func (d *drive) workplace(ctx context.Context) (*workplace, error) {
	a, err := d.loadAgent()
	if err != nil {
		return nil, err
	}
	e, err := d.environment(ctx)
	if err != nil {
		return nil, err
	}
	return &workplace{a, e, d.spec(ctx, e)}, nil
}

func (d *drive) runInSandbox(ctx context.Context, c *calls, w *workplace, list []session.Call) {
	for _, call := range list {
		if c.isInterrupted() {
			// The call before it has ended by the interrupt, which may not have reached the sandbox for this one.
			if r, ok := d.interrupt(ctx, call); !ok {
				c.done <- r
				continue
			}
		}
		r, ok := d.guarded(call, func() (session.Result, bool) { return d.runOne(ctx, w, call) })
		if !ok {
			return
		}
		c.done <- callResult{Result: r, call: call.ID, receipt: true}
	}
}

// runOne runs a call in the sandbox. It returns false if this process is told to leave it.
func (d *drive) runOne(ctx context.Context, w *workplace, call session.Call) (session.Result, bool) {
	r, err := d.Sandboxes.Run(ctx, w.spec, sandbox.Call{
		ID: call.ID, Tool: call.Name, Input: call.Input, Repeatable: w.agent.tools.Repeatable(call.Name),
	})
	var unavailable *sandbox.UnavailableError
	switch {
	case err == nil:
		return result(r.Content, r.IsError), true
	case ctx.Err() != nil:
		return session.Result{}, false
	case errors.Is(err, sandbox.ErrOutcomeUnknown):
		d.log.Warn("the outcome of a tool call is unknown", "call", call.ID, "tool", call.Name)
		return failed("The sandbox was lost while this call ran. Its outcome is unknown: it may or may not have had its effects. Check before you repeat it."), true
	case errors.As(err, &unavailable):
		return failed("This call was not run: " + unavailable.Error()), true
	default:
		d.log.Error("a tool call failed in the sandbox's machinery", "call", call.ID, "tool", call.Name, "error", err)
		return failed("The sandbox failed, and the outcome of this call is unknown; the server's log says more."), true
	}
}

// runOnServer runs a web tool. An interrupt ends it.
func (d *drive) runOnServer(ctx context.Context, c *calls, w *workplace, call session.Call) (session.Result, bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.interrupted:
			cancel()
		case <-ctx.Done():
		}
	}()
	answer := d.callWeb(ctx, webSettings(w.environment, w.agent, call.Name), call.Name, call.Input)
	if c.isInterrupted() {
		return failed("Tool execution was interrupted before completion. Please retry."), true
	}
	if ctx.Err() != nil {
		return session.Result{}, false
	}
	if answer.Cause != nil {
		d.log.Info("a web tool failed", "call", call.ID, "tool", call.Name, "error", answer.Cause)
	}
	r := result(answer.Content, answer.IsError)
	r.Usage = session.Usage{WebSearches: int64(answer.Searches), Cost: session.Cost(answer.Searches) * searchPrice}
	return r, true
}

// searchPrice is the list price of a search: ten dollars for a thousand.
var searchPrice = session.Cents(1)

func (d *drive) callWeb(ctx context.Context, settings web.Settings, name string, input jsontext.Value) web.Result {
	switch name {
	case resource.WebSearch:
		return d.Web.Search(ctx, settings, input)
	case resource.WebFetch:
		return d.Web.Fetch(ctx, settings, input)
	default:
		return web.Result{Content: session.TextContent(fmt.Sprintf("Permission to use %s has been denied.", name)), IsError: true}
	}
}
