package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/test/harness"
	"github.com/perdure/perdure/test/harness/raw"
)

func TestMain(m *testing.M) { harness.Main(m) }

// shared is a client of the server that the tests have in common.
func shared(t *testing.T) raw.Client {
	t.Helper()
	s := harness.Shared(t, withScripts(t))
	return raw.Client{URL: s.URL, Key: s.APIKey}
}

// start is a client of a server of the test's own.
func start(t *testing.T) (raw.Client, *harness.Server) {
	t.Helper()
	s := harness.Start(t, withScripts(t))
	return raw.Client{URL: s.URL, Key: s.APIKey}, s
}

func withScripts(t *testing.T) harness.Options {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	return harness.Options{Scripts: root + "/test/conformance/scripts"}
}

type object = map[string]any

func text(s string) []object { return []object{{"type": "text", "text": s}} }

func message(s string) object {
	return object{"events": []object{{"type": "user.message", "content": text(s)}}}
}

var allTools = []object{{"type": "agent_toolset_20260401"}}

func agent(t *testing.T, c raw.Client, model string, tools []object) string {
	t.Helper()
	body := object{"name": t.Name(), "model": "scripted/" + model}
	if tools != nil {
		body["tools"] = tools
	}
	return c.Do(t, "POST", "/v1/agents", body).Want(t, 200).Get("id").String()
}

func environment(t *testing.T, c raw.Client) string {
	t.Helper()
	return c.Do(t, "POST", "/v1/environments", object{"name": t.Name()}).Want(t, 200).Get("id").String()
}

func session(t *testing.T, c raw.Client, model string, tools []object) string {
	t.Helper()
	body := object{"agent": agent(t, c, model, tools), "environment_id": environment(t, c)}
	return c.Do(t, "POST", "/v1/sessions", body).Want(t, 200).Get("id").String()
}

// log is all events of a session, oldest first.
func log(t *testing.T, c raw.Client, session string) []gjson.Result {
	t.Helper()
	return all(t, c, "/v1/sessions/"+session+"/events?limit=1000")
}

// all reads the pages of a list.
func all(t *testing.T, c raw.Client, path string) []gjson.Result {
	t.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	var items []gjson.Result
	for next := ""; ; {
		at := path
		if next != "" {
			at += separator + "page=" + next
		}
		page := c.Do(t, "GET", at, nil).Want(t, 200)
		items = append(items, page.Get("data").Array()...)
		if next = page.Get("next_page").String(); next == "" {
			return items
		}
	}
}

func ids(items []gjson.Result) []string {
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = item.Get("id").String()
	}
	return list
}

func frameIDs(frames []raw.Frame) []string {
	list := make([]string, len(frames))
	for i, f := range frames {
		list[i] = f.Get("id").String()
	}
	return list
}

// converse sends a message and reads the stream to the end of the turn.
func converse(t *testing.T, c raw.Client, session, words string) []raw.Frame {
	t.Helper()
	stream := c.Stream(t, "/v1/sessions/"+session+"/events/stream")
	defer stream.Close()
	c.Do(t, "POST", "/v1/sessions/"+session+"/events", message(words)).Want(t, 200)
	return stream.UntilType(t, "session.status_idle")
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, " "), strings.Join(want, " "))
	}
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
