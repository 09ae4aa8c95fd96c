package scripted

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

func parse(t testing.TB, source string) *Script {
	t.Helper()
	script, err := Parse("test", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// talk is a conversation with a scripted model, kept as a server would.
type talk struct {
	t        testing.TB
	provider *Provider
	messages []model.Message
}

func newTalk(t testing.TB, source string) *talk {
	return &talk{t: t, provider: New(NewLibrary(parse(t, source)))}
}

func (k *talk) say(text string) {
	k.messages = append(k.messages, model.Message{Role: "user", Content: jsontext.Value(fmt.Sprintf(`[{"type":"text","text":%q}]`, text))})
}

func (k *talk) result(text string, isError bool) {
	k.messages = append(k.messages, model.Message{Role: "user", Content: jsontext.Value(fmt.Sprintf(
		`[{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":%q}],"is_error":%t}]`, text, isError))})
}

func (k *talk) request() model.Request {
	return model.Request{Model: "scripted/test", Session: "sesn_1", Messages: k.messages}
}

func (k *talk) answer() string {
	k.t.Helper()
	response, err := k.provider.Stream(context.Background(), k.request(), nil)
	if err != nil {
		k.t.Fatal(err)
	}
	content := "["
	for i, block := range response.Content {
		if i > 0 {
			content += ","
		}
		content += string(block)
	}
	content += "]"
	k.messages = append(k.messages, model.Message{Role: "assistant", Content: jsontext.Value(content)})
	return content
}

func text(s string) string { return fmt.Sprintf(`[{"type":"text","text":%q}]`, s) }

func TestStepsAreChosenByTheConversationAlone(t *testing.T) {
	source := `
rules:
  - when: {user: status}
    text: still here
steps:
  - text: one
  - when: {user: never}
    text: skipped
  - repeat: 2
    text: "two of {{answer}}"
  - when: {result: boom, error: true}
    text: "saw {{result}}"
otherwise:
  text: "rest: {{user}}"
`
	k := newTalk(t, source)
	var got []string
	turn := func(say func()) {
		say()
		// A fresh provider each time stands for a server that was restarted.
		k.provider = New(NewLibrary(parse(t, source)))
		got = append(got, k.answer())
	}
	turn(func() { k.say("hello") })
	turn(func() { k.say("what is the status?") })
	turn(func() { k.say("b") })
	turn(func() { k.say("c") })
	turn(func() { k.result("a boom", true) })
	turn(func() { k.say("d") })
	turn(func() { k.say("e") })
	want := []string{text("one"), text("still here"), text("two of 3"), text("two of 4"), text("saw a boom"), text("rest: d"), text("rest: e")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAScriptThatIsUsedUpFailsForGood(t *testing.T) {
	k := newTalk(t, `steps: [{text: only}]`)
	k.say("a")
	k.answer()
	k.say("b")
	_, err := k.provider.Stream(context.Background(), k.request(), nil)
	var failed *model.Error
	if !errors.As(err, &failed) || failed.Retryable || !strings.Contains(failed.Message, "no step for answer 2") {
		t.Errorf("got %v", err)
	}
	_, err = k.provider.Stream(context.Background(), model.Request{Model: "scripted/nope"}, nil)
	if !errors.As(err, &failed) || failed.Retryable || failed.Status != 404 || !strings.Contains(failed.Message, "scripted/test") {
		t.Errorf("got %v", err)
	}
}

func TestBlocksAreRenderedAsTheModelWouldSendThem(t *testing.T) {
	k := newTalk(t, `
steps:
  - answer:
      - thinking: hm
      - thinking: own
        signature: sig
      - redacted_thinking: b3BhcXVl
      - text: "said {{user}}"
      - tool: bash
        id: toolu_1
        input: {z: 1, command: "echo {{user}}", list: [true, null, 1.5], big: 9007199254740993, deep: {a: x}}
      - tool: lookup
        id: toolu_2
        input: '{"id":9007199254740993,"n":18446744073709551615,"f":1e400,"d":0.1000,"z":-0,"u":"{{user}}"}'
      - raw: '{"type":"new_kind","x":1}'
`)
	k.say(`"hi"` + "\nthere")
	got := k.answer()
	want := `[{"type":"thinking","thinking":"hm","signature":"` + Signature("scripted/test", "hm", NewPast(k.messages[0])) + `"},` +
		`{"type":"thinking","thinking":"own","signature":"sig"},` +
		`{"type":"redacted_thinking","data":"b3BhcXVl"},` +
		`{"type":"text","text":"said \"hi\"\nthere"},` +
		`{"type":"tool_use","id":"toolu_1","name":"bash","input":{"z":1,"command":"echo \"hi\"\nthere","list":[true,null,1.5],"big":9007199254740993,"deep":{"a":"x"}}},` +
		`{"type":"tool_use","id":"toolu_2","name":"lookup","input":{"id":9007199254740993,"n":18446744073709551615,"f":1e400,"d":0.1000,"z":-0,"u":"\"hi\"\nthere"}},` +
		`{"type":"new_kind","x":1}]`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOddTextGetsThrough(t *testing.T) {
	k := newTalk(t, `steps: [{answer: [{text: "a\0b\u2028"}, {tool: t, id: i, input: {"k\0": "\0"}}]}]`)
	want := `[{"type":"text","text":"a\u0000b` + "\u2028" + `"},{"type":"tool_use","id":"i","name":"t","input":{"k\u0000":"\u0000"}}]`
	if diff := cmp.Diff(want, k.answer()); diff != "" {
		t.Error(diff)
	}
}

func TestNumbersKeepTheirValueOrAreRefused(t *testing.T) {
	k := newTalk(t, `steps: [{answer: [{tool: t, id: i, input: {a: 18446744073709551615, b: -9223372036854775808, c: 0.1}}]}]`)
	if got, want := k.answer(), `"input":{"a":18446744073709551615,"b":-9223372036854775808,"c":0.1}}]`; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	_, err := Parse("test", []byte(`steps: [{answer: [{tool: t, id: i, input: {a: 99999999999999999999}}]}]`))
	if err == nil || !strings.Contains(err.Error(), "more than 64 bits") {
		t.Errorf("got %v", err)
	}
}

func TestCallsThatCannotBeRunAreMarked(t *testing.T) {
	for _, test := range []struct {
		name, source string
		want         []model.BrokenCall
	}{
		{"cut", `{stop: max_tokens, answer: [{tool: a, raw_input: '{"x":1}'}, {tool: b, raw_input: '{"path":"a"'}]}`,
			[]model.BrokenCall{{Block: 1, Cut: true, Input: `{"path":"a"`}}},
		{"cut before the input", `{stop: max_tokens, answer: [{tool: b, raw_input: ''}]}`, []model.BrokenCall{{Block: 0, Cut: true}}},
		{"no arguments", `{answer: [{tool: b, raw_input: ''}]}`, nil},
		{"cut after the call", `{stop: max_tokens, answer: [{tool: a, raw_input: '{}'}, {text: and}]}`, nil},
		{"no JSON", `{answer: [{tool: b, raw_input: 'ls -l'}]}`, []model.BrokenCall{{Block: 0, Input: `ls -l`}}},
		{"no object", `{answer: [{tool: b, raw_input: '[1]'}]}`, []model.BrokenCall{{Block: 0, Input: `[1]`}}},
		{"a name twice", `{answer: [{tool: b, raw_input: '{"a":1,"a":2}'}]}`, []model.BrokenCall{{Block: 0, Input: `{"a":1,"a":2}`}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := newTalk(t, "steps: ["+test.source+"]")
			response, err := k.provider.Stream(context.Background(), k.request(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, response.Broken); diff != "" {
				t.Error(diff)
			}
			for _, block := range response.Content {
				if !block.IsValid() {
					t.Errorf("invalid block %s", block)
				}
			}
		})
	}
}

func TestPaceIsKeptAndPreviewIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTalk(t, `
defaults: {delay: 2s}
steps:
  - {delta_delay: 100ms, delta_size: 5, text: "0123456789ä"}
`)
		start := time.Now()
		var pieces []string
		_, err := k.provider.Stream(t.Context(), k.request(), func(d model.Delta) {
			pieces = append(pieces, fmt.Sprintf("%v %d %s %q", time.Since(start), d.Block, d.Type, d.Text))
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{`2s 0 text ""`, `2s 0 text "01234"`, `2.1s 0 text "56789"`, `2.2s 0 text "ä"`}
		if diff := cmp.Diff(want, pieces); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAStallEndsWithTheContext(t *testing.T) {
	cause := errors.New("interrupted")
	for _, source := range []string{
		`{delay: 1h, text: x}`,
		`{delta_delay: 1h, delta_size: 1, text: xy}`,
		`{text: xyz, break: {how: stall, after_characters: 2}}`,
		`{text: xyz, break: {how: pings, before_stop: true}}`,
		`{delay: 1h, fail: {status: 500}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			k := newTalk(t, "steps: ["+source+"]")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Second, func() { cancel(cause) })
			start := time.Now()
			_, err := k.provider.Stream(ctx, k.request(), nil)
			if !errors.Is(err, cause) || time.Since(start) != 10*time.Second {
				t.Errorf("%s: %v after %v", source, err, time.Since(start))
			}
		})
	}
}

func TestFailuresComeForTheFirstAttempts(t *testing.T) {
	k := newTalk(t, `
steps:
  - text: finally
    fail: {times: 2, status: 429, retry_after: 3s}
    break: {times: 1, how: error, after_characters: 3}
`)
	var got []string
	for range 5 {
		response, err := k.provider.Stream(context.Background(), k.request(), nil)
		var failed *model.Error
		switch {
		case err == nil:
			got = append(got, string(response.Content[0]))
		case errors.As(err, &failed):
			got = append(got, fmt.Sprint(failed.Class, failed.Retryable, failed.RetryAfter, failed.Usage.InputTokens > 0))
		default:
			t.Fatal(err)
		}
	}
	limited := fmt.Sprint(model.RateLimited, true, 3*time.Second, false)
	done := `{"type":"text","text":"finally"}`
	// The request is empty, so that not even the broken attempt has input to pay for.
	want := []string{limited, limited, fmt.Sprint(model.Overloaded, true, time.Duration(0), false), done, done}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	request := k.request()
	request.Session = "sesn_2"
	if _, err := k.provider.Stream(context.Background(), request, nil); err == nil {
		t.Error("another session shares the attempts")
	}
}

func TestBrokenAnswersNeverCount(t *testing.T) {
	for _, place := range []string{"after_characters: 0", "after_characters: 4", "after_characters: 999", "after_blocks: 0", "after_blocks: 1", "after_blocks: 2", "before_stop: true"} {
		for _, how := range []string{"error", "end", "cut"} {
			k := newTalk(t, `steps: [{answer: [{text: hello}, {tool: bash, input: {command: ls}}], break: {how: `+how+`, `+place+`}}]`)
			response, err := k.provider.Stream(context.Background(), k.request(), nil)
			var failed *model.Error
			if response != nil || !errors.As(err, &failed) || !failed.Retryable {
				t.Errorf("%s %s: %v, %v", how, place, response, err)
			}
		}
	}
}

func TestScriptsThatAreWrongAreRefused(t *testing.T) {
	for source, want := range map[string]string{
		"steps:\n  - text: a\n    tex: b\n":                                         "3:",
		"steps:\n  - text: a\n    text: b\n":                                        "3:",
		"{}":                                                                        "no steps",
		"steps: [{text: a, answer: []}]":                                            "steps[0]: give either",
		"steps: [{stop: soon}]":                                                     "not a stop reason",
		"steps: [{answer: [{text: a, tool: b}]}]":                                   "steps[0].answer[0]: a block is exactly one",
		"steps: [{answer: [{tool: b, input: '[1]'}]}]":                              "must be a JSON object",
		"steps: [{answer: [{tool: b, input: [1]}]}]":                                "must be a mapping",
		"steps: [{answer: [{tool: b, input: {a: .inf}}]}]":                          "a number that JSON has not",
		"steps: [{answer: [{raw: nope}]}]":                                          "raw must be",
		"steps: [{fail: {status: 200}}]":                                            "from 400 to 599",
		"steps: [{text: a, break: {how: bang}}]":                                    "bang",
		"steps: [{text: a, break: {how: cut, after_blocks: 1, before_stop: true}}]": "one of after_characters",
		"steps: [{text: a, delay: -1s}]":                                            "negative",
		"rules: [{text: a}]":                                                        "needs when",
		"rules: [{when: {}, text: a}]":                                              "no condition",
		"otherwise: {text: a, repeat: 2}":                                           "neither when nor repeat",
		"steps: [{repeat: -1}]":                                                     "repeat",
		"steps: [":                                                                  "script test",
	} {
		_, err := Parse("test", []byte(source))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", source, err, want)
		}
	}
	if _, err := Parse("../x", []byte("steps: [{text: a}]")); err == nil {
		t.Error("a path was taken as a name")
	}
}

func TestLoadTakesAllOrNothing(t *testing.T) {
	l := NewLibrary()
	err := l.Load(fstest.MapFS{
		"good.yaml": {Data: []byte("steps: [{text: a}]")},
		"bad.yml":   {Data: []byte("steps: [{nope: a}]")},
		"worse.yml": {Data: []byte("nope: a")},
		"notes.txt": {Data: []byte("nope")},
	})
	if err == nil || !strings.Contains(err.Error(), "script bad") || !strings.Contains(err.Error(), "script worse") || len(l.Scripts()) != 0 {
		t.Errorf("%v, %d scripts", err, len(l.Scripts()))
	}
}

func TestBuiltinScriptsAreSound(t *testing.T) {
	l, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, script := range l.Scripts() {
		names = append(names, script.Name)
	}
	if diff := cmp.Diff([]string{"demo", "echo"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestChooseCountsLikeASequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		repeats := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 6).Draw(t, "repeats")
		script := &Script{Name: "test", Otherwise: &Step{}}
		var order []string
		for i, n := range repeats {
			script.Steps = append(script.Steps, Step{Repeat: n})
			for range n {
				order = append(order, fmt.Sprintf("steps[%d]", i))
			}
		}
		if err := script.prepare(); err != nil {
			t.Fatal(err)
		}
		var messages []model.Message
		for i := range len(order) + 2 {
			chosen, err := script.choose(model.Request{Messages: messages})
			if err != nil {
				t.Fatal(err)
			}
			want := "otherwise"
			if i < len(order) {
				want = order[i]
			}
			if chosen.where != want || chosen.answer != i {
				t.Fatalf("answer %d: %s, want %s", i, chosen.where, want)
			}
			messages = append(messages, model.Message{Role: "assistant", Content: jsontext.Value("[]")})
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("steps: [{text: a}]")
	f.Add("steps: [{answer: [{tool: b, input: {a: [1, {b: c}]}}]}]")
	f.Add("rules: [{when: {error: true}, text: '{{result}}'}]\notherwise: {text: x}")
	f.Fuzz(func(t *testing.T, source string) {
		script, err := Parse("test", []byte(source))
		if err != nil {
			return
		}
		response, err := New(NewLibrary(script)).library.Answer(model.Request{Model: "scripted/test"})
		if err == nil && response == nil {
			t.Error("neither an answer nor an error")
		}
	})
}
