//go:build linux

package behaviour

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// The beginning of the prompt is the same bytes on every turn, also after a restart and side writes, so that the
// provider's cache holds (C96). That requests only grow is checked after every test; here the cache itself tells.
func TestPromptIsStable(t *testing.T) {
	t.Parallel()
	w := ownWorld(t, nil)
	tools := []any{
		object{"type": "custom", "name": "zeta", "description": "Last.", "input_schema": object{"type": "object",
			"properties": object{"z": object{"type": "string"}, "a": object{"type": "integer"}, "m": object{"type": "array"}}, "required": []string{"z", "a"}}},
		custom("alpha"), custom("midway"),
	}
	c := w.converse(t, setup{tools: tools, system: "You are \u0000 exact. é", session: object{"title": "first"}, script: `
rules: [{when: {user: turn}, answer: [{thinking: Hm.}, {tool: bash, input: '{"command":"echo {{answer}}","timeout_ms":10000}'}, {tool: alpha, input: '{"b":1,"a":[2,{"d":1.0,"c":2}]}'}]}]
otherwise: {text: "Done {{answer}}."}
`})
	for turn := range 6 {
		c.send(message(fmt.Sprintf("turn %d", turn)))
		call := only(t, c.idle("requires_action"), "custom-use").Get("id").String()
		if turn%2 == 1 {
			w.restart(t)
			c.follow()
		}
		c.update(object{"title": fmt.Sprint(turn), "metadata": object{"k": fmt.Sprint(turn)}}).Want(t, 200)
		c.send(answer(call, fmt.Sprintf("found %d", turn)))
		c.idle("end_turn")
	}
	requests := c.requests()
	if len(requests) != 12 {
		t.Fatalf("%d requests", len(requests))
	}
	for i, r := range requests {
		if i > 0 && r.Usage.CacheReadTokens < requests[i-1].Usage.CacheReadTokens+requests[i-1].Usage.CacheWrite5mTokens {
			t.Errorf("request %d read %d tokens from the cache; the one before had read %d and written %d", i+1,
				r.Usage.CacheReadTokens, requests[i-1].Usage.CacheReadTokens, requests[i-1].Usage.CacheWrite5mTokens)
		}
	}
}

// Numbers and the order of keys come back to the model as it wrote them, and so they are in the log (C49).
func TestInputIsKeptAsWritten(t *testing.T) {
	t.Parallel()
	input := `{"z":9007199254740993,"a":18446744073709551615,"f":1e400,"d":0.1000,"neg":-0,"nested":{"y":1,"b":[1.0,2.50]},"text":"\u00e9\/\u2028 é"}`
	c := common.converse(t, setup{tools: []any{custom("lookup")}, script: `
steps:
  - answer: [{tool: lookup, raw_input: '` + input + `'}, {tool: bash, raw_input: '{ "timeout_ms":9000.0 , "command":"echo \u0041" }'}]
otherwise: {text: done}
`})
	c.send(message("go"))
	frames := c.idle("requires_action")
	use := only(t, frames, "custom-use")
	if got := use.Get("input").Raw; got != input {
		t.Errorf("the input is\n%s, the model wrote\n%s", got, input)
	}
	c.send(answer(use.Get("id").String(), "found"))
	c.idle("end_turn")
	messages := c.sent(2)
	if got := messages[1].Get("content.0.input").Raw; got != input {
		t.Errorf("the model was sent\n%s, it wrote\n%s", got, input)
	}
	if listed := c.log(); !slices.ContainsFunc(listed, func(e gjson.Result) bool { return e.Get("input").Raw == input }) {
		t.Error("the list has the input in another form")
	}
}

// A NUL is as good a character as any, wherever it comes from (C47).
func TestNUL(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{tools: []any{custom("lookup")}, session: object{"title": "a\x00b", "metadata": object{"k": "a\x00b"}}, script: `
steps:
  - answer:
      - {text: "it says \0 here"}
      - {tool: bash, input: {command: "printf 'a\\0b'"}}
      - {tool: lookup, raw_input: '{"k\u0000":"v\u0000"}'}
      - {tool: bash, raw_input: '{"command":"echo \u0000"}'}
otherwise: {text: done}
`})
	c.send(message("a\x00b"))
	frames := c.idle("requires_action")
	if got := text(only(t, frames, "message")); got != "a\x00b" {
		t.Errorf("the message is %q", got)
	}
	if got := text(only(t, frames, "answer")); got != "it says \x00 here" {
		t.Errorf("the answer is %q", got)
	}
	use := only(t, frames, "custom-use")
	if got := use.Get("input").Raw; got != `{"k\u0000":"v\u0000"}` {
		t.Errorf("the input is %s", got)
	}
	c.send(answer(use.Get("id").String(), "c\x00d"))
	c.idle("end_turn")
	if view := c.view(); view.Get("title").String() != "a\x00b" || view.Get("metadata.k").String() != "a\x00b" {
		t.Errorf("the session is %s", view.Body)
	}
	told := c.last(2)
	if got := told.Get("content.1.content.0.text").String(); got != "c\x00d" {
		t.Errorf("the client's result was told as %q", got)
	}
	if got := told.Get("content.0.content.0.text").String(); got != "a\uFFFDb" {
		t.Errorf("the output was told as %q", got)
	}
	if !told.Get("content.2.is_error").Bool() {
		t.Errorf("a command with a NUL gave %s", told.Raw)
	}
}

// Half a character is refused at the door, and mended where the model wrote it (C48).
func TestLoneSurrogates(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer: [{tool: bash, raw_input: '{"command":"echo half \ud83d"}'}]
otherwise: {text: done}
`})
	for _, bad := range []string{`\ud83d`, `\udc00`, `\ud83d\ud83d`, "\xff", "\xed\xa0\x80"} {
		before := len(c.log())
		c.Do(t, "POST", c.path("/events"), `{"events":[{"type":"user.message","content":[{"type":"text","text":"a`+bad+`"}]}]}`).WantError(t, 400, "invalid_request_error")
		if after := len(c.log()); after != before {
			t.Errorf("%q left %d events", bad, after-before)
		}
	}
	c.say("go 😀")
	for _, e := range c.log() {
		if !json.Valid([]byte(e.Raw)) || strings.Contains(e.Raw, `\ud83d`) {
			t.Errorf("an event is not valid: %s", e.Raw)
		}
	}
}

// Output that is too long for the model is kept in a file that the agent can read; output that is no text becomes text.
func TestOutputOfTools(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer:
      - {tool: bash, input: {command: "head -c 1000000 /dev/zero | tr '\\0' x; echo END"}}
      - {tool: bash, input: {command: "printf 'a\\377\\300b'"}}
      - {tool: bash, input: {command: "true"}}
      - {tool: bash, input: {command: "printf '\\n \\n'"}}
      - {tool: bash, input: {command: "exit 3"}}
      - {tool: bash, input: {command: "head -c 100000 /dev/zero | tr '\\0' y"}}
  - answer: [{tool: bash, input: '{"command":"wc -c /mnt/session/tool_results/* | tail -1; ls -l /mnt/session/tool_results"}'}]
otherwise: {text: done}
`})
	results := all(c.say("go"), "result")
	long := text(results[0])
	if len(long) > 30_000 || !strings.HasPrefix(long, "[output truncated: 1000004 bytes.") || !strings.HasSuffix(long, "xEND") {
		t.Errorf("a long output is given as %d bytes: %.200s", len(long), long)
	}
	_, path, _ := strings.Cut(long, "The whole output is in ")
	path, _, _ = strings.Cut(path, ";")
	if got := text(results[6]); !strings.Contains(got, "1000004") {
		t.Errorf("where the output should be, %s, there is %s", path, got)
	}
	if got := text(results[1]); got != "a\uFFFDb" && got != "a\uFFFD\uFFFDb" {
		t.Errorf("output that is no text is given as %q", got)
	}
	for _, i := range []int{2, 3} {
		if strings.TrimSpace(text(results[i])) == "" {
			t.Errorf("empty output is given as %q", text(results[i]))
		}
	}
	if got := text(results[5]); len(got) != 100_000 {
		t.Errorf("an output of 100,000 characters is given as %d", len(got))
	}
}

// Neither the provider's key nor the server's environment is anywhere where the agent or a client could see it (C82). The
// log and the data of the server are looked through when it has ended.
func TestSecrets(t *testing.T) {
	t.Setenv("PERDURE_CANARY", "canary-of-the-environment")
	w := ownWorld(t, nil)
	c := w.converse(t, setup{script: `
steps:
  - answer: [{tool: bash, input: {command: "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls / /root /home 2>&1; true"}}]
otherwise: {text: done, fail: {times: 1, status: 500, message: "key ` + providerKey + ` is fine"}}
`})
	c.say("go")
	for _, e := range c.log() {
		for _, secret := range []string{providerKey, "canary-of-the-environment", w.Key} {
			if strings.Contains(e.Raw, secret) {
				t.Errorf("an event tells a secret: %s", e.Raw)
			}
		}
	}
	if strings.Contains(w.log.String(), w.Key) {
		t.Error("the log tells the API key")
	}
}

// The agent reaches nothing outside by links and paths (C80).
func TestPathsThatLeadOut(t *testing.T) {
	t.Parallel()
	canary := t.TempDir() + "/canary"
	if err := os.WriteFile(canary, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := common.converse(t, setup{script: `
steps:
  - answer:
      - {tool: bash, input: {command: "ln -s ` + canary + ` link; ln -s / root; ln -s ` + canary + ` /mnt/session/outputs/stolen"}}
      - {tool: read, input: {file_path: link}}
      - {tool: read, input: {file_path: root` + canary + `}}
      - {tool: read, input: {file_path: ../../../../../..` + canary + `}}
      - {tool: write, input: {file_path: link, content: overwritten}}
      - {tool: edit, input: {file_path: root` + canary + `, old_string: canary, new_string: edited}}
      - {tool: grep, input: {pattern: canary, path: root` + strings.TrimSuffix(canary, "/canary") + `}}
otherwise: {text: done}
`})
	for i, r := range all(c.say("go"), "result") {
		if strings.Contains(text(r), "canary\n") || i > 0 && text(r) == "canary" {
			t.Errorf("the agent read what it must not: %s", r.Data)
		}
	}
	if content, err := os.ReadFile(canary); err != nil || string(content) != "canary" {
		t.Errorf("the file outside is %q: %v", content, err)
	}
	if files := c.files(); len(files) != 0 {
		t.Errorf("a link was collected: %v", files)
	}
}
