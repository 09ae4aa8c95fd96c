package api

import (
	"errors"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

func (s *Server) eventRoutes() []route {
	return []route{
		{method: "POST", pattern: "/v1/sessions/{session}/events", handle: sendEvents},
		{method: "GET", pattern: "/v1/sessions/{session}/events", handle: listEvents},
		{method: "GET", pattern: "/v1/sessions/{session}/events/stream", handle: streamEvents, streams: true},
		{method: "GET", pattern: "/v1/sessions/{session}/threads/{thread}/events", handle: listThreadEvents},
		{method: "GET", pattern: "/v1/sessions/{session}/threads/{thread}/stream", handle: streamThread, streams: true},
	}
}

// history answers what a session's state does not hold from its log.
type history struct {
	c *call
	// err is the first failure to read the log: what was accepted on its account must not be appended.
	err error
}

func (h *history) CallType(event string) (string, bool) {
	var found session.Event
	err := h.c.workspace().View(h.c.ctx, func(r store.Reader) (err error) {
		found, err = r.Event(h.c.sessionID(), event)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", false
	case err != nil:
		h.err = err
		return "", false
	}
	switch found.Type {
	case session.AgentToolUse, session.AgentMCPToolUse, session.AgentCustomToolUse:
		return found.Type, true
	}
	return "", false
}

func sendEvents(c *call) (*reply, error) {
	inputs, err := resource.DecodeEvents(c.body)
	if err != nil {
		return nil, err
	}
	state, err := c.state()
	if err != nil {
		return nil, err
	}
	if err := c.checkSystemMessages(state, inputs); err != nil {
		return nil, err
	}
	if err := c.checkFiles(inputs); err != nil {
		return nil, err
	}
	var echoes []jsontext.Value
	answer, _, err := c.change(func(step *session.Step) (err error) {
		known := &history{c: c}
		echoes, err = step.Accept(known, inputs)
		if known.err != nil {
			return known.err
		}
		return err
	}, func(*session.Step) (any, error) {
		return struct {
			Data []jsontext.Value `json:"data"`
		}{echoes}, nil
	}, nil)
	return answer, err
}

// checkSystemMessages refuses system messages for a model that takes none: its provider would refuse every later request of
// the session.
func (c *call) checkSystemMessages(state *session.State, inputs []session.Input) error {
	i := slices.IndexFunc(inputs, func(in session.Input) bool { return in.Type == session.SystemMessage })
	if i < 0 {
		return nil
	}
	var agent resource.AgentSnapshot
	if err := json.Unmarshal(state.Config.Agent, &agent); err != nil {
		return err
	}
	if !c.Models.TakesSystemMessages(agent.Model.ID) {
		return problem.Invalidf("events[%d].type: model %s does not support system messages in the middle of a conversation", i, agent.Model.ID).
			WithCode("model_does_not_support_mid_conversation_system")
	}
	return nil
}

// maxEventPage bounds one page of events, beside their number.
const maxEventPage = 8 << 20 // bytes

func listEvents(c *call) (*reply, error) {
	if _, err := c.state(); err != nil {
		return nil, err
	}
	return c.listEvents(store.EventQuery{})
}

func listThreadEvents(c *call) (*reply, error) {
	state, err := c.thread()
	if err != nil {
		return nil, err
	}
	return c.listEvents(store.EventQuery{Thread: state.Config.Thread})
}

func (c *call) listEvents(query store.EventQuery) (*reply, error) {
	order, err := c.order("asc")
	if err != nil {
		return nil, err
	}
	at, err := c.cursor(order)
	if err != nil {
		return nil, err
	}
	limit, err := c.limit(1000, 1000)
	if err != nil {
		return nil, err
	}
	query.After, query.Descending, query.Limit, query.MaxBytes = at.Seq, order == "desc", limit+1, maxEventPage
	for _, t := range c.values("types") {
		if !session.KnownEventType(t) {
			return nil, problem.Invalidf("types: %q is not a valid value", t)
		}
		query.Types = append(query.Types, t)
	}
	if query.From, query.Since, query.To, query.Until, err = c.moments(); err != nil {
		return nil, err
	}
	var events []session.Event
	err = c.workspace().View(c.ctx, func(r store.Reader) (err error) {
		events, err = r.Events(c.sessionID(), query)
		return err
	})
	if err != nil {
		return nil, err
	}
	more := len(events) > limit
	events = events[:min(len(events), limit)]
	size := int64(0)
	data := make([]jsontext.Value, 0, len(events))
	for _, e := range events {
		data = append(data, e.Body)
		size += int64(len(e.Body) + len(e.Private))
	}
	var next *cursor
	if n := len(events); n > 0 && (more || size >= maxEventPage) {
		next = &cursor{Seq: events[n-1].Seq, Order: order}
	}
	return ok(newPage(data, next))
}

// position reads where a stream is to go on: after the position of the last event that the client has. Without one the
// stream has only what happens from now on.
func (c *call) position() (after int64, given bool, err error) {
	text := c.r.Header.Get("Last-Event-ID")
	if text == "" {
		text = c.query.Get("after")
	}
	if text == "" {
		return 0, false, nil
	}
	after, err = strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, false, problem.Invalidf("after: %q is not a position of this stream; use the id of the last event that you have", text)
	}
	return after, true, nil
}
