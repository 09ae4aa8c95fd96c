package mockserver

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/scripted"
)

func newServer(t testing.TB, script string, config Config) (*Server, *httptest.Server) {
	t.Helper()
	parsed, err := scripted.Parse("test", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	config.Library = scripted.NewLibrary(parsed)
	s := New(config)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server
}

func post(t testing.TB, url, body string) (int, string) {
	t.Helper()
	response, err := http.Post(url+"/v1/messages", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func picture(t *testing.T, width, height int) string {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":%q}}`, base64.StdEncoding.EncodeToString(out.Bytes()))
}

// conversation is the body of a request with these messages.
func conversation(messages ...string) string {
	return `{"model":"test","max_tokens":100,"messages":[` + strings.Join(messages, ",") + `]}`
}

func says(role string, blocks ...string) string {
	return fmt.Sprintf(`{"role":%q,"content":[%s]}`, role, strings.Join(blocks, ","))
}

const (
	hello = `{"type":"text","text":"hello"}`
	use1  = `{"type":"tool_use","id":"t1","name":"a","input":{}}`
	use2  = `{"type":"tool_use","id":"t2","name":"a","input":{}}`
	res1  = `{"type":"tool_result","tool_use_id":"t1","content":"r"}`
	res2  = `{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"r"}],"is_error":true}`
)

// thought is thinking after the user said hello.
func thought(modelID, text string) string {
	before := scripted.NewPast(model.Message{Role: "user", Content: jsontext.Value("[" + hello + "]")})
	return fmt.Sprintf(`{"type":"thinking","thinking":%q,"signature":%q}`, text, scripted.Signature(modelID, text, before))
}

func tools(list string) string {
	return `{"model":"test","max_tokens":100,"tools":[` + list + `],"messages":[` + says("user", hello) + `]}`
}

func tool(schema string) string { return tools(`{"name":"a","input_schema":` + schema + `}`) }

func TestStrictTakesWhatIsRight(t *testing.T) {
	s, server := newServer(t, "otherwise: {text: ok}", Config{Strict: true})
	small := picture(t, 10, 10)
	for _, body := range []string{
		conversation(`{"role":"user","content":"hi"}`),
		conversation(says("user", hello), says("assistant", thought("test", "hm"), use1, use2), says("user", res2, res1, hello)),
		conversation(says("user", hello), says("assistant", use1), says("assistant", use2), says("user", res1), says("user", res2)),
		conversation(says("user", hello), says("assistant", hello), says("system", hello), says("user", hello)),
		conversation(says("user", hello), says("assistant", `{"type":"thinking","thinking":"x","signature":"own"}`, `{"type":"redacted_thinking","data":"b3A="}`, hello), says("user", small)),
		conversation(says("user", hello), says("assistant", use1), says("user", `{"type":"tool_result","tool_use_id":"t1"}`)),
		conversation(says("user", `{"text":"h\u0065llo", "type":"text","cache_control":{"type":"ephemeral"}}`), says("assistant", thought("test", "hm"), hello, thought("test", "again"), hello), says("user", hello)),
		conversation(says("user", strings.Repeat(picture(t, 2400, 300)+",", 19)+small)),
		tool(`{"type":"object","properties":{"a.b":{"type":["string","null"]},"c":{"type":"array","items":{"enum":[1]}}},"required":["c"],"additionalProperties":false}`),
		tools(`{"type":"web_search_20250305","name":"web_search"}`),
		`{"model":"test","max_tokens":1,"stream":true,"thinking":{"type":"adaptive"},"output_config":{"effort":"max"},"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[` + says("user", `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`) + `]}`,
	} {
		if status, answer := post(t, server.URL, body); status != 200 {
			t.Errorf("%s\n→ %s", body, answer)
		}
	}
	if n := len(s.Refusals()); n != 0 {
		t.Errorf("%d refusals", n)
	}
}

func TestStrictRefusesWhatTheAPIRefuses(t *testing.T) {
	s, server := newServer(t, "otherwise: {text: ok}", Config{Strict: true, MaxPromptTokens: 200_000})
	many := strings.Repeat(picture(t, 10, 10)+",", 20)
	for _, test := range []struct{ body, want string }{
		{`{"model":"test"`, "not valid JSON"},
		{`{"model":"test","model":"test"}`, "not valid JSON"},
		{conversation(says("user", `{"type":"text","text":"\ud83d"}`)), "not valid JSON"},
		{conversation(says("user", "{\"type\":\"text\",\"text\":\"\xff\"}")), "not valid JSON"},
		{`{"max_tokens":1,"messages":[]}`, "model: is required"},
		{`{"model":"test","messages":[` + says("user", hello) + `]}`, "max_tokens: is required"},
		{`{"model":"test","max_tokens":1,"messages":[]}`, "messages: at least one"},
		{`{"model":"test","max_tokens":1,"nope":1,"messages":[]}`, "nope"},
		{`{"model":"test","max_tokens":1,"output_config":{"effort":"huge"},"messages":[` + says("user", hello) + `]}`, "output_config.effort"},
		{`{"model":"test","max_tokens":1,"thinking":{"type":"on"},"messages":[` + says("user", hello) + `]}`, "thinking.type"},
		{conversation(says("assistant", hello)), "messages.0.role: the first"},
		{conversation(says("tool", hello)), "messages.0.role: must be"},
		{conversation(says("user")), "messages.0.content: must not be empty"},
		{conversation(`{"role":"user","content":""}`), "messages.0.content.text: text content blocks must not be empty"},
		{conversation(says("user", hello), says("assistant", hello, `{"type":"text","text":" \n"}`), says("user", hello)), "messages.1.content.1.text: text content blocks must contain more than whitespace"},
		{conversation(says("user", `{"type":"text","text":"a","processed_at":null}`)), "messages.0.content.0.processed_at: extra members"},
		{conversation(says("user", hello), says("assistant", hello)), "must end with a user message"},
		{conversation(says("user", hello), says("assistant", use1)), "messages.1.content.0: the call \"t1\" has no tool_result"},
		{conversation(says("user", hello), says("assistant", use1), says("user", hello)), "has no tool_result"},
		{conversation(says("user", hello), says("assistant", use1), says("system", hello), says("user", res1)), "has no tool_result"},
		{conversation(says("user", hello), says("assistant", use1, use2), says("user", res1)), "messages.1.content.1: the call \"t2\""},
		{conversation(says("user", res1)), "messages.0.content.0: unexpected tool_use_id"},
		{conversation(says("user", hello), says("assistant", use1), says("user", res1, res2)), "messages.2.content.1: unexpected tool_use_id"},
		{conversation(says("user", hello), says("assistant", use1), says("user", res1, res1)), "more than one result"},
		{conversation(says("user", hello), says("assistant", use1), says("user", hello, res1)), "messages.2.content.1: tool results must come before"},
		{conversation(says("user", hello), says("assistant", use1, use1), says("user", res1)), "ids must be unique"},
		{conversation(says("user", hello), says("assistant", use1), says("user", res1), says("assistant", use1), says("user", res1)), "messages.3.content.0.id: tool_use ids must be unique"},
		{conversation(says("user", hello), says("assistant", `{"type":"tool_use","id":"a b","name":"a","input":{}}`), says("user", hello)), "messages.1.content.0.id: must match"},
		{conversation(says("user", hello), says("assistant", `{"type":"tool_use","id":"t1","name":"a.b","input":{}}`), says("user", res1)), "messages.1.content.0.name"},
		{conversation(says("user", hello), says("assistant", `{"type":"tool_use","id":"t1","name":"a","input":"x"}`), says("user", res1)), "messages.1.content.0.input"},
		{conversation(says("user", hello), says("assistant", use1), says("user", `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":""}]}`)), "messages.2.content.0.content.0.text"},
		{conversation(says("user", hello), says("assistant", use1), says("user", `{"type":"tool_result","tool_use_id":"t1","content":"","is_error":true}`)), "must not be empty if is_error"},
		{conversation(says("user", use1)), `"tool_use" is not possible`},
		{conversation(says("user", hello), says("assistant", res1), says("user", hello)), `"tool_result" is not possible`},
		{conversation(says("user", `{"type":"strange"}`)), `"strange" is not possible`},
		{conversation(says("user", hello), says("assistant", thought("other", "hm"), hello), says("user", hello)), "messages.1.content.0.signature: invalid signature"},
		{conversation(says("user", hello), says("assistant", strings.Replace(thought("test", "hm"), "hm", "ha", 1), hello), says("user", hello)), "invalid signature"},
		{conversation(says("user", hello, hello), says("assistant", thought("test", "hm"), hello), says("user", hello)), "or what comes before it was"},
		{conversation(says("user", hello), says("assistant", `{"type":"thinking","thinking":"x","signature":""}`, hello), says("user", hello)), "signature: is required"},
		{conversation(says("user", hello), says("assistant", thought("test", "hm")), says("user", hello)), "must not be thinking"},
		{tools(`{"name":"a b","input_schema":{"type":"object"}}`), "tools.0.name: must match"},
		{tools(`{"name":"a","input_schema":{"type":"object"}},{"name":"a","input_schema":{"type":"object"}}`), "tools.1.name: tool names must be unique"},
		{tools(`{"name":"a"}`), "tools.0.input_schema: must be an object"},
		{tool(`{"type":"array"}`), "tools.0.input_schema.type: must be object"},
		{tool(`{"type":"object","properties":{"a":{"type":"strin"}}}`), `tools.0.input_schema.properties.a.type: "strin"`},
		{tool(`{"type":"object","properties":{"a b":{}}}`), "the property name"},
		{tool(`{"type":"object","required":"a"}`), "tools.0.input_schema.required"},
		{tool(`{"type":"object","anyOf":[{}]}`), "anyOf is not supported at the top level"},
		{conversation(says("user", picture(t, 8001, 1))), "8001 × 1 pixels"},
		{conversation(says("user", many+picture(t, 2001, 1))), "maximum for a side is 2000 with 21 images"},
		{conversation(says("user", hello), says("assistant", use1), says("user", `{"type":"tool_result","tool_use_id":"t1","content":[`+picture(t, 9000, 10)+`]}`)), "messages.2.content.0.content.0.source"},
		{conversation(says("user", strings.Replace(picture(t, 1, 1), "image/png", "image/gif", 1))), "says image/gif"},
		{conversation(says("user", `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%%"}}`)), "not valid base64"},
		{conversation(says("user", fmt.Sprintf(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":%q}}`, base64.StdEncoding.EncodeToString(make([]byte, 5<<20+1))))), "the maximum is 5242880"},
		{conversation(says("user", strings.Repeat(`{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},`, 4)+`{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`)), "at most 4 blocks"},
		{conversation(says("user", `{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`, `{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}`)), "must not come after one of 5m"},
		{conversation(says("user", hello), says("assistant", strings.Replace(thought("test", "x"), `"type"`, `"cache_control":{"type":"ephemeral"},"type"`, 1), hello), says("user", hello)), "messages.1.content.0.cache_control: extra"},
		{conversation(says("user", fmt.Sprintf(`{"type":"text","text":%q}`, strings.Repeat("word ", 200_000)))), "prompt is too long"},
	} {
		status, answer := post(t, server.URL, test.body)
		var got errorBody
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Errorf("%v: %s", err, answer)
		}
		if status != 400 || got.Error.Type != "invalid_request_error" || !strings.Contains(got.Error.Message, test.want) {
			t.Errorf("%.300s\n→ %d %s\nwant %q", test.body, status, answer, test.want)
		}
	}
	if got := s.Records(); len(got) != len(s.Refusals()) {
		t.Errorf("of %d only %d are marked as refused", len(got), len(s.Refusals()))
	}
}

func TestTooLargeABodyIsRefusedUnread(t *testing.T) {
	_, server := newServer(t, "otherwise: {text: ok}", Config{MaxBody: 100})
	if status, answer := post(t, server.URL, conversation(says("user", hello), strings.Repeat(" ", 100))); status != 413 || !strings.Contains(answer, "request_too_large") {
		t.Errorf("%d %s", status, answer)
	}
}

func TestLenientTakesWhatCanBeUnderstood(t *testing.T) {
	_, server := newServer(t, "otherwise: {text: ok}", Config{})
	if status, answer := post(t, server.URL, `{"model":"scripted/test","nope":1,"messages":[{"role":"user","content":[]}]}`); status != 200 {
		t.Error(answer)
	}
	if status, answer := post(t, server.URL, `{"model":"nope","messages":[]}`); status != 404 || !strings.Contains(answer, "not_found_error") {
		t.Error(status, answer)
	}
	response, err := http.Get(server.URL + "/v1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound || response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
}

// TestTheOfficialClientUnderstands reads an answer with Anthropic's own library, streamed and whole.
func TestTheOfficialClientUnderstands(t *testing.T) {
	_, server := newServer(t, `
steps:
  - usage: {input: 3, output: 4, cache_read: 5, cache_write: 6, cache_write_1h: 7, web_searches: 2}
    answer: [{thinking: hm}, {text: "hello there, reader"}, {tool: look, id: t1, input: {a: [1, "x"]}}]
`, Config{})
	client := sdk.NewClient(option.WithoutEnvironmentDefaults(), option.WithAPIKey("k"), option.WithBaseURL(server.URL), option.WithMaxRetries(0))
	params := sdk.MessageNewParams{Model: "scripted/test", MaxTokens: 10, Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hi"))}}
	whole, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	stream := client.Messages.NewStreaming(t.Context(), params)
	var streamed sdk.Message
	for stream.Next() {
		if err := streamed.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*sdk.Message{"whole": whole, "streamed": &streamed} {
		if len(m.Content) != 3 || m.StopReason != "tool_use" {
			t.Fatalf("%s: %d blocks, %s", name, len(m.Content), m.StopReason)
		}
		got := fmt.Sprint(m.Content[0].Thinking, "|", m.Content[0].Signature != "", "|", m.Content[1].Text, "|", m.Content[2].ID, m.Content[2].Name, string(m.Content[2].Input), "|",
			m.Usage.InputTokens, m.Usage.OutputTokens, m.Usage.CacheReadInputTokens, m.Usage.CacheCreationInputTokens)
		if want := `hm|true|hello there, reader|t1look{"a":[1,"x"]}|3 4 5 13`; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestRequestsOfASessionAreCounted(t *testing.T) {
	const threads = 3
	arrived := make(chan struct{}, threads)
	s, server := newServer(t, "otherwise: {text: x, break: {how: stall}}", Config{OnStart: func(Record) { arrived <- struct{}{} }})
	client := &http.Client{Transport: &http.Transport{}}
	var bodies []io.Closer
	for range threads {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/messages", strings.NewReader(`{"model":"test","stream":true,"metadata":{"user_id":"s1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, response.Body)
		<-arrived
	}
	if running, most := s.Running("s1"), s.MostConcurrent("s1"); running != threads || most != threads {
		t.Errorf("%d running, %d at most", running, most)
	}
	for _, body := range bodies {
		body.Close()
	}
	server.Close() // waits for the handlers
	if running, most := s.Running("s1"), s.MostConcurrent("s1"); running != 0 || most != threads {
		t.Errorf("%d running, %d at most", running, most)
	}
	for _, record := range s.RecordsOf("s1") {
		if record.Outcome != Closed {
			t.Errorf("the outcome is %s", record.Outcome)
		}
	}
}

func TestRecordsAreBounded(t *testing.T) {
	s, server := newServer(t, "otherwise: {text: x}", Config{MaxRecords: 2})
	for i := range 5 {
		post(t, server.URL, fmt.Sprintf(`{"model":"test","metadata":{"user_id":"s%d"}}`, i))
	}
	records := s.Records()
	if len(records) != 2 || records[0].Session != "s3" || records[1].Session != "s4" {
		t.Errorf("%+v", records)
	}
}

func TestBreakpointsAreNotPartOfThePrefix(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"text", "text":"a","cache_control":{"type":"ephemeral"}}`:         `{"type":"text", "text":"a"}`,
		`{"cache_control":{"type":"ephemeral","ttl":"1h"}, "type":"text","n":1.0}`: `{ "type":"text","n":1.0}`,
		`{"type":"text","cache_control":{"type":"ephemeral"},"text":"\u00e9"}`:     `{"type":"text","text":"\u00e9"}`,
		`{"cache_control":{"type":"ephemeral"}}`:                                   `{}`,
		`{"type":"text","text":"no"}`:                                              `{"type":"text","text":"no"}`,
	} {
		text, ttl := withoutCacheControl(jsontext.Value(raw))
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Error(diff)
		}
		if (ttl != "") != strings.Contains(raw, "cache_control") || (ttl == "1h") != strings.Contains(raw, "1h") {
			t.Errorf("%s: %q", raw, ttl)
		}
	}
}

func FuzzStrict(f *testing.F) {
	f.Add(conversation(says("user", hello), says("assistant", use1), says("user", res1)))
	f.Add(tools(`{"name":"a","input_schema":{"type":"object","properties":{"a":{"items":[{}]}}}}`))
	s := New(Config{Library: scripted.NewLibrary(), Strict: true})
	f.Fuzz(func(t *testing.T, body string) {
		parsed, refusal := s.parse([]byte(body))
		if (parsed == nil) == (refusal == nil) {
			t.Errorf("%v, %v", parsed, refusal)
		}
		if parsed != nil {
			parsed.forLibrary("")
			promptBlocks(parsed)
		}
	})
}
