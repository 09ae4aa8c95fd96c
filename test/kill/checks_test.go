//go:build linux

package kill

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/internal/model"
)

// check makes the checks that hold after every case. Runs are the lines that the session's commands must have written.
// The session must be idle, with nothing waiting, and is gone afterwards.
func (c *conversation) check(runs ...string) {
	c.t.Helper()
	c.answers("before another kill")
	c.restart()
	c.answers("after another kill")
	if got := c.printed(); !slices.Equal(got, runs) {
		c.t.Errorf("the commands wrote %q, want %q", got, runs)
	}
	c.checkLog()
	c.checkUsage()
	c.remove()
	c.stop()
}

// answers checks that a plain message ends its turn.
func (c *conversation) answers(when string) {
	c.t.Helper()
	c.say("Are you there?")
	if reason := c.awaitIdle(); reason != "end_turn" {
		c.t.Errorf("a message %s was ended by %s", when, reason)
	}
}

// printed lets the agent print what its commands wrote, line by line.
func (c *conversation) printed() []string {
	c.t.Helper()
	c.say("Print the runs.")
	var call string
	text := c.await("the result", func(e event) bool {
		if e.kind == "agent.tool_use" {
			call = e.id()
		}
		if e.kind == "session.status_idle" { // the toolset of the session asks first
			c.send(confirm(call, "allow"))
		}
		return e.kind == "agent.tool_result" && e.Get("tool_use_id").String() == call
	}).Get("content.0.text").String()
	c.wantIdle("end_turn")
	lines := strings.Fields(text)
	if len(lines) == 0 || lines[len(lines)-1] != "endofruns" {
		c.t.Fatalf("the runs could not be printed: %s", text)
	}
	return lines[:len(lines)-1]
}

// all reads the pages of a list.
func (w *world) all(t *testing.T, path string) []gjson.Result {
	t.Helper()
	var items []gjson.Result
	for next := ""; ; {
		page := w.client.Do(t, "GET", path+next, nil).Want(t, 200)
		items = append(items, page.Get("data").Array()...)
		if page.Get("next_page").String() == "" {
			return items
		}
		next = "&page=" + page.Get("next_page").String()
	}
}

func ids[T interface{ Get(string) gjson.Result }](items []T) []string {
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = item.Get("id").String()
	}
	return list
}

func (c *conversation) log() []gjson.Result {
	c.t.Helper()
	return c.all(c.t, "/v1/sessions/"+c.session+"/events?limit=100")
}

// checkLog checks that the log is sound in itself, and that all ways to read it agree, also that of the client that
// followed it over all deaths.
func (c *conversation) checkLog() {
	c.t.Helper()
	for _, refused := range c.model.Refusals() {
		c.t.Errorf("the model refused a request: %s", refused.Message)
	}
	events := c.log()
	order := ids(events)
	backwards := ids(c.all(c.t, "/v1/sessions/"+c.session+"/events?limit=100&order=desc"))
	slices.Reverse(backwards)
	c.same("the list in descending order, reversed,", backwards, order)
	again := c.follow(c.session)
	seen := func(f *follower) []string {
		for {
			events, more, _ := f.from(0)
			if len(events) >= len(order) {
				return ids(events)
			}
			select {
			case <-more:
			case <-time.After(limit):
				return ids(events)
			}
		}
	}
	c.same("the stream from the start", seen(again), order)
	again.close()
	c.same("the stream over all deaths", seen(c.follower), order)
	if view := c.client.Do(c.t, "GET", "/v1/sessions/"+c.session, nil).Want(c.t, 200); view.Get("status").String() != "idle" {
		c.t.Errorf("the session is %s", view.Get("status"))
	}
	for _, fault := range faults(events) {
		c.t.Errorf("the log: %s", fault)
	}
	if c.t.Failed() {
		for _, e := range events {
			c.t.Log(e.Raw)
		}
	}
}

func (c *conversation) same(what string, got, want []string) {
	c.t.Helper()
	if !slices.Equal(got, want) {
		c.t.Errorf("%s is not as the list:\n got %s\nwant %s", what, strings.Join(got, " "), strings.Join(want, " "))
	}
}

// faults are what is wrong with a log of a session that rests.
func faults(events []gjson.Result) (found []string) {
	fault := func(e gjson.Result, what string) { found = append(found, what+": "+e.Raw) }
	known, open, requests := map[string]bool{}, map[string]bool{}, map[string]bool{}
	last := ""
	for _, e := range events {
		id, kind := e.Get("id").String(), e.Get("type").String()
		if id == "" || known[id] {
			fault(e, "an id is missing or not unique")
		}
		known[id] = true
		if at := e.Get("processed_at").String(); at <= last {
			fault(e, "processed_at does not grow, or is missing")
		} else {
			last = at
		}
		answered := e.Get("tool_use_id").String() + e.Get("custom_tool_use_id").String()
		switch kind {
		case "agent.tool_use", "agent.custom_tool_use":
			open[id] = true
		case "agent.tool_result", "user.custom_tool_result":
			if !open[answered] {
				fault(e, "a result without a call, or a second one")
			}
			delete(open, answered)
		case "span.model_request_start":
			if len(open) > 0 {
				fault(e, "a request while calls are open")
			}
			if len(requests) > 0 {
				fault(e, "a request while another one is open")
			}
			requests[id] = true
		case "span.model_request_end":
			start := e.Get("model_request_start_id").String()
			if !requests[start] {
				fault(e, "the end of no request")
			}
			delete(requests, start)
		}
	}
	for id := range open {
		found = append(found, "a call without a result: "+id)
	}
	for id := range requests {
		found = append(found, "a request without an end: "+id)
	}
	return found
}

// checkUsage checks that the session's usage is the sum of its requests', and that each of these is what the model
// reported. Answers that were lost with the server were reported and are not in the log: at most one for each request that
// is marked as failed there.
func (c *conversation) checkUsage() {
	c.t.Helper()
	var sum model.Usage
	reports := c.model.completed(c.tag)
	at, lost, requests := 0, 0, 0
	for _, e := range c.log() {
		if e.Get("type").String() != "span.model_request_end" {
			continue
		}
		requests++
		u := usageOf(e.Get("model_usage"))
		if e.Get("is_error").Bool() {
			lost++
			if u != (model.Usage{}) {
				c.t.Errorf("a failed request has a usage that the model did not report: %s", e.Raw)
			}
			continue
		}
		sum.InputTokens += u.InputTokens
		sum.OutputTokens += u.OutputTokens
		sum.CacheReadTokens += u.CacheReadTokens
		sum.CacheWrite5mTokens += u.CacheWrite5mTokens
		for at < len(reports) && flat(reports[at].Usage) != u {
			at, lost = at+1, lost-1
		}
		if at == len(reports) {
			c.t.Errorf("the model did not report what the log says: %s", e.Raw)
			return
		}
		at++
	}
	lost -= len(reports) - at
	if lost < 0 {
		c.t.Errorf("the model gave %d answers that the log does not account for", -lost)
	}
	if made := len(c.model.requests(c.tag)); made > requests {
		c.t.Errorf("the model was asked %d times, and the log has %d requests", made, requests)
	}
	total := c.client.Do(c.t, "GET", "/v1/sessions/"+c.session, nil).Want(c.t, 200).Get("usage")
	if got := usageOf(total); got != sum {
		c.t.Errorf("the session's usage is %+v, its requests' %+v", got, sum)
	}
}

func usageOf(r gjson.Result) model.Usage {
	return model.Usage{
		InputTokens: r.Get("input_tokens").Int(), OutputTokens: r.Get("output_tokens").Int(), CacheReadTokens: r.Get("cache_read_input_tokens").Int(),
		CacheWrite5mTokens: r.Get("cache_creation_input_tokens").Int() +
			r.Get("cache_creation.ephemeral_5m_input_tokens").Int() + r.Get("cache_creation.ephemeral_1h_input_tokens").Int(),
	}
}

// flat is a report as the log has it, where what was written to the cache is one number.
func flat(u model.Usage) model.Usage {
	return model.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens,
		CacheWrite5mTokens: u.CacheWrite5mTokens + u.CacheWrite1hTokens}
}

// remove deletes the session and checks that nothing of it is left.
func (c *conversation) remove() {
	c.t.Helper()
	c.client.Do(c.t, "DELETE", "/v1/sessions/"+c.session, nil).Want(c.t, 200)
	c.gone()
}

// gone checks that nothing is left of a session that was deleted.
func (c *conversation) gone() {
	c.t.Helper()
	c.client.Do(c.t, "GET", "/v1/sessions/"+c.session, nil).WantError(c.t, 404, "not_found_error")
	for _, p := range processesOf(c.t, c.session) {
		if err := p.awaitEnd(5 * time.Second); err != nil {
			c.t.Errorf("a session was deleted: %v", err)
		}
	}
	left, err := filepath.Glob(filepath.Join(c.server.Data, "sandboxes", "*"+c.session+"*"))
	if trash, _ := filepath.Glob(filepath.Join(c.server.Data, "sandboxes", ".trash", "*")); err != nil || len(left)+len(trash) > 0 {
		c.t.Errorf("a session was deleted, and there is still %q %q (%v)", left, trash, err)
	}
	c.follower.close()
}

// stop stops the server, whose sessions are all deleted, and checks that no process has to do with it any more.
func (w *world) stop() {
	w.t.Helper()
	if err := w.server.Shutdown(); err != nil {
		w.t.Error(err)
	}
	for _, p := range processesOf(w.t, w.server.Data) {
		if err := p.awaitEnd(5 * time.Second); err != nil {
			w.t.Error(fmt.Errorf("the server was stopped: %w", err))
		}
	}
}
