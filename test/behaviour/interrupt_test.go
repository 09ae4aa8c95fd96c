//go:build linux

package behaviour

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// within checks that something took no longer than this.
func within(t *testing.T, most time.Duration, what string, do func()) {
	t.Helper()
	began := time.Now()
	do()
	if took := time.Since(began); took > most {
		t.Errorf("%s took %v, at most %v are allowed", what, took, most)
	}
}

// awaitGone waits until the server has given up its request to the model.
func (c *conversation) awaitGone() {
	c.t.Helper()
	c.world.model.awaitTraffic(c.t, c.model, "the connection to the model was not closed", func(t *traffic) bool { return len(t.running) == 0 && t.gone })
}

// An interrupt during the answer closes the connection to the model at once, and nothing of the answer is kept (C43).
func TestInterruptDuringAnswer(t *testing.T) {
	t.Parallel()
	for name, frames := range map[string]int{"before the first byte": 0, "in the text": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := common.converse(t, setup{faulty: true, follow: "&event_deltas[]=agent.message", script: `
rules: [{when: {user: again}, text: I am here.}]
otherwise: {text: This is a long answer that will never come to its end., delta_size: 4}
`})
			gate := c.hold(1, frames)
			c.send(message("go"))
			gate.await(t)
			var echo string
			within(t, 5*time.Second, "an interrupt", func() {
				echo = c.send(interrupt)[0].Raw
				within(t, time.Second, "closing the connection", c.awaitGone)
				c.idle("end_turn")
			})
			if !strings.Contains(echo, `"processed_at":null`) {
				t.Errorf("an interrupt of a session that runs is echoed as %s", echo)
			}
			want(t, c.seen, begins+"message start interrupt end"+rests)
			if end := only(t, c.seen, "end"); end.Get("is_error").Raw != "true" {
				t.Errorf("the end of an interrupted request is %s", end.Data)
			}
			want(t, withoutPreviews(c.say("go again")), begins+"message start answer end"+rests)
			if told := c.last(len(c.requests())).Get("content.#.text").Raw; told != `["go","go again"]` {
				t.Errorf("the model was told %s", told)
			}
			c.wantAsked(2)
		})
	}
}

// An interrupt ends a command that ignores signals; what it printed is told, and that it may have had effects (C66, C67).
func TestInterruptDuringCommand(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer: [{tool: bash, input: {command: mkfifo begun}}]
  - answer:
      - {tool: bash, input: {command: "trap '' TERM INT HUP; (trap '' TERM; sleep 1000) & echo before; echo x >> n; echo now > begun; sleep 1000"}}
      - {tool: bash, input: {command: echo x >> n}}
  - answer: [{tool: bash, input: {command: "wc -l < n; ps ax | grep -c '[s]leep 1000'"}}]
otherwise: {text: done}
`})
	c.send(message("go"))
	c.until("agent.tool_result")
	c.awaitFifo("begun")
	within(t, 5*time.Second, "an interrupt", func() {
		c.send(interrupt)
		c.idle("end_turn")
	})
	want(t, c.seen, begins+"message start use end result start use use end interrupt result result"+rests)
	killed, skipped := all(c.seen, "result")[1], all(c.seen, "result")[2]
	if got := text(killed); !strings.HasPrefix(got, "before\n") || !strings.Contains(got, "interrupted while it was running") || !strings.Contains(got, "may have had effects") {
		t.Errorf("the result of a command that was interrupted is %q", got)
	}
	if got := text(skipped); strings.Contains(got, "may have had effects") {
		t.Errorf("the result of a call that did not start is %q", got)
	}
	for _, r := range []interface{ String() string }{killed.Get("is_error"), skipped.Get("is_error")} {
		if r.String() != "true" {
			t.Error("the result of an interrupted call is no error")
		}
	}
	frames := c.say("what is left?")
	if got := strings.Fields(text(only(t, frames, "result"))); len(got) < 2 || got[0] != "1" || got[1] != "0" {
		t.Errorf("lines and processes left: %v, want 1 and 0", got)
	}
}

// Denied, interrupted and timed out are told in different words (C66); a child that holds the output does not hold the
// call (C101).
func TestTimeouts(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{configs: askFirst, script: `
steps:
  - answer:
      - {tool: bash, input: {command: "trap '' TERM; echo before; sleep 300", timeout_ms: 700}}
      - {tool: bash, input: {command: "setsid sleep 300 & (trap '' TERM; sleep 300) & echo hi", timeout_ms: 30000}}
      - {tool: bash, input: {command: echo denied}}
otherwise: {text: done}
`})
	c.send(message("go"))
	calls := ids(all(c.idle("requires_action"), "use"))
	within(t, 15*time.Second, "two short calls", func() {
		c.send(confirm(calls[0], "allow"), confirm(calls[1], "allow"), confirm(calls[2], "deny"))
		c.idle("end_turn")
	})
	results := map[string]string{}
	for _, r := range all(c.seen, "result") {
		results[r.Get("tool_use_id").String()] = text(r)
	}
	if got := results[calls[0]]; !strings.HasPrefix(got, "before\n") || !strings.Contains(got, "timed out after 700ms") {
		t.Errorf("the result of a command that took too long is %q", got)
	}
	if got := results[calls[1]]; got != "hi" {
		t.Errorf("the result of a command with children is %q", got)
	}
	if got := results[calls[2]]; got != "Permission to use bash has been rejected." {
		t.Errorf("the result of a denied command is %q", got)
	}
}

// A page that never comes does not hold an interrupt.
func TestInterruptDuringFetch(t *testing.T) {
	t.Parallel()
	page := newSlowPage(t)
	c := common.converse(t, setup{script: "steps: [{answer: [" + page.fetch() + "]}, {text: Fine.}]"})
	c.send(message("go"))
	await(t, page.asked, "the page was not fetched")
	within(t, 5*time.Second, "an interrupt", func() {
		c.send(interrupt)
		c.idle("end_turn")
	})
	want(t, c.seen, begins+"message start use end interrupt result"+rests)
	c.say("again")
}

// An interrupt ends the wait between two attempts.
func TestInterruptDuringBackOff(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
rules: [{when: {user: again}, text: I am here.}]
otherwise: {fail: {status: 529, retry_after: 10m}}
`})
	c.send(message("go"))
	want(t, c.until("session.thread_status_rescheduled"), begins+"message start end error rescheduled thread-rescheduled")
	if got := c.view().Get("status").String(); got != "rescheduling" {
		t.Errorf("the session is %s", got)
	}
	within(t, 5*time.Second, "an interrupt", func() {
		c.send(interrupt)
		c.idle("end_turn")
	})
	want(t, c.seen, begins+"message start end error rescheduled thread-rescheduled interrupt"+rests)
	c.say("go again")
	c.wantAsked(2)
}

// A message that was queued before an interrupt, or sent with it, starts the next turn.
func TestMessageWithInterrupt(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{faulty: true, script: `otherwise: {text: Here.}`})
	first, second := c.hold(1, 3), c.hold(3, 3)
	c.send(message("one"))
	first.await(t)
	c.send(message("two"))
	c.send(interrupt)
	want(t, c.idle("end_turn"), begins+"message start interrupt end"+rests)
	want(t, c.idle("end_turn"), begins+"message start answer end"+rests)
	c.send(message("three"))
	second.await(t)
	echoes := c.send(interrupt, message("four"))
	if len(echoes) != 2 || echoes[1].Get("processed_at").Raw != "null" {
		t.Errorf("echoes %v", echoes)
	}
	want(t, c.idle("end_turn"), begins+"message start interrupt end"+rests)
	want(t, c.idle("end_turn"), begins+"message start answer end"+rests)
	c.wantAsked(4)
}

// An interrupt of a session that rests changes nothing but the history.
func TestInterruptWhileIdle(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {text: Here.}`})
	c.send(interrupt)
	c.say("hi")
	echo := c.send(interrupt)[0]
	if echo.Get("processed_at").Raw == "null" {
		t.Errorf("an interrupt of a session that rests is echoed as %s", echo.Raw)
	}
	if got := c.view().Get("status").String(); got != "idle" {
		t.Errorf("the session is %s", got)
	}
	c.refuse("no thread", object{"type": "user.interrupt", "session_thread_id": "sthr_011ChZnjfDFYfnrJem2Juczs"})
	c.send(object{"type": "user.interrupt", "session_thread_id": c.thread})
	want(t, c.say("hi"), "interrupt interrupt "+begins+"message start answer end"+rests)
}

// Closing the stream is no interrupt: the turn goes on (C43). A client that comes before the first byte sees that the
// session runs, and the rest (C44).
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {text: Here.}`})
	gate := c.hold(1, 0)
	c.send(message("go"))
	gate.await(t)
	c.stream.Close()
	if got := c.view().Get("status").String(); got != "running" {
		t.Errorf("the session is %s", got)
	}
	c.follow()
	live := c.Stream(t, c.path("/events/stream"))
	gate.release()
	want(t, live.UntilType(t, "session.status_idle"), "answer end"+rests)
	c.idle("end_turn")
}

// A redirect, and a name of the host itself, do not lead web_fetch to an address that it must not reach (C81).
func TestFetchOfPrivateAddress(t *testing.T) {
	t.Parallel()
	canary := make(chan string, 10)
	private := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { canary <- r.URL.Path }))
	private.Start()
	t.Cleanup(private.Close)
	w := ownWorld(t, nil)
	redirect := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest", http.StatusFound))
	t.Cleanup(redirect.Close)
	port := private.URL[strings.LastIndex(private.URL, ":"):]
	c := w.converse(t, setup{script: `
steps:
  - answer:
      - {tool: web_fetch, input: {url: "` + redirect.URL + `"}}
      - {tool: web_fetch, input: {url: "http://127.0.0.2` + port + `/a"}}
      - {tool: web_fetch, input: {url: "http://[::ffff:127.0.0.2]` + port + `/b"}}
      - {tool: web_fetch, input: {url: "http://0x7f000002` + port + `/c"}}
      - {tool: web_fetch, input: {url: "http://[::1]` + port + `/d"}}
      - {tool: web_fetch, input: {url: "file:///etc/passwd"}}
otherwise: {text: done}
`})
	results := all(c.say("go"), "result")
	if len(results) != 6 {
		t.Fatal(kinds(c.seen))
	}
	for _, r := range results {
		if !r.Get("is_error").Bool() {
			t.Errorf("an address that must not be reached gave %s", r.Data)
		}
	}
	select {
	case path := <-canary:
		t.Errorf("%s was fetched", path)
	default:
	}
}
