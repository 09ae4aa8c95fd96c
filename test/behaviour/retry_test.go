//go:build linux

package behaviour

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model/mockserver"
)

const retries = "end error rescheduled thread-rescheduled " + begins + "start "

// Passing failures are told and the request is made again, with the same body. Nothing of the failed attempt is kept, and
// none of its calls run (C86, C87).
func TestRetries(t *testing.T) {
	t.Parallel()
	whole := "text: The whole answer."
	call := "answer: [{text: I run it.}, {tool: bash, input: {command: echo x >> n; wc -l < n}}]"
	for name, test := range map[string]struct{ step, class, says string }{
		"overloaded":           {whole + ", fail: {times: 2, status: 529}", "model_overloaded_error", ""},
		"rate limit":           {whole + ", fail: {times: 2, status: 429, retry_after: 30ms}", "model_rate_limited_error", ""},
		"server error":         {whole + ", fail: {times: 2, status: 500}", "model_request_failed_error", ""},
		"cut in the text":      {whole + ", break: {times: 2, how: cut, after_characters: 5}", "model_request_failed_error", ""},
		"end before the stop":  {whole + ", break: {times: 2, how: end, before_stop: true}", "model_request_failed_error", ""},
		"cut before anything":  {whole + ", break: {times: 2, how: cut}", "model_request_failed_error", ""},
		"error event":          {whole + ", break: {times: 2, how: error, after_characters: 5}", "model_overloaded_error", ""},
		"error before content": {whole + ", break: {times: 2, how: error, type: api_error}", "model_request_failed_error", ""},
		"cut in the input":     {call + ", break: {times: 2, how: cut, after_characters: 20}", "model_request_failed_error", "1"},
		"error after a call":   {call + ", break: {times: 2, how: error, after_blocks: 2}", "model_overloaded_error", "1"},
		"end after a call":     {call + ", break: {times: 2, how: end, before_stop: true}", "model_request_failed_error", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := common.converse(t, setup{faulty: true, script: "steps: [{" + test.step + "}, {text: done}]"})
			frames := c.say("go")
			if test.says == "" {
				want(t, frames, begins+"message start "+retries+retries+"answer end"+rests)
			} else {
				want(t, frames, begins+"message start "+retries+retries+"answer use end result start answer end"+rests)
				if got := strings.TrimSpace(text(only(t, frames, "result"))); got != test.says {
					t.Errorf("the command ran %s times", got)
				}
			}
			for _, e := range all(frames, "error") {
				if e.Get("error.type").String() != test.class || e.Get("error.retry_status").Raw != `{"type":"retrying"}` || e.Get("error.message").String() == "" {
					t.Errorf("the error is %s", e.Data)
				}
			}
			ends := all(frames, "end")
			for i, e := range ends {
				if failed := e.Get("is_error").Bool(); failed != (i < 2) {
					t.Errorf("the end of request %d is %s", i+1, e.Data)
				}
			}
			requests := c.requests()
			if string(requests[0].Body) != string(requests[1].Body) || string(requests[1].Body) != string(requests[2].Body) {
				t.Error("an attempt was made again with another body")
			}
		})
	}
}

// A provider that says how long to wait is asked no earlier.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `steps: [{text: ok, delay: 150ms, fail: {times: 1, status: 429, retry_after: 400ms}}]`})
	frames := c.say("go")
	at := func(name string, i int) time.Time {
		moment, err := time.Parse(time.RFC3339Nano, all(frames, name)[i].Get("processed_at").String())
		if err != nil {
			t.Fatal(err)
		}
		return moment
	}
	if waited := at("start", 1).Sub(at("end", 0)); waited < 390*time.Millisecond {
		t.Errorf("the request was made again after %v", waited)
	}
	// Both attempts are running time, and the wait is not.
	active, whole := only(t, frames, "usage").Get("usage.active_seconds").Float(), at("idle", 0).Sub(at("running", 0)).Seconds()
	if active < 0.299 || active > whole-0.39 {
		t.Errorf("%v s of %v s are counted as running", active, whole)
	}
}

// When the attempts are used up the turn ends, and what was queued is part of the history and answered with the next
// message.
func TestRetriesExhausted(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
rules: [{when: {user: last}, text: I am back.}]
otherwise: {fail: {status: 529}}
`})
	gate := c.hold(3, 0)
	c.send(message("one"))
	gate.await(t)
	c.send(message("two"))
	gate.release()
	frames := c.idle("retries_exhausted")
	want(t, frames, begins+"message start "+retries+retries+"end error message"+rests)
	errors := all(frames, "error")
	if last := errors[len(errors)-1]; last.Get("error.retry_status.type").String() != "exhausted" || last.Get("error.type").String() != "model_overloaded_error" {
		t.Errorf("the last error is %s", last.Data)
	}
	c.wantAsked(3)
	want(t, c.say("last"), begins+"message start answer end"+rests)
	if got := c.last(4).Get("content.#.text").Raw; got != `["one","two","last"]` {
		t.Errorf("the model was told %s", got)
	}
}

// What cannot get better is not tried again, and does not lock the session.
func TestLastingFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		class  string
	}{{400, "model_request_failed_error"}, {401, "model_request_failed_error"}, {403, "model_request_failed_error"},
		{404, "model_request_failed_error"}, {413, "model_request_failed_error"}, {402, "billing_error"}} {
		t.Run(fmt.Sprint(test.status), func(t *testing.T) {
			t.Parallel()
			// The provider says the key, as some do: it must not get any further.
			c := common.converse(t, setup{script: fmt.Sprintf(`
rules: [{when: {user: again}, text: I am back.}]
otherwise: {fail: {status: %d, message: "no, not with %s"}}
`, test.status, providerKey)})
			c.send(message("go"))
			frames := c.idle("retries_exhausted")
			want(t, frames, begins+"message start end error"+rests)
			e := only(t, frames, "error")
			if e.Get("error.type").String() != test.class || e.Get("error.retry_status.type").String() != "exhausted" {
				t.Errorf("the error is %s", e.Data)
			}
			if strings.Contains(e.Data, providerKey) {
				t.Errorf("the error tells the key: %s", e.Data)
			}
			c.say("go again")
			c.wantAsked(2)
		})
	}
}

// Attempts that were broken off are paid for as far as the provider said so, and counted once.
func TestUsageOfFailedAttempts(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{faulty: true, script: `
steps:
  - {text: The whole answer., usage: {input: 100, output: 50, cache_read: 7}, break: {times: 1, how: cut, after_characters: 5}}
`})
	frames := c.say("go")
	ends := all(frames, "end")
	if got := ends[0].Get("model_usage.input_tokens").Int(); got != 100 {
		t.Errorf("the failed attempt used %s", ends[0].Get("model_usage").Raw)
	}
	if got := ends[1].Get("model_usage"); got.Get("input_tokens").Int() != 100 || got.Get("output_tokens").Int() != 50 || got.Get("cache_read_input_tokens").Int() != 7 {
		t.Errorf("the attempt that succeeded used %s", got.Raw)
	}
	if r := c.requests(); r[0].Outcome != mockserver.Broken || r[1].Outcome != mockserver.Complete {
		t.Errorf("outcomes %s and %s", r[0].Outcome, r[1].Outcome)
	}
}

// A model that falls silent does not make the session deaf (C91). That silence itself ends an attempt is tested where the
// limits can be set, in the model's client.
func TestInterruptOfSilentModel(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stall", "pings"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := common.converse(t, setup{faulty: true, follow: "&event_deltas[]=agent.message", script: `
rules: [{when: {user: again}, text: I am back.}]
otherwise: {text: This is where it stops., break: {how: ` + how + `, after_characters: 10}}
`})
			c.send(message("go"))
			c.until("event_delta")
			within(t, 2*time.Second, "an interrupt", func() {
				c.send(interrupt)
				c.idle("end_turn")
			})
			c.awaitGone()
			c.say("go again")
		})
	}
}

// A refusal ends the turn with its reason, and drops the calls that came with it.
func TestRefusal(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - {answer: [{text: I will}, {tool: bash, input: {command: touch ran}}], refusal: {category: cyber, explanation: Not this.}}
  - text: Gladly.
`})
	c.send(message("go"))
	frames := c.idle("refusal")
	want(t, frames, begins+"message start answer end"+rests)
	for _, name := range []string{"thread-idle", "idle"} {
		rest := only(t, frames, name)
		if rest.Get("stop_details").Raw != `{"type":"refusal","category":"cyber","explanation":"Not this."}` || rest.Get("stop_reason").Raw != `{"type":"refusal"}` {
			t.Errorf("the rest is %s", rest.Data)
		}
	}
	c.say("something else")
	if _, err := os.Stat(c.workspace("ran")); err == nil {
		t.Error("a call of a refusal ran")
	}
}

// A call that was cut off by the limit of the answer does not run; the model is told, and does not go on for ever (C88).
func TestTruncatedCalls(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
rules: [{when: {user: again}, text: I am back.}]
otherwise:
  answer: [{tool: bash, input: {command: echo whole}}, {tool: bash, raw_input: '{"command":"touch cut'}]
  stop: max_tokens
`})
	c.send(message("go"))
	frames := c.idle("retries_exhausted")
	round := "start use use end result result "
	want(t, frames, begins+"message "+round+round+round+"error"+rests)
	if e := only(t, frames, "error"); e.Get("error.type").String() != "tool_use_limit_reached_error" || e.Get("error.retry_status.type").String() != "exhausted" {
		t.Errorf("the error is %s", e.Data)
	}
	uses, results := all(frames, "use"), map[string]string{}
	for _, r := range all(frames, "result") {
		results[r.Get("tool_use_id").String()] = text(r)
	}
	for i, use := range uses {
		switch got := results[use.Get("id").String()]; {
		case i%2 == 0 && got != "whole":
			t.Errorf("a whole call has the result %q", got)
		case i%2 == 1 && !strings.Contains(got, "cut off"):
			t.Errorf("a call that was cut off has the result %q", got)
		}
	}
	if _, err := os.Stat(c.workspace("cut")); err == nil {
		t.Error("a call that was cut off ran")
	}
	c.say("go again")
	c.wantAsked(4)
}

// Text that was cut off ends the turn.
func TestTruncatedText(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - {text: This is half of, stop: max_tokens}
  - {answer: [{thinking: Only thoughts}], stop: max_tokens}
  - text: whole
`})
	want(t, c.say("go"), begins+"message start answer end"+rests)
	want(t, c.say("on"), begins+"message start thinking end"+rests)
	c.say("and on")
}

// A model that uses tools without end is stopped (C92, C95), and the session can be used.
func TestEndlessToolUse(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
rules: [{when: {user: again}, text: I am back.}]
otherwise: {answer: [{tool: glob, input: {pattern: "*"}}]}
`})
	c.send(message("go"))
	frames := c.idle("retries_exhausted")
	want(t, frames, begins+"message "+strings.Repeat("start use end result ", c.options.RequestsPerTurn)+"error"+rests)
	if e := only(t, frames, "error"); e.Get("error.type").String() != "tool_use_limit_reached_error" {
		t.Errorf("the error is %s", e.Data)
	}
	c.wantAsked(c.options.RequestsPerTurn)
	c.say("go again")
}
