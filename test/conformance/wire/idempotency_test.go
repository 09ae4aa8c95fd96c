package wire

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"mime/multipart"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

// repeatable is a POST, with another body for it.
type repeatable struct {
	name  string
	path  string
	body  any
	other any
	list  string // what would be longer if the request counted twice
}

func repeatables(t *testing.T, c raw.Client) []repeatable {
	t.Helper()
	agentID, env := agent(t, c, "greet", nil), environment(t, c)
	own := session(t, c, "weather", []object{{"type": "custom", "name": "get_weather", "description": "Weather.",
		"input_schema": object{"type": "object"}}})
	file := upload(t, c, "a.txt", "content").Want(t, 200).Get("id").String()
	return []repeatable{
		{"agent create", "/v1/agents", object{"name": "once", "model": "scripted/greet"}, object{"name": "twice", "model": "scripted/greet"}, "/v1/agents?limit=100"},
		{"agent update", "/v1/agents/" + agentID, object{"name": "second"}, object{"name": "third"}, "/v1/agents/" + agentID + "/versions"},
		{"environment create", "/v1/environments", object{"name": "once"}, object{"name": "twice"}, "/v1/environments?limit=100"},
		{"environment update", "/v1/environments/" + env, object{"name": "second"}, object{"name": "third"}, ""},
		{"session create", "/v1/sessions", object{"agent": agentID, "environment_id": env}, object{"agent": agentID, "environment_id": env, "title": "other"}, "/v1/sessions?agent_id=" + agentID},
		{"session create with events", "/v1/sessions", object{"agent": agentID, "environment_id": env, "initial_events": message("hi")["events"]},
			object{"agent": agentID, "environment_id": env}, "/v1/sessions?agent_id=" + agentID},
		{"session update", "/v1/sessions/" + own, object{"title": "once"}, object{"title": "twice"}, "/v1/sessions/" + own + "/events?types[]=session.updated"},
		{"events", "/v1/sessions/" + own + "/events", message("hello"), message("other"), "/v1/sessions/" + own + "/events?types[]=user.message"},
		{"resource add", "/v1/sessions/" + own + "/resources", object{"type": "file", "file_id": file, "mount_path": "/once.txt"},
			object{"type": "file", "file_id": file, "mount_path": "/twice.txt"}, "/v1/sessions/" + own + "/resources"},
		{"environment archive", "/v1/environments/" + environment(t, c) + "/archive", nil, `{"x":1}`, ""},
		{"agent archive", "/v1/agents/" + agent(t, c, "greet", nil) + "/archive", nil, `{"x":1}`, ""},
		{"session archive", "/v1/sessions/" + session(t, c, "greet", nil) + "/archive", nil, `{"x":1}`, ""},
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	c, server := start(t)
	for i, test := range repeatables(t, c) {
		key := fmt.Sprintf("key-%d-äöü", i)
		first := c.Do(t, "POST", test.path, test.body, "Idempotency-Key", key).Want(t, 200)
		count := length(t, c, test.list)
		check := func(when string) {
			t.Helper()
			again := c.Do(t, "POST", test.path, test.body, "Idempotency-Key", key).Want(t, 200)
			expect(t, test.name+", "+when, string(again.Body), string(first.Body))
			expect(t, test.name+": entries "+when, length(t, c, test.list), count)
		}
		check("sent twice")
		mismatch := c.Do(t, "POST", test.path, test.other, "Idempotency-Key", key)
		if mismatch.Status != 409 && mismatch.Status != 400 {
			t.Errorf("%s: the same key with another body: %s", test.name, mismatch)
		} else {
			mismatch.WantError(t, mismatch.Status, "")
			expect(t, test.name+": x-should-retry", mismatch.Header.Get("X-Should-Retry"), "false")
		}
		expect(t, test.name+": entries after a mismatch", length(t, c, test.list), count)
		if i%4 == 3 || test.name == "events" {
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			check("after a kill")
		}
	}
}

func length(t *testing.T, c raw.Client, list string) int {
	t.Helper()
	if list == "" {
		return 0
	}
	return len(all(t, c, list))
}

// An upload counts once as well, by the content of its file.
func TestIdempotentUpload(t *testing.T) {
	t.Parallel()
	c := shared(t)
	key := rand.Text()
	first := upload(t, c, "a.txt", "one", "Idempotency-Key", key).Want(t, 200)
	again := upload(t, c, "a.txt", "one", "Idempotency-Key", key).Want(t, 200)
	expect(t, "second answer", string(again.Body), string(first.Body))
	r := upload(t, c, "a.txt", "two", "Idempotency-Key", key)
	if r.Status != 409 && r.Status != 400 {
		t.Errorf("the same key with another file: %s", r)
	}
}

// upload sends a file. The boundary of the form differs from call to call, as it does for a client that repeats a request.
func upload(t *testing.T, c raw.Client, name, content string, header ...string) *raw.Response {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write([]byte(content))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(t, "POST", "/v1/files", form.Bytes(), append([]string{"Content-Type", w.FormDataContentType()}, header...)...)
}

// Many at once with one key are one.
func TestIdempotencyKeyAtOnce(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	stream := c.Stream(t, "/v1/sessions/"+own+"/events/stream")
	const senders = 16
	answers := make([]string, senders)
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			r, err := c.Try("POST", "/v1/sessions/"+own+"/events", message("once"), "Idempotency-Key", own)
			answers[i] = fmt.Sprint(r, err)
		})
	}
	group.Wait()
	for i := range answers {
		expect(t, "answer", answers[i], answers[0])
	}
	stream.UntilType(t, "session.status_idle")
	expect(t, "messages", length(t, c, "/v1/sessions/"+own+"/events?types[]=user.message"), 1)
	expect(t, "model requests", length(t, c, "/v1/sessions/"+own+"/events?types[]=span.model_request_start"), 1)
}

// Without a key two equal requests are two; a refused request leaves its key free.
func TestWithoutIdempotencyKey(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	a := converse(t, c, own, "same")
	b := converse(t, c, own, "same")
	if a[0].Get("id").String() == b[0].Get("id").String() {
		t.Error("two messages are one")
	}
	c.Do(t, "POST", "/v1/agents", object{"name": 7}, "Idempotency-Key", own).WantError(t, 400, "")
	c.Do(t, "POST", "/v1/agents", object{"name": "seven", "model": "scripted/greet"}, "Idempotency-Key", own).Want(t, 200)
	c.Do(t, "POST", "/v1/agents", object{"name": "x", "model": "scripted/greet"}, "Idempotency-Key", strings.Repeat("k", 5_000)).WantError(t, 400, "")
}
