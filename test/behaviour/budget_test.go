//go:build linux

package behaviour

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/test/harness/raw"
)

func budget(cents string) object {
	return object{"budget": object{"type": "limit", "max_list_cost": object{"amount": cents, "currency": "USD"}}}
}

// dollar is what one answer of these scripts costs.
const dollar = "usage: {output: 100000}"

// threeDollars makes three requests.
const threeDollars = `
steps:
  - {answer: [{tool: bash, input: {command: echo 1 >> n}}], ` + dollar + `}
  - {answer: [{tool: bash, input: {command: echo 2 >> n; cat n}}], ` + dollar + `}
otherwise: {text: done, ` + dollar + `}
`

func (c *conversation) update(change object) *raw.Response {
	c.t.Helper()
	return c.Do(c.t, "POST", c.path(""), change)
}

func (c *conversation) wantCode(r *raw.Response, code string) {
	c.t.Helper()
	r.WantError(c.t, 400, "invalid_request_error")
	if got := r.Get("error.details.error_code").String(); got != code {
		c.t.Errorf("error_code %q, want %q: %s", got, code, r.Body)
	}
}

// The budget is looked at before each request: the one that crosses it is finished, its calls run, and the next is not
// made. A higher budget lets the work go on where it was.
func TestBudget(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{name: "priced-", session: budget("150"), script: threeDollars})
	c.send(message("go"))
	frames := c.idle("budget_reached")
	want(t, frames, begins+"message start use end result start use end result"+rests)
	if got := only(t, frames, "thread-idle").Get("stop_reason").Raw; got != `{"type":"budget_reached"}` {
		t.Errorf("the thread rests because of %s", got)
	}
	usage := only(t, frames, "usage")
	if got := usage.Get("usage.list_cost").Raw; got != `{"amount":"200","currency":"USD"}` {
		t.Errorf("list_cost %s", got)
	}
	if got := usage.Get("budget").Raw; got != `{"type":"limit","max_list_cost":{"amount":"150","currency":"USD"}}` {
		t.Errorf("budget %s", got)
	}
	c.wantAsked(2)
	c.refuse("budget", message("go on"))
	before := len(c.log())
	c.send(interrupt) // is taken, and does nothing
	if after := len(c.log()); after != before {
		t.Errorf("an interrupt left %d events", after-before)
	}

	c.wantCode(c.update(budget("200")), "budget_not_raised")
	c.wantCode(c.update(budget("100")), "budget_not_raised")
	for _, amount := range []string{"0", "-5", "1.5", "007", ""} {
		c.update(budget(amount)).WantError(t, 400, "invalid_request_error")
	}
	if got := c.update(budget("1000")).Want(t, 200).Get("budget.max_list_cost.amount").String(); got != "1000" {
		t.Errorf("the budget is %s", got)
	}
	frames = c.idle("end_turn")
	want(t, frames, "updated "+begins+"start answer end"+rests)
	if got := only(t, frames, "updated"); got.Get("budget.max_list_cost.amount").String() != "1000" || got.Get("title").Exists() || got.Get("agent").Exists() {
		t.Errorf("the update is told as %s", got.Data)
	}
	c.wantAsked(3)
	// It may be lowered, as long as it is more than was spent.
	c.update(budget("500")).Want(t, 200)
	c.wantCode(c.update(budget("300")), "budget_not_raised")
	c.say("more")
}

// A budget that is removed is removed for good, and binds no more.
func TestBudgetRemoved(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{name: "priced-", session: budget("100"), script: threeDollars})
	c.send(message("go"))
	want(t, c.idle("budget_reached"), begins+"message start use end result"+rests)
	c.update(object{"budget": nil}).Want(t, 200)
	frames := c.idle("end_turn")
	want(t, frames, "updated "+begins+"start use end result start answer end"+rests)
	if got := only(t, frames, "updated").Get("budget"); got.Raw != "null" {
		t.Errorf("the removal is told as %s", got.Raw)
	}
	if got := text(all(c.seen, "result")[1]); got != "1\n2" {
		t.Errorf("the commands left %q", got)
	}
	c.wantCode(c.update(budget("5000")), "budget_create_only")
	if got := c.view().Get("budget").Raw; got != "null" {
		t.Errorf("the budget is %s", got)
	}
}

// What is open is waited for before the budget is spoken of, and can be answered at the budget; then the session rests at
// it, without another request.
func TestBudgetWithOpenCall(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{name: "priced-", session: budget("100"), policy: "always_ask", script: threeDollars})
	c.send(message("go"))
	call := only(t, c.idle("requires_action"), "use").Get("id").String()
	c.send(confirm(call, "allow"))
	want(t, c.idle("budget_reached"), "confirmation "+begins+"result"+rests)
	c.wantAsked(1)
	// Raised while the session rests at it, by too little for the next two.
	c.update(budget("150")).Want(t, 200)
	frames := c.idle("requires_action")
	want(t, frames, "updated "+begins+"start use end"+rests)
	c.send(interrupt)
	want(t, c.idle("end_turn"), "interrupt result"+rests)
	c.wantAsked(2)
}

// A message that is queued when the budget is reached is not lost.
func TestBudgetWithQueuedMessage(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{name: "priced-", session: budget("100"), script: `otherwise: {text: done, ` + dollar + `}`})
	gate := c.hold(1, 0)
	c.send(message("one"))
	gate.await(t)
	c.send(message("two"))
	gate.release()
	want(t, c.idle("end_turn"), begins+"message start answer end"+rests)
	want(t, c.idle("budget_reached"), strings.TrimSpace(begins)+rests)
	c.wantAsked(1)
	c.update(budget("1000")).Want(t, 200)
	want(t, c.idle("end_turn"), "updated "+begins+"message start answer end"+rests)
	if got := c.last(2).Get("content.0.text").String(); got != "two" || len(all(c.seen, "message")) != 2 {
		t.Errorf("the model was told %s", c.last(2).Raw)
	}
}

// A model without a list price cannot have a budget.
func TestBudgetWithoutPrice(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {text: done}`})
	view := c.view()
	body := object{"agent": view.Get("agent.id").String(), "environment_id": view.Get("environment_id").String()}
	for key, value := range budget("100") {
		body[key] = value
	}
	c.wantCode(c.Do(t, "POST", "/v1/sessions", body), "model_not_budgetable")
	frames := c.say("go")
	if got := only(t, frames, "usage").Get("usage.list_cost").Raw; got != "null" {
		t.Errorf("the cost of a model without a price is %s", got)
	}
}

// The reference bill of the requirements: what the tokens cost is measured through the whole server, and what the minutes
// cost is added by the same arithmetic, because no test can wait for them.
func TestReferenceBill(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{name: "priced-", script: `
steps:
  - {answer: [{tool: bash, input: {command: "true"}}], usage: {input: 10000, cache_read: 40000, output: 2000}}
  - {text: done, usage: {input: 30000, cache_read: 100000, output: 10000}}
`})
	frames := c.say("go")
	usage := only(t, frames, "usage").Get("usage")
	for path, want := range map[string]int64{
		"input_tokens": 40_000, "cache_read_input_tokens": 140_000, "output_tokens": 12_000,
		"cache_creation.ephemeral_5m_input_tokens": 0, "server_tool_use.web_search_requests": 0,
		"list_cost.amount": 23, // 8 + 2.8 + 12 cents, and a blink of running time
	} {
		if got := usage.Get(path).Int(); got != want {
			t.Errorf("%s is %d, want %d", path, got, want)
		}
	}
	bill := session.State{
		Usage:       session.Usage{Input: 40_000, CacheRead: 140_000, Output: 12_000, Cost: session.Cents(228) / 10},
		ActiveNanos: (14 * time.Minute).Nanoseconds(),
		Config:      &session.Config{RuntimeRate: session.Cents(8)},
	}
	if got := bill.CostAt(time.Now().Add(8 * time.Minute)); got.RoundedCents() != 25 || got-bill.Usage.Cost != session.Cents(8)*14/60 {
		t.Errorf("the bill is %s", got)
	}
}

// Running time is counted exactly as told, at the configured rate, and rest costs nothing.
func TestRunningTime(t *testing.T) {
	t.Parallel()
	const centsPerHour = 250_000.0
	w := ownWorld(t, func(o *perdure.Options) { o.RuntimeCentsPerHour = centsPerHour })
	c := w.converse(t, setup{name: "priced-", script: `
steps:
  - {answer: [{tool: bash, input: {command: sleep 0.3}}], usage: {input: 1000000}}
otherwise: {text: done, delay: 100ms, usage: {output: 1000}}
`})
	active := 0.0
	for turn, tokens := range []float64{201, 202, 203} {
		usage := only(t, c.say("go"), "usage").Get("usage")
		seconds := usage.Get("active_seconds").Float()
		if want := fmt.Sprint(math.Floor(tokens + seconds*centsPerHour/3600 + 0.5)); usage.Get("list_cost.amount").String() != want {
			t.Errorf("turn %d: list_cost %s after %v s, want %s", turn+1, usage.Get("list_cost.amount"), seconds, want)
		}
		least := map[int]float64{0: 0.4, 1: 0.1, 2: 0.1}[turn]
		if seconds < active+least {
			t.Errorf("turn %d: %v s after %v s", turn+1, seconds, active)
		}
		active = seconds
		view := c.view()
		if got := view.Get("usage.active_seconds").Float(); math.Abs(got-active) > 0.005 {
			t.Errorf("at rest the session counts %v s, and counted %v s when it came to rest", got, active)
		}
		if got, want := view.Get("stats.active_seconds").Float(), view.Get("usage.active_seconds").Float(); got != want {
			t.Errorf("stats count %v s, usage %v s", got, want)
		}
		thread := w.Do(t, "GET", c.path("/threads/"+c.thread), nil).Want(t, 200)
		if got := thread.Get("usage.list_cost.amount").String(); got != fmt.Sprint(tokens) {
			t.Errorf("the thread costs %s, want %v: running time is not in it", got, tokens)
		}
	}
	if _, err := os.Stat(c.sandboxDir()); err != nil {
		t.Error(err)
	}
}

// Updates never fail a turn, and change only what they say.
func TestUpdate(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {text: done}`, session: object{"title": "first", "metadata": object{"a": "1", "b": "2"}}})
	r := c.update(object{"title": "second", "metadata": object{"a": nil, "c": "3"}}).Want(t, 200)
	if r.Get("title").String() != "second" || r.Get("metadata").Raw != `{"b":"2","c":"3"}` {
		t.Errorf("the session is %s", r.Body)
	}
	frames := c.until("session.updated")
	want(t, frames, "updated")
	if got := frames[0]; got.Get("title").String() != "second" || got.Get("metadata").Raw != `{"b":"2","c":"3"}` || got.Get("agent").Exists() || got.Get("budget").Exists() {
		t.Errorf("the update is told as %s", got.Data)
	}
	c.update(object{"title": "second", "metadata": object{"b": "2", "gone": nil}}).Want(t, 200) // changes nothing
	c.update(object{}).Want(t, 200)
	c.update(object{"metadata": object{"b": nil, "c": nil}}).Want(t, 200)
	frames = c.until("session.updated")
	want(t, frames, "updated")
	if frames[0].Get("title").Exists() || frames[0].Get("metadata").Exists() {
		t.Errorf("the clearing of metadata is told as %s", frames[0].Data)
	}
	c.update(object{"title": nil}).Want(t, 200)
	if got := c.until("session.updated")[0].Get("title"); got.Raw != "null" {
		t.Errorf("the clearing of the title is told as %s", got.Raw)
	}
}

// Side writes while the session waits, and while the model answers, do not disturb the turn (C17).
func TestUpdatesDuringTurn(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{policy: "always_ask", script: `steps: [{answer: [{tool: bash, input: {command: echo ran}}]}, {text: done}]`})
	c.send(message("go"))
	call := only(t, c.idle("requires_action"), "use").Get("id").String()
	for i := range 30 {
		c.update(object{"title": fmt.Sprint(i), "metadata": object{"n": fmt.Sprint(i)}}).Want(t, 200)
	}
	gate := c.hold(2, 2)
	c.send(confirm(call, "allow"))
	gate.await(t)
	for i := range 30 {
		c.update(object{"metadata": object{"n": fmt.Sprint(100 + i)}}).Want(t, 200)
	}
	gate.release()
	frames := c.idle("end_turn")
	if len(all(frames, "updated")) != 60 || len(all(frames, "answer")) != 1 || len(all(frames, "error")) != 0 {
		t.Error(kinds(frames))
	}
	if got := c.view(); got.Get("metadata.n").String() != "129" || got.Get("title").String() != "29" {
		t.Errorf("the session is %s", got.Body)
	}
}

// The tools of a session change only while it rests, from the next turn on, and not in the agent.
func TestUpdateOfTools(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{changed: true, script: `
steps:
  - text: one
  - answer: [{tool: lookup, input: {}}]
otherwise: {text: done}
`})
	gate := c.hold(1, 0)
	c.send(message("go"))
	gate.await(t)
	tools := object{"agent": object{"tools": []any{custom("lookup"), object{"type": "agent_toolset_20260401", "default_config": object{"enabled": false},
		"configs": []object{{"name": "read", "enabled": true}}}}}}
	r := c.update(tools).WantError(t, 400, "invalid_request_error")
	if !strings.Contains(r.Get("error.message").String(), "idle") {
		t.Errorf("the refusal says %s", r.Get("error.message"))
	}
	gate.release()
	c.idle("end_turn")
	c.update(tools).Want(t, 200)
	frames := c.until("session.updated")
	want(t, frames, "updated")
	if got := frames[0]; got.Get("agent.tools.#").Int() != 2 || got.Get("agent.tools.0.name").String() != "lookup" || got.Get("agent.id").String() == "" ||
		got.Get("agent.model.id").String() != c.model || got.Get("title").Exists() || got.Get("metadata").Exists() {
		t.Errorf("the update is told as %s", got.Data)
	}
	c.update(tools).Want(t, 200) // again: changes nothing
	c.send(message("look it up"))
	frames = c.idle("requires_action")
	want(t, frames, begins+"message start custom-use end"+rests)
	c.send(answer(only(t, frames, "custom-use").Get("id").String(), "found"))
	c.idle("end_turn")
	for i, want := range map[int]string{1: "bash", 2: "lookup"} {
		if body := string(c.requests()[i-1].Body); !strings.Contains(body, `"name":"`+want+`"`) {
			t.Errorf("request %d does not offer %s", i, want)
		}
	}
	if strings.Contains(string(c.requests()[1].Body), `"name":"bash"`) {
		t.Error("a tool that was taken away is offered")
	}
	agent := c.Do(t, "GET", "/v1/agents/"+c.view().Get("agent.id").String(), nil).Want(t, 200)
	if agent.Get("tools.#").Int() != 1 || agent.Get("version").Int() != 1 {
		t.Errorf("the agent was changed: %s", agent.Body)
	}
}

// A tool that was taken away while its call waited does not run when the call is confirmed (C92).
func TestToolTakenAwayWhileItWaits(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{changed: true, policy: "always_ask", tools: []any{custom("lookup")}, script: `
steps: [{answer: [{tool: bash, input: {command: touch ran}}, {tool: lookup, input: {}}]}, {answer: [{tool: lookup, input: {}}]}]
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.idle("requires_action")
	c.update(object{"agent": object{"tools": []any{}}}).Want(t, 200)
	c.send(confirm(only(t, frames, "use").Get("id").String(), "allow"), answer(only(t, frames, "custom-use").Get("id").String(), "found"))
	frames = c.idle("end_turn")
	want(t, frames, "updated confirmation custom-result "+begins+"result start use end result start answer end"+rests)
	for _, r := range all(frames, "result") {
		if !r.Get("is_error").Bool() || !strings.Contains(text(r), "has been denied") {
			t.Errorf("a tool that is not there any more gave %s", r.Data)
		}
	}
	if _, err := os.Stat(c.workspace("ran")); err == nil {
		t.Error("a tool that is not there any more ran")
	}
}
