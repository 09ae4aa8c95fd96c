//go:build linux

package behaviour

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure/test/harness/raw"
)

const deltas = "event_deltas[]=agent.message&event_deltas[]=agent.thinking"

// Pieces of a text follow its announcement and make up the text; thinking is only announced. A stream that was opened in
// the middle gets no pieces of what it did not see begin (C45).
func TestPreviews(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `
steps:
  - answer: [{thinking: Let me think about it.}, {text: The first text of the answer.}, {text: " And é 😀 more."}, {tool: bash, input: {command: echo x}}, {text: After the call.}]
    delta_size: 5
otherwise: {text: Done.}
`})
	early := c.Stream(t, c.path("/events/stream?"+deltas))
	thread := c.Stream(t, c.path("/threads/"+c.thread+"/stream?"+deltas))
	plain := c.Stream(t, c.path("/events/stream"))
	gate := c.hold(1, 12) // in the first text
	c.send(message("go"))
	gate.await(t)
	begun := early.UntilType(t, "event_delta")
	late := c.Stream(t, c.path("/events/stream?"+deltas))
	gate.release()
	c.idle("end_turn")

	for name, frames := range map[string][]raw.Frame{
		"session": append(begun, early.UntilType(t, "session.status_idle")...),
		"thread":  thread.UntilType(t, "session.thread_status_idle"),
	} {
		if previewed := checkPreviews(t, name, frames); previewed != 4 {
			t.Errorf("the stream of the %s previewed %d events, want the thinking and three answers", name, previewed)
		}
	}
	if got := plain.UntilType(t, "session.status_idle"); len(withoutPreviews(got)) != len(got) {
		t.Errorf("a stream that wants no previews got %s", kinds(got))
	}
	frames := late.UntilType(t, "session.status_idle")
	checkPreviews(t, "late stream", frames)
	first := all(frames, "answer")[0].Get("id").String()
	for _, f := range frames {
		if f.Get("event_id").String() == first || f.Get("event.id").String() == first {
			t.Errorf("a stream that was opened in the middle of an event got %s", f.Data)
		}
	}
	for _, bad := range []string{"event_deltas[]=agent.tool_use", strings.Repeat("event_deltas[]=agent.message&", 101)} {
		c.Do(t, "GET", c.path("/events/stream?"+bad), nil).WantError(t, 400, "invalid_request_error")
	}
}

// What was previewed of an attempt that failed ends with the attempt; the next has another id.
func TestPreviewsOfFailedAttempt(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{faulty: true, follow: "&" + deltas, script: `
steps: [{text: The whole answer of the model., delta_size: 5, break: {times: 1, how: cut, after_characters: 20}}]
`})
	frames := c.say("go")
	failed, ended := "", false
	for _, f := range frames {
		switch {
		case f.Event == "event_start" && failed == "":
			failed = f.Get("event.id").String()
		case f.Event == "span.model_request_end":
			ended = true
		case ended && (f.Get("event_id").String() == failed || f.Get("event.id").String() == failed || f.Get("id").String() == failed):
			t.Errorf("after the end of the attempt: %s", f.Data)
		}
	}
	message := only(t, frames, "answer")
	if failed == "" || message.Get("id").String() == failed || text(message) != "The whole answer of the model." {
		t.Errorf("the message is %s; what was previewed first is %s", message.Data, failed)
	}
}

// checkPreviews checks what holds for the previews of a stream, and returns how many events had one.
func checkPreviews(t *testing.T, name string, frames []raw.Frame) int {
	t.Helper()
	begun, texts, final := map[string]string{}, map[string][]string{}, map[string]bool{}
	for _, f := range frames {
		switch f.Event {
		case "event_start":
			id := f.Get("event.id").String()
			if begun[id] != "" || final[id] {
				t.Errorf("%s: announced again: %s", name, f.Data)
			}
			begun[id] = f.Get("event.type").String()
		case "event_delta":
			id, index := f.Get("event_id").String(), int(f.Get("delta.index").Int())
			parts := texts[id]
			if begun[id] != "agent.message" || final[id] || index > len(parts) || f.Get("delta.type").String() != "content_delta" || f.Get("delta.content.type").String() != "text" {
				t.Errorf("%s: a piece out of place: %s", name, f.Data)
				continue
			}
			if index == len(parts) {
				parts = append(parts, "")
			}
			parts[index] += f.Get("delta.content.text").String()
			texts[id] = parts
		case "agent.message":
			id := f.Get("id").String()
			final[id] = true
			for i, part := range texts[id] {
				if got := f.Get(fmt.Sprintf("content.%d.text", i)).String(); got != part {
					t.Errorf("%s: the pieces make %q, the text is %q", name, part, got)
				}
			}
			if begun[id] != "" && len(texts[id]) != int(f.Get("content.#").Int()) {
				t.Errorf("%s: %d texts were previewed of %s", name, len(texts[id]), f.Data)
			}
		case "agent.thinking":
			final[f.Get("id").String()] = true
		}
	}
	for id := range begun {
		if !final[id] {
			t.Errorf("%s: event %s was announced and did not come", name, id)
		}
	}
	return len(begun)
}

// A hundred clients that connect while events flow miss nothing and get nothing twice (C36): what each lists after it has
// connected, and what it is sent, make up the whole log.
func TestConnectWhileEventsFlow(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{script: `otherwise: {answer: [{text: "Answer {{answer}}."}, {thinking: Hm.}, {text: More.}]}`})
	const clients, turns = 100, 40
	streams := make([]*raw.Stream, clients)
	listed := make([][]string, clients)
	var group sync.WaitGroup
	group.Go(func() {
		for i := range turns {
			c.send(message(fmt.Sprintf("turn %d", i)))
		}
	})
	slots := make(chan struct{}, 10)
	for i := range clients {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			streams[i] = c.Stream(t, c.path("/events/stream"))
			listed[i] = ids(c.Do(t, "GET", c.path("/events?limit=1000"), nil).Want(t, 200).Get("data").Array())
		})
	}
	group.Wait()
	// One that connects with a position has everything after it, too.
	resumed := c.Stream(t, c.path("/events/stream"), "Last-Event-ID", "3")
	last := c.send(message("the last one"))[0].Get("id").String()
	c.untilThat(func(f raw.Frame) bool { return f.Get("id").String() == last })
	c.idle("end_turn")
	order := ids(c.seen)
	end := order[len(order)-1]
	isEnd := func(f raw.Frame) bool { return f.Get("id").String() == end }
	for i, stream := range streams {
		got := ids(stream.Until(t, isEnd))
		if from := slices.Index(order, got[0]); from < 0 || !slices.Equal(got, order[from:]) {
			t.Errorf("client %d got %v, want the end of %v", i, got, order)
		} else if from > len(delivered(listed[i], order)) {
			t.Errorf("client %d was sent events from %d on, and had listed %d", i, from, len(listed[i]))
		}
	}
	if got := ids(resumed.Until(t, isEnd)); !slices.Equal(got, order[len(order)-len(got):]) || len(got) < len(order)-3 {
		t.Errorf("a client that resumed got %d of %d events", len(got), len(order))
	}
}

// delivered is the part of a list that stands in the order of the log: inputs that waited are listed where they will not
// stay.
func delivered(listed, order []string) []string {
	n := 0
	for n < len(listed) && n < len(order) && listed[n] == order[n] {
		n++
	}
	return listed[:n]
}

// A client that does not read slows nobody, and gets everything when it does: what the connection and the bus do not hold
// comes from the log (C40).
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const calls = 10
	c := common.converse(t, setup{noTools: true, tools: []any{custom("lookup")}, script: `
steps: [{answer: [` + strings.Repeat("{tool: lookup, input: {}}, ", calls) + `]}]
otherwise: {text: Read.}
`})
	slow := c.Stream(t, c.path("/events/stream"))
	c.send(message("go"))
	waiting := ids(all(c.idle("requires_action"), "custom-use"))
	large := strings.Repeat("a megabyte of text ", 1<<20/19)
	// One is left to wait, so that the last thing to be missed is large.
	for _, call := range waiting[1:] {
		c.send(answer(call, large))
		c.idle("requires_action")
	}
	end := c.seen[len(c.seen)-1].Get("id").String()
	got := ids(slow.Until(t, func(f raw.Frame) bool { return f.Get("id").String() == end }))
	if !slices.Equal(got, ids(c.seen)) {
		t.Errorf("the slow client got %d events, the quick one %d", len(got), len(c.seen))
	}
	c.send(answer(waiting[0], "small"))
	c.idle("end_turn")
}
