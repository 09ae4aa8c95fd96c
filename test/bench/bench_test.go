// Package bench measures what Perdure itself costs: everything of a turn but the model.
//
// A turn is one input, one answer with a tool call, the call, and one answer: about a kilobyte each. The model answers at
// once. The server is the real one, in this process, on a real data directory and a real sandbox, driven through HTTP.
//
//	go test -run - -bench . ./test/bench
//
// The figures that count: p50-ms and p99-ms of a turn at different lengths of history; what a turn leaves on the disk,
// stored/said, which a test bounds; and what is written on the way, written-bytes/turn: SQLite writes whole pages, to its
// log and again to its file.
package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/test/harness"
)

func TestMain(m *testing.M) {
	perdure.Reexec()
	harness.Main(m)
}

type server struct {
	b      testing.TB
	url    string
	secret string
}

func open(b testing.TB) *server {
	b.Helper()
	s, stop := openAt(b, b.TempDir())
	b.Cleanup(stop)
	return s
}

// openAt opens a server on a directory. Stop ends it, and its sandboxes.
func openAt(b testing.TB, dir string) (made *server, stop func()) {
	b.Helper()
	s, err := perdure.Open(b.Context(), perdure.Options{Dir: dir, ScriptsDir: "scripts", RequestsPerTurn: 10})
	if err != nil {
		b.Fatal(err)
	}
	secret, _, err := s.CreateKey(b.Context(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	web := httptest.NewServer(s.Handler())
	return &server{b: b, url: web.URL, secret: secret}, sync.OnceFunc(func() {
		web.CloseClientConnections()
		web.Close()
		cancel()
		if err := errors.Join(<-done, s.StopSandboxes(context.Background()), s.Close()); err != nil {
			b.Error(err)
		}
	})
}

func (s *server) request(method, path string, body any) *http.Response {
	raw, err := json.Marshal(body)
	if err != nil {
		s.b.Fatal(err)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, s.url+path, bytes.NewReader(raw))
	if err != nil {
		s.b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.secret)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.b.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		s.b.Fatalf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	return response
}

func (s *server) create(path string, body any) string {
	response := s.request(http.MethodPost, path, body)
	defer response.Body.Close()
	var made struct {
		ID string `json:"id"`
	}
	if err := json.UnmarshalRead(response.Body, &made); err != nil {
		s.b.Fatal(err)
	}
	return made.ID
}

// chat is a session with a stream that follows it.
type chat struct {
	*server
	id     string
	events *bufio.Reader
	bytes  int // of the events that came
}

// said is the bytes of the events that came.
func (c *chat) said() int { return c.bytes }

func (s *server) chat() *chat {
	agent := s.create("/v1/agents", map[string]any{"name": "bench", "model": "scripted/turn", "tools": []any{map[string]any{"type": "agent_toolset_20260401"}}})
	environment := s.create("/v1/environments", map[string]any{"name": "bench"})
	c := s.follow(s.create("/v1/sessions", map[string]any{"agent": agent, "environment_id": environment}))
	c.turn("prepare")
	return c
}

// follow opens the stream of a session.
func (s *server) follow(session string) *chat {
	stream := s.request(http.MethodGet, "/v1/sessions/"+session+"/events/stream", nil)
	s.b.Cleanup(func() { stream.Body.Close() })
	return &chat{server: s, id: session, events: bufio.NewReaderSize(stream.Body, 64<<10)}
}

var filler = strings.Repeat("x", 1000)

// turn sends a message and waits until the session is idle again.
func (c *chat) turn(text string) time.Duration {
	began := time.Now()
	response := c.request(http.MethodPost, "/v1/sessions/"+c.id+"/events", map[string]any{"events": []any{map[string]any{
		"type": "user.message", "content": []any{map[string]any{"type": "text", "text": text + " " + filler}},
	}}})
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	for {
		line, err := c.events.ReadString('\n')
		if err != nil {
			c.b.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			c.bytes += len(data) - 1
		}
		if line == "event: session.status_idle\n" {
			return time.Since(began)
		}
	}
}

func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(times[len(times)/2]), "p50-ms")
	b.ReportMetric(ms(times[len(times)*99/100]), "p99-ms")
}

// written is how many bytes this process has given to write calls, whatever they were for: the database with its log, the
// answers to the client. It is an upper bound of what goes to the disk.
func written(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skipf("the bytes written are not known here: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "wchar: "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("/proc/self/io has no wchar")
	return 0
}

// BenchmarkTurn measures turns of one session at different lengths of history.
func BenchmarkTurn(b *testing.B) {
	for _, history := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("history=%d", history), func(b *testing.B) {
			c := open(b).chat()
			for range history {
				c.turn("turn")
			}
			var times []time.Duration
			before := written(b)
			for b.Loop() {
				times = append(times, c.turn("turn"))
			}
			b.ReportMetric(float64(written(b)-before)/float64(len(times)), "written-bytes/turn")
			report(b, times)
		})
	}
}

// BenchmarkSessions measures turns of 64 sessions at once: they share commits.
func BenchmarkSessions(b *testing.B) {
	const sessions = 64
	s := open(b)
	chats := make([]*chat, sessions)
	for i := range chats {
		chats[i] = s.chat()
	}
	var mu sync.Mutex
	var times []time.Duration
	began := time.Now()
	turns := 0
	for b.Loop() {
		var group sync.WaitGroup
		for _, c := range chats {
			group.Go(func() {
				took := c.turn("turn")
				mu.Lock()
				defer mu.Unlock()
				times = append(times, took)
			})
		}
		group.Wait()
		turns += sessions
	}
	b.ReportMetric(float64(turns)/time.Since(began).Seconds(), "turns/s")
	report(b, times)
}
