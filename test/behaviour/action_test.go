//go:build linux

package behaviour

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

// waitsFor checks that the last event is a rest that waits for these calls.
func waitsFor(t *testing.T, frames []raw.Frame, calls ...string) {
	t.Helper()
	for _, i := range []int{3, 1} { // the thread's and the session's
		last := frames[len(frames)-i]
		var got []string
		for _, id := range last.Get("stop_reason.event_ids").Array() {
			got = append(got, id.String())
		}
		if last.Get("stop_reason.type").String() != "requires_action" || !slices.Equal(got, calls) {
			t.Errorf("%s waits for %v, want %v: %s", last.Event, got, calls, last.Data)
		}
	}
}

const fiveCalls = `
steps:
  - answer:
      - {tool: bash, input: {command: "echo 1 | tee -a n"}}
      - {tool: bash, input: {command: "echo 2 | tee -a n"}}
      - {tool: bash, input: {command: "echo 3 | tee -a n"}}
      - {tool: bash, input: {command: "echo 4 | tee -a n"}}
      - {tool: bash, input: {command: "echo 5 | tee -a n"}}
  - answer: [{tool: read, input: {file_path: /workspace/n}}]
otherwise: {text: done}
`

// askFirst asks about commands, and not about files.
var askFirst = []object{{"name": "bash", "permission_policy": object{"type": "always_ask"}}}

// Each of several calls is confirmed on its own, in any order; the rest is said again; the model is asked once all are
// answered (C61).
func TestConfirmations(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{configs: askFirst, script: fiveCalls})
	c.send(message("go"))
	frames := c.idle("requires_action")
	want(t, frames, begins+"message start use use use use use end"+rests)
	calls := ids(all(frames, "use"))
	waitsFor(t, frames, calls...)
	if use := all(frames, "use")[0]; use.Get("evaluated_permission").String() != "ask" || use.Get("evaluation").Raw != `{"type":"always_ask"}` {
		t.Errorf("a call that asks is %s", use.Data)
	}

	c.refuse("waits for", message("are you there?"))
	c.refuse("no tool call", confirm("sevt_011ChZnjfHDqrS6RaYAkyPdW", "allow"))
	// One answer that is wrong keeps the others out, too.
	c.refuse("no tool call", confirm(calls[0], "allow"), confirm("sevt_011ChZnjfHDqrS6RaYAkyPdW", "allow"))
	c.refuse("deny_message", object{"type": "user.tool_confirmation", "tool_use_id": calls[0], "result": "allow", "deny_message": "no"})

	deny := confirm(calls[2], "deny")
	deny["deny_message"] = "not three"
	left := slices.Clone(calls)
	for _, event := range []object{confirm(calls[3], "allow"), confirm(calls[0], "allow"), confirm(calls[4], "allow"), deny} {
		echo := c.send(event)[0]
		if echo.Get("processed_at").Raw == "null" || echo.Get("tool_use_id").String() != event["tool_use_id"] {
			t.Errorf("a confirmation is echoed as %s", echo.Raw)
		}
		frames := c.idle("requires_action")
		want(t, frames, "confirmation"+rests)
		left = slices.DeleteFunc(left, func(id string) bool { return id == event["tool_use_id"] })
		waitsFor(t, frames, left...)
		c.refuse("already answered", event)
	}
	c.wantAsked(1)
	c.send(confirm(calls[1], "allow"))
	frames = c.idle("end_turn")
	want(t, frames, "confirmation "+begins+"result result result result result start use end result start answer end"+rests)
	results := all(frames, "result")
	texts := map[string]string{}
	for _, r := range results[:5] {
		texts[r.Get("tool_use_id").String()] = text(r)
	}
	if got := texts[calls[2]]; got != "Permission to use bash has been rejected. Rejection message: not three" {
		t.Errorf("the denied call has the result %q", got)
	}
	for i, call := range calls {
		if want := string(rune('1' + i)); i != 2 && texts[call] != want {
			t.Errorf("call %d has the result %q", i, texts[call])
		}
	}
	if ran, err := os.ReadFile(c.workspace("n")); err != nil || string(ran) != "1\n2\n4\n5\n" {
		t.Errorf("the commands that ran left %q: %v", ran, err)
	}
	if told := c.last(2).Get("content.#.tool_use_id").Array(); len(told) != 5 || told[0].String() != calls[0] {
		t.Errorf("the model was told %s", c.last(2).Raw)
	}
	c.refuse("does not wait", confirm(calls[1], "allow"))
}

// All calls can be answered in one request, and by two clients at the same time.
func TestConfirmationsTogether(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{configs: askFirst, script: strings.Replace(fiveCalls, "otherwise", "  - text: done\notherwise", 1)})
	c.send(message("go"))
	calls := ids(all(c.idle("requires_action"), "use"))
	var events []object
	for _, call := range calls[:3] {
		events = append(events, confirm(call, "allow"))
	}
	c.send(events...)
	waitsFor(t, c.idle("requires_action"), calls[3:]...)
	var group sync.WaitGroup
	for _, call := range calls[3:] {
		group.Go(func() { c.send(confirm(call, "allow")) })
	}
	group.Wait()
	c.untilThat(func(f raw.Frame) bool {
		return f.Event == "session.status_idle" && f.Get("stop_reason.type").String() == "end_turn"
	})
	if got := text(all(c.seen, "result")[5]); strings.Count(got, "\n") < 4 {
		t.Errorf("the commands left %q", got)
	}
}

// A call that needs nobody runs at once, beside one that asks and one that the client runs, and its result is not lost
// over a restart (C60).
func TestMixedBatch(t *testing.T) {
	t.Parallel()
	w := ownWorld(t, nil)
	c := w.converse(t, setup{tools: []any{custom("lookup")}, configs: askFirst, script: `
steps:
  - answer:
      - {tool: bash, input: {command: cat free; echo asked}}
      - {tool: write, input: {file_path: /workspace/free, content: free}}
      - {tool: lookup, input: {key: k}}
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.idle("requires_action")
	want(t, frames, begins+"message start use use custom-use end result"+rests)
	asks, free, own := all(frames, "use")[0].Get("id").String(), all(frames, "use")[1], only(t, frames, "custom-use")
	if r := only(t, frames, "result"); r.Get("tool_use_id").String() != free.Get("id").String() {
		t.Errorf("the result is of %s", r.Data)
	}
	if own.Get("evaluated_permission").Exists() || own.Get("input").Raw != `{"key":"k"}` {
		t.Errorf("the client's call is %s", own.Data)
	}
	waitsFor(t, frames, asks, own.Get("id").String())
	// A confirmation is for a call that asks.
	c.refuse("does not wait for a confirmation", confirm(free.Get("id").String(), "allow"))
	c.refuse("does not wait for a confirmation", confirm(own.Get("id").String(), "allow"))
	c.refuse("is not answered by", answer(asks, "no"))
	c.refuse("self_hosted", object{"type": "user.tool_result", "tool_use_id": asks, "content": []object{}})

	w.restart(t)
	c.follow()
	echo := c.send(answer(own.Get("id").String(), "found"))[0]
	if echo.Get("processed_at").Raw == "null" {
		t.Errorf("a result is echoed as %s", echo.Raw)
	}
	frames = c.idle("requires_action")
	want(t, frames, "custom-result"+rests)
	waitsFor(t, frames, asks)
	c.send(confirm(asks, "allow"))
	frames = c.idle("end_turn")
	want(t, frames, "confirmation "+begins+"result start answer end"+rests)
	if got := text(only(t, frames, "result")); got != "freeasked" {
		t.Errorf("the command printed %q", got)
	}
	if told := c.last(2).Get("content.#.content.0.text").Raw; !strings.Contains(told, `"freeasked",`) || !strings.HasSuffix(told, `,"found"]`) {
		t.Errorf("the model was told %s", told)
	}
}

// What the client's own tools bring: text, an error, nothing, the same again.
func TestCustomTools(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{noTools: true, tools: []any{custom("lookup")}, script: `
steps:
  - answer: [{tool: lookup, input: {n: 1}}, {tool: lookup, input: {n: 2}}, {tool: lookup, input: {n: 3}}]
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.idle("requires_action")
	want(t, frames, begins+"message start custom-use custom-use custom-use end"+rests)
	calls := ids(all(frames, "custom-use"))
	waitsFor(t, frames, calls...)
	broken := answer(calls[0], "it broke")
	broken["is_error"] = true
	c.send(broken, object{"type": "user.custom_tool_result", "custom_tool_use_id": calls[2], "content": []object{}})
	waitsFor(t, c.idle("requires_action"), calls[1])
	// The same again is taken, and does nothing: neither while others wait nor afterwards.
	before := ids(c.log())
	again := c.send(answer(calls[0], "it did not"))[0]
	if again.Get("id").String() == "" || slices.Contains(before, again.Get("id").String()) {
		t.Errorf("the second result is echoed as %s", again.Raw)
	}
	if after := ids(c.log()); !slices.Equal(after, before) {
		t.Errorf("a second result left a trace: %v", after)
	}
	c.send(object{"type": "user.custom_tool_result", "custom_tool_use_id": calls[1]})
	frames = c.idle("end_turn")
	want(t, frames, "custom-result "+begins+"start answer end"+rests)
	c.send(answer(calls[1], "late"))
	if got := len(c.log()); got != len(c.seen) {
		t.Errorf("a late second result left a trace: %d events, %d seen", got, len(c.seen))
	}
	told := c.last(2).Get("content").Array()
	if len(told) != 3 || told[0].Get("is_error").Raw != "true" || told[0].Get("content.0.text").String() != "it broke" {
		t.Fatalf("the model was told %s", c.last(2).Raw)
	}
	for _, r := range told[1:] {
		if strings.TrimSpace(r.Get("content.0.text").String()) == "" {
			t.Errorf("an empty result was told as %s", r.Raw)
		}
	}
	c.refuse("no tool call", answer("sevt_011ChZnjfHDqrS6RaYAkyPdW", "x"))
	c.wantAsked(2)
}

// An answer may come as soon as the call is seen, before the session rests (C65).
func TestAnswerBeforeRest(t *testing.T) {
	t.Parallel()
	page := newSlowPage(t)
	c := common.converse(t, setup{tools: []any{custom("lookup")}, configs: askFirst, script: `
steps:
  - answer: [` + page.fetch() + `, {tool: lookup, input: {}}, {tool: bash, input: {command: echo ran}}]
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.until("span.model_request_end")
	c.send(answer(only(t, frames, "custom-use").Get("id").String(), "quick"), confirm(all(frames, "use")[1].Get("id").String(), "allow"))
	page.release()
	frames = c.idle("end_turn")
	want(t, frames, "custom-result confirmation result result start answer end"+rests)
	if got := text(all(frames, "result")[1]); got != "ran" {
		t.Errorf("the command printed %q", got)
	}
}

// An interrupt while the session waits closes every call, and the session takes messages at once (C70).
func TestInterruptWhileWaiting(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{configs: askFirst, tools: []any{custom("lookup")}, script: `
steps:
  - answer:
      - {tool: bash, input: {command: touch a}}
      - {tool: bash, input: {command: touch b}}
      - {tool: bash, input: {command: touch c}}
      - {tool: lookup, input: {}}
  - answer: [{tool: glob, input: {pattern: "*"}}]
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.idle("requires_action")
	calls := ids(all(frames, "use"))
	c.send(confirm(calls[0], "allow"), confirm(calls[1], "deny"))
	waitsFor(t, c.idle("requires_action"), calls[2], only(t, frames, "custom-use").Get("id").String())
	c.send(interrupt)
	frames = c.idle("end_turn")
	want(t, frames, "interrupt result result result custom-result"+rests)
	if got := text(all(frames, "result")[2]); got != "Tool execution was interrupted before completion. Please retry." {
		t.Errorf("an interrupted call has the result %q", got)
	}
	c.say("what is there?")
	for _, name := range []string{"a", "b", "c"} {
		if _, err := os.Stat(c.workspace(name)); err == nil {
			t.Errorf("the interrupted call ran: %s is there", name)
		}
	}
}

// Interrupt and message in one request, while the session waits.
func TestInterruptAndMessageWhileWaiting(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{policy: "always_ask", script: `steps: [{answer: [{tool: bash, input: {command: ls}}]}, {text: Fine.}]`})
	c.send(message("go"))
	c.idle("requires_action")
	c.send(interrupt, message("never mind"))
	want(t, c.idle("end_turn"), "interrupt result"+rests)
	want(t, c.idle("end_turn"), begins+"message start answer end"+rests)
}

// The policy auto lets pass what only reads, and asks about the rest.
func TestAutoPolicy(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{policy: "auto", script: `
steps:
  - answer: [{tool: glob, input: {pattern: "*"}}, {tool: bash, input: {command: echo ran}}]
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.idle("requires_action")
	want(t, frames, begins+"message start use use end result"+rests)
	uses := all(frames, "use")
	if uses[0].Get("evaluation").Raw != `{"type":"auto","evaluated_permission":{"type":"allow"}}` || uses[0].Get("evaluated_permission").String() != "allow" {
		t.Errorf("a call that reads is judged %s", uses[0].Data)
	}
	if uses[1].Get("evaluation").Raw != `{"type":"auto","evaluated_permission":{"type":"ask","reason_code":"indeterminate"}}` || uses[1].Get("evaluated_permission").String() != "ask" {
		t.Errorf("a command is judged %s", uses[1].Data)
	}
	c.send(confirm(uses[1].Get("id").String(), "allow"))
	want(t, c.idle("end_turn"), "confirmation "+begins+"result start answer end"+rests)
}

// On an environment of the owner's machines, calls of built-in tools wait for the owner's results.
func TestSelfHosted(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{environment: object{"type": "self_hosted"}, configs: askFirst, script: `
steps:
  - answer: [{tool: read, input: {file_path: a}}, {tool: bash, input: {command: ls}}]
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.idle("requires_action")
	calls := ids(all(frames, "use"))
	waitsFor(t, frames, calls...)
	result := func(call, text string) object {
		return object{"type": "user.tool_result", "tool_use_id": call, "content": []object{{"type": "text", "text": text}}}
	}
	c.refuse("user.tool_confirmation first", result(calls[1], "too early"))
	echo := c.send(result(calls[0], "content of a"))[0]
	if echo.Get("processed_at").Raw == "null" {
		t.Errorf("a result is echoed as %s", echo.Raw)
	}
	waitsFor(t, c.idle("requires_action"), calls[1])
	c.send(confirm(calls[1], "allow"))
	waitsFor(t, c.until("session.status_idle"), calls[1]) // now it waits for the result
	c.send(result(calls[1], "a b"))
	want(t, c.idle("end_turn"), "tool-result "+begins+"start answer end"+rests)
	if told := c.last(2).Get("content.#.content.0.text").Raw; told != `["content of a","a b"]` {
		t.Errorf("the model was told %s", told)
	}
}
