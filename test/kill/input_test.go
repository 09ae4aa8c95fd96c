//go:build linux

package kill

import (
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

const hello = `
steps:
  - text: Hello.
`

// count is the number of events of a type in the log.
func (c *conversation) count(kind string) int {
	c.t.Helper()
	n := 0
	for _, e := range c.log() {
		if e.Get("type").String() == kind {
			n++
		}
	}
	return n
}

func (c *conversation) want(what string, got, want any) {
	c.t.Helper()
	if got != want {
		c.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// A message that the client got no answer for is not there, and is taken once when it is sent again.
func TestBeforeInputIsAppended(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "hello", hello), "")
	words, key := c.sayAndDie("Hello.", "change-arrived")
	c.run()
	c.want("events", len(c.log()), 0)
	first, err := c.try(key, words)
	if err != nil {
		t.Fatal(err)
	}
	first.Want(t, 200)
	c.wantIdle("end_turn")
	c.sentOnce(key, words, first.Get("data.0.id").String())
	c.check()
}

// sentOnce sends a message again and checks that it is in the log once, as it was.
func (c *conversation) sentOnce(key string, words object, id string) {
	c.t.Helper()
	again, err := c.try(key, words)
	if err != nil {
		c.t.Fatal(err)
	}
	c.want("id of the message that was sent again", again.Want(c.t, 200).Get("data.0.id").String(), id)
	c.want("messages", c.count("user.message"), 1)
	c.want("model requests", c.count("span.model_request_start"), 1)
	c.want("requests that reached the model", len(c.model.requests(c.tag)), 1)
}

// A message that is in the log is answered, also if the client does not know that it was taken.
func TestAfterInputIsAppended(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "hello", hello), "")
	words, key := c.sayAndDie("Hello.", "change-appended")
	c.want("requests that reached the model before the restart", len(c.model.requests(c.tag)), 0)
	c.goOn()
	c.wantIdle("end_turn")
	c.sentOnce(key, words, c.find("user.message").Get("id").String())
	c.check()
}

// find returns the first event of a type in the log.
func (c *conversation) find(kind string) gjson.Result {
	c.t.Helper()
	for _, e := range c.log() {
		if e.Get("type").String() == kind {
			return e
		}
	}
	c.t.Fatalf("the log has no %s", kind)
	return gjson.Result{}
}

// A session that was created with its first message runs, and is created once.
func TestAfterSessionIsCreated(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "hello", hello), "")
	made := w.client.Do(t, "GET", "/v1/sessions/"+c.session, nil).Want(t, 200)
	body := object{"agent": made.Get("agent.id").String(), "environment_id": made.Get("environment_id").String(), "initial_events": []object{c.words("Hello.")}}
	died := w.dieAt("session-created")
	if r, err := w.client.Try("POST", "/v1/sessions", body, "Idempotency-Key", "create"); err == nil {
		t.Fatalf("the server answered although it was to die before: %s", r)
	}
	died()
	w.run()
	second := w.client.Do(t, "POST", "/v1/sessions", body, "Idempotency-Key", "create").Want(t, 200).Get("id").String()
	c.want("sessions", len(w.all(t, "/v1/sessions?limit=100")), 2)
	c.remove()
	c.session, c.follower = second, w.follow(second)
	c.wantIdle("end_turn")
	c.check()
}

// A message that was taken during a tool call, and waits, is delivered once, after the result and before the next request.
func TestQueuedMessage(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "held", held), "")
	c.hold()
	c.say("And be quick.")
	c.kill()
	c.run()
	c.release("go")
	c.wantIdle("end_turn")
	var order []string
	for _, e := range c.log() {
		switch kind := e.Get("type").String(); kind {
		case "agent.tool_result", "user.message", "span.model_request_start":
			order = append(order, kind)
		}
	}
	c.same("order of the log", order, []string{
		"user.message", "span.model_request_start", "agent.tool_result",
		"span.model_request_start", "agent.tool_result", "user.message", "span.model_request_start",
	})
	c.check("first", "held", "released")
}

// An interrupt that was taken ends what runs, also if the server dies before it has done so: a command does nothing any
// more after the session says that it is idle, and a request is not made again.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	t.Run("command", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		c := w.converse(w.model.script(t, "held", held), "")
		call := c.hold()
		c.interruptAndDie()
		c.goOn()
		c.awaitResult(call, true)
		c.wantIdle("end_turn")
		c.release("go")
		c.wantRequests(2, 2)
		c.check("first", "held")
	})
	t.Run("request", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		c := w.converse(w.model.script(t, "stall", `
steps:
  - when: {user: Hello.}
    text: Never said.
    break: {how: stall, after_characters: 3}
`), "")
		c.say("Hello.")
		c.awaitType("span.model_request_start")
		c.interruptAndDie()
		c.goOn()
		c.wantIdle("end_turn")
		c.want("model requests", c.count("span.model_request_start"), 1)
		c.check()
	})
}

// interruptAndDie interrupts the session, and the server dies before it has stopped anything.
func (c *conversation) interruptAndDie() {
	c.t.Helper()
	died := c.dieAt("interrupt-found")
	// The server may die before the client has its answer.
	if r, err := c.try(c.key(), object{"type": "user.interrupt"}); err == nil {
		r.Want(c.t, 200)
	}
	died()
}

// A session that kills its server in each model request is given up, and can be used again.
func TestRequestThatAlwaysKills(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "poison", `
steps:
  - when: {user: Hello.}
    text: Never said.
    break: {how: stall, times: 5, after_characters: 3}
`), "")
	c.say("Hello.")
	for range 5 {
		c.awaitType("span.model_request_start")
		c.restart()
	}
	c.wantIdle("retries_exhausted")
	c.want("errors", c.count("session.error"), 1)
	c.want("model requests", c.count("span.model_request_start"), 5)
	c.check()
}

// A session whose deletion is in the log is removed by the next server, with what its commands left running.
func TestDeletion(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "background", `
steps:
  - answer:
      - tool: bash
        input: {command: "sleep 1000000 >/dev/null 2>&1 & echo started"}
  - text: Finished.
`), "")
	c.say("Hello.")
	c.wantIdle("end_turn")
	c.checkLog()
	died := w.dieAt("change-appended")
	if r, err := w.client.Try("DELETE", "/v1/sessions/"+c.session, nil); err == nil {
		t.Fatalf("the server answered although it was to die before: %s", r)
	}
	died()
	w.run()
	w.client.Do(t, "GET", "/v1/sessions/"+c.session, nil).WantError(t, 404, "not_found_error")
	c.awaitRemoval()
	c.gone()
	w.client.Do(t, "DELETE", "/v1/sessions/"+c.session, nil).WantError(t, 404, "not_found_error")
	w.stop()
}

// Approvals that a session waits for are waited for by the next server, and count once.
func TestApproval(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "careful", `
steps:
  - answer:
      - tool: bash
        input: {command: echo asked >> runs}
  - text: Finished.
`), ask)
	c.say("Hello.")
	c.wantIdle("requires_action")
	call := c.find("agent.tool_use").Get("id").String()
	c.restart()
	view := c.client.Do(t, "GET", "/v1/sessions/"+c.session, nil).Want(t, 200)
	c.want("status", view.Get("status").String(), "idle")
	c.want("results", c.count("agent.tool_result"), 0)
	died := c.dieAt("change-appended")
	key := c.key()
	if r, err := c.try(key, confirm(call, "allow")); err == nil {
		t.Fatalf("the server answered although it was to die before: %s", r)
	}
	died()
	c.goOn()
	c.wantIdle("end_turn")
	again, err := c.try(key, confirm(call, "allow"))
	if err != nil {
		t.Fatal(err)
	}
	c.want("the confirmation sent again with its key", again.Status, 200)
	again, err = c.try(c.key(), confirm(call, "allow"))
	if err != nil {
		t.Fatal(err)
	}
	again.WantError(t, 400, "invalid_request_error")
	c.want("confirmations", c.count("user.tool_confirmation"), 1)
	c.check("asked")
}

// The wait for another attempt goes on over the death of the server, and is not shorter than what the provider asked for.
func TestRescheduled(t *testing.T) {
	t.Parallel()
	const wait = 3 * time.Second
	w := start(t)
	c := w.converse(w.model.script(t, "busy", `
steps:
  - text: Hello.
    fail: {times: 1, status: 429, message: busy, retry_after: 3s}
`), "")
	c.say("Hello.")
	rescheduled := c.awaitType("session.status_rescheduled")
	c.restart()
	view := c.client.Do(t, "GET", "/v1/sessions/"+c.session, nil).Want(t, 200)
	c.want("status", view.Get("status").String(), "rescheduling")
	next := c.awaitType("span.model_request_start")
	// The event is a little later than the failure from which the wait counts.
	if waited := next.Get("processed_at").Time().Sub(rescheduled.Get("processed_at").Time()); waited < wait-time.Second {
		t.Errorf("the next attempt was made after %v, and the provider asked for %v", waited, wait)
	}
	c.wantIdle("end_turn")
	c.want("requests that reached the model", len(c.model.requests(c.tag)), 2)
	c.check()
}
