package bench

import (
	"net/http"
	"testing"
	"time"

	"github.com/perdure/perdure/test/harness"
	"github.com/perdure/perdure/test/harness/raw"
)

// BenchmarkRestart measures how long a session stands still when the real server is killed with SIGKILL in the middle of a
// model request, and started again at once: until the next event of the session.
func BenchmarkRestart(b *testing.B) {
	scripts, err := harness.Root()
	if err != nil {
		b.Fatal(err)
	}
	s := harness.Start(b, harness.Options{Scripts: scripts + "/test/bench/scripts"})
	c := raw.Client{URL: s.URL, Key: s.APIKey}
	agent := c.Do(b, http.MethodPost, "/v1/agents", map[string]any{"name": "bench", "model": "scripted/endless"}).Want(b, 200).Get("id").String()
	environment := c.Do(b, http.MethodPost, "/v1/environments", map[string]any{"name": "bench"}).Want(b, 200).Get("id").String()
	session := c.Do(b, http.MethodPost, "/v1/sessions", map[string]any{"agent": agent, "environment_id": environment, "initial_events": []any{
		map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "go"}}},
	}}).Want(b, 200).Get("id").String()
	stream := "/v1/sessions/" + session + "/events/stream"
	frames := c.Stream(b, stream+"?after=0").UntilType(b, "span.model_request_start")
	last := frames[len(frames)-1].ID
	var times []time.Duration
	for b.Loop() {
		s.Kill()
		began := time.Now()
		if err := s.Restart(); err != nil {
			b.Fatal(err)
		}
		frames := c.Stream(b, stream+"?after="+last).UntilType(b, "span.model_request_start")
		times = append(times, time.Since(began))
		last = frames[len(frames)-1].ID
		if len(times)%4 == 0 { // before the session is given up because its driver dies so often
			last = startAnew(b, c, session, stream, last)
		}
	}
	report(b, times)
}

// startAnew ends the turn and begins another.
func startAnew(b *testing.B, c raw.Client, session, stream, last string) string {
	follow := c.Stream(b, stream+"?after="+last)
	events := "/v1/sessions/" + session + "/events"
	c.Do(b, http.MethodPost, events, map[string]any{"events": []any{map[string]any{"type": "user.interrupt"}}}).Want(b, 200)
	follow.UntilType(b, "session.status_idle")
	c.Do(b, http.MethodPost, events, map[string]any{"events": []any{
		map[string]any{"type": "user.message", "content": []any{map[string]any{"type": "text", "text": "go on"}}},
	}}).Want(b, 200)
	frames := follow.UntilType(b, "span.model_request_start")
	return frames[len(frames)-1].ID
}
