//go:build linux

package kill

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const once = `
steps:
  - answer:
      - tool: bash
        input: {command: echo once >> runs}
  - text: Finished.
`

// held makes the sandbox, and then runs a command that waits for the test.
const held = `
steps:
  - answer:
      - tool: bash
        input: {command: echo first >> runs}
  - answer:
      - tool: bash
        input: {command: "echo held >> runs; touch held; until [ -e go ]; do sleep 0.05; done; echo released >> runs; echo well done"}
  - text: Finished.
`

// hold begins a session's turn and returns the call that waits for the file go.
func (c *conversation) hold() (call string) {
	c.t.Helper()
	c.say("Hello.")
	c.awaitType("agent.tool_result")
	call = c.await("the held call", func(e event) bool {
		return e.kind == "agent.tool_use" && strings.Contains(e.Get("input.command").String(), "touch held")
	}).id()
	awaitFile(c.t, c.workspace(), "held")
	return call
}

// awaitResult awaits the result of a call.
func (c *conversation) awaitResult(call string, isError bool) (text string) {
	c.t.Helper()
	e := c.await("the result of "+call, func(e event) bool { return e.kind == "agent.tool_result" && e.Get("tool_use_id").String() == call })
	if e.Get("is_error").Bool() != isError {
		c.t.Errorf("is_error of the result is not %v: %s", isError, e.Raw)
	}
	return e.Get("content.0.text").String()
}

// A call that was logged, and that the sandbox never heard of, runs once.
func TestCallIsLogged(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "once", once), "")
	c.sayThenDie("Hello.", "calls-logged")
	c.goOn()
	c.wantIdle("end_turn")
	c.wantRequests(2, 2)
	c.check("once")
}

// A command goes on while there is no server, and the next one gets its result.
func TestCallRuns(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "held", held), "")
	call := c.hold()
	c.kill()
	c.run()
	c.want("results", c.count("agent.tool_result"), 1)
	c.release("go")
	c.want("result", strings.TrimSpace(c.awaitResult(call, false)), "well done")
	c.wantIdle("end_turn")
	c.wantRequests(3, 3)
	c.check("first", "held", "released")
}

// A server that dies while it takes up what another one left does no harm either.
func TestRecoveryDies(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "held", held), "")
	call := c.hold()
	c.restart()
	died := c.dieAt("result-arrived")
	c.release("go")
	died()
	c.goOn()
	c.want("result", strings.TrimSpace(c.awaitResult(call, false)), "well done")
	c.wantIdle("end_turn")
	c.wantRequests(3, 3)
	c.check("first", "held", "released")
}

// A command that ends while there is no server has left a receipt.
func TestCallEndsWhileDead(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "held", held), "")
	call := c.hold()
	c.kill()
	c.release("go")
	awaitFile(t, filepath.Join(c.dir(), "calls"), call+".receipt")
	c.goOn()
	c.want("result", strings.TrimSpace(c.awaitResult(call, false)), "well done")
	c.wantIdle("end_turn")
	c.wantRequests(3, 3)
	c.check("first", "held", "released")
}

// A result that arrived and was not appended is asked for again; the call is not run again. One that was appended is not
// asked for again, also if the sandbox was not told so.
func TestResult(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, point string
		requests    int // the step that appends the result begins the next request
	}{{"not appended", "result-arrived", 2}, {"not acknowledged", "step-appended:3", 3}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			c := w.converse(w.model.script(t, "once", once), "")
			c.sayThenDie("Hello.", test.point)
			c.goOn()
			c.wantIdle("end_turn")
			c.wantRequests(test.requests, 2)
			c.want("results", c.count("agent.tool_result"), 1)
			c.check("once")
		})
	}
}

// A command whose sandbox was lost with the server is not run again: nobody knows what it did.
func TestSandboxDiesToo(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "held", held), "")
	call := c.hold()
	c.kill()
	c.killSupervisor()
	c.goOn()
	if text := c.awaitResult(call, true); !strings.Contains(text, "outcome is unknown") {
		t.Errorf("the result does not say that the outcome is unknown: %s", text)
	}
	c.wantIdle("end_turn")
	c.wantRequests(3, 3)
	c.release("go")
	c.check("first", "held")
}

// A call that changes nothing is run again in a new sandbox.
func TestSandboxDiesToo_Repeatable(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "read", `
steps:
  - answer:
      - tool: bash
        input: {command: "echo first >> runs; echo content > file"}
  - answer:
      - tool: read
        input: {file_path: file}
  - text: Finished.
`), "")
	// The sandbox is stopped between the two calls, so that the second begins and does not end.
	c.sayThenDie("Hello.", "step-appended:3")
	guest := holder(t, filepath.Join(c.dir(), "guest"))
	guest.signal(t, unix.SIGSTOP)
	c.run()
	call := c.await("the call of read", func(e event) bool { return e.kind == "agent.tool_use" && e.Get("name").String() == "read" }).id()
	awaitFile(t, filepath.Join(c.dir(), "calls"), call+".started")
	c.kill()
	c.killSupervisor()
	if err := guest.awaitEnd(limit); err != nil {
		t.Fatal(err)
	}
	c.goOn()
	if text := c.awaitResult(call, false); !strings.Contains(text, "content") {
		t.Errorf("the file was not read: %s", text)
	}
	c.wantIdle("end_turn")
	c.wantRequests(4, 3) // one had begun as the server died the first time
	c.check("first")
}

// What a client runs is waited for, and its result counts once.
func TestClientTool(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "weather", `
steps:
  - answer:
      - tool: get_weather
        input: {}
  - text: Finished.
`), "", weather)
	c.say("Hello.")
	c.wantIdle("requires_action")
	call := c.find("agent.custom_tool_use").Get("id").String()
	c.restart()
	c.want("status", c.client.Do(t, "GET", "/v1/sessions/"+c.session, nil).Want(t, 200).Get("status").String(), "idle")
	died := c.dieAt("change-appended")
	key := c.key()
	if r, err := c.try(key, result(call, "sunny")); err == nil {
		t.Fatalf("the server answered although it was to die before: %s", r)
	}
	died()
	c.goOn()
	c.wantIdle("end_turn")
	again, err := c.try(key, result(call, "sunny"))
	if err != nil {
		t.Fatal(err)
	}
	again.Want(t, 200)
	c.want("calls", c.count("agent.custom_tool_use"), 1)
	c.want("results", c.count("user.custom_tool_result"), 1)
	c.wantRequests(2, 2)
	c.check()
}

// Of several calls of one answer, those that have a result keep it, the one that runs goes on, and the rest runs.
func TestParallelCalls(t *testing.T) {
	t.Parallel()
	w := start(t)
	c := w.converse(w.model.script(t, "parallel", `
steps:
  - answer:
      - tool: bash
        input: {command: echo first >> runs}
      - tool: get_weather
        input: {}
      - tool: bash
        input: {command: "echo held >> runs; touch held; until [ -e go ]; do sleep 0.05; done; echo released >> runs"}
      - tool: bash
        input: {command: echo last >> runs}
  - text: Finished.
`), "", weather)
	c.say("Hello.")
	c.awaitType("agent.tool_result")
	awaitFile(t, c.workspace(), "held")
	c.restart()
	c.want("results", c.count("agent.tool_result"), 1)
	c.release("go")
	c.wantIdle("requires_action")
	c.want("results", c.count("agent.tool_result"), 3)
	c.restart()
	c.send(result(c.find("agent.custom_tool_use").Get("id").String(), "sunny"))
	c.wantIdle("end_turn")
	c.wantRequests(2, 2)
	c.check("first", "held", "released", "last")
}
