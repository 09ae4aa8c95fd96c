//go:build linux

package behaviour

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/internal/model/mockserver"
	"github.com/perdure/perdure/internal/model/scripted"
	"github.com/perdure/perdure/test/harness/raw"
)

// setup is what a conversation begins with.
type setup struct {
	name        string // how the model's name begins
	script      string
	policy      string   // of the built-in tools; "" for always_allow
	tools       []any    // beside the toolset
	noTools     bool     // without the toolset
	configs     []object // of single built-in tools
	system      string   // the agent's own prompt
	environment object   // its config
	session     object   // more fields of the session
	faulty      bool     // the model refuses or breaks off on purpose: what it reported is not compared
	follow      string   // more of the query of the stream
	changed     bool     // the agent is changed on the way: the beginning of requests may differ
}

// conversation is a session with a client that follows it from its beginning.
type conversation struct {
	setup
	*world
	t      *testing.T
	id     string
	thread string
	model  string // the name of its model
	stream *raw.Stream
	seen   []raw.Frame // everything that came by the stream, without previews
	gone   bool        // the test has deleted it
}

var (
	conversations atomic.Int64
	notInName     = regexp.MustCompile(`[^a-z0-9]+`)
)

func (w *world) converse(t *testing.T, s setup) *conversation {
	t.Helper()
	name := notInName.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-")
	c := &conversation{setup: s, world: w, t: t, model: fmt.Sprintf("%s%.40s-%d", s.name, name, conversations.Add(1))}
	script, err := scripted.Parse(c.model, []byte(s.script))
	if err != nil {
		t.Fatal(err)
	}
	w.world().library.Add(script)
	agent := object{"name": c.model, "model": c.model, "tools": c.agentTools()}
	if s.system != "" {
		agent["system"] = s.system
	}
	environment := object{"name": c.model}
	if s.environment != nil {
		environment["config"] = s.environment
	}
	session := object{
		"agent":          w.Do(t, "POST", "/v1/agents", agent).Want(t, 200).Get("id").String(),
		"environment_id": w.Do(t, "POST", "/v1/environments", environment).Want(t, 200).Get("id").String(),
	}
	for key, value := range s.session {
		session[key] = value
	}
	made := w.Do(t, "POST", "/v1/sessions", session).Want(t, 200)
	c.id = made.Get("id").String()
	c.follow()
	c.thread = w.Do(t, "GET", "/v1/sessions/"+c.id+"/threads", nil).Want(t, 200).Get("data.0.id").String()
	t.Cleanup(c.check)
	return c
}

func (w *world) world() *strictModel { return w.model }

func (c *conversation) agentTools() []any {
	if c.noTools {
		return append([]any{}, c.tools...)
	}
	set := object{"type": "agent_toolset_20260401"}
	if c.policy != "" {
		set["default_config"] = object{"permission_policy": object{"type": c.policy}}
	}
	if c.configs != nil {
		set["configs"] = c.configs
	}
	return append([]any{set}, c.tools...)
}

// follow opens the stream, from the position that was reached.
func (c *conversation) follow() {
	c.t.Helper()
	after := "0"
	if n := len(c.seen); n > 0 {
		after = c.seen[n-1].ID
	}
	// It must live until the last check, which a stream that the test closes may not.
	stream, refused, err := c.TryStream("/v1/sessions/" + c.id + "/events/stream?after=" + after + c.setup.follow)
	if err != nil || refused != nil {
		c.t.Fatalf("the session cannot be followed: %v %v", refused, err)
	}
	c.stream = stream
}

// custom is a tool that the client runs.
func custom(name string) object {
	return object{"type": "custom", "name": name, "description": "Looks it up.", "input_schema": object{"type": "object"}}
}

func message(text string) object {
	return object{"type": "user.message", "content": []object{{"type": "text", "text": text}}}
}

func confirm(call, result string) object {
	return object{"type": "user.tool_confirmation", "tool_use_id": call, "result": result}
}

func answer(call, text string) object {
	return object{"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": []object{{"type": "text", "text": text}}}
}

var interrupt = object{"type": "user.interrupt"}

// post sends events, and leaves it to the caller what the answer must be.
func (c *conversation) post(events ...object) *raw.Response {
	c.t.Helper()
	return c.Do(c.t, "POST", c.path("/events"), object{"events": events})
}

// send sends events, which must be taken, and returns them as they were echoed.
func (c *conversation) send(events ...object) []gjson.Result {
	c.t.Helper()
	echoes := c.post(events...).Want(c.t, 200).Get("data").Array()
	if len(echoes) != len(events) {
		c.t.Fatalf("%d events were sent and %d echoed", len(events), len(echoes))
	}
	return echoes
}

// refuse sends events, which must be refused with a message that says this, and must leave no trace.
func (c *conversation) refuse(says string, events ...object) {
	c.t.Helper()
	before := ids(c.log())
	r := c.post(events...).WantError(c.t, 400, "invalid_request_error")
	if !strings.Contains(r.Get("error.message").String(), says) {
		c.t.Errorf("the refusal does not say %q: %s", says, r.Body)
	}
	if after := ids(c.log()); !slices.Equal(before, after) {
		c.t.Errorf("events that were refused left a trace: %v, before %v", after, before)
	}
}

func (c *conversation) path(rest string) string { return "/v1/sessions/" + c.id + rest }

// view is the session as served.
func (c *conversation) view() *raw.Response {
	c.t.Helper()
	return c.Do(c.t, "GET", c.path(""), nil).Want(c.t, 200)
}

// until reads the stream up to the first event of a type, and returns what came since it was read last.
func (c *conversation) until(kind string) []raw.Frame {
	c.t.Helper()
	return c.untilThat(func(f raw.Frame) bool { return f.Event == kind })
}

func (c *conversation) untilThat(found func(raw.Frame) bool) []raw.Frame {
	c.t.Helper()
	frames := c.stream.Until(c.t, found)
	for _, f := range frames {
		if f.ID != "" {
			c.seen = append(c.seen, f)
		}
	}
	return frames
}

// idle reads the stream up to where the session rests for this reason, and returns what came since it was read last.
func (c *conversation) idle(reason string) []raw.Frame {
	c.t.Helper()
	frames := c.until("session.status_idle")
	if got := frames[len(frames)-1].Get("stop_reason.type").String(); got != reason {
		c.t.Fatalf("the session rests because of %s, want %s: %s", got, reason, kinds(frames))
	}
	return frames
}

// say sends a message and returns what came until the session rested.
func (c *conversation) say(text string) []raw.Frame {
	c.t.Helper()
	c.send(message(text))
	return c.idle("end_turn")
}

// short are the names under which tests write the types of events.
var short = map[string]string{
	"running": "session.status_running", "thread-running": "session.thread_status_running",
	"start": "span.model_request_start", "end": "span.model_request_end",
	"thread-idle": "session.thread_status_idle", "usage": "session.usage", "idle": "session.status_idle",
	"rescheduled": "session.status_rescheduled", "thread-rescheduled": "session.thread_status_rescheduled",
	"error": "session.error", "updated": "session.updated",
	"message": "user.message", "interrupt": "user.interrupt", "confirmation": "user.tool_confirmation",
	"custom-result": "user.custom_tool_result", "answer": "agent.message", "thinking": "agent.thinking",
	"use": "agent.tool_use", "custom-use": "agent.custom_tool_use", "result": "agent.tool_result", "tool-result": "user.tool_result",
}

const (
	begins = "running thread-running "
	rests  = " thread-idle usage idle"
)

// want checks the types of events, written short.
func want(t *testing.T, frames []raw.Frame, expected string) {
	t.Helper()
	var full []string
	for name := range strings.FieldsSeq(expected) {
		if short[name] == "" {
			t.Fatalf("no type is called %q here", name)
		}
		full = append(full, short[name])
	}
	if got := kinds(frames); got != strings.Join(full, " ") {
		t.Errorf("events\n got %s\nwant %s", got, strings.Join(full, " "))
	}
}

func kinds(frames []raw.Frame) string {
	var list []string
	for _, f := range frames {
		list = append(list, f.Event)
	}
	return strings.Join(list, " ")
}

// all are the events of a type, written short.
func all(frames []raw.Frame, name string) []raw.Frame {
	return slices.DeleteFunc(slices.Clone(frames), func(f raw.Frame) bool { return f.Event != short[name] })
}

// only is the one event of a type, written short.
func only(t *testing.T, frames []raw.Frame, name string) raw.Frame {
	t.Helper()
	found := all(frames, name)
	if len(found) != 1 {
		t.Fatalf("%d events of type %s, want one: %s", len(found), short[name], kinds(frames))
	}
	return found[0]
}

func ids[T interface{ Get(string) gjson.Result }](items []T) []string {
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = item.Get("id").String()
	}
	return list
}

// tools are the calls that results answer.
func tools(results []raw.Frame) []string {
	var list []string
	for _, r := range results {
		list = append(list, r.Get("tool_use_id").String())
	}
	return list
}

func text(f interface{ Get(string) gjson.Result }) string { return f.Get("content.0.text").String() }

// requests are those that have ended, in the order in which they came.
func (c *conversation) requests() []mockserver.Record {
	number := func(r mockserver.Record) int {
		n, err := strconv.Atoi(r.Header.Get(arrival))
		if err != nil {
			c.t.Fatal(err)
		}
		return n
	}
	return slices.SortedFunc(slices.Values(c.world.model.RecordsOf(c.model)), func(a, b mockserver.Record) int { return number(a) - number(b) })
}

func (c *conversation) hold(n, frames int) *gate { return c.world.model.hold(c.t, c.model, n, frames) }

// wantAsked checks how many requests the model got.
func (c *conversation) wantAsked(n int) {
	c.t.Helper()
	if got := c.world.model.asked(c.model); got != n {
		c.t.Errorf("the model was asked %d times, want %d", got, n)
	}
}

// sent are the messages of the n-th request, from 1.
func (c *conversation) sent(n int) []gjson.Result {
	c.t.Helper()
	requests := c.requests()
	if len(requests) < n {
		c.t.Fatalf("the model has answered %d requests, want %d", len(requests), n)
	}
	return gjson.GetBytes(requests[n-1].Body, "messages").Array()
}

// last is the last message of the n-th request, from 1.
func (c *conversation) last(n int) gjson.Result {
	c.t.Helper()
	messages := c.sent(n)
	return messages[len(messages)-1]
}

// log is all that the list of events has.
func (c *conversation) log() []gjson.Result {
	c.t.Helper()
	return c.list("/events?limit=7")
}

// list reads all pages of a list of the session.
func (c *conversation) list(path string) []gjson.Result {
	c.t.Helper()
	var items []gjson.Result
	for next := ""; ; {
		page := c.Do(c.t, "GET", c.path(path+next), nil).Want(c.t, 200)
		items = append(items, page.Get("data").Array()...)
		if page.Get("next_page").String() == "" {
			return items
		}
		next = "&page=" + page.Get("next_page").String()
	}
}

// Host paths of what the agent sees.
func (c *conversation) sandboxDir() string { return filepath.Join(c.dir, "sandboxes", c.id) }
func (c *conversation) workspace(n string) string {
	return filepath.Join(c.sandboxDir(), "files/workspace", n)
}

// awaitFifo waits until a command writes to a fifo that the agent made in its workspace.
func (c *conversation) awaitFifo(name string) {
	c.t.Helper()
	written := make(chan error, 1)
	go func() {
		f, err := os.Open(c.workspace(name))
		if err == nil {
			_, err = io.ReadAll(f)
			f.Close()
		}
		written <- err
	}()
	await(c.t, written, "nothing was written to "+name)
}

// withoutPreviews leaves out what is not in the log.
func withoutPreviews(frames []raw.Frame) []raw.Frame {
	return slices.DeleteFunc(slices.Clone(frames), func(f raw.Frame) bool { return f.ID == "" })
}

// writeFifo lets a command go on that reads a fifo.
func (c *conversation) writeFifo(name string) {
	c.t.Helper()
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(c.workspace(name), []byte("\n"), 0) }()
	await(c.t, written, "nothing was read from "+name)
}
