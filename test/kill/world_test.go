//go:build linux

package kill

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/test/harness"
	"github.com/perdure/perdure/test/harness/raw"
)

func TestMain(m *testing.M) { harness.Main(m) }

type object = map[string]any

// world is a server that is killed, and what stays while it is dead.
type world struct {
	t      *testing.T
	server *harness.Server
	client raw.Client
	model  *strictModel
	point  string // the file that names the point at which the server kills itself

	mu    sync.Mutex
	lives int
	birth chan struct{} // closed when the next life begins
	made  int           // conversations
	seen  int           // events that followers had
	sight chan struct{} // closed with the next one
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, model: startModel(t), point: filepath.Join(t.TempDir(), "failpoint"), birth: make(chan struct{}), sight: make(chan struct{})}
	w.server = harness.Start(t, harness.Options{
		Tags: []string{"failpoint"},
		Env:  []string{"ANTHROPIC_API_KEY=test", "ANTHROPIC_BASE_URL=" + w.model.url, "PERDURE_FAILPOINT=@" + w.point},
	})
	w.client = raw.Client{URL: w.server.URL, Key: w.server.APIKey}
	w.lives = 1
	return w
}

// life is the number of times that the server has begun to serve.
func (w *world) life() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives
}

// born is closed when the server serves in a later life than this one.
func (w *world) born(life int) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lives > life {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return w.birth
}

// saw counts an event that a follower had.
func (w *world) saw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
	close(w.sight)
	w.sight = make(chan struct{})
}

// sights is how many events followers had, and a channel that is closed with the next.
func (w *world) sights() (int, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, w.sight
}

// awaitEvents waits until followers had n more events.
func (w *world) awaitEvents(n int) {
	w.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	seen, sight := w.sights()
	for until := seen + n; seen < until; seen, sight = w.sights() {
		select {
		case <-sight:
		case <-timer.C:
			w.t.Fatalf("%d events more did not come within %v", n, limit)
		}
	}
}

// run starts the server again after its death.
func (w *world) run() {
	w.t.Helper()
	if err := w.server.Run(); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
	close(w.birth)
	w.birth = make(chan struct{})
}

func (w *world) kill() { w.server.Kill() }

func (w *world) restart() {
	w.t.Helper()
	w.kill()
	w.run()
}

// dieAt makes the server kill itself when it passes a point, "name" or "name:n" for the n-th time from now on. The
// function that is returned waits for that.
func (w *world) dieAt(point string) (died func()) {
	w.t.Helper()
	p := openProcess(w.t, w.server.PID())
	// The server may read the file at any moment: it must never see half of it.
	err := os.WriteFile(w.point+".part", []byte(point), 0o600)
	if err == nil {
		err = os.Rename(w.point+".part", w.point)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := p.awaitEnd(limit); err != nil {
			w.t.Fatalf("the server did not die at %s: %v", point, err)
		}
		w.kill() // to be waited for
		if _, err := os.Stat(w.point); err == nil {
			w.t.Fatalf("the server died of something else than %s", point)
		}
	}
}

// conversation is a session, and a client that follows it.
type conversation struct {
	*world
	session  string
	tag      string // in its first message, so that the model knows it
	begun    bool
	follower *follower
	awaited  int // events of the follower
	posts    int
}

const ask = "always_ask"

// converse begins a session. Tools are added to the built-in toolset, whose calls run without asking unless policy says so.
func (w *world) converse(model, policy string, tools ...object) *conversation {
	w.t.Helper()
	w.mu.Lock()
	w.made++
	c := &conversation{world: w, tag: fmt.Sprintf("kill-%d-of-%s", w.made, notInTag.ReplaceAllString(w.t.Name(), "_"))}
	w.mu.Unlock()
	toolset := object{"type": "agent_toolset_20260401"}
	if policy != "" {
		toolset["default_config"] = object{"permission_policy": object{"type": policy}}
	}
	agent := w.client.Do(w.t, "POST", "/v1/agents", object{"name": c.tag, "model": model, "tools": append([]object{toolset}, tools...)}).Want(w.t, 200)
	environment := w.client.Do(w.t, "POST", "/v1/environments", object{"name": c.tag}).Want(w.t, 200)
	made := w.client.Do(w.t, "POST", "/v1/sessions", object{"agent": agent.Get("id").String(), "environment_id": environment.Get("id").String()}).Want(w.t, 200)
	c.session = made.Get("id").String()
	c.follower = w.follow(c.session)
	w.t.Cleanup(func() { c.follower.close() })
	return c
}

// weather is a tool of the client's.
var weather = object{"type": "custom", "name": "get_weather", "description": "Tells the weather.", "input_schema": object{"type": "object"}}

func message(text string) object {
	return object{"type": "user.message", "content": []object{{"type": "text", "text": text}}}
}

// words are the text of a message, with the tag if it is the first.
func (c *conversation) words(text string) object {
	if !c.begun {
		c.begun = true
		text += " " + c.tag
	}
	return message(text)
}

// key is an Idempotency-Key that was not used.
func (c *conversation) key() string {
	c.posts++
	return fmt.Sprintf("%s-%d", c.tag, c.posts)
}

// try sends events. The answer may not come, if the server dies.
func (c *conversation) try(key string, events ...object) (*raw.Response, error) {
	return c.client.Try("POST", "/v1/sessions/"+c.session+"/events", object{"events": events}, "Idempotency-Key", key)
}

// deliver sends events, again and again with the same key until the server answers, as a client does.
func (c *conversation) deliver(events ...object) error {
	key := c.key()
	for {
		life := c.life()
		r, err := c.try(key, events...)
		if err == nil && r.Status != http.StatusOK {
			return fmt.Errorf("events %v were refused: %s", events, r)
		}
		if err == nil {
			return nil
		}
		select {
		case <-c.born(life):
		case <-time.After(limit):
			return fmt.Errorf("events %v were not taken within %v: %w", events, limit, err)
		}
	}
}

// send sends events that must be taken, and returns what the server made of them.
func (c *conversation) send(events ...object) *raw.Response {
	c.t.Helper()
	r, err := c.try(c.key(), events...)
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Want(c.t, 200)
}

func (c *conversation) say(text string) *raw.Response {
	c.t.Helper()
	return c.send(c.words(text))
}

// sayAndDie sends a message to a server that dies of it: no answer comes. It returns the message and its key.
func (c *conversation) sayAndDie(text, point string) (words object, key string) {
	c.t.Helper()
	died := c.dieAt(point)
	words, key = c.words(text), c.key()
	if r, err := c.try(key, words); err == nil {
		c.t.Fatalf("the server answered although it was to die before: %s", r)
	}
	died()
	return words, key
}

// sayThenDie sends a message, and waits until the server dies on its account.
func (c *conversation) sayThenDie(text, point string) {
	c.t.Helper()
	died := c.dieAt(point)
	// The server may die before the client has its answer.
	if r, err := c.try(c.key(), c.words(text)); err == nil {
		r.Want(c.t, 200)
	}
	died()
}

// goOn starts the server again and reports how long it took until the session had its next event.
func (c *conversation) goOn() {
	c.t.Helper()
	began := time.Now()
	c.run()
	awaited := c.awaited
	// The client may still have had to hear of what was logged before.
	next := c.await("an event after the restart", func(e event) bool { return e.Get("processed_at").Time().After(began) })
	c.awaited = awaited
	took := next.at.Sub(began)
	c.t.Logf("from the start of the process to the session's next event: %v", took.Round(time.Millisecond))
	if took > 10*time.Second {
		c.t.Errorf("the session's next event came %v after the start of the process", took)
	}
}

// result answers a call of a custom tool.
func result(call, text string) object {
	return object{"type": "user.custom_tool_result", "custom_tool_use_id": call, "content": []object{{"type": "text", "text": text}}}
}

// confirm allows or denies a call.
func confirm(call, verdict string) object {
	return object{"type": "user.tool_confirmation", "tool_use_id": call, "result": verdict}
}

// dir is the session's directory on the server's host.
func (c *conversation) dir() string { return filepath.Join(c.server.Data, "sandboxes", c.session) }

func (c *conversation) workspace() string { return filepath.Join(c.dir(), "files", "workspace") }

// release makes the file that a command in the sandbox waits for.
func (c *conversation) release(name string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.workspace(), name), nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// killSupervisor kills the process that holds the session's sandbox, and all of the sandbox with it.
func (c *conversation) killSupervisor() {
	c.t.Helper()
	supervisor := holder(c.t, filepath.Join(c.dir(), "lock"))
	supervisor.signal(c.t, unix.SIGKILL)
	if err := supervisor.awaitEnd(limit); err != nil {
		c.t.Fatal(err)
	}
}
