//go:build linux

package behaviour

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/mockserver"
)

// check makes the checks that hold after every conversation, and removes it.
func (c *conversation) check() {
	c.t.Helper()
	defer func() { c.stream.Close() }()
	if c.t.Failed() {
		for _, e := range c.log() {
			c.t.Log(e.Raw)
		}
	}
	c.checkRequests()
	if c.gone {
		return
	}
	if status := c.view().Get("status").String(); status != "idle" && status != "terminated" {
		c.t.Errorf("the session is left %s", status)
		return
	}
	events := c.log()
	c.checkReaders(events)
	c.checkEvents(events)
	c.checkUsage(events)
	c.remove()
}

// remove deletes the session, which leaves nothing of it.
func (c *conversation) remove() {
	c.t.Helper()
	c.gone = true
	c.Do(c.t, "DELETE", c.path(""), nil).Want(c.t, 200)
	c.Do(c.t, "GET", c.path(""), nil).WantError(c.t, 404, "not_found_error")
	frames := c.stream.UntilEnd(c.t)
	if n := len(frames); n == 0 || frames[n-1].Event != "session.deleted" {
		c.t.Errorf("the stream of a deleted session ended with %s", kinds(frames))
	}
	if _, err := os.Stat(c.sandboxDir()); !errors.Is(err, fs.ErrNotExist) {
		c.t.Errorf("the sandbox of a deleted session is there: %v", err)
	}
}

// checkReaders checks that the lists and the stream agree.
func (c *conversation) checkReaders(events []gjson.Result) {
	c.t.Helper()
	order := ids(events)
	backwards := ids(c.list("/events?limit=9&order=desc"))
	slices.Reverse(backwards)
	if !slices.Equal(backwards, order) {
		c.t.Errorf("the list in descending order, reversed, is\n%v, and in ascending order\n%v", backwards, order)
	}
	thread := ids(c.list("/threads/" + c.thread + "/events?limit=1000"))
	for _, id := range thread {
		if !slices.Contains(order, id) {
			c.t.Errorf("event %s is only in the list of the thread", id)
		}
	}
	for len(c.seen) < len(order) {
		f, err := c.stream.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.t.Error(err)
			}
			break
		}
		if f.ID != "" {
			c.seen = append(c.seen, f)
		}
	}
	if got := ids(c.seen); !slices.Equal(got, order) {
		c.t.Errorf("the stream is not as the list:\n got %v\nwant %v", got, order)
		return
	}
	for i, f := range c.seen {
		if f.Data != events[i].Raw {
			c.t.Errorf("an event is not the same in the stream and in the list:\n%s\n%s", f.Data, events[i].Raw)
		}
	}
}

// checkEvents checks that a log of a session that rests is sound in itself.
func (c *conversation) checkEvents(events []gjson.Result) {
	c.t.Helper()
	known, open, requests := map[string]bool{}, map[string]string{}, map[string]bool{}
	moment, before := "", ""
	for _, e := range events {
		fault := func(what string) { c.t.Errorf("%s: %s", what, e.Raw) }
		id, kind := e.Get("id").String(), e.Get("type").String()
		if !strings.HasPrefix(id, "sevt_01") || known[id] {
			fault("an id is out of form or not unique")
		}
		known[id] = true
		at := e.Get("processed_at").String()
		if len(at) != len("2006-01-02T15:04:05.000000Z") || at <= moment {
			fault("the time is out of form or not after the one before, " + moment)
		}
		moment = at
		switch kind {
		case "agent.tool_use", "agent.custom_tool_use":
			open[id] = kind
		case "agent.tool_result", "user.tool_result":
			if call := e.Get("tool_use_id").String(); open[call] != "agent.tool_use" {
				fault("a result of a call that is not open")
			} else {
				delete(open, call)
			}
		case "user.custom_tool_result":
			if call := e.Get("custom_tool_use_id").String(); open[call] != "agent.custom_tool_use" {
				fault("a result of a call that is not open")
			} else {
				delete(open, call)
			}
		case "span.model_request_start":
			if len(open)+len(requests) > 0 {
				fault("a request begins while calls or requests are open")
			}
			requests[id] = true
		case "span.model_request_end":
			if start := e.Get("model_request_start_id").String(); !requests[start] {
				fault("the end of a request that is not open")
			} else {
				delete(requests, start)
			}
		case "session.status_idle":
			if before != "session.usage" {
				fault("no session.usage directly before it")
			}
		}
		before = kind
	}
	for call := range open {
		if c.view().Get("status").String() == "idle" && c.seen[len(c.seen)-1].Get("stop_reason.type").String() != "requires_action" {
			c.t.Errorf("call %s has no result", call)
		}
	}
	for request := range requests {
		c.t.Errorf("request %s has no end", request)
	}
}

type tokens struct{ input, output, read, written int64 }

func (t *tokens) add(input, output, read, written int64) {
	t.input, t.output, t.read, t.written = t.input+input, t.output+output, t.read+read, t.written+written
}

// checkUsage checks that the usage of the session is the sum of its requests, and that of what the model reported.
func (c *conversation) checkUsage(events []gjson.Result) {
	c.t.Helper()
	var spans, reported, total tokens
	for _, e := range events {
		if e.Get("type").String() == "span.model_request_end" {
			u := e.Get("model_usage")
			spans.add(u.Get("input_tokens").Int(), u.Get("output_tokens").Int(), u.Get("cache_read_input_tokens").Int(), u.Get("cache_creation_input_tokens").Int())
		}
	}
	for _, r := range c.requests() {
		if r.Outcome == mockserver.Complete {
			addUsage(&reported, r.Usage)
		}
	}
	u := c.view().Get("usage")
	total.add(u.Get("input_tokens").Int(), u.Get("output_tokens").Int(), u.Get("cache_read_input_tokens").Int(),
		u.Get("cache_creation.ephemeral_5m_input_tokens").Int()+u.Get("cache_creation.ephemeral_1h_input_tokens").Int())
	if spans != total {
		c.t.Errorf("usage %+v is not the sum of the requests, %+v", total, spans)
	}
	if !c.faulty && reported != total {
		c.t.Errorf("usage %+v is not what the model reported, %+v", total, reported)
	}
}

func addUsage(t *tokens, u model.Usage) {
	t.add(u.InputTokens, u.OutputTokens, u.CacheReadTokens, u.CacheWrite5mTokens+u.CacheWrite1hTokens)
}

// checkRequests checks what the model was sent: nothing that it refuses, one request at a time, roles in turn, and never
// another beginning than before. One that was given up at once may arrive after the next, so that their order does not count.
func (c *conversation) checkRequests() {
	c.t.Helper()
	var conversations [][]string
	start := ""
	for i, r := range c.requests() {
		if r.Outcome == mockserver.Refused {
			c.t.Errorf("the model refused request %d: %d %s", i+1, r.Status, r.Message)
			continue
		}
		role := ""
		for j, m := range gjson.GetBytes(r.Body, "messages").Array() {
			if got := m.Get("role").String(); got == role {
				c.t.Errorf("request %d: message %d has the role of the one before, %s", i+1, j, got)
			} else {
				role = got
			}
		}
		prefix := gjson.GetBytes(r.Body, "tools").Raw + gjson.GetBytes(r.Body, "system").Raw
		if i > 0 && prefix != start && !c.changed {
			c.t.Errorf("request %d has other tools or another system prompt than the one before", i+1)
		}
		conversations, start = append(conversations, blocksOf(r.Body)), prefix
	}
	slices.SortStableFunc(conversations, func(a, b []string) int { return len(a) - len(b) })
	for i := 1; i < len(conversations); i++ {
		if before, blocks := conversations[i-1], conversations[i]; !slices.Equal(blocks[:len(before)], before) {
			c.t.Errorf("a request does not begin as one before:\n%s\n\n%s", strings.Join(blocks, "\n"), strings.Join(before, "\n"))
		}
	}
	c.world.model.mu.Lock()
	defer c.world.model.mu.Unlock()
	if c.world.model.of(c.model).overlap {
		c.t.Error("two requests ran at once")
	}
}

// breakpoint is what marks the end of what is to be cached. It moves.
const breakpoint = `,"cache_control":{"type":"ephemeral"}`

// blocksOf are the blocks of a conversation, byte for byte, with their roles.
func blocksOf(body []byte) []string {
	var blocks []string
	for _, m := range gjson.GetBytes(body, "messages").Array() {
		for _, b := range m.Get("content").Array() {
			blocks = append(blocks, m.Get("role").String()+" "+strings.ReplaceAll(b.Raw, breakpoint, ""))
		}
	}
	return blocks
}
