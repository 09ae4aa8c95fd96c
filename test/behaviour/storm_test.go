//go:build linux

package behaviour

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/test/harness/raw"
)

// stormScript is a model that does whatever the last message says.
const stormScript = `
rules:
  - {when: {user: both}, answer: [{tool: bash, input: {command: echo asked >> n}}, {tool: lookup, input: {}}, {tool: glob, input: {pattern: "*"}}]}
  - {when: {user: ask}, answer: [{text: May I?}, {tool: bash, input: {command: echo asked >> n}}]}
  - {when: {user: look}, answer: [{thinking: Hm.}, {tool: lookup, input: {}}]}
  - {when: {user: fail}, text: Not at once., fail: {times: 1, status: 500}}
  - {when: {user: break}, text: Not at once and not in one go., break: {times: 1, how: cut, after_characters: 5}}
  - {when: {user: slow}, text: Slow and long and slow and long and slow., delta_size: 4, delta_delay: 2ms}
otherwise: {text: "So be it, {{answer}}."}
`

// Clients that send whatever comes to their minds, at the same time, while others answer what the session waits for, cannot
// bring it out of step: the checks that end every conversation hold, and it answers afterwards.
func TestStorm(t *testing.T) {
	t.Parallel()
	for seed := range 4 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c := common.converse(t, setup{faulty: true, configs: askFirst, tools: []any{custom("lookup")}, script: stormScript})
			var senders, answerers sync.WaitGroup
			over := make(chan struct{})
			follower := c.Stream(t, c.path("/events/stream?"+deltas))
			answerers.Go(func() { c.answerAll(follower, over, rand.New(rand.NewPCG(uint64(seed), 99))) })
			for sender := range 4 {
				senders.Go(func() {
					random := rand.New(rand.NewPCG(uint64(seed), uint64(sender)))
					words := []string{"both", "ask", "look", "fail", "break", "slow", "talk"}
					for range 25 {
						events := []object{message(words[random.IntN(len(words))])}
						switch random.IntN(6) {
						case 0:
							events = []object{interrupt}
						case 1:
							events = append([]object{interrupt}, events...)
						case 2:
							c.update(object{"title": fmt.Sprint(random.Int())}).Want(t, 200)
						}
						// Messages are refused while the session waits: that is the only refusal there is.
						if r := c.post(events...); r.Status != 200 && (r.Status != 400 || !strings.Contains(r.Get("error.message").String(), "waits for")) {
							t.Errorf("%v: %s", events, r)
						}
					}
				})
			}
			senders.Wait()
			close(over)
			follower.Close()
			answerers.Wait()
			// The first of these may find messages that wait, and be answered together with them.
			for _, words := range []string{"talk at last", "are you there?"} {
				c.send(interrupt, message(words))
				taken := false
				frames := c.untilThat(func(f raw.Frame) bool {
					taken = taken || text(f) == words
					return taken && f.Event == "session.status_idle" && c.view().Get("status").String() == "idle"
				})
				if words == "are you there?" && frames[len(frames)-1].Get("stop_reason.type").String() != "end_turn" {
					t.Errorf("the session does not answer: %s", kinds(frames))
				}
			}
		})
	}
}

// answerAll answers what the session waits for, one way or another, until it is over.
func (c *conversation) answerAll(follower *raw.Stream, over <-chan struct{}, random *rand.Rand) {
	for {
		f, err := follower.Next()
		if err != nil {
			select {
			case <-over:
			default:
				c.t.Errorf("the stream broke: %v", err)
			}
			return
		}
		var event object
		switch id := f.Get("id").String(); {
		case f.Event == "agent.custom_tool_use":
			event = answer(id, "found")
		case f.Event == "agent.tool_use" && f.Get("evaluated_permission").String() == "ask":
			event = confirm(id, []string{"allow", "deny"}[random.IntN(2)])
		default:
			continue
		}
		for range 1 + random.IntN(2) {
			if r := c.post(event); r.Status != 200 && r.Status != 400 {
				c.t.Errorf("%v: %s", event, r)
			}
		}
	}
}

// A server that is stopped in the middle of anything and opened again goes on where it was.
func TestRestartInTheMiddle(t *testing.T) {
	t.Parallel()
	w := ownWorld(t, func(o *perdure.Options) { o.Retry = perdure.Retry{} })
	t.Run("during the answer", func(t *testing.T) {
		c := w.converse(t, setup{faulty: true, script: `steps: [{text: A whole answer.}]`})
		c.hold(1, 3).awaitAfter(t, func() { c.send(message("go")) })
		echo := c.send(message("queued"))[0]
		w.restart(t)
		c.follow()
		frames := c.idle("end_turn")
		want(t, c.seen, begins+"message start end message start answer end"+rests)
		if ends := all(frames, "end"); !ends[0].Get("is_error").Bool() || ends[1].Get("is_error").Bool() {
			t.Errorf("the ends are %s and %s", ends[0].Data, ends[1].Data)
		}
		if got := all(frames, "message")[1].Get("id").String(); got != echo.Get("id").String() {
			t.Errorf("the queued message came as %s", got)
		}
	})
	t.Run("during a command", func(t *testing.T) {
		c := w.converse(t, setup{script: `
steps:
  - answer: [{tool: bash, input: {command: mkfifo begun go}}]
  - answer: [{tool: bash, input: {command: "echo before; echo x >> n; echo > begun; read < go; wc -l < n"}}, {tool: bash, input: {command: "echo after"}}]
otherwise: {text: done}
`})
		c.send(message("go"))
		c.until("agent.tool_result")
		c.awaitFifo("begun")
		w.restart(t)
		c.follow()
		c.writeFifo("go")
		frames := c.idle("end_turn")
		want(t, c.seen, begins+"message start use end result start use use end result result start answer end"+rests)
		if results := all(frames, "result"); text(results[0]) != "before\n1" || text(results[1]) != "after" {
			t.Errorf("the results are %q and %q", text(results[0]), text(results[1]))
		}
	})
	t.Run("during back-off", func(t *testing.T) {
		c := w.converse(t, setup{script: `steps: [{text: At last., fail: {times: 1, status: 529, retry_after: 300ms}}]`})
		c.send(message("go"))
		c.until("session.thread_status_rescheduled")
		w.restart(t)
		c.follow()
		want(t, c.idle("end_turn"), begins+"start answer end"+rests)
		c.wantAsked(2)
	})
	t.Run("while it waits", func(t *testing.T) {
		c := w.converse(t, setup{policy: "always_ask", script: `steps: [{answer: [{tool: bash, input: {command: echo ran}}]}, {text: done}]`})
		c.send(message("go"))
		call := only(t, c.idle("requires_action"), "use").Get("id").String()
		w.restart(t)
		c.follow()
		c.refuse("waits for", message("hello?"))
		c.send(confirm(call, "allow"))
		want(t, c.idle("end_turn"), "confirmation "+begins+"result start answer end"+rests)
	})
	t.Run("with an interrupt", func(t *testing.T) {
		c := w.converse(t, setup{script: `
steps:
  - answer: [{tool: bash, input: {command: mkfifo begun}}]
  - answer: [{tool: bash, input: {command: "echo before; echo > begun; sleep 1000"}}]
otherwise: {text: done}
`})
		c.send(message("go"))
		c.until("agent.tool_result")
		c.awaitFifo("begun")
		w.restart(t)
		c.follow()
		c.send(interrupt)
		frames := c.idle("end_turn")
		if got := text(all(frames, "result")[0]); !strings.HasPrefix(got, "before\n") || !strings.Contains(got, "interrupted while it was running") {
			t.Errorf("the result is %q", got)
		}
		c.say("again")
	})
}
