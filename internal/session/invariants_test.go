package session_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/session"
)

func isUse(kind string) bool {
	return kind == session.AgentToolUse || kind == session.AgentMCPToolUse || kind == session.AgentCustomToolUse
}

func isResult(kind string) bool {
	switch kind {
	case session.AgentToolResult, session.AgentMCPToolResult, session.UserToolResult, session.UserCustomToolResult:
		return true
	}
	return false
}

// publicBody is what the checks read of a body.
type publicBody struct {
	ID         string         `json:"id"`
	Type       string         `json:"type"`
	Processed  *string        `json:"processed_at"`
	Content    jsontext.Value `json:"content"`
	Tool       string         `json:"tool_use_id"`
	MCP        string         `json:"mcp_tool_use_id"`
	Custom     string         `json:"custom_tool_use_id"`
	Permission string         `json:"evaluated_permission"`
	Result     string         `json:"result"`
	Start      string         `json:"model_request_start_id"`
	Outcome    string         `json:"outcome_id"`
	Evaluation string         `json:"outcome_evaluation_start_id"`
	Stop       struct {
		Type   string   `json:"type"`
		Events []string `json:"event_ids"`
	} `json:"stop_reason"`
}

func (b *publicBody) call() string { return b.Tool + b.MCP + b.Custom }

// scan reads a log from its beginning and says where it breaks a promise that readers rely on. It knows nothing of State:
// it judges the log by itself.
type scan struct {
	at        time.Time
	status    session.Status
	stop      string
	request   string
	uses      map[string]string // type by id
	answered  map[string]bool
	gated     map[string]bool // calls with permission ask that nobody decided about
	queued    map[string]jsontext.Value
	delivered map[string]bool
	interrupt string
	// outcome is the one that is worked on, and evaluation the event that began its evaluation.
	outcome, evaluation string
	// Active is the sum of the intervals in which the session ran.
	active  time.Duration
	running time.Time
	deleted bool
}

func checkLog(log []session.Event) (*scan, error) {
	s := &scan{
		uses: map[string]string{}, answered: map[string]bool{}, gated: map[string]bool{},
		queued: map[string]jsontext.Value{}, delivered: map[string]bool{},
	}
	for i, e := range log {
		if err := s.entry(log, i); err != nil {
			return nil, fmt.Errorf("entry %d (%s %s): %w", i+1, e.Type, e.ID, err)
		}
	}
	return s, nil
}

func (s *scan) entry(log []session.Event, i int) error {
	e := log[i]
	switch {
	case e.Seq != int64(i)+1:
		return fmt.Errorf("its seq is %d", e.Seq)
	case i > 0 && e.At.Sub(s.at) < time.Microsecond:
		return fmt.Errorf("its time %v is not a microsecond after %v", e.At, s.at)
	case e.At.Location() != time.UTC || e.At.Nanosecond()%1000 != 0:
		return fmt.Errorf("its time %v is not in UTC and whole microseconds", e.At)
	case s.deleted:
		return fmt.Errorf("it follows session.deleted")
	case s.status == session.Terminated && e.Type != session.SessionDeleted:
		return fmt.Errorf("it follows session.status_terminated")
	}
	s.at = e.At
	if !e.Public() {
		if !strings.HasPrefix(e.Type, "perdure.") {
			return fmt.Errorf("it has no body")
		}
		if i == 0 {
			s.status = session.Idle
		}
		return nil
	}
	var b publicBody
	if err := json.Unmarshal(e.Body, &b); err != nil {
		return fmt.Errorf("its body cannot be read: %w", err)
	}
	if b.ID != e.ID || b.Type != e.Type {
		return fmt.Errorf("its body says %s %s", b.Type, b.ID)
	}
	if e.Queued != (b.Processed == nil) || b.Processed != nil && *b.Processed != e.At.Format(session.TimeFormat) {
		return fmt.Errorf("its processed_at is wrong: %s", e.Body)
	}
	if isSessionWide(e.Type) != (e.Thread == "") {
		return fmt.Errorf("its thread is %q", e.Thread)
	}
	return s.meaning(log, i, b)
}

func isSessionWide(kind string) bool {
	switch kind {
	case session.StatusRunning, session.StatusIdle, session.StatusRescheduled, session.StatusTerminated,
		session.SessionUsage, session.SessionUpdated, session.SessionDeleted:
		return true
	}
	return false
}

func (s *scan) meaning(log []session.Event, i int, b publicBody) error {
	e := log[i]
	switch {
	case isUse(e.Type):
		return s.use(e, b)
	case isResult(e.Type):
		return s.result(b)
	}
	switch e.Type {
	case session.UserMessage, session.SystemMessage:
		return s.message(e, b)
	case session.UserInterrupt:
		return s.interrupted(e)
	case session.UserToolConfirmation:
		if !s.gated[b.Tool] || s.answered[b.Tool] {
			return fmt.Errorf("call %s does not wait for a confirmation", b.Tool)
		}
		delete(s.gated, b.Tool)
	case session.AgentMessage, session.AgentThinking:
		if s.request == "" {
			return fmt.Errorf("no request is open")
		}
	case session.ModelRequestStart:
		if s.request != "" || s.evaluation != "" || s.status != session.Running || len(s.open()) > 0 {
			return fmt.Errorf("a request begins while %s, open request %q, open calls %v", s.status, s.request, s.open())
		}
		s.request = e.ID
	case session.ModelRequestEnd:
		if b.Start != s.request || s.request == "" {
			return fmt.Errorf("it ends request %q, the open one is %q", b.Start, s.request)
		}
		s.request = ""
	case session.UserDefineOutcome:
		if s.outcome != "" {
			return fmt.Errorf("outcome %s is not finished", s.outcome)
		}
		s.outcome = b.Outcome
	case session.OutcomeEvaluationStart:
		if s.outcome != b.Outcome || s.evaluation != "" || s.request != "" || len(s.open()) > 0 || s.status != session.Running {
			return fmt.Errorf("evaluation of %s; outcome %q, evaluation %q, request %q, open calls %v", b.Outcome, s.outcome, s.evaluation, s.request, s.open())
		}
		s.evaluation = e.ID
	case session.OutcomeEvaluationEnd:
		if s.outcome != b.Outcome || s.evaluation != b.Evaluation || s.evaluation == "" && b.Result != session.OutcomeInterrupted {
			return fmt.Errorf("evaluation %q of %s ends %s; outcome %q, evaluation %q", b.Evaluation, b.Outcome, b.Result, s.outcome, s.evaluation)
		}
		s.evaluation = ""
		if b.Result != session.OutcomeNeedsRevision {
			s.outcome = ""
		}
	case session.SessionDeleted:
		s.deleted = true
	default:
		return s.statusChange(log, i, b)
	}
	return nil
}

func (s *scan) open() []string {
	var open []string
	for id := range s.uses {
		if !s.answered[id] {
			open = append(open, id)
		}
	}
	slices.Sort(open)
	return open
}

func (s *scan) use(e session.Event, b publicBody) error {
	switch {
	case s.request == "":
		return fmt.Errorf("no request is open")
	case s.uses[e.ID] != "":
		return fmt.Errorf("the id is not unique")
	}
	s.uses[e.ID] = e.Type
	if b.Permission == "ask" {
		s.gated[e.ID] = true
	}
	return nil
}

func (s *scan) result(b publicBody) error {
	answers := map[string][]string{
		session.AgentToolUse:       {session.AgentToolResult, session.UserToolResult},
		session.AgentMCPToolUse:    {session.AgentMCPToolResult},
		session.AgentCustomToolUse: {session.UserCustomToolResult},
	}
	use, ok := s.uses[b.call()]
	switch {
	case !ok:
		return fmt.Errorf("call %q is unknown", b.call())
	case s.answered[b.call()]:
		return fmt.Errorf("call %s has a result already", b.call())
	case !slices.Contains(answers[use], b.Type):
		return fmt.Errorf("call %s is an %s", b.call(), use)
	case s.request != "":
		return fmt.Errorf("a request is open")
	}
	s.answered[b.call()] = true
	return nil
}

func (s *scan) message(e session.Event, b publicBody) error {
	if s.delivered[e.ID] {
		return fmt.Errorf("it was delivered already")
	}
	content, waited := s.queued[e.ID]
	if e.Queued {
		if waited {
			return fmt.Errorf("it was queued already")
		}
		s.queued[e.ID] = b.Content
		return nil
	}
	if waited && string(content) != string(b.Content) {
		return fmt.Errorf("what was queued and what was delivered differ: %s, %s", content, b.Content)
	}
	if !waited && len(s.queued) > 0 {
		return fmt.Errorf("it overtakes messages that wait")
	}
	if len(s.open()) > 0 {
		return fmt.Errorf("it comes between calls and their results: %v", s.open())
	}
	delete(s.queued, e.ID)
	s.delivered[e.ID] = true
	return nil
}

func (s *scan) interrupted(e session.Event) error {
	switch {
	case e.Queued && s.interrupt != "":
		return fmt.Errorf("another waits: %s", s.interrupt)
	case e.Queued:
		s.interrupt = e.ID
	case s.interrupt != "" && s.interrupt != e.ID:
		return fmt.Errorf("it overtakes %s", s.interrupt)
	default:
		s.interrupt = ""
	}
	return nil
}

func (s *scan) statusChange(log []session.Event, i int, b publicBody) error {
	e := log[i]
	switch e.Type {
	case session.StatusRunning:
		if s.status != session.Idle && s.status != session.Rescheduling {
			return fmt.Errorf("the session is %s", s.status)
		}
		s.status, s.running = session.Running, e.At
		return s.followed(log, i, session.ThreadStatusRunning)
	case session.StatusRescheduled:
		if s.status != session.Running {
			return fmt.Errorf("the session is %s", s.status)
		}
		s.stopClock(e.At)
		s.status = session.Rescheduling
		return s.followed(log, i, session.ThreadStatusRescheduled)
	case session.StatusIdle:
		return s.idle(log, i, b)
	case session.StatusTerminated:
		if s.status != session.Idle {
			return fmt.Errorf("the session is %s", s.status)
		}
		s.status = session.Terminated
	case session.ThreadStatusIdle:
		return s.followed(log, i, session.SessionUsage)
	case session.SessionUsage:
		return s.followed(log, i, session.StatusIdle)
	case session.ThreadStatusTerminated:
		return s.followed(log, i, session.StatusTerminated)
	}
	return nil
}

func (s *scan) followed(log []session.Event, i int, by string) error {
	if i+1 >= len(log) || log[i+1].Type != by {
		return fmt.Errorf("it is not followed by %s", by)
	}
	return nil
}

func (s *scan) idle(log []session.Event, i int, b publicBody) error {
	e := log[i]
	if i < 2 || log[i-1].Type != session.SessionUsage || log[i-2].Type != session.ThreadStatusIdle {
		return fmt.Errorf("it does not follow session.thread_status_idle and session.usage")
	}
	var thread publicBody
	if err := json.Unmarshal(log[i-2].Body, &thread); err != nil {
		return err
	}
	if thread.Stop.Type != b.Stop.Type || !slices.Equal(thread.Stop.Events, b.Stop.Events) {
		return fmt.Errorf("thread and session are idle for different reasons")
	}
	if s.request != "" || s.evaluation != "" {
		return fmt.Errorf("request %q or evaluation %q is open", s.request, s.evaluation)
	}
	if s.status == session.Idle && s.stop != session.RequiresAction {
		return fmt.Errorf("the session was idle already: %s", s.stop)
	}
	open := s.open()
	if b.Stop.Type == session.RequiresAction {
		for _, id := range b.Stop.Events {
			if !slices.Contains(open, id) {
				return fmt.Errorf("it waits for %s, which is not open", id)
			}
		}
		if len(b.Stop.Events) == 0 {
			return fmt.Errorf("it waits for nothing")
		}
	} else if len(open) > 0 {
		return fmt.Errorf("%s with open calls %v", b.Stop.Type, open)
	}
	if b.Stop.Type == session.RetriesExhausted && len(s.queued) > 0 {
		return fmt.Errorf("messages are queued: %d", len(s.queued))
	}
	s.stopClock(e.At)
	s.status, s.stop = session.Idle, b.Stop.Type
	return nil
}

func (s *scan) stopClock(at time.Time) {
	if s.status == session.Running {
		s.active += at.Sub(s.running)
	}
}

// checkMessages says what the model's API would refuse in a conversation.
func checkMessages(messages []session.Message, model string) error {
	seen := map[string]bool{}
	var open []string // the calls of the message before
	for i, m := range messages {
		var blocks []struct {
			Type      string           `json:"type"`
			Text      string           `json:"text"`
			ID        string           `json:"id"`
			Call      string           `json:"tool_use_id"`
			Name      string           `json:"name"`
			Input     jsontext.Value   `json:"input"`
			Content   []jsontext.Value `json:"content"`
			Signature string           `json:"signature"`
		}
		if err := json.Unmarshal(m.Content, &blocks); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		switch {
		case len(blocks) == 0:
			return fmt.Errorf("message %d is empty", i)
		case i == 0 && m.Role != "user":
			return fmt.Errorf("the first message is from the %s", m.Role)
		case i > 0 && m.Role == messages[i-1].Role:
			return fmt.Errorf("messages %d and %d are both from the %s", i-1, i, m.Role)
		case len(open) > 0 && m.Role != "user":
			return fmt.Errorf("message %d comes between calls and results", i)
		}
		results := map[string]bool{}
		said, resultsOver := false, false
		var calls []string
		for j, b := range blocks {
			where := fmt.Sprintf("message %d, block %d", i, j)
			switch b.Type {
			case "text":
				if strings.TrimSpace(b.Text) == "" {
					return fmt.Errorf("%s: blank text", where)
				}
				said, resultsOver = true, true
			case "tool_use":
				if m.Role != "assistant" || b.ID == "" || seen[b.ID] || b.Name == "" || b.Input.Kind() != '{' {
					return fmt.Errorf("%s: bad call %+v", where, b)
				}
				seen[b.ID], said = true, true
				calls = append(calls, b.ID)
			case "tool_result":
				if m.Role != "user" || resultsOver || results[b.Call] || !slices.Contains(open, b.Call) {
					return fmt.Errorf("%s: result for %q, open %v", where, b.Call, open)
				}
				if len(b.Content) == 0 {
					return fmt.Errorf("%s: result without content", where)
				}
				for _, inner := range b.Content {
					var t struct {
						Type string `json:"type"`
						Text string `json:"text"`
					}
					if err := json.Unmarshal(inner, &t); err != nil || t.Type == "text" && strings.TrimSpace(t.Text) == "" {
						return fmt.Errorf("%s: blank text in a result", where)
					}
				}
				results[b.Call] = true
			case "thinking", "redacted_thinking":
				if m.Role != "assistant" || b.Signature != "signed by "+model {
					return fmt.Errorf("%s: %s of %q in a conversation of the %s with %s", where, b.Type, b.Signature, m.Role, model)
				}
			case "":
				return fmt.Errorf("%s: no type: %s", where, m.Content)
			default:
				said, resultsOver = true, true
			}
		}
		if m.Role == "assistant" && !said {
			return fmt.Errorf("message %d is nothing but thinking", i)
		}
		for _, id := range open {
			if !results[id] {
				return fmt.Errorf("message %d lacks the result of %s", i, id)
			}
		}
		open = calls
	}
	if len(open) > 0 {
		return fmt.Errorf("the last calls have no results: %v", open)
	}
	if n := len(messages); n == 0 || messages[n-1].Role == "assistant" {
		return fmt.Errorf("%d messages end with nothing to answer", n)
	}
	return nil
}

// checkPrefix says where an earlier conversation is not how a later one begins. The last message of the earlier one may
// have been added to, unless the model answered it.
func checkPrefix(earlier, later []session.Message) error {
	if len(later) < len(earlier) {
		return fmt.Errorf("%d messages became %d", len(earlier), len(later))
	}
	for i, m := range earlier {
		a, b := string(m.Content), string(later[i].Content)
		answered := len(later) > len(earlier) && later[len(earlier)].Role == "assistant"
		whole := a == b || i == len(earlier)-1 && !answered && strings.HasPrefix(b, strings.TrimSuffix(a, "]")+",")
		if m.Role != later[i].Role || !whole {
			return fmt.Errorf("message %d changed from %s %s to %s %s", i, m.Role, a, later[i].Role, b)
		}
	}
	return nil
}
