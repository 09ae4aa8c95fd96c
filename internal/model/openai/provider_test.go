package openai

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/attempt"
)

// server answers every request with the same bytes and keeps the last body.
type server struct {
	url  string
	body string
	path string
}

func serve(t testing.TB, status int, contentType, answer string) *server {
	t.Helper()
	s := &server{}
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.body, s.path = strings.TrimSpace(string(body)), r.URL.Path
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(local.Close)
	s.url = local.URL
	return s
}

func newProvider(t testing.TB, config Config) *Provider {
	t.Helper()
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func message(role, content string) model.Message {
	return model.Message{Role: role, Content: jsontext.Value(content)}
}

var hello = model.Request{Model: "local-model", Messages: []model.Message{message("user", `[{"type":"text","text":"hello"}]`)}}

// stream makes server-sent events of chunks. A line that begins with a colon is a comment, and one that is empty is left
// as it is.
func stream(chunks ...string) string {
	var out strings.Builder
	for _, chunk := range chunks {
		if chunk != "" && chunk[0] != ':' {
			out.WriteString("data: ")
		}
		out.WriteString(chunk + "\n\n")
	}
	return out.String()
}

// The streams are in the manner of the servers that they are named after.
var streams = []struct {
	name    string
	answer  string
	content []string
	stop    string
	usage   model.Usage
	broken  []model.BrokenCall
	model   string
}{
	{
		name: "Ollama: calls come whole, all with index 0, and no marker at the end",
		answer: stream(
			`{"id":"chatcmpl-12","object":"chat.completion.chunk","created":1764500000,"model":"qwen3:8b","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Two "},"finish_reason":null}]}`,
			`{"id":"chatcmpl-12","model":"qwen3:8b","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"lookups."},"finish_reason":null}]}`,
			`{"id":"chatcmpl-12","model":"qwen3:8b","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_aa","index":0,"type":"function","function":{"name":"bash","arguments":"{\"command\":\"ls\"}"}}]},"finish_reason":null}]}`,
			`{"id":"chatcmpl-12","model":"qwen3:8b","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_bb","index":0,"type":"function","function":{"name":"bash","arguments":"{\"command\":\"pwd\"}"}}]},"finish_reason":null}]}`,
			`{"id":"chatcmpl-12","model":"qwen3:8b","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"tool_calls"}]}`,
			`{"id":"chatcmpl-12","model":"qwen3:8b","choices":[],"usage":{"prompt_tokens":200,"completion_tokens":31,"total_tokens":231}}`,
		),
		content: []string{
			`{"type":"thinking","thinking":"Two lookups.","signature":""}`,
			`{"type":"tool_use","id":"call_aa","name":"bash","input":{"command":"ls"}}`,
			`{"type":"tool_use","id":"call_bb","name":"bash","input":{"command":"pwd"}}`,
		},
		stop: "tool_use", usage: model.Usage{InputTokens: 200, OutputTokens: 31}, model: "qwen3:8b",
	},
	{
		name: "vLLM: calls in pieces by index, interleaved, cached tokens, null everywhere",
		answer: stream(
			`{"id":"chatcmpl-9f","object":"chat.completion.chunk","created":1,"model":"zai/GLM","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[{"index":0,"delta":{"reasoning_content":"Think.","reasoning":"Think."},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[{"index":0,"delta":{"content":"\n\n"}}]}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-1","type":"function","index":0,"function":{"name":"read","arguments":""}}]}}]}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"file_path\": "}}]}}]}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[{"index":0,"delta":{"tool_calls":[{"id":"chatcmpl-tool-2","type":"function","index":1,"function":{"name":"read"}}]}}]}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\"}"}},{"index":1,"function":{"arguments":"{\"file_path\":\"b\"}"}}]}}]}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"tool_calls","stop_reason":154829}]}`,
			`{"id":"chatcmpl-9f","model":"zai/GLM","choices":[],"usage":{"prompt_tokens":100,"total_tokens":120,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":64}}}`,
			`[DONE]`,
		),
		content: []string{
			`{"type":"thinking","thinking":"Think.","signature":""}`,
			`{"type":"tool_use","id":"chatcmpl-tool-1","name":"read","input":{"file_path":"a"}}`,
			`{"type":"tool_use","id":"chatcmpl-tool-2","name":"read","input":{"file_path":"b"}}`,
		},
		stop: "tool_use", usage: model.Usage{InputTokens: 36, CacheReadTokens: 64, OutputTokens: 20}, model: "zai/GLM",
	},
	{
		name: "vLLM: a new id with every piece",
		answer: stream(
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"t-1","type":"function","index":0,"function":{"name":"a"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"t-2","index":0,"function":{"arguments":"{\"x\""}}]}}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"t-3","index":0,"function":{"arguments":":1}"}}]},"finish_reason":"stop"}]}`,
			`[DONE]`,
		),
		content: []string{`{"type":"tool_use","id":"t-1","name":"a","input":{"x":1}}`},
		stop:    "tool_use", model: "local-model",
	},
	{
		name: "llama.cpp: usage beside the last choice, stop where a call was made, numbers as written",
		answer: stream(
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"chatcmpl-q","model":"gpt-oss","object":"chat.completion.chunk"}`,
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"I "}}],"id":"chatcmpl-q","model":"gpt-oss"}`,
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"look."}}],"id":"chatcmpl-q","model":"gpt-oss"}`,
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,"id":"Ab3","type":"function","function":{"name":"lookup","arguments":"{"}}]}}]}`,
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"id\":9007199254740993,\"n\":18446744073709551615,\"f\":1e400,\"d\":0.1000,\"z\":-0}"}}]}}]}`,
			`{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"usage":{"completion_tokens":9,"prompt_tokens":50,"total_tokens":59},"timings":{"prompt_n":50}}`,
			`[DONE]`,
		),
		content: []string{
			`{"type":"text","text":"I look."}`,
			`{"type":"tool_use","id":"Ab3","name":"lookup","input":{"id":9007199254740993,"n":18446744073709551615,"f":1e400,"d":0.1000,"z":-0}}`,
		},
		stop: "tool_use", usage: model.Usage{InputTokens: 50, OutputTokens: 9}, model: "gpt-oss",
	},
	{
		name: "OpenRouter: comments, reasoning with details, usage with cost",
		answer: stream(
			`: OPENROUTER PROCESSING`, ``, `: OPENROUTER PROCESSING`,
			`{"id":"gen-1","provider":"P","model":"deepseek/v4","object":"chat.completion.chunk","created":1,"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm."}]},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}`,
			`: OPENROUTER PROCESSING`,
			`{"id":"gen-1","model":"deepseek/v4","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}`,
			`{"id":"gen-1","model":"deepseek/v4","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"length","native_finish_reason":"MAX_TOKENS"}]}`,
			`{"id":"gen-1","model":"deepseek/v4","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"cost":0.0001,"prompt_tokens_details":{"cached_tokens":0}}}`,
			`[DONE]`,
		),
		content: []string{`{"type":"thinking","thinking":"Hm.","signature":""}`, `{"type":"text","text":"Hello"}`},
		stop:    "max_tokens", usage: model.Usage{InputTokens: 12, OutputTokens: 3}, model: "deepseek/v4",
	},
	{
		name: "a gateway: neither ids nor indexes, arguments as objects, content in parts",
		answer: stream(
			`{"choices":[{"delta":{"content":[{"type":"text","text":"So: "},{"type":"image"}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"function":{"name":"a","arguments":{"x":1.50}}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"function":{"name":"a","arguments":{"x":2}}}]},"finish_reason":"function_call"}]}`,
		),
		content: []string{`{"type":"text","text":"So: "}`, `{"type":"tool_use","id":"call_*","name":"a","input":{"x":1.50}}`, `{"type":"tool_use","id":"call_*","name":"a","input":{"x":2}}`},
		stop:    "tool_use", model: "local-model",
	},
	{
		name: "ids that repeat and names that no conversation may hold",
		answer: stream(
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":"{}"}},{"index":1,"id":"x","function":{"name":"functions.a:1","arguments":"{}"}},{"index":2,"id":"a b","function":{"name":"a","arguments":""}},{"index":3,"id":"old","function":{"name":"a"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
			`[DONE]`,
		),
		content: []string{
			`{"type":"tool_use","id":"x","name":"a","input":{}}`, `{"type":"tool_use","id":"x_2","name":"functions_a_1","input":{}}`,
			`{"type":"tool_use","id":"call_*","name":"a","input":{}}`, `{"type":"tool_use","id":"old_2","name":"a","input":{}}`,
		},
		stop: "tool_use", model: "local-model",
	},
	{
		name: "a call that the limit cut, after one that is complete",
		answer: stream(
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"p","function":{"name":"a","arguments":"{}"}},{"index":1,"id":"q","function":{"name":"a","arguments":"{\"path\":\"a\""}}]}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`,
		),
		content: []string{`{"type":"tool_use","id":"p","name":"a","input":{}}`, `{"type":"tool_use","id":"q","name":"a","input":{}}`},
		stop:    "max_tokens", broken: []model.BrokenCall{{Block: 1, Cut: true, Input: `{"path":"a"`}}, model: "local-model",
	},
	{
		name: "a call whose arguments are no object, and half a surrogate pair",
		answer: stream(
			`{"choices":[{"index":0,"delta":{"content":"\ud83d!","tool_calls":[{"index":0,"id":"p","function":{"name":"a","arguments":"[1]"}},{"index":1,"id":"q","function":{"name":"a","arguments":"{\"s\":\"\\ud83d\"}"}}]}}]}`,
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
		),
		content: []string{"{\"type\":\"text\",\"text\":\"\uFFFD!\"}", `{"type":"tool_use","id":"p","name":"a","input":{}}`, "{\"type\":\"tool_use\",\"id\":\"q\",\"name\":\"a\",\"input\":{\"s\":\"\uFFFD\"}}"},
		stop:    "tool_use", broken: []model.BrokenCall{{Block: 1, Input: `[1]`}}, model: "local-model",
	},
	{
		name: "a content filter",
		answer: stream(
			`{"choices":[{"index":0,"delta":{"refusal":"I cannot."},"finish_reason":"content_filter"}]}`,
		),
		content: []string{`{"type":"text","text":"I cannot."}`}, stop: "refusal", model: "local-model",
	},
	{
		name:    "an empty answer",
		answer:  stream(`{"choices":[{"index":0,"delta":{"content":" \n"},"finish_reason":"stop"}]}`, `[DONE]`),
		content: nil, stop: "end_turn", model: "local-model",
	},
}

var madeUp = regexp.MustCompile(`"id":"call_[A-Z2-7]{26}"`)

func TestStreamsOfManyServers(t *testing.T) {
	for _, test := range streams {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, 200, "text/event-stream", test.answer)
			request := hello
			request.Messages = append([]model.Message{message("user", `"x"`), message("assistant", `[{"type":"tool_use","id":"old","name":"a","input":{}}]`),
				message("user", `[{"type":"tool_result","tool_use_id":"old"}]`)}, hello.Messages...)
			previews := map[int]string{}
			response, err := newProvider(t, Config{BaseURL: s.url}).Stream(t.Context(), request, func(d model.Delta) { previews[d.Block] += d.Text })
			if err != nil {
				t.Fatal(err)
			}
			var content []string
			ids := map[string]bool{}
			for i, block := range response.Content {
				if !block.IsValid() {
					t.Errorf("invalid block %s", block)
				}
				if id := madeUp.FindString(string(block)); id != "" {
					if ids[id] {
						t.Errorf("the id %s is there twice", id)
					}
					ids[id] = true
				}
				content = append(content, madeUp.ReplaceAllString(string(block), `"id":"call_*"`))
				if text := previews[i]; text != "" && !strings.Contains(string(block), strings.ReplaceAll(text, "\n", `\n`)) {
					t.Errorf("block %d is %s, but %q was shown", i, block, text)
				}
			}
			if diff := cmp.Diff(test.content, content); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.broken, response.Broken); diff != "" {
				t.Error(diff)
			}
			if response.StopReason != test.stop || response.Usage != test.usage || response.Model != test.model {
				t.Errorf("got %s %+v %s", response.StopReason, response.Usage, response.Model)
			}
		})
	}
}

func TestAnswersThatAreNotComplete(t *testing.T) {
	text := `{"choices":[{"index":0,"delta":{"content":"half"}}]}`
	for name, test := range map[string]struct {
		answer string
		class  model.Class
		retry  bool
		want   string
	}{
		"no finish reason":      {stream(text), model.RequestFailed, true, "without a finish reason"},
		"done without a reason": {stream(text, `[DONE]`), model.RequestFailed, true, "without a finish reason"},
		"nothing at all":        {"", model.RequestFailed, true, "without a finish reason"},
		"cut in a chunk":        {stream(text) + `data: {"choices":[{"ind`, model.RequestFailed, true, ""},
		"no JSON":               {stream(text, `{nope`), model.RequestFailed, true, "connection"},
		"error object":          {stream(text, `{"error":{"message":"busy","type":"overloaded_error","code":503}}`), model.Overloaded, true, "busy"},
		"error string":          {stream(text, `{"choices":[],"error":"out of memory"}`), model.RequestFailed, true, "out of memory"},
		"error with a code":     {stream(text, `{"id":"g","error":{"code":429,"message":"slow down"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`), model.RateLimited, true, "slow down"},
		"error of a choice":     {stream(text, `{"choices":[{"index":0,"delta":{},"error":{"code":402,"message":"no credits"}}]}`), model.Billing, false, "no credits"},
		"finish reason error":   {stream(text, `{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`), model.RequestFailed, true, "broke"},
		"error of old vLLM":     {stream(text, `{"error":{"object":"error","message":"boom","type":"InternalServerError","param":null,"code":500}}`), model.RequestFailed, true, "boom"},
		"error, then no more":   {stream(text) + "data: {\"error\":{\"message\":\"gone\"}}\n", model.RequestFailed, true, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, 200, "text/event-stream", test.answer)
			response, err := newProvider(t, Config{BaseURL: s.url}).Stream(t.Context(), hello, nil)
			var failed *model.Error
			if response != nil || !errors.As(err, &failed) || failed.Class != test.class || failed.Retryable != test.retry || !strings.Contains(failed.Message, test.want) {
				t.Errorf("got %v, %v", response, err)
			}
		})
	}
}

func TestRefusalsOfAllShapes(t *testing.T) {
	for _, test := range []struct {
		status int
		body   string
		want   model.Error
	}{
		{429, `{"error":{"message":"slow","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, model.Error{Class: model.RateLimited, Retryable: true, Message: "slow"}},
		{429, `{"error":{"message":"pay","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, model.Error{Class: model.Billing, Message: "pay"}},
		{402, `{"error":{"message":"Insufficient credits","code":402}}`, model.Error{Class: model.Billing, Message: "Insufficient credits"}},
		{404, `{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error","param":null,"code":null}}`, model.Error{Class: model.RequestFailed, Message: `model "x" not found, try pulling it first`}},
		{404, `{"error":"model not found"}`, model.Error{Class: model.RequestFailed, Message: "model not found"}},
		{400, `{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`, model.Error{Class: model.RequestFailed, Message: "too long"}},
		{422, `{"detail":[{"loc":["body","messages"],"msg":"field required"}]}`, model.Error{Class: model.RequestFailed, Message: `[{"loc":["body","messages"],"msg":"field required"}]`}},
		{401, `{"detail":"Unauthorized"}`, model.Error{Class: model.RequestFailed, Message: "Unauthorized"}},
		{503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, model.Error{Class: model.Overloaded, Retryable: true, Message: "Loading model"}},
		{502, `<html><body>Bad gateway</body></html>`, model.Error{Class: model.RequestFailed, Retryable: true, Message: "the model provider answered 502 Bad Gateway"}},
		{500, `panic`, model.Error{Class: model.RequestFailed, Retryable: true, Message: "panic"}},
		{401, `{"error":{"message":"Incorrect API key provided: sk-very-secret-key"}}`, model.Error{Class: model.RequestFailed, Message: "Incorrect API key provided: [redacted]"}},
		{500, ``, model.Error{Class: model.RequestFailed, Retryable: true, Message: "the model provider answered 500 Internal Server Error"}},
	} {
		s := serve(t, test.status, "application/json", test.body)
		_, err := newProvider(t, Config{BaseURL: s.url, APIKey: "sk-very-secret-key"}).Stream(t.Context(), hello, nil)
		var failed *model.Error
		if !errors.As(err, &failed) {
			t.Fatal(err)
		}
		test.want.Status = test.status
		if diff := cmp.Diff(test.want, *failed); diff != "" {
			t.Errorf("%d %s: %s", test.status, test.body, diff)
		}
	}
}

func TestAWholeAnswerIsTakenForAStream(t *testing.T) {
	s := serve(t, 200, "application/json", `{
  "id": "c1", "model": "m",
  "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi", "tool_calls": [
    {"id": "a1", "type": "function", "function": {"name": "a", "arguments": "{}"}},
    {"id": "a2", "type": "function", "function": {"name": "b", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}],
  "usage": {"prompt_tokens": 4, "completion_tokens": 2}
}`)
	response, err := newProvider(t, Config{BaseURL: s.url}).Stream(t.Context(), hello, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Content) != 3 || response.StopReason != "tool_use" || response.Usage.OutputTokens != 2 {
		t.Errorf("%+v", response)
	}
	for answer, want := range map[string]string{
		`{"error":{"message":"busy","type":"overloaded_error"}}`: "busy",
		`<html>`: `answered with "application/json" instead of an event stream`,
	} {
		s := serve(t, 200, "application/json", answer)
		if _, err := newProvider(t, Config{BaseURL: s.url}).Stream(t.Context(), hello, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func TestRequestsAreTranslated(t *testing.T) {
	request := model.Request{
		Model: "local-model", System: "Be terse.", Effort: "max", MaxTokens: 100,
		Tools: []model.Tool{{Name: "look", Description: "Looks.", InputSchema: jsontext.Value(`{"type":"object","properties":{"n":{"maximum":9007199254740993}}}`)}},
		Messages: []model.Message{
			message("user", `[{"type":"text","text":"See:"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]`),
			message("assistant", `[{"type":"thinking","thinking":"foreign","signature":"s"},{"type":"redacted_thinking","data":"x"},{"type":"thinking","thinking":"own","signature":""},{"type":"text","text":"I call."},{"type":"tool_use","id":"t1","name":"look","input":{"n":9007199254740993}},{"type":"tool_use","id":"t2","name":"look","input":{}}]`),
			message("user", `[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"one"},{"type":"image","source":{"type":"url","url":"https://x.example/p.png"}}]},{"type":"tool_result","tool_use_id":"t2","content":"","is_error":true},{"type":"text","text":"Also this."}]`),
			message("assistant", `[{"type":"thinking","thinking":"alone","signature":"s"}]`),
			message("system", `[{"type":"text","text":"A note."}]`),
			message("user", `[{"type":"document","title":"Doc","source":{"type":"text","media_type":"text/plain","data":"words"}},{"type":"document","title":"Scan","source":{"type":"base64","media_type":"application/pdf","data":"AA=="}},{"type":"search_result","source":"https://x.example","title":"T","content":[{"type":"text","text":"found"}]}]`),
		},
	}
	s := serve(t, 200, "text/event-stream", stream(`{"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}`))
	p := newProvider(t, Config{BaseURL: s.url + "/"})
	if _, err := p.Stream(t.Context(), request, nil); err != nil {
		t.Fatal(err)
	}
	if s.path != "/v1/chat/completions" {
		t.Errorf("the path is %s", s.path)
	}
	want := `{"model":"local-model","messages":[` + strings.Join([]string{
		`{"role":"system","content":"Be terse."}`,
		`{"role":"user","content":[{"type":"text","text":"See:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}`,
		`{"role":"assistant","content":"I call.","reasoning_content":"own","tool_calls":[{"id":"t1","type":"function","function":{"name":"look","arguments":"{\"n\":9007199254740993}"}},{"id":"t2","type":"function","function":{"name":"look","arguments":"{}"}}]}`,
		`{"role":"tool","content":"one\n[The image follows in the next message.]","tool_call_id":"t1"}`,
		`{"role":"tool","content":"Error: (no output)","tool_call_id":"t2"}`,
		`{"role":"user","content":[{"type":"text","text":"Image from the result of tool call t1:"},{"type":"image_url","image_url":{"url":"https://x.example/p.png"}},{"type":"text","text":"Also this."}]}`,
		`{"role":"user","content":"\u003csystem\u003e\nA note.\n\u003c/system\u003e"}`,
		`{"role":"user","content":"Doc\n\nwords\n\n[A document that cannot be shown to this model was left out. Scan]\n\nT\nhttps://x.example\n\nfound"}`,
	}, ",") + `],"max_tokens":100,"stream":true,"tools":[{"function":{"name":"look","description":"Looks.","parameters":{"type":"object","properties":{"n":{"maximum":9007199254740993}}}},"type":"function"}],"stream_options":{"include_usage":true},"reasoning_effort":"high"}`
	if diff := cmp.Diff(want, s.body); diff != "" {
		t.Error(diff)
	}
	first := s.body
	if _, err := newProvider(t, Config{BaseURL: s.url}).Stream(t.Context(), request, nil); err != nil || s.body != first {
		t.Errorf("the second body differs (%v): %s", err, s.body)
	}
	request.Model = "gpt-5-mini"
	if _, err := newProvider(t, Config{BaseURL: s.url, DropReasoning: true}).Stream(t.Context(), request, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.body, `"max_completion_tokens":100`) || strings.Contains(s.body, "max_tokens\":") || strings.Contains(s.body, "reasoning_content") {
		t.Error(s.body)
	}
}

func TestRequestsThatCannotBeTranslatedAreNotSent(t *testing.T) {
	s := serve(t, 200, "text/event-stream", "")
	bad := hello
	bad.Messages = []model.Message{message("user", `{"type":"text"}`)}
	_, err := newProvider(t, Config{BaseURL: s.url}).Stream(t.Context(), bad, nil)
	var failed *model.Error
	if !errors.As(err, &failed) || failed.Retryable || !strings.Contains(failed.Message, "messages.0.content") || s.path != "" {
		t.Errorf("%v, sent to %q", err, s.path)
	}
	if _, err := New(Config{BaseURL: "localhost:11434"}); err == nil {
		t.Error("a base URL without a scheme was taken")
	}
}

func TestCommentsAloneAreNoAnswer(t *testing.T) {
	local := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			fmt.Fprint(w, ": PROCESSING\n\n")
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}))
	defer local.Close()
	_, err := newProvider(t, Config{BaseURL: local.URL, Limits: attempt.Limits{Quiet: 100 * time.Millisecond}}).Stream(t.Context(), hello, nil)
	var failed *model.Error
	if !errors.As(err, &failed) || !failed.Retryable || !strings.Contains(failed.Message, "signs of life") {
		t.Error(err)
	}
}

func TestModelsAreListed(t *testing.T) {
	s := serve(t, 200, "application/json", `{"object":"list","data":[{"id":"qwen3:8b","object":"model","created":1764500000,"owned_by":"library"},{"id":"b"}]}`)
	infos, err := newProvider(t, Config{BaseURL: s.url}).Models(t.Context())
	want := []model.Info{{ID: "qwen3:8b", DisplayName: "qwen3:8b", CreatedAt: time.Unix(1764500000, 0).UTC()}, {ID: "b", DisplayName: "b"}}
	if diff := cmp.Diff(want, infos); diff != "" || err != nil || s.path != "/v1/models" {
		t.Error(diff, err, s.path)
	}
	s = serve(t, 401, "application/json", `{"error":{"message":"no"}}`)
	if err := newProvider(t, Config{BaseURL: s.url}).Check(t.Context()); err == nil {
		t.Error("a refusal was taken for a list")
	}
}

func FuzzAssembly(f *testing.F) {
	for _, test := range streams {
		for _, line := range strings.Split(test.answer, "\n\n") {
			f.Add([]byte(strings.TrimPrefix(line, "data: ")), []byte(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"length"}]}`))
		}
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		a := newAssembly(hello, nil)
		if a.take(one) != nil || a.take(two) != nil {
			return
		}
		response, err := a.response()
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range response.Content {
			if !block.IsValid() || block.Kind() != '{' {
				t.Errorf("invalid block %q", block)
			}
		}
	})
}
