//go:build linux

package kill

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// Environment variables that steer TestRandom: how often the server is killed, and where the choices begin.
const (
	killsVariable = "KILLS"
	seedVariable  = "KILL_SEED"
)

// killsOfWorld is how often one server is killed. More kills need more servers, so that no session grows too long.
const killsOfWorld = 100

// The server is killed at any moment while several sessions work. Nothing that it acknowledged is lost, nothing is done
// twice, and every session ends its turns.
func TestRandom(t *testing.T) {
	t.Parallel()
	kills := number(t, killsVariable, 200)
	seed := uint64(number(t, seedVariable, int(time.Now().UnixNano())))
	for world := 0; world*killsOfWorld < kills; world++ {
		t.Run(fmt.Sprintf("%s=%d", seedVariable, seed+uint64(world)), func(t *testing.T) {
			t.Parallel()
			killAtRandom(t, min(killsOfWorld, kills-world*killsOfWorld), seed+uint64(world))
		})
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// busy is a script whose turns have four answers: a command, two commands and a call of the client's tool at once, a
// command that takes some time, and a text. Each command writes a line of its own.
func busy() string {
	var b strings.Builder
	b.WriteString("defaults: {delta_size: 8, delta_delay: 1ms}\nsteps:\n")
	command := func(line, before string) {
		fmt.Fprintf(&b, "      - tool: bash\n        input: {command: \"%secho %s >> runs\"}\n", before, line)
	}
	for i := range 500 {
		fmt.Fprintf(&b, "  - answer:\n      - thinking: Turn %d begins.\n      - text: I begin with turn %d.\n", i, i)
		command(fmt.Sprintf("%d.a", i), "")
		b.WriteString("  - answer:\n")
		command(fmt.Sprintf("%d.b", i), "")
		b.WriteString("      - tool: get_weather\n        input: {}\n")
		command(fmt.Sprintf("%d.c", i), "")
		b.WriteString("  - answer:\n")
		command(fmt.Sprintf("%d.d", i), "sleep 0.1; ")
		fmt.Fprintf(&b, "  - text: That was turn %d.\n", i)
	}
	return b.String()
}

func killAtRandom(t *testing.T, kills int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, seed))
	w := start(t)
	busy := w.model.script(t, "busy", busy())
	var users sync.WaitGroup
	var enough atomic.Bool
	var all []*conversation
	for i := range 5 {
		policy := ""
		if i == 0 {
			policy = ask
		}
		c := w.converse(busy, policy, weather)
		all = append(all, c)
		users.Go(func() {
			for n := 0; !enough.Load() && !t.Failed(); n++ {
				if err := c.turn(n); err != nil {
					t.Errorf("session %s: %v", c.session, err)
				}
			}
		})
	}
	var waits []time.Duration
	for range kills {
		w.awaitEvents(random.IntN(30))
		<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond) // the moment of the kill is what is random
		w.kill()
		if random.IntN(4) == 0 {
			killOne(all, random)
		}
		began := time.Now()
		w.run()
		w.awaitEvents(1)
		waits = append(waits, time.Since(began))
		if t.Failed() {
			break
		}
	}
	enough.Store(true)
	users.Wait()
	slices.Sort(waits)
	t.Logf("from the start of the process to the first event of any session: median %v, longest %v, of %d",
		waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond), len(waits))
	if t.Failed() {
		return
	}
	for _, c := range all {
		c.answers("before another kill")
	}
	w.restart()
	for _, c := range all {
		c.answers("after another kill")
		c.checkRuns()
		c.checkLog()
		c.checkUsage()
		c.remove()
	}
	w.stop()
}

// killOne kills the sandbox of one session, if it has one.
func killOne(all []*conversation, random *rand.Rand) {
	c := all[random.IntN(len(all))]
	if _, err := os.Stat(filepath.Join(c.dir(), "sock")); err == nil {
		c.killSupervisor()
	}
}

// turn is what a user does: says something, and answers what the session asks for until it rests.
func (c *conversation) turn(n int) error {
	if err := c.deliver(c.words(fmt.Sprintf("Turn %d.", n))); err != nil {
		return err
	}
	for {
		idle, err := c.next("the end of the turn", func(e event) bool { return e.kind == "session.status_idle" })
		if err != nil {
			return err
		}
		switch reason := idle.Get("stop_reason"); reason.Get("type").String() {
		case "end_turn":
			return nil
		case "retries_exhausted": // right if the server died in five requests in a row
			return c.lostInARow(5)
		case "requires_action":
			if err := c.answer(reason.Get("event_ids").Array()); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the session is idle because of %s", reason)
		}
	}
}

// answer answers the calls that the session waits for, all at once.
func (c *conversation) answer(calls []gjson.Result) error {
	kinds := map[string]string{}
	events, _, _ := c.follower.from(0)
	for _, e := range events {
		kinds[e.id()] = e.kind
	}
	var answers []object
	for _, call := range calls {
		if kinds[call.String()] == "agent.custom_tool_use" {
			answers = append(answers, result(call.String(), "sunny"))
		} else {
			answers = append(answers, confirm(call.String(), "allow"))
		}
	}
	return c.deliver(answers...)
}

// lostInARow checks that the last n model requests all failed.
func (c *conversation) lostInARow(n int) error {
	events, _, _ := c.follower.from(0)
	failed := 0
	for _, e := range events[:c.awaited] {
		if e.kind == "span.model_request_end" {
			if failed++; !e.Get("is_error").Bool() {
				failed = 0
			}
		}
	}
	if failed < n {
		return fmt.Errorf("the turn was given up after %d failed requests", failed)
	}
	return nil
}

// checkRuns checks the lines that the session's commands wrote: one for each that ended well, at most one for each whose
// outcome is unknown, none for any other.
func (c *conversation) checkRuns() {
	c.t.Helper()
	wrote := map[string]int{}
	for _, line := range c.printed() {
		wrote[line]++
	}
	lines, unknown := map[string]string{}, 0
	for _, e := range c.log() {
		switch e.Get("type").String() {
		case "agent.tool_use":
			if command, writes := strings.CutSuffix(e.Get("input.command").String(), " >> runs"); writes {
				_, lines[e.Get("id").String()], _ = strings.Cut(command, "echo ")
			}
		case "agent.tool_result":
			line, known := lines[e.Get("tool_use_id").String()]
			if !known {
				continue
			}
			n := wrote[line]
			delete(wrote, line)
			switch text := e.Get("content.0.text").String(); {
			case !e.Get("is_error").Bool():
				c.want("runs of "+line, n, 1)
			case strings.Contains(text, "outcome is unknown"):
				unknown++
				if n > 1 {
					c.t.Errorf("the command of %s ran %d times", line, n)
				}
			default:
				c.t.Errorf("the command of %s failed: %s", line, e.Raw)
			}
		}
	}
	if len(wrote) > 0 {
		c.t.Errorf("commands ran that the log does not have: %v", wrote)
	}
	c.t.Logf("session %s: %d commands, %d of them with an unknown outcome, %d model requests", c.session, len(lines), unknown, c.count("span.model_request_start"))
}
