//go:build linux

package behaviour

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

// slowPage is a page that is served when it is released, so that a tool call can be held.
type slowPage struct {
	url     string
	asked   chan struct{}
	release func()
}

func newSlowPage(t *testing.T) *slowPage {
	t.Helper()
	open := make(chan struct{})
	p := &slowPage{asked: make(chan struct{}, 100), release: sync.OnceFunc(func() { close(open) })}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked <- struct{}{}
		select {
		case <-open:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "the page")
	}))
	p.url = web.URL
	t.Cleanup(func() {
		p.release()
		web.CloseClientConnections()
		web.Close()
	})
	return p
}

func (p *slowPage) fetch() string { return `{tool: web_fetch, input: {url: "` + p.url + `/page"}}` }

// A message that comes while a tool runs is delivered after the result and before the next request of the same turn.
func TestMessageDuringTool(t *testing.T) {
	t.Parallel()
	page := newSlowPage(t)
	c := common.converse(t, setup{script: "steps: [{answer: [" + page.fetch() + "]}, {text: Both.}]"})
	c.send(message("fetch"))
	want(t, c.until("span.model_request_end"), begins+"message start use end")
	await(t, page.asked, "the page was not fetched")

	sent := c.send(message("and be brief"))[0]
	if sent.Get("processed_at").Raw != "null" || !strings.HasPrefix(sent.Get("id").String(), "sevt_") {
		t.Errorf("a queued message is echoed as %s", sent.Raw)
	}
	listed := c.log()
	if queued := listed[len(listed)-1]; queued.Raw != sent.Raw {
		t.Errorf("the list ends with %s, want the queued message", queued.Raw)
	}
	page.release()
	frames := c.idle("end_turn")
	want(t, frames, "result message start answer end"+rests)
	if got := frames[1]; got.Get("id").String() != sent.Get("id").String() || got.Get("processed_at").Raw == "null" {
		t.Errorf("the message was delivered as %s", got.Data)
	}
	if types := c.last(2).Get("content.#.type").Raw; types != `["tool_result","text"]` {
		t.Errorf("the model was told %s, want the result and then the message", c.last(2).Raw)
	}
	c.wantAsked(2)
}

// A message that comes during the last request of a turn starts the next turn.
func TestMessageDuringLastRequest(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `steps: [{text: First.}, {text: Second.}]`})
	gate := c.hold(1, 3)
	c.send(message("one"))
	gate.await(t)
	if echo := c.send(message("two"))[0]; echo.Get("processed_at").Raw != "null" {
		t.Errorf("a queued message is echoed as %s", echo.Raw)
	}
	gate.release()
	want(t, c.idle("end_turn"), begins+"message start answer end"+rests)
	want(t, c.idle("end_turn"), begins+"message start answer end"+rests)
}

// Two messages in one request, to a session that rests, are answered together.
func TestMessagesBackToBack(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {text: Both.}`})
	echoes := c.send(message("one"), message("two"))
	frames := c.idle("end_turn")
	want(t, frames, begins+"message message start answer end"+rests)
	if !slices.Equal(ids(all(frames, "message")), ids(echoes)) {
		t.Errorf("the messages came as %v, sent %v", ids(all(frames, "message")), ids(echoes))
	}
	if got := c.last(1).Get("content.#.text").Raw; got != `["one","two"]` {
		t.Errorf("the model was told %s", got)
	}
	c.wantAsked(1)
}

// Fifty messages at once never make two requests at once; each is delivered once, in the order of the log (C14).
func TestConcurrentMessages(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `{defaults: {delay: 50ms}, otherwise: {text: "Yes: {{answer}}"}}`})
	first := c.hold(1, 0)
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() { c.send(message(fmt.Sprintf("message %d.", i))) })
	}
	first.await(t)
	group.Wait()
	first.release()
	delivered := 0
	c.untilThat(func(f raw.Frame) bool {
		if f.Event == "user.message" {
			delivered++
		}
		return f.Event == "session.status_idle" && delivered >= 50
	})
	if got := len(all(c.seen, "message")); got != 50 {
		t.Errorf("%d messages were delivered", got)
	}
	var told strings.Builder
	for _, block := range blocksOf(c.requests()[len(c.requests())-1].Body) {
		told.WriteString(block)
	}
	for i := range 50 {
		if n := strings.Count(told.String(), fmt.Sprintf(`"message %d."`, i)); n != 1 {
			t.Errorf("message %d was told to the model %d times", i, n)
		}
	}
}

// The same message again and again from a client that gave up does not disturb calls that run (C15).
func TestMessagesDuringParallelCalls(t *testing.T) {
	t.Parallel()
	page := newSlowPage(t)
	c := common.converse(t, setup{script: `
steps:
  - answer: [` + page.fetch() + `, {tool: bash, input: {command: echo x >> n; wc -l < n}}, {tool: bash, input: {command: echo x >> n; wc -l < n}}]
  - text: done
`})
	c.send(message("go"))
	await(t, page.asked, "the page was not fetched")
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() { c.send(message("go")) })
	}
	group.Wait()
	page.release()
	frames := c.idle("end_turn")
	results := all(frames, "result")
	if len(results) != 3 || len(all(frames, "message")) != 6 {
		t.Fatal(kinds(frames))
	}
	var lines []string
	for _, r := range results {
		if s := text(r); len(s) == 1 {
			lines = append(lines, s)
		}
	}
	if !slices.Equal(lines, []string{"1", "2"}) {
		t.Errorf("the commands printed %v", lines)
	}
	c.wantAsked(2)
}

// Fifty events in one request keep their order, and pages that are read while more come are stable (C72).
func TestOrderOfManyEvents(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {text: Read.}`})
	var events []object
	for i := range 50 {
		events = append(events, message(fmt.Sprintf("message %d", i)))
	}
	echoes := c.send(events...)
	frames := c.idle("end_turn")
	if got := ids(all(frames, "message")); !slices.Equal(got, ids(echoes)) {
		t.Errorf("messages were delivered as %v, sent %v", got, ids(echoes))
	}
	page := c.Do(t, "GET", c.path("/events?limit=7"), nil).Want(t, 200)
	c.say("more")
	listed := ids(page.Get("data").Array())
	for next := page.Get("next_page").String(); next != ""; next = page.Get("next_page").String() {
		page = c.Do(t, "GET", c.path("/events?limit=7&page="+next), nil).Want(t, 200)
		listed = append(listed, ids(page.Get("data").Array())...)
	}
	if !slices.Equal(listed, ids(c.log())) {
		t.Errorf("pages that were read while more came are %v, want %v", listed, ids(c.log()))
	}
}
