package conversation

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/terminal"
)

var callTypes = []string{"agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"}

// begin does what is to be done once nothing can be missed any more.
func (r *run) begin(ctx context.Context) error {
	s, err := r.server.Session(ctx, r.o.Session)
	if err != nil {
		return err
	}
	r.begun, r.cost = true, s.Usage
	switch s.Status {
	case "terminated":
		r.end(Failed, "the session is archived; it takes no more messages")
		return nil
	case "idle":
		idle, err := r.server.Latest(ctx, r.o.Session, "session.status_idle")
		if err != nil {
			return err
		}
		if idle != nil && idle.StopReason != nil && idle.StopReason.Type == "requires_action" {
			return r.wait(ctx, idle.StopReason.EventIDs)
		}
		if r.o.Message == "" {
			r.end(Done, "the session is idle and has nothing left to do")
			return nil
		}
	}
	if r.o.Message == "" {
		r.taken = true
		return nil
	}
	return r.sendMessage(ctx)
}

func (r *run) sendMessage(ctx context.Context) error {
	echo, err := r.server.Send(ctx, r.o.Session, map[string]any{
		"type": "user.message", "content": []any{map[string]string{"type": "text", "text": r.o.Message}},
	})
	if err != nil {
		return err
	}
	if len(echo) != 1 || echo[0].ID == "" {
		return errors.New("the server did not confirm the message")
	}
	r.sent = echo[0].ID
	return nil
}

// stop interrupts the turn.
func (r *run) stop(ctx context.Context) error {
	if r.sent == "" && !r.taken && len(r.pending) == 0 {
		return errLeft // nothing was begun that could be stopped
	}
	r.interrupted = true
	if r.asking != nil {
		r.withdraw("not decided")
	}
	r.o.Screen.Note("stopping the turn; Ctrl-C again leaves at once")
	_, err := r.server.Send(ctx, r.o.Session, map[string]any{"type": "user.interrupt"})
	return err
}

// event takes an event of the session.
func (r *run) event(ctx context.Context, e client.Event) error {
	if r.o.JSON {
		if e.Persisted() {
			line := e.Raw.Clone()
			if err := line.Compact(); err != nil {
				return err
			}
			r.o.Screen.Raw(terminal.EscapeJSON(string(line)))
		}
	} else {
		r.transcript.Show(e)
	}
	switch e.Type {
	case "user.message":
		r.taken = r.taken || e.ID == r.sent && e.ProcessedAt != nil
	case "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use":
		r.calls[e.ID] = e
	case "user.tool_confirmation":
		r.elsewhere(e.Call(), "was decided elsewhere")
	case "agent.tool_result", "agent.mcp_tool_result", "user.tool_result", "user.custom_tool_result":
		delete(r.calls, e.Call())
		r.elsewhere(e.Call(), "has its result")
	case "session.usage":
		if e.Usage != nil {
			r.cost = *e.Usage
		}
	case "session.error":
		if e.Error != nil {
			r.trouble = e.Error.Message
		}
	case "session.status_running":
		r.pending = nil
	case "session.status_idle":
		return r.idle(ctx, e.StopReason)
	case "session.status_terminated":
		r.end(Failed, "the session was ended")
	}
	return nil
}

// idle decides what the rest of a session means for the run.
func (r *run) idle(ctx context.Context, stop *client.StopReason) error {
	if stop == nil {
		stop = &client.StopReason{Type: "end_turn"}
	}
	if !r.begun {
		return nil // begin looks for itself
	}
	if stop.Type == "requires_action" {
		return r.wait(ctx, stop.EventIDs)
	}
	r.pending = nil
	if r.interrupted {
		r.end(Interrupted, "")
		return nil
	}
	if !r.taken {
		// What the session did before has ended. The message follows, unless it is already with the server.
		if r.sent == "" && r.o.Message != "" {
			return r.sendMessage(ctx)
		}
		if r.sent != "" {
			return nil
		}
	}
	switch stop.Type {
	case "end_turn":
		r.end(Done, "")
	case "budget_reached":
		r.end(Waiting, "the session's budget is used up; raise or remove it to go on")
	case "refusal":
		r.end(Failed, "the model refused to go on")
	case "retries_exhausted":
		r.end(Failed, "the turn was given up: %s", strings.TrimSuffix(r.trouble, "."))
	default:
		r.end(Done, "the session stopped: %s", stop.Type)
	}
	return nil
}

// wait settles what the session waits for, as far as this run can.
func (r *run) wait(ctx context.Context, calls []string) error {
	r.pending = calls
	if r.interrupted {
		return nil
	}
	if r.asking != nil && !slices.Contains(calls, r.about) {
		r.withdraw("no longer needed")
	}
	return r.next(ctx)
}

// next turns to the next call that the session waits for. Calls that a client has to run are left to it, but only once
// all others are settled.
func (r *run) next(ctx context.Context) error {
	for r.asking == nil && r.over == nil {
		open, foreign, err := r.unsettled(ctx)
		if err != nil {
			return err
		}
		switch {
		case open == nil && foreign == nil:
			return nil
		case open == nil:
			r.end(Waiting, "%s is run by a client, which has to send its result (call %s)", foreign.Name, foreign.ID)
		case r.o.Approve == All:
			err = r.decide(ctx, *open, true, "")
		case r.o.Approve == None || r.o.Lines == nil:
			r.end(Waiting, "%s waits for permission to run (call %s)", open.Name, open.ID)
		default:
			r.ask(*open)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unsettled finds the first call that needs a permission, and the first that a client has to run.
func (r *run) unsettled(ctx context.Context) (open, foreign *client.Event, err error) {
	for _, id := range r.pending {
		if r.settled[id] {
			continue
		}
		call, err := r.call(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		if call.Permission == "ask" && open == nil {
			open = &call
		} else if call.Permission != "ask" && foreign == nil {
			foreign = &call
		}
	}
	return open, foreign, nil
}

// call finds a call that may have been made before this run.
func (r *run) call(ctx context.Context, id string) (client.Event, error) {
	if call, ok := r.calls[id]; ok {
		return call, nil
	}
	found, err := r.server.FindEvents(ctx, r.o.Session, r.pending, callTypes...)
	if err != nil {
		return client.Event{}, err
	}
	for id, e := range found {
		r.calls[id] = e
	}
	call, ok := found[id]
	if !ok {
		return call, errors.New("the server waits for a call that it does not have: " + id)
	}
	return call, nil
}

func (r *run) ask(call client.Event) {
	// What was typed before was not meant for this question.
	for drained := false; !drained; {
		select {
		case _, ok := <-r.o.Lines:
			if !ok {
				r.end(Waiting, "%s waits for permission to run (call %s)", call.Name, call.ID)
				return
			}
		default:
			drained = true
		}
	}
	r.asking, r.about = terminal.NewApproval(r.o.Screen, call), call.ID
	r.asking.Ask()
}

// typed takes a line that answers a question.
func (r *run) typed(ctx context.Context, line string, open bool) error {
	call := r.calls[r.about]
	if !open {
		r.withdraw("nobody answers")
		r.end(Waiting, "%s waits for permission to run (call %s)", call.Name, call.ID)
		return nil
	}
	decision := r.asking.Answer(line)
	if decision == terminal.Undecided {
		return nil
	}
	reason := r.asking.Reason
	r.asking = nil
	if decision == terminal.AllowAll {
		r.o.Approve = All
	}
	if err := r.decide(ctx, call, decision != terminal.Deny, reason); err != nil {
		return err
	}
	return r.next(ctx)
}

// decide tells the server about a call. If somebody else was quicker, the server's word stands.
func (r *run) decide(ctx context.Context, call client.Event, allow bool, reason string) error {
	confirmation := map[string]any{"type": "user.tool_confirmation", "tool_use_id": call.ID, "result": "allow"}
	if !allow {
		confirmation["result"] = "deny"
		if reason != "" {
			confirmation["deny_message"] = reason
		}
	}
	_, err := r.server.Send(ctx, r.o.Session, confirmation)
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		idle, latestErr := r.server.Latest(ctx, r.o.Session, "session.status_idle", "session.status_running")
		if latestErr != nil {
			return latestErr
		}
		if idle != nil && idle.StopReason != nil && slices.Contains(idle.StopReason.EventIDs, call.ID) {
			return err
		}
		r.o.Screen.Note("the call was decided elsewhere in the meantime")
		err = nil
	}
	if err == nil {
		r.settled[call.ID] = true
	}
	return err
}

// elsewhere notes that a call needs no decision any more.
func (r *run) elsewhere(call, how string) {
	if r.asking != nil && call == r.about {
		r.withdraw("the call " + how)
	}
	r.settled[call] = true
}

func (r *run) withdraw(why string) {
	r.asking.Settled(why)
	r.asking = nil
}
