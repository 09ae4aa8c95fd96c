package goclient

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"github.com/perdure/perdure/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// limit bounds each test.
const limit = 2 * time.Minute

// world is what most tests need.
type world struct {
	*testing.T
	ctx    context.Context
	client anthropic.Client
	url    string
}

func begin(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	server := harness.Shared(t, harness.Options{Scripts: root + "/test/conformance/scripts"})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return &world{t, ctx, anthropic.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey(server.APIKey)), server.URL}
}

// must fails the test on an error, and answers the value.
func must[V any](w *world) func(V, error) V {
	return func(v V, err error) V {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		return v
	}
}

type (
	agentTool    = anthropic.BetaAgentNewParamsToolUnion
	sessionEvent = anthropic.BetaManagedAgentsSessionEventUnion
	streamEvent  = anthropic.BetaManagedAgentsStreamSessionEventsUnion
	clientEvent  = anthropic.BetaManagedAgentsEventParamsUnion
	eventStream  = ssestream.Stream[streamEvent]
)

var toolset = agentTool{OfAgentToolset20260401: &anthropic.BetaManagedAgentsAgentToolset20260401Params{}}

// askToolset wants each call approved.
var askToolset = agentTool{OfAgentToolset20260401: &anthropic.BetaManagedAgentsAgentToolset20260401Params{
	DefaultConfig: anthropic.BetaManagedAgentsAgentToolsetDefaultConfigParams{
		PermissionPolicy: anthropic.BetaManagedAgentsAgentToolsetDefaultConfigParamsPermissionPolicyUnion{
			OfAlwaysAsk: &anthropic.BetaManagedAgentsAlwaysAskPolicyParam{},
		},
	},
}}

var weatherTool = agentTool{OfCustom: &anthropic.BetaManagedAgentsCustomToolParams{
	Name:        "get_weather",
	Description: "Says what the weather is like in a city.",
	InputSchema: anthropic.BetaManagedAgentsCustomToolInputSchemaParam{
		Properties: map[string]any{"city": map[string]any{"type": "string", "description": "The city."}},
		Required:   []string{"city"},
	},
}}

func (w *world) agent(script string, tools ...agentTool) *anthropic.BetaManagedAgentsAgent {
	w.Helper()
	return must[*anthropic.BetaManagedAgentsAgent](w)(w.client.Beta.Agents.New(w.ctx, anthropic.BetaAgentNewParams{
		Name: w.Name(), Model: anthropic.BetaManagedAgentsModelConfigParams{ID: "scripted/" + script}, Tools: tools,
	}))
}

func (w *world) environment() *anthropic.BetaEnvironment {
	w.Helper()
	return must[*anthropic.BetaEnvironment](w)(w.client.Beta.Environments.New(w.ctx, anthropic.BetaEnvironmentNewParams{Name: w.Name()}))
}

func (w *world) session(script string, tools ...agentTool) *anthropic.BetaManagedAgentsSession {
	w.Helper()
	return w.sessionOf(w.agent(script, tools...).ID, anthropic.BetaSessionNewParams{})
}

// sessionOf fills in the agent and an environment.
func (w *world) sessionOf(agent string, params anthropic.BetaSessionNewParams) *anthropic.BetaManagedAgentsSession {
	w.Helper()
	if agent != "" {
		params.Agent = anthropic.BetaSessionNewParamsAgentUnion{OfString: anthropic.String(agent)}
	}
	if params.EnvironmentID == "" {
		params.EnvironmentID = w.environment().ID
	}
	return must[*anthropic.BetaManagedAgentsSession](w)(w.client.Beta.Sessions.New(w.ctx, params))
}

func (w *world) retrieve(session string) *anthropic.BetaManagedAgentsSession {
	w.Helper()
	return must[*anthropic.BetaManagedAgentsSession](w)(w.client.Beta.Sessions.Get(w.ctx, session, anthropic.BetaSessionGetParams{}))
}

func message(words string) clientEvent {
	return anthropic.BetaManagedAgentsEventParamsOfUserMessage([]anthropic.BetaManagedAgentsUserMessageEventParamsContentUnion{{
		OfText: &anthropic.BetaManagedAgentsTextBlockParam{Text: words},
	}})
}

func confirmation(call, verdict, why string) clientEvent {
	params := &anthropic.BetaManagedAgentsUserToolConfirmationEventParams{
		ToolUseID: call, Result: anthropic.BetaManagedAgentsUserToolConfirmationEventParamsResult(verdict),
	}
	if why != "" {
		params.DenyMessage = anthropic.String(why)
	}
	return clientEvent{OfUserToolConfirmation: params}
}

func customResult(call, words string, failed bool) clientEvent {
	return clientEvent{OfUserCustomToolResult: &anthropic.BetaManagedAgentsUserCustomToolResultEventParams{
		CustomToolUseID: call,
		IsError:         anthropic.Bool(failed),
		Content: []anthropic.BetaManagedAgentsUserCustomToolResultEventParamsContentUnion{{
			OfText: &anthropic.BetaManagedAgentsTextBlockParam{Text: words},
		}},
	}}
}

var interrupt = clientEvent{OfUserInterrupt: &anthropic.BetaManagedAgentsUserInterruptEventParams{}}

func (w *world) send(session string, events ...clientEvent) *anthropic.BetaManagedAgentsSendSessionEvents {
	w.Helper()
	return must[*anthropic.BetaManagedAgentsSendSessionEvents](w)(w.client.Beta.Sessions.Events.Send(w.ctx, session, anthropic.BetaSessionEventSendParams{Events: events}))
}

func (w *world) trySend(session string, events ...clientEvent) error {
	_, err := w.client.Beta.Sessions.Events.Send(w.ctx, session, anthropic.BetaSessionEventSendParams{Events: events})
	return err
}

func (w *world) stream(session string, params anthropic.BetaSessionEventStreamParams) *eventStream {
	w.Helper()
	stream := w.client.Beta.Sessions.Events.StreamEvents(w.ctx, session, params)
	if err := stream.Err(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = stream.Close() })
	return stream
}

// until reads the stream to the first event of a type, and answers all events with it.
func (w *world) until(stream *eventStream, kind string) []streamEvent {
	w.Helper()
	return w.untilFound(stream, func(e streamEvent) bool { return e.Type == kind })
}

func (w *world) untilFound(stream *eventStream, found func(streamEvent) bool) []streamEvent {
	w.Helper()
	var events []streamEvent
	for stream.Next() {
		events = append(events, stream.Current())
		if found(stream.Current()) {
			return events
		}
	}
	w.Fatalf("the stream ended after %v: %v", types(events), stream.Err())
	return nil
}

// converse sends events and reads to the end of the turn.
func (w *world) converse(session string, events ...clientEvent) []streamEvent {
	w.Helper()
	stream := w.stream(session, anthropic.BetaSessionEventStreamParams{})
	defer stream.Close()
	w.send(session, events...)
	return w.until(stream, "session.status_idle")
}

// log is all events of a session, by the automatic pager.
func (w *world) log(session string, params anthropic.BetaSessionEventListParams) []sessionEvent {
	w.Helper()
	pager := w.client.Beta.Sessions.Events.ListAutoPaging(w.ctx, session, params)
	events := slices.Collect(pager.All())
	if err := pager.Err(); err != nil {
		w.Fatal(err)
	}
	return events
}

func types(events []streamEvent) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.Type
	}
	return list
}

func ids(events []streamEvent) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.ID
	}
	return list
}

func logIDs(events []sessionEvent) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.ID
	}
	return list
}

// only picks the events of a type.
func only(events []streamEvent, kind string) []streamEvent {
	return slices.DeleteFunc(slices.Clone(events), func(e streamEvent) bool { return e.Type != kind })
}

// said is what the agent said.
func said(events []streamEvent) string {
	var text strings.Builder
	for _, e := range only(events, "agent.message") {
		for _, block := range e.AsAgentMessage().Content {
			text.WriteString(block.Text)
		}
	}
	return text.String()
}

func same[V comparable](w *world, what string, got, want V) {
	w.Helper()
	if got != want {
		w.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equal[V comparable](w *world, what string, got, want []V) {
	w.Helper()
	if !slices.Equal(got, want) {
		w.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// refused checks an error of the API as the client shows it.
func (w *world) refused(err error, status int, kind, words string) *anthropic.Error {
	w.Helper()
	var refusal *anthropic.Error
	if !errors.As(err, &refusal) {
		w.Fatalf("want a refusal with status %d, got %v", status, err)
	}
	same(w, "status", refusal.StatusCode, status)
	if kind != "" {
		same(w, "type", string(refusal.Type()), kind)
	}
	if !strings.Contains(refusal.Message, words) {
		w.Errorf("message %q, want %q in it", refusal.Message, words)
	}
	if !strings.HasPrefix(refusal.RequestID, "req_") {
		w.Errorf("request id %q", refusal.RequestID)
	}
	return refusal
}
