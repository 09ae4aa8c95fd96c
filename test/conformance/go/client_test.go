package goclient

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func TestErrors(t *testing.T) {
	w := begin(t)
	_, err := w.client.Beta.Agents.Get(w.ctx, "agent_011CZkYpogX7uDKUyvBTophP", anthropic.BetaAgentGetParams{})
	w.refused(err, 404, "not_found_error", "Agent not found.")
	_, err = w.client.Beta.Agents.Get(w.ctx, "nonsense", anthropic.BetaAgentGetParams{})
	w.refused(err, 400, "invalid_request_error", "Invalid agent ID.")
	_, err = w.client.Beta.Agents.New(w.ctx, anthropic.BetaAgentNewParams{Name: "x"})
	w.refused(err, 400, "invalid_request_error", "")
	_, err = w.client.Beta.Agents.List(w.ctx, anthropic.BetaAgentListParams{}, option.WithAPIKey("sk-ant-wrong"))
	w.refused(err, 401, "authentication_error", "Authentication failed")
	_, err = w.client.Beta.Agents.List(w.ctx, anthropic.BetaAgentListParams{Page: anthropic.String("nonsense")})
	w.refused(err, 400, "invalid_request_error", "invalid page cursor")
}

// A stale version is refused once: the client does not repeat what cannot succeed.
func TestConflictIsNotRetried(t *testing.T) {
	w := begin(t)
	agent := w.agent("greet")
	var requests atomic.Int32
	count := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		requests.Add(1)
		return next(r)
	})
	_, err := w.client.Beta.Agents.Update(w.ctx, agent.ID, anthropic.BetaAgentUpdateParams{Version: anthropic.Int(5)}, count)
	w.refused(err, 409, "", "")
	same(w, "requests", requests.Load(), 1)
}

// A request whose answer was lost is sent again by the client; with a key it counts once.
func TestRetryWithIdempotencyKey(t *testing.T) {
	w := begin(t)
	made := w.session("greet")
	proxy := losesFirstAnswer(t, w)
	stream := w.stream(made.ID, anthropic.BetaSessionEventStreamParams{})
	params := anthropic.BetaSessionEventSendParams{Events: []clientEvent{message("once")}}
	sent := must[*anthropic.BetaManagedAgentsSendSessionEvents](w)(w.client.Beta.Sessions.Events.Send(w.ctx, made.ID, params,
		option.WithBaseURL(proxy.url), option.WithHeader("Idempotency-Key", made.ID)))
	same(w, "requests", proxy.requests.Load(), 2)
	events := w.until(stream, "session.status_idle")
	messages := w.log(made.ID, anthropic.BetaSessionEventListParams{Types: []anthropic.BetaManagedAgentsSessionEventType{"user.message"}})
	same(w, "messages", len(messages), 1)
	same(w, "id", messages[0].ID, sent.Data[0].ID)
	same(w, "model requests", len(only(events, "span.model_request_start")), 1)
}

type lossyProxy struct {
	url      string
	requests atomic.Int32
}

// losesFirstAnswer passes requests on, and drops the connection in place of the first answer.
func losesFirstAnswer(t *testing.T, w *world) *lossyProxy {
	t.Helper()
	target, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	p := &lossyProxy{}
	forward := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if p.requests.Add(1) == 1 {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(out, r)
	}))
	t.Cleanup(front.Close)
	p.url = front.URL
	return p
}
