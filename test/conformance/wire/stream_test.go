package wire

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/perdure/perdure/test/harness/raw"
)

// turn is what a plain turn looks like on the stream and in the log.
var turn = []string{"session.status_running", "session.thread_status_running", "user.message", "span.model_request_start",
	"agent.message", "span.model_request_end", "session.thread_status_idle", "session.usage", "session.status_idle"}

func TestFrames(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	// The answer to an idle stream comes at once, or this would wait for ever.
	stream := c.Stream(t, "/v1/sessions/"+own+"/events/stream")
	if media := stream.Header.Get("Content-Type"); !strings.HasPrefix(media, "text/event-stream") {
		t.Errorf("content type %q", media)
	}
	if !requestID.MatchString(stream.Header.Get("Request-Id")) {
		t.Errorf("request id %q", stream.Header.Get("Request-Id"))
	}
	if cache := stream.Header.Get("Cache-Control"); !strings.Contains(cache, "no-cache") && !strings.Contains(cache, "no-store") {
		t.Errorf("cache control %q: a proxy may keep the stream", cache)
	}
	expect(t, "proxy buffering", stream.Header.Get("X-Accel-Buffering"), "no")

	c.Do(t, "POST", "/v1/sessions/"+own+"/events", message("one\ntwo")).Want(t, 200)
	frames := stream.UntilType(t, "session.status_idle")
	var kinds []string
	seen := map[string]bool{}
	for _, f := range frames {
		kinds = append(kinds, f.Event)
		expect(t, "type of "+f.Event, f.Get("type"), f.Event)
		if len(f.Lines) != 3 || !strings.HasPrefix(f.Lines[0]+f.Lines[1], "event:") && !strings.HasPrefix(f.Lines[0]+f.Lines[1], "id:") {
			t.Errorf("want an event, an id and a data line, got %q", f.Lines)
		}
		if f.ID == "" || seen[f.ID] {
			t.Errorf("the id %q of %s is empty or was there before", f.ID, f.Event)
		}
		seen[f.ID] = true
	}
	equal(t, "events of the turn", kinds, turn)

	// The stream shows the same bytes as the log.
	items := log(t, c, own)
	equal(t, "ids", frameIDs(frames), ids(items))
	for i, item := range items {
		if i < len(frames) && item.Raw != frames[i].Data {
			t.Errorf("the stream says %s, the log %s", frames[i].Data, item.Raw)
		}
	}
}

// A stream tells of what comes after it was opened, unless it is asked for more.
func TestStreamIsLive(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	converse(t, c, own, "before")
	frames := converse(t, c, own, "after")
	expect(t, "events", len(frames), len(turn))
	for _, f := range frames {
		if strings.Contains(f.Data, "before") {
			t.Errorf("an old event was repeated: %s", f.Data)
		}
	}
}

func TestTimesAscend(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "chunks", allTools)
	converse(t, c, own, "go")
	last := ""
	for _, item := range log(t, c, own) {
		at := item.Get("processed_at").String()
		if len(at) != len("2026-03-15T10:00:00.000000Z") || at <= last {
			t.Errorf("processed_at %q after %q: want six digits, ascending", at, last)
		}
		last = at
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	c := shared(t)
	stream := c.Stream(t, "/v1/sessions/"+session(t, c, "greet", nil)+"/events/stream")
	f, err := stream.NextAny()
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "event on a quiet stream", f.Event, "ping")
	if !f.Get("@this").IsObject() {
		t.Errorf("data of a ping: %q, want an object", f.Data)
	}
	if f.ID != "" {
		t.Errorf("a ping moves the position to %q", f.ID)
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "chunks", allTools)
	path := "/v1/sessions/" + own + "/events/stream"
	frames := converse(t, c, own, "go")
	whole := ids(log(t, c, own))
	equal(t, "stream", frameIDs(frames), whole)
	for _, at := range []int{0, 4, len(frames) - 2} {
		for name, open := range map[string]func() *raw.Stream{
			"Last-Event-ID": func() *raw.Stream { return c.Stream(t, path, "Last-Event-ID", frames[at].ID) },
			"after":         func() *raw.Stream { return c.Stream(t, path+"?after="+frames[at].ID) },
			"last_event_id header wins over nothing": func() *raw.Stream {
				return c.Stream(t, path+"?beta=true", "Last-Event-ID", frames[at].ID)
			},
		} {
			stream := open()
			got := stream.Until(t, func(f raw.Frame) bool { return f.Get("id").String() == whole[len(whole)-1] })
			equal(t, fmt.Sprintf("%s at %d", name, at), frameIDs(got), whole[at+1:])
			stream.Close()
		}
	}

	// After the last: nothing old, then what is new.
	stream := c.Stream(t, path, "Last-Event-ID", frames[len(frames)-1].ID)
	c.Do(t, "POST", "/v1/sessions/"+own+"/events", message("and then")).Want(t, 200)
	got := stream.UntilType(t, "session.status_idle")
	equal(t, "live after the end", frameIDs(got), ids(log(t, c, own))[len(whole):])

	// A position that is none of this session's.
	other := converse(t, c, session(t, c, "greet", nil), "other")
	for _, position := range []string{"nonsense", "-1", "99999999", other[0].Get("id").String()} {
		s, refused, err := c.TryStream(path, "Last-Event-ID", position)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			s.Close()
			t.Errorf("Last-Event-ID %q was taken", position)
			continue
		}
		refused.WantError(t, 400, "invalid_request_error")
	}
}

// Many readers that come and go while a turn writes: each gets each event once, in order.
func TestManyReadersMissNothing(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "chunks", allTools)
	path := "/v1/sessions/" + own + "/events/stream"
	first := converse(t, c, own, "go")
	start := first[len(first)-1]
	c.Do(t, "POST", "/v1/sessions/"+own+"/events", message("go")).Want(t, 200)
	const readers = 40
	results := make([][]string, readers)
	var group sync.WaitGroup
	for i := range readers {
		group.Go(func() {
			at := start.ID
			for {
				stream, refused, err := c.TryStream(path, "Last-Event-ID", at)
				if err != nil || refused != nil {
					results[i] = append(results[i], fmt.Sprint(err, refused))
					return
				}
				for n := 0; n < 1+i%4; n++ { // a few events for each connection
					f, err := stream.Next()
					if err != nil {
						results[i] = append(results[i], err.Error())
						break
					}
					results[i] = append(results[i], f.Get("id").String())
					at = f.ID
					if f.Event == "session.status_idle" {
						stream.Close()
						return
					}
				}
				stream.Close()
			}
		})
	}
	group.Wait()
	want := ids(log(t, c, own))[len(first):]
	for i, got := range results {
		equal(t, fmt.Sprint("reader ", i), got, want)
	}
}

// Readers in the middle of a turn, across two deaths of the server, get each event once.
func TestResumeAcrossKill(t *testing.T) {
	t.Parallel()
	c, server := start(t)
	own := session(t, c, "chunks", allTools)
	path := "/v1/sessions/" + own + "/events/stream"
	stream := c.Stream(t, path)
	c.Do(t, "POST", "/v1/sessions/"+own+"/events", message("go")).Want(t, 200)
	var got []raw.Frame
	for _, until := range []string{"agent.tool_use", "agent.tool_result"} {
		got = append(got, stream.UntilType(t, until)...)
		stream.Close()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		stream = c.Stream(t, path, "Last-Event-ID", got[len(got)-1].ID)
	}
	got = append(got, stream.UntilType(t, "session.status_idle")...)
	items := log(t, c, own)
	equal(t, "events over three connections", frameIDs(got), ids(items))
	last := items[len(items)-1]
	expect(t, "stop reason", last.Get("stop_reason.type"), "end_turn")
	results := 0
	for _, item := range items {
		if item.Get("type").String() == "agent.tool_result" {
			results++
		}
	}
	expect(t, "tool results", results, 3)
}

func TestStreamOfADeletedSessionEnds(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "greet", nil)
	stream := c.Stream(t, "/v1/sessions/"+own+"/events/stream")
	deleted := c.Do(t, "DELETE", "/v1/sessions/"+own, nil).Want(t, 200)
	expect(t, "answer", deleted.Get("type"), "session_deleted")
	frames := stream.UntilEnd(t)
	if len(frames) == 0 || frames[len(frames)-1].Event != "session.deleted" {
		t.Errorf("the stream ended with %v", frames)
	}
	c.Do(t, "GET", "/v1/sessions/"+own, nil).WantError(t, 404, "not_found_error")
	c.Do(t, "GET", "/v1/sessions/"+own+"/events", nil).WantError(t, 404, "not_found_error")
}

func TestDeltas(t *testing.T) {
	t.Parallel()
	c := shared(t)
	own := session(t, c, "long", nil)
	path := "/v1/sessions/" + own
	for _, query := range []string{"event_deltas[]=agent.tool_use", "event_deltas=nonsense",
		strings.Repeat("event_deltas[]=agent.message&", 101)} {
		_, refused, err := c.TryStream(path + "/events/stream?" + query)
		if err != nil || refused == nil {
			t.Fatalf("%.60s was taken (%v)", query, err)
		}
		refused.WantError(t, 400, "invalid_request_error")
	}
	thread := c.Do(t, "GET", path+"/threads", nil).Want(t, 200).Get("data.0.id").String()
	plain := c.Stream(t, path+"/events/stream")
	streams := []*raw.Stream{
		c.Stream(t, path+"/events/stream?event_deltas[]=agent.message&event_deltas[]=agent.thinking"),
		c.Stream(t, path+"/events/stream?event_deltas=agent.message"),
		c.Stream(t, path+"/threads/"+thread+"/stream?event_deltas%5B%5D=agent.message"),
	}
	c.Do(t, "POST", path+"/events", message("go")).Want(t, 200)
	for _, f := range plain.UntilType(t, "session.status_idle") {
		if strings.HasPrefix(f.Event, "event_") {
			t.Errorf("a stream that did not ask got %s", f.Data)
		}
	}
	for i, stream := range streams {
		last := "session.status_idle"
		if i == 2 {
			last = "session.thread_status_idle"
		}
		frames := stream.UntilType(t, last)
		started, text, final, deltas := "", "", "", 0
		for _, f := range frames {
			switch f.Event {
			case "event_start":
				if started != "" {
					t.Errorf("a second start: %s", f.Data)
				}
				started = f.Get("event.id").String()
				expect(t, "previewed type", f.Get("event.type"), "agent.message")
			case "event_delta":
				deltas++
				expect(t, "event_id", f.Get("event_id"), started)
				expect(t, "index", f.Get("delta.index").Int(), 0)
				expect(t, "delta type", f.Get("delta.type"), "content_delta")
				text += f.Get("delta.content.text").String()
				if final != "" {
					t.Errorf("a delta after the final event: %s", f.Data)
				}
			case "agent.message":
				final = f.Get("content.0.text").String()
				expect(t, "id of the final event", f.Get("id"), started)
			default:
				continue
			}
			if f.Event != "agent.message" && (f.ID != "" || f.Get("id").Exists() || f.Get("processed_at").Exists()) {
				t.Errorf("a preview has an id or a time: %q %s", f.ID, f.Data)
			}
		}
		if deltas == 0 || !strings.HasPrefix(final, text) || final == "" {
			t.Errorf("stream %d: %d deltas say %q, the event %q", i, deltas, text, final)
		}
	}
	if slices.ContainsFunc(log(t, c, own), func(item gjson.Result) bool { return strings.HasPrefix(item.Get("type").String(), "event_") }) {
		t.Error("a preview is in the log")
	}
}
