package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/client"
)

const (
	demoModel = "scripted/demo"
	// counter is in the command of the call that appends a line to a file each time it runs, and counted introduces the
	// number of lines in its result.
	counter = ".runs"
	counted = "times this check has run: "
	// intoTheTool is how long after its start the tool is hit. It runs for three seconds.
	intoTheTool = 1200 * time.Millisecond
	// intoTheAnswer is how many pieces of the long answer have come when the model call is hit, and longAnswer how its
	// text begins. The answer takes about two and a half seconds.
	intoTheAnswer = 6
	longAnswer    = "All three"
	deadline      = 90 * time.Second
	cleanUpLimit  = 10 * time.Second
)

// Options say how the demo runs.
type Options struct {
	// Program is the perdure binary, and Args what makes it serve on the demo's directory, without --listen.
	Program string
	Args    []string
	// Shown, if set, is given each event as it comes.
	Shown func(client.Event)
	// Told, if set, is told of each kill and each start.
	Told func(string)
}

// Run gives the demo. It leaves no process behind that it started but the sandbox's, which ends with its session.
func Run(ctx context.Context, o Options) (_ *Account, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("the demo did not end within %s", deadline))
	defer cancel()
	d := &demo{
		o: o, process: &process{program: o.Program, args: o.Args}, began: time.Now(), events: make(chan client.Event),
		followed: make(chan error, 1), seen: map[string]bool{}, account: &Account{},
	}
	defer func() { err = errors.Join(err, d.process.stop()) }()
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.cleanUp(ctx)) }()
	following, stop := context.WithCancel(ctx)
	defer stop()
	opened := make(chan struct{})
	go func() {
		d.followed <- d.c.Follow(following, d.account.Session, client.FollowOptions{Previews: true, OnOpen: func() { close(opened) }},
			func(e client.Event) error {
				select {
				case d.events <- e:
					return nil
				case <-following.Done():
					return context.Cause(following)
				}
			})
	}()
	select {
	case <-opened:
	case err := <-d.followed:
		return nil, err
	}
	if err := d.watch(ctx); err != nil {
		return nil, err
	}
	return d.account, d.count(ctx)
}

type demo struct {
	o        Options
	process  *process
	c        *client.Client
	began    time.Time
	events   chan client.Event
	followed chan error
	account  *Account
	seen     map[string]bool // ids of events seen before a kill

	seenNow  []string        // ids of events since the last kill
	check    string          // the id of the call that counts its runs
	request  string          // the id of the model request under way
	previews strings.Builder // of the message that is being written
	pieces   int
	strike   <-chan time.Time // when the tool is to be hit
	waiting  *Kill            // a kill after which no event has come yet
}

// prepare starts the server and makes the session.
func (d *demo) prepare(ctx context.Context) error {
	if err := d.process.start(ctx); err != nil {
		return err
	}
	var err error
	if d.c, err = client.New(client.Options{BaseURL: d.process.url, Key: d.process.key, MaxWait: 50 * time.Millisecond}); err != nil {
		return err
	}
	ask := map[string]any{"name": "write", "permission_policy": map[string]string{"type": "always_ask"}}
	agent, err := d.c.CreateAgent(ctx, map[string]any{
		"name": "Demo", "model": demoModel,
		"tools": []any{map[string]any{"type": "agent_toolset_20260401", "configs": []any{ask}}},
	})
	if err != nil {
		return err
	}
	environment, err := d.c.CreateEnvironment(ctx, map[string]any{"name": "Demo"})
	if err != nil {
		return err
	}
	session, err := d.c.CreateSession(ctx, map[string]any{"agent": agent.ID, "environment_id": environment.ID, "title": "Demo"})
	if err != nil {
		return err
	}
	d.account.Session = session.ID
	return nil
}

// cleanUp deletes the session, and with it its sandbox and files. One that is still at work is interrupted before.
func (d *demo) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	s, err := d.c.Look(ctx, d.account.Session)
	if err == nil && s.Status != "idle" {
		_, err = d.c.Send(ctx, s.ID, map[string]string{"type": "user.interrupt"})
		for err == nil && s.Status != "idle" {
			timer := time.NewTimer(50 * time.Millisecond)
			select {
			case <-timer.C:
				s, err = d.c.Look(ctx, s.ID)
			case <-ctx.Done():
				timer.Stop()
				err = context.Cause(ctx)
			}
		}
	}
	if err == nil {
		err = d.c.DeleteSession(ctx, d.account.Session)
	}
	if err != nil {
		return fmt.Errorf("delete the demo's session: %w", err)
	}
	return nil
}

// watch sends the job, kills the server at the two moments, approves the write, and returns at the end of the job.
func (d *demo) watch(ctx context.Context) error {
	text := []any{map[string]string{"type": "text", "text": "Total the orders, and prove that the total is right."}}
	if _, err := d.c.Send(ctx, d.account.Session, map[string]any{"type": "user.message", "content": text}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-d.followed:
			if err == nil {
				err = errors.New("the session was deleted")
			}
			return fmt.Errorf("the session's events ended: %w", err)
		case <-d.strike:
			d.strike = nil
			if err := d.kill(ctx, InToolCall, d.check); err != nil {
				return err
			}
		case e := <-d.events:
			done, err := d.event(ctx, e)
			if done || err != nil {
				return err
			}
		}
	}
}

// event takes one event. It reports whether the job is over.
func (d *demo) event(ctx context.Context, e client.Event) (done bool, err error) {
	if d.o.Shown != nil {
		d.o.Shown(e)
	}
	if e.Persisted() {
		d.seenNow = append(d.seenNow, e.ID)
		if d.waiting != nil {
			d.waiting.Next = time.Since(d.waiting.at)
			d.waiting = nil
		}
	}
	switch e.Type {
	case "span.model_request_start":
		d.request = e.ID
	case "event_start":
		d.previews.Reset()
		d.pieces = 0
	case "event_delta":
		return false, d.piece(ctx, e)
	case "agent.tool_use":
		if e.Name == "bash" && strings.Contains(string(e.Input), counter) {
			d.check = e.ID
		}
	case "span.model_request_end":
		d.request = ""
		if d.check != "" && d.killed(d.check) == nil && d.strike == nil && !e.Failed() {
			d.strike = time.After(intoTheTool)
		}
	case "agent.tool_result":
		if e.Call() == d.check {
			d.strike = nil // it was quicker than expected; the account will say that nothing was hit
		}
		if e.Failed() {
			return false, fmt.Errorf("a tool of the job failed: %s\nperdure doctor says what is missing on this machine", firstLine(e))
		}
	case "session.status_idle":
		return d.idle(ctx, e)
	}
	return false, nil
}

// piece kills the server when enough of the long answer has come.
func (d *demo) piece(ctx context.Context, e client.Event) error {
	if e.Delta == nil || d.request == "" {
		return nil
	}
	d.previews.WriteString(e.Delta.Content.Text)
	d.pieces++
	if d.pieces < intoTheAnswer || !strings.HasPrefix(d.previews.String(), longAnswer) || d.killed(d.request) != nil || len(d.account.Kills) > 1 {
		return nil
	}
	return d.kill(ctx, InModelCall, d.request)
}

func (d *demo) killed(call string) *Kill {
	for i := range d.account.Kills {
		if d.account.Kills[i].Call == call {
			return &d.account.Kills[i]
		}
	}
	return nil
}

// kill ends the server without warning and starts it again.
func (d *demo) kill(ctx context.Context, moment Moment, call string) error {
	d.tell("kill -9 " + string(moment))
	for _, id := range d.seenNow {
		d.seen[id] = true
	}
	d.seenNow = nil
	k := Kill{Moment: moment, Call: call, at: time.Now()}
	if err := d.process.kill(); err != nil {
		return err
	}
	if err := d.process.start(ctx); err != nil {
		return err
	}
	k.Ready = time.Since(k.at)
	d.account.Kills = append(d.account.Kills, k)
	d.waiting = &d.account.Kills[len(d.account.Kills)-1]
	d.tell(fmt.Sprintf("started again, ready %d ms after the kill", k.Ready.Milliseconds()))
	return nil
}

func (d *demo) tell(text string) {
	if d.o.Told != nil {
		d.o.Told(text)
	}
}

func (d *demo) idle(ctx context.Context, e client.Event) (done bool, err error) {
	if e.StopReason == nil || e.StopReason.Type != "requires_action" {
		return true, nil
	}
	for _, call := range e.StopReason.EventIDs {
		d.tell("allowing the call that waits for permission")
		confirmation := map[string]string{"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"}
		if _, err := d.c.Send(ctx, d.account.Session, confirmation); err != nil {
			return false, err
		}
	}
	return false, nil
}

// count reads the log and counts.
func (d *demo) count(ctx context.Context) error {
	a := d.account
	a.Took = time.Since(d.began)
	log, err := d.c.Events(ctx, a.Session)
	if err != nil {
		return err
	}
	a.Events = len(log)
	ended, inLog := map[string]bool{}, map[string]bool{}
	for _, e := range log {
		inLog[e.ID] = true
		switch e.Type {
		case "span.model_request_start":
			a.ModelCalls++
		case "span.model_request_end":
			ended[e.ModelRequestStart] = !e.Failed()
		case "agent.tool_use":
			a.ToolCalls++
		case "agent.tool_result":
			a.ToolResults++
			if e.Call() == d.check {
				a.ToolRuns = runs(e)
			}
		case "agent.message":
			a.Report = firstLine(e)
		}
	}
	for _, e := range log {
		if e.Type == "span.model_request_start" && !ended[e.ID] {
			a.ModelCallsCut++
		}
	}
	for id := range d.seen {
		if !inLog[id] {
			a.Lost++
		}
	}
	return nil
}

// runs reads how often the check says that it has run.
func runs(e client.Event) int {
	n := 0
	for _, b := range e.Content {
		if _, after, ok := strings.Cut(b.Text, counted); ok {
			number, _, _ := strings.Cut(after, "\n")
			// What is no number leaves 0, which no account takes for clean.
			_ = json.Unmarshal([]byte(strings.TrimSpace(number)), &n)
		}
	}
	return n
}

func firstLine(e client.Event) string {
	for _, b := range e.Content {
		if line, _, _ := strings.Cut(strings.TrimSpace(b.Text), "\n"); line != "" {
			return line
		}
	}
	return "(nothing)"
}
