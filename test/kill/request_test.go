//go:build linux

package kill

import "testing"

// A request that was logged and not made is made by the next server.
func TestBeforeRequestIsMade(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "hello", hello), "")
	c.sayThenDie("Hello.", "request-started")
	c.want("requests that reached the model", len(c.model.requests(c.tag)), 0)
	c.goOn()
	c.wantIdle("end_turn")
	c.wantRequests(2, 1)
	c.check()
}

// wantRequests checks how many requests the log has, and how many answers the model gave.
func (c *conversation) wantRequests(logged, answered int) {
	c.t.Helper()
	c.want("model requests", c.count("span.model_request_start"), logged)
	c.want("answers of the model", len(c.model.completed(c.tag)), answered)
}

// A request that was cut off is closed as failed and made again.
func TestDuringRequest(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "cut", `
defaults: {delta_size: 4}
steps:
  - text: What is said here is cut off once.
    break: {how: stall, times: 1, after_characters: 20}
`), "")
	preview := w.client.Stream(t, "/v1/sessions/"+c.session+"/events/stream?event_deltas[]=agent.message")
	c.say("Hello.")
	preview.UntilType(t, "event_delta")
	c.kill()
	c.goOn()
	c.wantIdle("end_turn")
	c.wantRequests(2, 1)
	c.want("messages of the agent", c.count("agent.message"), 1)
	c.check()
}

// An answer that was not appended is lost, and asked for again.
func TestBeforeAnswerIsAppended(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "hello", hello), "")
	c.sayThenDie("Hello.", "answer-arrived")
	c.want("answers of the model", len(c.model.completed(c.tag)), 1)
	c.goOn()
	c.wantIdle("end_turn")
	c.wantRequests(2, 2)
	c.check()
}

// An answer that is in the log is not asked for again, whether it ends the turn or calls tools.
func TestAfterAnswerIsAppended(t *testing.T) {
	t.Parallel()
	t.Run("text", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		c := w.converse(w.model.script(t, "hello", hello), "")
		c.sayThenDie("Hello.", "step-appended:2")
		c.run()
		c.wantIdle("end_turn")
		c.wantRequests(1, 1)
		c.check()
	})
	t.Run("calls", func(t *testing.T) {
		t.Parallel()
		w := start(t)
		c := w.converse(w.model.script(t, "once", once), "")
		c.sayThenDie("Hello.", "step-appended:2")
		c.goOn()
		c.wantIdle("end_turn")
		c.wantRequests(2, 2)
		c.check("once")
	})
}
