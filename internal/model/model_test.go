package model_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/model"
)

func TestToolInput(t *testing.T) {
	for text, want := range map[string]string{
		``:    `{}`,
		" \n": `{}`,
		` {"z":1,"id":9007199254740993,"n":18446744073709551615,"f":1e400,"d":0.1000,"m":-0, "e":"\u00e9\/"} `: `{"z":1,"id":9007199254740993,"n":18446744073709551615,"f":1e400,"d":0.1000,"m":-0, "e":"\u00e9\/"}`,
		`{"a":"\ud83d","b":[1.0,{"\udc00":"😀"}],"n":1.50}`:                                                     "{\"a\":\"\uFFFD\",\"b\":[1.0,{\"\uFFFD\":\"😀\"}],\"n\":1.50}",
		"{\"a\":\"\xff\"}":        "{\"a\":\"\uFFFD\"}",
		`{"a":1,"a":2}`:           "",
		`{"a":1`:                  "",
		`{"a":1}}`:                "",
		`{"a":1} {"b":2}`:         "",
		`[1]`:                     "",
		`"a"`:                     "",
		`null`:                    "",
		`ls -l`:                   "",
		`{'a':1}`:                 "",
		`{"\ud83d":1,"\ud83e":2}`: "",
		strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000): "",
	} {
		input, ok := model.ToolInput(text)
		if ok != (want != "") || ok && string(input) != want || !ok && string(input) != "{}" {
			t.Errorf("%.80q becomes %.80s, %t, want %.80s", text, input, ok, want)
		}
	}
}

func FuzzToolInput(f *testing.F) {
	f.Add(`{"a":"\ud83d","n":1.0}`)
	f.Add("{\"\xff\":[]}")
	f.Fuzz(func(t *testing.T, text string) {
		input, ok := model.ToolInput(text)
		if !input.IsValid() || input.Kind() != '{' {
			t.Errorf("%q becomes %q", text, input)
		}
		if again, stays := model.ToolInput(string(input)); ok && (!stays || string(again) != string(input)) {
			t.Errorf("%q becomes %q the second time", input, again)
		}
	})
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{{"abc", 3, "abc"}, {"abcdef", 5, "ab…"}, {"ääää", 6, "ä…"}, {"abc", 1, "…"}} {
		if got := model.Shorten(test.text, test.limit); got != test.want || !utf8.ValidString(got) {
			t.Errorf("%q to %d is %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		ms, seconds string
		want        time.Duration
	}{
		{"", "", 0},
		{"1500", "9", 1500 * time.Millisecond},
		{"", "2", 2 * time.Second},
		{"", "0.5", 500 * time.Millisecond},
		{"soon", "2", 2 * time.Second},
		{"", "Mon, 30 Nov 2026 12:00:30 GMT", 30 * time.Second},
		{"", "Mon, 30 Nov 2026 11:00:00 GMT", 0},
		{"", "-5", 0},
		{"", "NaN", 0},
		{"", "Inf", time.Hour},
		{"1e300", "", time.Hour},
		{"", "99999999999999999999", time.Hour},
		{"", "tomorrow", 0},
	} {
		header := http.Header{}
		header.Set("Retry-After-Ms", test.ms)
		header.Set("Retry-After", test.seconds)
		if got := model.RetryAfter(header, now); got != test.want {
			t.Errorf("%q %q is %s, want %s", test.ms, test.seconds, got, test.want)
		}
	}
}

func TestRejected(t *testing.T) {
	for _, test := range []struct {
		status   int
		wireType string
		want     string
	}{
		{200, "overloaded_error", "model_overloaded_error true"},
		{200, "rate_limit_error", "model_rate_limited_error true"},
		{200, "api_error", "model_request_failed_error true"},
		{200, "invalid_request_error", "model_request_failed_error false"},
		{200, "new_error", "model_request_failed_error true"},
		{400, "", "model_request_failed_error false"},
		{404, "api_error", "model_request_failed_error false"},
		{408, "", "model_request_failed_error true"},
		{409, "", "model_request_failed_error true"},
		{429, "new_error", "model_rate_limited_error true"},
		{402, "", "billing_error false"},
		{503, "", "model_overloaded_error true"},
		{529, "", "model_overloaded_error true"},
		{500, "invalid_request_error", "model_request_failed_error true"},
	} {
		failed := model.Rejected(test.status, test.wireType, "", time.Second)
		if got := fmt.Sprint(failed.Class, " ", failed.Retryable); got != test.want {
			t.Errorf("%d %s is %s, want %s", test.status, test.wireType, got, test.want)
		}
		if failed.Message == "" || (failed.RetryAfter > 0) != failed.Retryable {
			t.Errorf("%+v", failed)
		}
	}
	if got := len(model.Rejected(500, "", strings.Repeat("ä", 5000), 0).Message); got > 2000 {
		t.Errorf("a message of %d bytes", got)
	}
}

func TestASecretShowsNowhere(t *testing.T) {
	secret := model.Secret("sk-very-secret")
	encoded, err := json.Marshal(map[string]any{"key": secret})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := struct{ Key model.Secret }{secret}
	text := fmt.Sprintf("%s %v %+v %#v %q %v %v", secret, secret, wrapped, wrapped, secret, errors.New(secret.String()), &wrapped) + string(encoded)
	if strings.Contains(text, "very") || !strings.Contains(text, "[redacted]") {
		t.Error(text)
	}
	if got := secret.Redact("key sk-very-secret is wrong"); got != "key [redacted] is wrong" {
		t.Error(got)
	}
	if got := model.Secret("none").Redact("none of it"); got != "none of it" {
		t.Error(got)
	}
}

func TestCallIDs(t *testing.T) {
	ids := model.NewCallIDs([]model.Message{
		{Role: "user", Content: []byte(`[{"type":"tool_result","tool_use_id":"free"}]`)},
		{Role: "assistant", Content: []byte(`[{"type":"text","text":"a"},{"type":"tool_use","id":"a","name":"n","input":{}},{"type":"tool_use","id":"b_2","name":"n","input":{}}]`)},
		{Role: "assistant", Content: []byte(`"text"`)},
	})
	for _, test := range [][2]string{{"free", "free"}, {"a", "a_2"}, {"a", "a_3"}, {"b", "b"}, {"b", "b_3"}} {
		if got := ids.Unique(test[0]); got != test[1] {
			t.Errorf("%s becomes %s, want %s", test[0], got, test[1])
		}
	}
	for _, id := range []string{"", "a b", "é", strings.Repeat("x", 129)} {
		if got := ids.Unique(id); !strings.HasPrefix(got, "call_") || ids.Unique(id) == got {
			t.Errorf("%q becomes %q", id, got)
		}
	}
	long := strings.Repeat("x", 128)
	ids.Unique(long)
	if got := ids.Unique(long); len(got) > 128 {
		t.Errorf("an id of %d bytes", len(got))
	}
}
