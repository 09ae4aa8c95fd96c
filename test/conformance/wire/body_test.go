package wire

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

// badBodies are bodies that no endpoint may accept.
var badBodies = map[string]string{
	"cut off":              `{"name":"x","model":"scripted/greet"`,
	"not JSON":             `name=x`,
	"two values":           `{"name":"x","model":"scripted/greet"} {}`,
	"an array":             `[]`,
	"a string":             `"x"`,
	"null":                 `null`,
	"a comment":            `{/* */"name":"x","model":"scripted/greet"}`,
	"trailing comma":       `{"name":"x","model":"scripted/greet",}`,
	"raw NUL":              "{\"name\":\"x\x00\",\"model\":\"scripted/greet\"}",
	"invalid UTF-8":        "{\"name\":\"\xff\xfe\",\"model\":\"scripted/greet\"}",
	"lone surrogate":       `{"name":"\ud800","model":"scripted/greet"}`,
	"duplicate name":       `{"name":"x","name":"y","model":"scripted/greet"}`,
	"duplicate name below": `{"name":"x","model":"scripted/greet","metadata":{"a":"1","a":"2"}}`,
	"number for a string":  `{"name":7,"model":"scripted/greet"}`,
	"string for an array":  `{"name":"x","model":"scripted/greet","tools":"all"}`,
	"number in metadata":   `{"name":"x","model":"scripted/greet","metadata":{"a":1}}`,
	"deep array":           `{"name":"x","model":"scripted/greet","metadata":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`,
	"deep object":          strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000),
	"infinity":             `{"name":"x","model":"scripted/greet","metadata":1e999999}`,
}

func TestBadBodies(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	before := len(log(t, c, own))
	for name, body := range badBodies {
		for _, path := range []string{"/v1/agents", "/v1/environments", "/v1/sessions", "/v1/sessions/" + own + "/events",
			"/v1/sessions/" + own + "/resources"} {
			t.Run(name+path[:min(len(path), 20)], func(t *testing.T) {
				c.Do(t, "POST", path, body).WantError(t, 400, "invalid_request_error")
			})
		}
	}
	expect(t, "events after refused requests", len(log(t, c, own)), before)
}

func TestEmptyBodies(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	for _, path := range []string{"/v1/agents", "/v1/environments", "/v1/sessions", "/v1/sessions/" + own + "/events",
		"/v1/sessions/" + own + "/resources"} {
		c.Do(t, "POST", path, "").WantError(t, 400, "invalid_request_error")
		c.Do(t, "POST", path, "{}").WantError(t, 400, "invalid_request_error")
	}
}

// An error of a field names its place.
func TestErrorsNameThePlace(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	for _, test := range []struct {
		path  string
		body  any
		words string
	}{
		{"/v1/agents", object{"name": "x", "model": "scripted/greet", "tools": []object{{"type": "agent_toolset_20260401",
			"configs": []object{{"name": "teleport"}}}}}, "tools[0].configs[0].name"},
		{"/v1/agents", object{"name": "x", "model": "scripted/greet", "tools": []object{{"type": "agent_toolset_20260401",
			"default_config": object{"permission_policy": object{"type": "maybe"}}}}}, "tools[0].default_config.permission_policy.type"},
		{"/v1/agents", object{"name": "x", "model": "scripted/greet", "nonsense": 1}, "nonsense"},
		{"/v1/agents", object{"name": "x", "model": object{"id": "scripted/greet", "speed": "warp"}}, "model.speed"},
		{"/v1/sessions", object{"agent": 7}, "agent"},
		{"/v1/sessions/" + own + "/events", object{"events": []object{{"type": "user.nonsense"}}}, `events[0].type: "user.nonsense" is not a valid value`},
		{"/v1/sessions/" + own + "/events", object{"events": []object{{"type": "user.message", "content": text("a")},
			{"type": "user.message", "content": "b"}}}, "events[1].content"},
	} {
		r := c.Do(t, "POST", test.path, test.body).WantError(t, 400, "invalid_request_error")
		if m := r.Get("error.message").String(); !strings.Contains(m, test.words) {
			t.Errorf("%s: message %q, want %q in it", test.path, m, test.words)
		}
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	body := io.MultiReader(strings.NewReader(`{"events":[{"type":"user.message","content":[{"type":"text","text":"`),
		io.LimitReader(endless('a'), 33<<20), strings.NewReader(`"}]}]}`))
	c.Do(t, "POST", "/v1/sessions/"+own+"/events", body).WantError(t, 413, "request_too_large")
	expect(t, "events", len(log(t, c, own)), 0)
}

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// Text of any kind comes back as it was sent, in the log, on the stream and from the model.
func TestTextSurvives(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	for _, words := range []string{"a\x00b", "a\u2028b\u2029", "🦊 é 日本語 \u202e", "line\r\nline\n\nline", "data: x\nevent: y", `"\\"`,
		strings.Repeat("long ", 20_000), "<script>&amp;"} {
		frames := converse(t, c, own, words)
		at := slices.IndexFunc(frames, func(f raw.Frame) bool { return f.Event == "user.message" })
		if at < 0 || frames[at].Get("content.0.text").String() != words {
			t.Errorf("on the stream %q is another", head(words))
		}
		items := log(t, c, own)
		found, answered := false, false
		for _, item := range items {
			found = found || item.Get("type").String() == "user.message" && item.Get("content.0.text").String() == words
			answered = answered || item.Get("content.0.text").String() == "You said: "+words
		}
		if !found {
			t.Errorf("in the log %q is another", head(words))
		}
		if !answered && len(words) < 60_000 {
			t.Errorf("the model got another text than %q", head(words))
		}
	}
}

func head(s string) string { return fmt.Sprintf("%.40s", s) }

// Numbers that a float cannot hold stay as they are.
func TestToolResultNumbers(t *testing.T) {
	t.Parallel()
	c := shared(t)
	schema := `{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}`
	body := []byte(`{"name":"n","model":"scripted/greet","tools":[{"type":"custom","name":"count","description":"Counts.","input_schema":` + schema + `}]}`)
	r := c.Do(t, "POST", "/v1/agents", body).Want(t, 200)
	if !bytes.Contains(r.Body, []byte("9007199254740993")) {
		t.Errorf("a large integer changed: %s", r.Body)
	}
}
