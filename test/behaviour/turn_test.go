//go:build linux

package behaviour

import (
	"slices"
	"strings"
	"testing"
)

func TestSimpleTurn(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `steps: [{text: Hello.}]`})
	sent := c.send(message("hi"))[0]
	frames := c.idle("end_turn")
	want(t, frames, begins+"message start answer end"+rests)

	got := frames[2]
	if got.Get("id").String() != sent.Get("id").String() || got.Get("processed_at").String() == "" || got.Data != sent.Raw {
		t.Errorf("the message is\n%s, and was echoed as\n%s", got.Data, sent.Raw)
	}
	if text(frames[4]) != "Hello." {
		t.Errorf("the answer is %s", frames[4].Data)
	}
	if end := frames[5]; end.Get("model_request_start_id").String() != frames[3].Get("id").String() || end.Get("is_error").Bool() {
		t.Errorf("the end of the request is %s", end.Data)
	}
	for _, f := range []int{1, 6} {
		if frames[f].Get("session_thread_id").String() != c.thread || frames[f].Get("agent_name").String() != c.model {
			t.Errorf("the thread's status is %s", frames[f].Data)
		}
	}
	if idle := frames[8]; idle.Get("stop_reason").Raw != `{"type":"end_turn"}` || idle.Get("stop_details").Raw != "null" {
		t.Errorf("the rest is %s", idle.Data)
	}
	if got := c.last(1).Get("content.0.text").String(); got != "hi" {
		t.Errorf("the model was asked %q", got)
	}
}

func TestToolTurn(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer: [{text: Let me see.}, {tool: bash, input: {command: echo seen}}]
  - text: "I saw {{result}}."
`})
	frames := c.say("look")
	want(t, frames, begins+"message start answer use end result start answer end"+rests)
	use, result := only(t, frames, "use"), only(t, frames, "result")
	if use.Get("name").String() != "bash" || use.Get("input").Raw != `{"command":"echo seen"}` ||
		use.Get("evaluated_permission").String() != "allow" || use.Get("evaluation").Raw != `{"type":"always_allow"}` {
		t.Errorf("the call is %s", use.Data)
	}
	if result.Get("tool_use_id").String() != use.Get("id").String() || result.Get("is_error").Bool() || text(result) != "seen" {
		t.Errorf("the result is %s", result.Data)
	}
	if last := c.last(2); last.Get("role").String() != "user" || last.Get("content.0.type").String() != "tool_result" ||
		last.Get("content.0.tool_use_id").String() != use.Get("id").String() || last.Get("content.#").Int() != 1 {
		t.Errorf("the model was told %s", last.Raw)
	}
}

// The results of parallel calls come together in the order of the calls, each with its own.
func TestParallelCalls(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer:
      - {tool: bash, input: {command: "sleep 0.2; echo one >> n; echo one"}}
      - {tool: bash, input: {command: "cat n; echo two"}}
      - {tool: write, input: {file_path: /workspace/three, content: three}}
      - {tool: read, input: {file_path: /workspace/three}}
  - text: all done
`})
	frames := c.say("go")
	want(t, frames, begins+"message start use use use use end result result result result start answer end"+rests)
	uses, results := all(frames, "use"), all(frames, "result")
	for i := range uses {
		if results[i].Get("tool_use_id").String() != uses[i].Get("id").String() || results[i].Get("is_error").Bool() {
			t.Errorf("result %d is %s", i, results[i].Data)
		}
	}
	if text(results[0]) != "one" || text(results[1]) != "one\ntwo" || !strings.Contains(text(results[3]), "three") {
		t.Errorf("results %s | %s | %s", text(results[0]), text(results[1]), text(results[3]))
	}
	if told := c.last(2).Get("content.#.tool_use_id").Array(); len(told) != 4 || told[0].String() != uses[0].Get("id").String() {
		t.Errorf("the model was told %s", c.last(2).Raw)
	}
}

// Thinking is a mark without content for clients, and comes back to the model byte for byte (the strict model checks the
// signature).
func TestThinking(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer: [{thinking: "Hm, a list. é\u0000"}, {tool: bash, input: {command: echo x}}]
  - answer: [{redacted_thinking: b3BhcXVl}, {thinking: Done.}, {text: It is x.}]
  - answer: [{thinking: Only a thought.}]
`})
	frames := c.say("what is it?")
	want(t, frames, begins+"message start thinking use end result start thinking thinking answer end"+rests)
	for _, f := range all(frames, "thinking") {
		if f.Get("thinking").Exists() || f.Get("content").Exists() {
			t.Errorf("a client sees thinking: %s", f.Data)
		}
	}
	c.say("and now?")
	c.say("really?")
	var types []string
	for _, m := range c.sent(4) {
		for _, b := range m.Get("content").Array() {
			types = append(types, b.Get("type").String())
		}
	}
	if got := strings.Join(types, " "); got != "text thinking tool_use tool_result redacted_thinking thinking text text text" {
		t.Errorf("the model was sent %s", got)
	}
}

// Blank text never reaches the model again: an answer without text ends the turn, and a blank message is refused.
func TestEmptyTexts(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
rules:
  - when: {user: hello}
    answer: [{text: ""}, {tool: bash, input: {command: "true"}}]
  - when: {user: empty}
    answer: []
  - when: {user: text of nothing}
    answer: [{text: ""}]
  - when: {user: text of blanks}
    answer: [{text: " \n "}]
otherwise: {text: I am here.}
`})
	for _, kind := range []string{"text of blanks", "text of nothing", "empty"} {
		want(t, c.say(kind), begins+"message start end"+rests)
	}
	frames := c.say("hello?")
	want(t, frames, begins+"message start use end result start answer end"+rests)
	if got := text(only(t, frames, "result")); strings.TrimSpace(got) == "" {
		t.Errorf("the result of a silent command is %q", got)
	}
	for _, blank := range []string{"", "   \n"} {
		c.refuse("text content blocks", message(blank))
	}
}

// Ids that the provider repeats are told apart (C08).
func TestRepeatedCallIDs(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer: [{tool: bash, id: tool_0, input: {command: echo 1}}]
  - answer: [{tool: bash, id: tool_0, input: {command: echo 2}}]
  - answer: [{tool: bash, id: x, input: {command: echo 3}}, {tool: bash, id: x, input: {command: echo 4}}]
  - text: done
`})
	frames := c.say("count")
	uses, results := all(frames, "use"), all(frames, "result")
	if len(uses) != 4 || len(results) != 4 {
		t.Fatal(kinds(frames))
	}
	for i := range uses {
		if results[i].Get("tool_use_id").String() != uses[i].Get("id").String() || text(results[i]) != string(rune('1'+i)) {
			t.Errorf("result %d is %s", i, results[i].Data)
		}
	}
	distinct := ids(uses)
	slices.Sort(distinct)
	if len(slices.Compact(distinct)) != 4 {
		t.Errorf("calls share ids: %v", ids(uses))
	}
}

// The call of a tool that there is not, or that is not enabled, is recorded and refused, and the turn goes on (C02).
func TestToolThatMustNotRun(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{
		configs: []object{{"name": "bash", "enabled": false}},
		script: `
steps:
  - answer: [{tool: bash, input: {command: echo x > /workspace/ran}}, {tool: nonsense, input: {}}, {tool: bash, raw_input: '[1]'}, {tool: read, raw_input: '{"file_path": '}]
  - answer: [{tool: glob, input: {pattern: "*"}}]
  - text: I cannot.
`})
	frames := c.say("try")
	want(t, frames, begins+"message start use use use use end result result result result start use end result start answer end"+rests)
	for _, use := range all(frames, "use")[:2] {
		if use.Get("evaluated_permission").String() != "deny" || use.Get("evaluation").Exists() {
			t.Errorf("the call is %s", use.Data)
		}
	}
	results := all(frames, "result")
	for i, use := range all(frames, "use")[:4] {
		r := results[slices.Index(tools(results), use.Get("id").String())]
		if !r.Get("is_error").Bool() {
			t.Errorf("a call that must not run has the result %s", r.Data)
		}
		if want := "Permission to use " + use.Get("name").String() + " has been denied."; i < 2 && text(r) != want {
			t.Errorf("the result is %q, want %q", text(r), want)
		}
	}
	if strings.Contains(text(results[4]), "ran") {
		t.Errorf("a disabled tool ran: %s", text(results[4]))
	}
	offered := c.requests()[0].Body
	if strings.Contains(string(offered), `"name":"bash"`) {
		t.Error("a disabled tool is offered to the model")
	}
}

// Calls count for more than the reason with which the model stopped; every other reason ends the turn; what is not known is
// kept for the model.
func TestStopReasons(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - {answer: [{tool: bash, input: {command: echo ran}}], stop: end_turn}
  - {text: one, stop: stop_sequence}
  - {text: two, stop: model_context_window_exceeded}
  - {text: three, stop: tool_use}
  - {text: four, stop: max_tokens}
`})
	want(t, c.say("go"), begins+"message start use end result start answer end"+rests)
	for range 3 {
		want(t, c.say("go"), begins+"message start answer end"+rests)
	}
}

// A search without a provider of searches is an error that the model can read.
func TestSearchWithoutProvider(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `steps: [{answer: [{tool: web_search, input: {query: perdure}}]}, {text: done}]`})
	frames := c.say("search")
	want(t, frames, begins+"message start use end result start answer end"+rests)
	if r := only(t, frames, "result"); !r.Get("is_error").Bool() || text(r) == "" {
		t.Errorf("the search gave %s", r.Data)
	}
}

// A message of the system goes to the model where it was sent, and not before the user has spoken.
func TestSystemMessage(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {text: Yes.}`})
	system := func(text string) object {
		return object{"type": "system.message", "content": []object{{"type": "text", "text": text}}}
	}
	c.refuse("cannot begin", system("first"))
	c.send(message("hi"), system("Be brief."))
	c.idle("end_turn")
	c.refuse("must be the last", system("first"), message("hi"))
	if got := c.sent(1); len(got) != 2 || got[1].Get("role").String() != "system" || got[1].Get("content.0.text").String() != "Be brief." {
		t.Errorf("the model was told %v", got)
	}
	c.say("more")
}

// A session that waits can be deleted.
func TestDeleteWhileWaiting(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{policy: "always_ask", script: `steps: [{answer: [{tool: bash, input: {command: ls}}]}]`})
	c.send(message("go"))
	c.idle("requires_action")
	c.remove()
	c.post(message("hello?")).WantError(t, 404, "not_found_error")
	c.wantAsked(1)
}
