package anthropic

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/model/mockserver"
	"github.com/perdure/perdure/internal/model/scripted"
)

// pipes is a network within the process, which a test with a virtual clock can wait for.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.connections <- server:
		return client, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestTheDemoIsAcceptedByAStrictServer plays the whole demo over the API at its real pace, on a virtual clock. The tools
// answer what they would.
func TestTheDemoIsAcceptedByAStrictServer(t *testing.T) {
	library, err := scripted.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		network := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
		mock := mockserver.New(mockserver.Config{Library: library, Strict: true})
		server := &http.Server{Handler: mock}
		done := make(chan error, 1)
		go func() { done <- server.Serve(network) }()
		transport := &http.Transport{DialContext: network.dial}
		p := newProvider(t, Config{BaseURL: "http://model.invalid", HTTPClient: &http.Client{Transport: transport}})

		r := model.Request{Model: "scripted/demo", Session: "sesn_1", System: "Work.", Messages: []model.Message{user("go")}}
		for _, name := range []string{"bash", "read", "edit", "write"} {
			r.Tools = append(r.Tools, model.Tool{Name: name, InputSchema: jsontext.Value(`{"type":"object"}`)})
		}
		var calls []string
		var slowest time.Duration
		for range 20 {
			start := time.Now()
			response, err := p.Stream(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(start))
			if len(calls) > 0 && response.Usage.CacheReadTokens == 0 || response.Usage.OutputTokens == 0 {
				t.Errorf("answer %d has the usage %+v", len(calls), response.Usage)
			}
			r.Messages = append(r.Messages, assistant(response))
			if response.StopReason == "end_turn" {
				break
			}
			var results []string
			for _, block := range response.Content {
				var call struct {
					Type string `json:"type"`
					ID   string `json:"id"`
					Name string `json:"name"`
				}
				if err := json.Unmarshal(block, &call); err != nil {
					t.Fatal(err)
				}
				if call.Type == "tool_use" {
					calls = append(calls, call.Name)
					results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":%q,"content":[{"type":"text","text":"done"}]}`, call.ID))
				}
			}
			r.Messages = append(r.Messages, model.Message{Role: "user", Content: jsontext.Value("[" + strings.Join(results, ",") + "]")})
		}
		if got := strings.Join(calls, " "); got != "bash bash read edit bash write" {
			t.Errorf("calls: %s", got)
		}
		if slowest < 2*time.Second || slowest > 4*time.Second {
			t.Errorf("the slowest answer takes %s", slowest)
		}
		for _, refused := range mock.Refusals() {
			t.Errorf("refused: %s", refused.Message)
		}
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
		synctest.Wait()
	})
}
