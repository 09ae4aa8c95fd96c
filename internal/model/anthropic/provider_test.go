package anthropic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/attempt"
	"github.com/perdure/perdure/internal/model/mockserver"
	"github.com/perdure/perdure/internal/model/scripted"
)

type bench struct {
	t        *testing.T
	server   *mockserver.Server
	url      string
	provider *Provider
}

func newBench(t *testing.T, script string, config Config) *bench {
	t.Helper()
	parsed, err := scripted.Parse("test", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, server: mockserver.New(mockserver.Config{Library: scripted.NewLibrary(parsed), Strict: true})}
	server := httptest.NewServer(b.server)
	t.Cleanup(server.Close)
	b.url = server.URL
	config.BaseURL, config.SessionHeader = server.URL, mockserver.SessionHeader
	b.provider = newProvider(t, config)
	return b
}

func newProvider(t *testing.T, config Config) *Provider {
	t.Helper()
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func user(text string) model.Message {
	return model.Message{Role: "user", Content: jsontext.Value(fmt.Sprintf(`[{"type":"text","text":%q}]`, text))}
}

func request(messages ...model.Message) model.Request {
	return model.Request{Model: "scripted/test", Session: "sesn_1", Messages: messages}
}

func assistant(response *model.Response) model.Message {
	var content bytes.Buffer
	content.WriteByte('[')
	for i, block := range response.Content {
		if i > 0 {
			content.WriteByte(',')
		}
		content.Write(block)
	}
	content.WriteByte(']')
	return model.Message{Role: "assistant", Content: content.Bytes()}
}

func (b *bench) stream(request model.Request) *model.Response {
	b.t.Helper()
	response, err := b.provider.Stream(b.t.Context(), request, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return response
}

// failure makes one attempt that must fail.
func (b *bench) failure(request model.Request) *model.Error {
	b.t.Helper()
	response, err := b.provider.Stream(b.t.Context(), request, nil)
	var failed *model.Error
	if response != nil || !errors.As(err, &failed) {
		b.t.Fatalf("got %v, %v, want a *model.Error", response, err)
	}
	return failed
}

// inputs are numbers and orders that a decoder and encoder would change.
const inputs = `{"z":1,"id":9007199254740993,"n":18446744073709551615,"f":1e400,"d":0.1000,"zero":-0,"e":"\u00e9\/<&>","a":[ ]}`

const job = `
defaults: {delta_size: 3}
steps:
  - answer:
      - thinking: Ünder <thought> & "quotes"
      - text: I call two.
      - tool: lookup
        input: '` + inputs + `'
      - tool: lookup
        id: fixed
        input: {q: "<&>"}
  - answer:
      - redacted_thinking: b3BhcXVl
      - text: "saw {{result}}"
  - text: third
`

func TestAConversationKeepsItsBytes(t *testing.T) {
	b := newBench(t, job, Config{})
	r := request(user("<go> & look"))
	r.System = "Be <terse>."
	r.Effort = "high"
	r.Tools = []model.Tool{{Name: "lookup", Description: "Looks <up>.", InputSchema: jsontext.Value(`{"type":"object","properties":{"z":{"type":"number"},"a":{}}, "required":["z"]}`)}}
	var bodies []string
	next := func() *model.Response {
		t.Helper()
		first := b.stream(r)
		if len(r.Messages) < 3 {
			// Another process makes the same bytes and gets the same answer.
			b.provider = newProvider(t, b.provider.config)
			second := b.stream(r)
			if diff := cmp.Diff(first.Content, second.Content); diff != "" {
				t.Error(diff)
			}
			records := b.server.Records()
			if a, b := records[len(records)-2].Body, records[len(records)-1].Body; !bytes.Equal(a, b) {
				t.Errorf("two bodies of one request:\n%s\n%s", a, b)
			}
		}
		records := b.server.Records()
		bodies = append(bodies, string(records[len(records)-1].Body))
		return first
	}

	one := next()
	var call struct{ ID, Input string }
	for _, block := range one.Content {
		if strings.Contains(string(block), `"z":1`) {
			call.Input = string(block)
		}
	}
	if !strings.Contains(call.Input, `"input":`+inputs+`}`) {
		t.Errorf("the input has changed: %s", call.Input)
	}
	if want := `{"type":"thinking","thinking":"Ünder <thought> & \"quotes\"","signature":"` + scripted.Signature("scripted/test", `Ünder <thought> & "quotes"`, scripted.NewPast(user("<go> & look"))) + `"}`; string(one.Content[0]) != want {
		t.Errorf("thinking is %s, want %s", one.Content[0], want)
	}
	id := string(one.Content[2])
	id = id[strings.Index(id, `"id":"`)+6:]
	id = id[:strings.IndexByte(id, '"')]
	r.Messages = append(r.Messages, assistant(one), model.Message{Role: "user", Content: jsontext.Value(fmt.Sprintf(
		`[{"type":"tool_result","tool_use_id":%q,"content":"a"},{"type":"tool_result","tool_use_id":"fixed","content":[{"type":"text","text":"b"}]}]`, id))})
	two := next()
	if want := `{"type":"text","text":"saw b"}`; string(two.Content[1]) != want {
		t.Errorf("got %s", two.Content[1])
	}
	r.Messages = append(r.Messages, assistant(two), user("and?"))
	three := next()

	for i := range bodies {
		bodies[i] = strings.ReplaceAll(bodies[i], `,"cache_control":{"type":"ephemeral"}`, "")
		if i > 0 && !strings.HasPrefix(bodies[i], strings.TrimSuffix(bodies[i-1], "]}")) {
			t.Errorf("request %d does not begin with request %d:\n%s\n%s", i, i-1, bodies[i-1], bodies[i])
		}
	}
	if !strings.Contains(bodies[1], string(r.Messages[1].Content)) {
		t.Errorf("the answer was not sent back as it came: %s", bodies[1])
	}
	if one.Usage.CacheWrite5mTokens == 0 || two.Usage.CacheReadTokens == 0 || three.Usage.CacheReadTokens <= two.Usage.CacheReadTokens {
		t.Errorf("the prompt cache is not used: %+v, %+v, %+v", one.Usage, two.Usage, three.Usage)
	}
	if refused := b.server.Refusals(); len(refused) > 0 {
		t.Errorf("refused: %s", refused[0].Message)
	}
}

func TestManyParallelCallsStillFindTheCache(t *testing.T) {
	b := newBench(t, "steps: [{answer: ["+strings.Repeat("{tool: a, input: {}},", 40)+"]}]\notherwise: {text: ok}", Config{CacheTTL: "1h"})
	r := request(user("go"))
	r.System = "x"
	one := b.stream(r)
	if one.Usage.CacheWrite1hTokens == 0 || one.Usage.CacheWrite5mTokens != 0 {
		t.Errorf("%+v", one.Usage)
	}
	var results []string
	for _, block := range one.Content {
		id := string(block)[strings.Index(string(block), `"id":"`)+6:]
		results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q}`, id[:strings.IndexByte(id, '"')]))
	}
	r.Messages = append(r.Messages, assistant(one), model.Message{Role: "user", Content: jsontext.Value("[" + strings.Join(results, ",") + "]")})
	two := b.stream(r)
	if two.Usage.CacheReadTokens != one.Usage.CacheWrite1hTokens {
		t.Errorf("wrote %+v, then read %+v", one.Usage, two.Usage)
	}
}

func TestPreviewsAreWhatBecomesOfThem(t *testing.T) {
	b := newBench(t, `steps: [{delta_size: 2, answer: [{thinking: hmm}, {tool: a, input: {}}, {text: hällo}]}]`, Config{})
	var pieces []string
	_, err := b.provider.Stream(t.Context(), request(user("x")), func(d model.Delta) {
		pieces = append(pieces, fmt.Sprintf("%d %s %q", d.Block, d.Type, d.Text))
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`0 thinking ""`, `0 thinking "hm"`, `0 thinking "m"`, `2 text ""`, `2 text "hä"`, `2 text "ll"`, `2 text "o"`}
	if diff := cmp.Diff(want, pieces); diff != "" {
		t.Error(diff)
	}
}

func TestAnAnswerThatStopsShortIsAnError(t *testing.T) {
	for _, place := range []string{"after_characters: 0", "after_characters: 7", "after_characters: 14", "after_blocks: 1", "before_stop: true"} {
		for _, how := range []string{"error", "end", "cut"} {
			t.Run(how+" "+place, func(t *testing.T) {
				b := newBench(t, `steps: [{delta_size: 4, usage: {input: 7, output: 3}, answer: [{text: hello there}, {tool: bash, input: {command: ls}}], break: {times: 1, how: `+how+`, `+place+`}}]`, Config{})
				failed := b.failure(request(user("x")))
				wanted := model.RequestFailed
				if how == "error" {
					wanted = model.Overloaded
				}
				if failed.Class != wanted || !failed.Retryable || failed.Usage.InputTokens != 7 {
					t.Errorf("got %+v", failed)
				}
				response := b.stream(request(user("x")))
				if len(response.Content) != 2 || response.StopReason != "tool_use" || response.Usage.OutputTokens != 3 {
					t.Errorf("got %+v", response)
				}
				if records := b.server.Records(); !bytes.Equal(records[0].Body, records[1].Body) {
					t.Error("the second attempt has another body")
				}
			})
		}
	}
}

func TestSilenceEndsAnAttempt(t *testing.T) {
	short, long := 60*time.Millisecond, time.Minute
	for name, test := range map[string]struct {
		script string
		config Config
		want   string
	}{
		"before headers": {`{delay: 1h, text: x}`, Config{Limits: attempt.Limits{Idle: short, Quiet: long, Total: long}}, "sent nothing for 60ms"},
		"after start":    {`{text: xyz, break: {how: stall}}`, Config{Limits: attempt.Limits{Idle: short, Quiet: long, Total: long}}, "sent nothing for 60ms"},
		"in the text":    {`{text: xyz, break: {how: stall, after_characters: 2}}`, Config{Limits: attempt.Limits{Idle: short, Quiet: long, Total: long}}, "sent nothing for 60ms"},
		"only pings":     {`{text: xyz, break: {how: pings, after_blocks: 1}}`, Config{Limits: attempt.Limits{Idle: 5 * time.Second, Quiet: 1500 * time.Millisecond, Total: long}}, "sent nothing but signs of life"},
		"for ever":       {`{text: ` + strings.Repeat("x", 4000) + `, delta_size: 1, delta_delay: 5ms}`, Config{Limits: attempt.Limits{Idle: long, Quiet: long, Total: 200 * time.Millisecond}}, "did not end its answer within 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan mockserver.Record, 1)
			script, err := scripted.Parse("test", []byte("steps: ["+test.script+"]"))
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(mockserver.New(mockserver.Config{Library: scripted.NewLibrary(script), OnEnd: func(r mockserver.Record) { ended <- r }}))
			defer server.Close()
			test.config.BaseURL = server.URL
			b := &bench{t: t, provider: newProvider(t, test.config)}
			failed := b.failure(request(user("x")))
			if failed.Class != model.RequestFailed || !failed.Retryable || !strings.Contains(failed.Message, test.want) {
				t.Errorf("got %v", failed)
			}
			if record := <-ended; record.Outcome != mockserver.Closed {
				t.Errorf("the server saw %s, not a closed connection", record.Outcome)
			}
		})
	}
}

func TestTheCallerCanEndAnAttempt(t *testing.T) {
	cause := errors.New("the user interrupts")
	for _, script := range []string{`{delay: 1h, text: x}`, `{text: xyz, break: {how: stall, after_characters: 2}}`} {
		b := newBench(t, "steps: ["+script+"]", Config{})
		ctx, cancel := context.WithCancelCause(t.Context())
		started := false
		end := func() {
			if !started {
				started = true
				cancel(cause)
			}
		}
		if strings.Contains(script, "1h") {
			go cancel(cause)
		}
		_, err := b.provider.Stream(ctx, request(user("x")), func(model.Delta) { end() })
		if !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
		cancel(nil)
	}
}

func TestErrorsAreClassified(t *testing.T) {
	for _, test := range []struct {
		script string
		want   model.Error
	}{
		{`{status: 429, retry_after: 7s}`, model.Error{Class: model.RateLimited, Status: 429, Retryable: true, RetryAfter: 7 * time.Second}},
		{`{status: 529, retry_after: 1500ms}`, model.Error{Class: model.Overloaded, Status: 529, Retryable: true, RetryAfter: 1500 * time.Millisecond}},
		{`{status: 503}`, model.Error{Class: model.RequestFailed, Status: 503, Retryable: true}},
		{`{status: 503, type: overloaded_error}`, model.Error{Class: model.Overloaded, Status: 503, Retryable: true}},
		{`{status: 500}`, model.Error{Class: model.RequestFailed, Status: 500, Retryable: true}},
		{`{status: 504}`, model.Error{Class: model.RequestFailed, Status: 504, Retryable: true}},
		{`{status: 408, type: timeout_error}`, model.Error{Class: model.RequestFailed, Status: 408, Retryable: true}},
		{`{status: 400}`, model.Error{Class: model.RequestFailed, Status: 400}},
		{`{status: 401}`, model.Error{Class: model.RequestFailed, Status: 401}},
		{`{status: 403}`, model.Error{Class: model.RequestFailed, Status: 403}},
		{`{status: 404}`, model.Error{Class: model.RequestFailed, Status: 404}},
		{`{status: 413}`, model.Error{Class: model.RequestFailed, Status: 413}},
		{`{status: 402}`, model.Error{Class: model.Billing, Status: 402}},
		{`{status: 400, type: billing_error}`, model.Error{Class: model.Billing, Status: 400}},
	} {
		b := newBench(t, `steps: [{fail: `+test.script+`}]`, Config{APIKey: "sk-ant-verysecret"})
		failed := b.failure(request(user("x")))
		got := model.Error{Class: failed.Class, Status: failed.Status, Retryable: failed.Retryable, RetryAfter: failed.RetryAfter}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.script, diff)
		}
		if n := len(b.server.Records()); n != 1 {
			t.Errorf("%s: %d attempts were made, not one", test.script, n)
		}
	}
}

func TestTheServerSaysWhetherToTryAgain(t *testing.T) {
	for _, test := range []struct {
		status int
		header string
		want   bool
	}{{429, "", true}, {429, "false", false}, {500, "false", false}, {400, "true", true}, {402, "true", false}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Should-Retry", test.header)
			w.Header().Set("Request-Id", "req_1")
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(test.status)
		}))
		b := &bench{t: t, provider: newProvider(t, Config{BaseURL: server.URL})}
		failed := b.failure(request(user("x")))
		if failed.Retryable != test.want || !test.want && failed.RetryAfter != 0 || !strings.Contains(failed.Error(), "req_1") {
			t.Errorf("%d %q: %+v", test.status, test.header, failed)
		}
		server.Close()
	}
}

func TestTheKeyIsInNoError(t *testing.T) {
	const key = "sk-ant-verysecret"
	b := newBench(t, `steps: [{fail: {status: 401, message: "the key `+key+` is not valid"}}, {text: x, break: {how: error, type: api_error, message: "`+key+`"}}]`, Config{APIKey: key})
	failed := b.failure(request(user("x")))
	if text := fmt.Sprintf("%v %+v", failed, failed); strings.Contains(text, key) || !strings.Contains(text, "[redacted] is not valid") {
		t.Error(text)
	}
	failed = b.failure(request(user("x"), model.Message{Role: "assistant", Content: jsontext.Value(`"a"`)}, user("y")))
	if text := fmt.Sprintf("%v %+v", failed, failed); strings.Contains(text, key) {
		t.Error(text)
	}
	b.provider = newProvider(t, Config{APIKey: key, BaseURL: "http://127.0.0.1:1/" + key})
	failed = b.failure(request(user("x")))
	if text := fmt.Sprintf("%v %+v", failed, failed); strings.Contains(text, key) || !failed.Retryable {
		t.Error(text)
	}
	if text := fmt.Sprintf("%v %+v %#v", b.provider.config, b.provider.config, b.provider.config); strings.Contains(strings.ReplaceAll(text, "1/"+key, ""), key) {
		t.Error(text)
	}
}

func TestCallsThatWereCutAreMarked(t *testing.T) {
	for source, want := range map[string][]model.BrokenCall{
		`{stop: max_tokens, answer: [{tool: a, raw_input: '{"x":1}'}, {tool: b, raw_input: '{"path":"a"'}]}`: {{Block: 1, Cut: true, Input: `{"path":"a"`}},
		`{stop: max_tokens, answer: [{tool: a, raw_input: ''}]}`:                                             {{Block: 0, Cut: true}},
		`{stop: max_tokens, answer: [{text: so}]}`:                                                           nil,
		`{answer: [{tool: a, raw_input: ''}]}`:                                                               nil,
		`{answer: [{tool: a, raw_input: 'rm -rf'}]}`:                                                         {{Block: 0, Input: `rm -rf`}},
		`{answer: [{tool: a, raw_input: '"text"'}]}`:                                                         {{Block: 0, Input: `"text"`}},
	} {
		b := newBench(t, "steps: ["+source+"]", Config{})
		response := b.stream(request(user("x")))
		if diff := cmp.Diff(want, response.Broken); diff != "" {
			t.Errorf("%s: %s", source, diff)
		}
	}
	b := newBench(t, `steps: [{answer: [{tool: a, raw_input: '{"s":"\ud83d x","t":"\ud83d\ude00","n":1.50}'}]}]`, Config{})
	response := b.stream(request(user("x")))
	if got, want := string(response.Content[0]), `"input":{"s":"`+"\uFFFD"+` x","t":"😀","n":1.50}}`; !strings.HasSuffix(got, want) || response.Broken != nil {
		t.Errorf("got %s, %v", got, response.Broken)
	}
}

func TestRepeatedIDsBecomeUnique(t *testing.T) {
	b := newBench(t, `
steps:
  - answer: [{tool: a, id: tool_0, input: {}}]
  - answer: [{tool: a, id: tool_0, input: {}}, {tool: a, id: x, input: {}}, {tool: a, id: x, input: {}}]
  - text: done
`, Config{})
	r := request(user("x"))
	var all []string
	for {
		response := b.stream(r)
		if response.StopReason == "end_turn" {
			break
		}
		var results []string
		for _, block := range response.Content {
			id := string(block)[strings.Index(string(block), `"id":"`)+6:]
			id = id[:strings.IndexByte(id, '"')]
			all = append(all, id)
			results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q}`, id))
		}
		r.Messages = append(r.Messages, assistant(response), model.Message{Role: "user", Content: jsontext.Value("[" + strings.Join(results, ",") + "]")})
	}
	if diff := cmp.Diff([]string{"tool_0", "tool_0_2", "x", "x_2"}, all); diff != "" {
		t.Error(diff)
	}
}

// recorded serves the same stream for every request.
func recorded(t *testing.T, contentType, stream string) *bench {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		fmt.Fprint(w, stream)
	}))
	t.Cleanup(server.Close)
	return &bench{t: t, provider: newProvider(t, Config{BaseURL: server.URL + "/v1/"})}
}

func frames(events ...string) string {
	var out strings.Builder
	for _, event := range events {
		name := event[strings.Index(event, `"type":"`)+8:]
		fmt.Fprintf(&out, "event: %s\ndata: %s\n\n", name[:strings.IndexByte(name, '"')], event)
	}
	return out.String()
}

func TestWhatIsNotKnownIsKept(t *testing.T) {
	b := recorded(t, "text/event-stream; charset=utf-8", frames(
		`{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":5,"cache_creation_input_tokens":9,"output_tokens":1}}}`,
		`{"type":"something_new","x":[1]}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s1","name":"web_search","input":{},"caller":{"type":"direct"}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\": 1.0"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"}"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"n":1e2}]}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"compaction","content":"","more":1}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"compaction_delta","content":"sum","extra":{"k":2}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"compaction_delta","content":"mary"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"text","text":"a"}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"b\ud83d"}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{"url":"u1"}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{"url":"u2"}}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":null}},"usage":{"output_tokens":12,"server_tool_use":{"web_search_requests":2},"speed":"fast","input_tokens":null}}`,
		`{"type":"message_stop"}`,
	))
	response := b.stream(request(user("x")))
	want := []string{
		`{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query": 1.0},"caller":{"type":"direct"}}`,
		`{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"n":1e2}]}`,
		`{"type":"compaction","content":"summary","more":1,"extra":{"k":2}}`,
		`{"type":"text","text":"ab` + "\uFFFD" + `","citations":[{"url":"u1"},{"url":"u2"}]}`,
	}
	var got []string
	for _, block := range response.Content {
		got = append(got, string(block))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	usage := model.Usage{InputTokens: 5, OutputTokens: 12, CacheWrite5mTokens: 9, WebSearchRequests: 2, Fast: true}
	if diff := cmp.Diff(usage, response.Usage); diff != "" {
		t.Error(diff)
	}
	if response.StopReason != "refusal" || string(response.StopDetails) != `{"type":"refusal","category":"cyber","explanation":null}` {
		t.Errorf("%s %s", response.StopReason, response.StopDetails)
	}
}

func TestThinkingThatWasCutIsLeftOut(t *testing.T) {
	b := recorded(t, "text/event-stream", frames(
		`{"type":"message_start","message":{"id":"msg_1","model":"m"}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"half"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":1}}`,
		`{"type":"message_stop"}`,
	))
	if response := b.stream(request(user("x"))); len(response.Content) != 0 || response.StopReason != "max_tokens" {
		t.Errorf("got %s %s", response.StopReason, response.Content)
	}
}

func TestStreamsThatMakeNoSenseAreErrors(t *testing.T) {
	start := `{"type":"message_start","message":{"id":"msg_1","model":"m"}}`
	block := `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	end := `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`
	stop := `{"type":"message_stop"}`
	for name, stream := range map[string]string{
		"nothing":                 "",
		"no start":                frames(block, end, stop),
		"no reason":               frames(start, block, stop),
		"block out of order":      frames(start, strings.Replace(block, `"index":0`, `"index":4`, 1), end, stop),
		"delta of no block":       frames(start, `{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"a"}}`, end, stop),
		"delta after the end":     frames(start, block, `{"type":"content_block_stop","index":0}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, end, stop),
		"block of no object":      frames(start, `{"type":"content_block_start","index":0,"content_block":[]}`, end, stop),
		"a name twice in a block": frames(start, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a","text":"b"}}`, end, stop),
		"no JSON":                 "event: message_start\ndata: {\n\n",
		"cut frame":               frames(start, block, end) + "event: message_stop\ndata: {\"type\":\"message_stop\"}",
	} {
		failed := recorded(t, "text/event-stream", stream).failure(request(user("x")))
		if !failed.Retryable || failed.Class != model.RequestFailed {
			t.Errorf("%s: %+v", name, failed)
		}
	}
}

func TestWhatIsNoStreamIsNamed(t *testing.T) {
	failed := recorded(t, "text/html", "<html>Log in</html>").failure(request(user("x")))
	if !strings.Contains(failed.Message, `"text/html" instead of an event stream`) {
		t.Error(failed)
	}
	failed = recorded(t, "application/json", `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`).failure(request(user("x")))
	if failed.Class != model.Overloaded || failed.Message != "busy" {
		t.Error(failed)
	}
}

func TestBadRequestsAreNotSent(t *testing.T) {
	b := newBench(t, "otherwise: {text: x}", Config{})
	bad := request(model.Message{Role: "user", Content: jsontext.Value(`[{"type":"text","text":"a","text":"b"}]`)})
	if failed := b.failure(bad); failed.Retryable || !strings.Contains(failed.Message, "messages.0.content") {
		t.Error(failed)
	}
	tool := request(user("x"))
	tool.Tools = []model.Tool{{Name: "a", InputSchema: jsontext.Value(`[]`)}}
	if failed := b.failure(tool); failed.Retryable || !strings.Contains(failed.Message, "tools.0.input_schema") {
		t.Error(failed)
	}
	if n := len(b.server.Records()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	for _, url := range []string{"api.example.com", "ftp://x", "http://"} {
		if _, err := New(Config{BaseURL: url}); err == nil {
			t.Errorf("%q was taken for a base URL", url)
		}
	}
}

func TestModelsAreListedAndTheKeyIsChecked(t *testing.T) {
	library, err := scripted.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mockserver.New(mockserver.Config{Library: library, APIKey: "right-key"}))
	defer server.Close()
	infos, err := newProvider(t, Config{BaseURL: server.URL, APIKey: "right-key"}).Models(t.Context())
	if err != nil || len(infos) != 2 || infos[0].ID != "scripted/demo" || infos[0].DisplayName == "" {
		t.Errorf("%+v, %v", infos, err)
	}
	if err := newProvider(t, Config{BaseURL: server.URL, AuthToken: "right-key"}).Check(t.Context()); err != nil {
		t.Error(err)
	}
	var failed *model.Error
	err = newProvider(t, Config{BaseURL: server.URL, APIKey: "wrong-key"}).Check(t.Context())
	if !errors.As(err, &failed) || failed.Status != 401 || strings.Contains(err.Error(), "wrong-key") {
		t.Error(err)
	}
}

func FuzzAssembly(f *testing.F) {
	f.Add("message_start", `{"type":"message_start","message":{"id":"m"}}`, "content_block_start", `{"index":0,"content_block":{"type":"tool_use","id":"a","name":"b","input":{}}}`, `{"index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1"}}`)
	f.Add("message_start", `{}`, "content_block_start", `{"index":0,"content_block":{"type":"text","text":"\ud83d"}}`, `{"index":0,"delta":{"type":"x","text":"y","z":[]}}`)
	f.Fuzz(func(t *testing.T, name1, data1, name2, data2, delta string) {
		a := &assembly{ids: model.NewCallIDs(nil)}
		for _, event := range [][2]string{{name1, data1}, {name2, data2}, {"content_block_delta", delta}} {
			if _, err := a.take(event[0], []byte(event[1])); err != nil {
				return
			}
		}
		a.stop = "end_turn"
		response, err := a.response()
		if err != nil {
			return
		}
		for _, block := range response.Content {
			if !block.IsValid() || block.Kind() != '{' {
				t.Errorf("invalid block %q", block)
			}
		}
	})
}
