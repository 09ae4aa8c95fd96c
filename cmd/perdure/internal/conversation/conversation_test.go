package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/client"
	"github.com/perdure/perdure/internal/terminal"
)

// fakeServer is a session whose events a test makes. It runs in the test's bubble, so its state needs no lock: the test
// and the run take turns at synctest.Wait.
type fakeServer struct {
	status string
	log    []client.Event
	feed   chan client.Event
	sent   []string // what was sent, as type and its main field
	refuse map[string]error
	ended  chan error
}

func newFake(status string, log ...string) *fakeServer {
	f := &fakeServer{status: status, feed: make(chan client.Event), refuse: map[string]error{}, ended: make(chan error)}
	for _, raw := range log {
		f.log = append(f.log, parse(raw))
	}
	return f
}

func parse(raw string) client.Event {
	e, err := client.ParseEvent([]byte(raw))
	if err != nil {
		panic(err)
	}
	return e
}

func (f *fakeServer) Session(context.Context, string) (*client.Session, error) {
	return &client.Session{ID: "s", Status: f.status}, nil
}

func (f *fakeServer) Send(_ context.Context, _ string, events ...any) ([]client.Event, error) {
	raw, err := json.Marshal(events[0])
	if err != nil {
		return nil, err
	}
	var e struct {
		Type    string
		Call    string `json:"tool_use_id"`
		Result  string
		Deny    string `json:"deny_message"`
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, err
	}
	line := strings.TrimSpace(strings.Join([]string{strings.TrimPrefix(e.Type, "user."), e.Call, e.Result, e.Deny}, " "))
	if len(e.Content) > 0 {
		line += " " + e.Content[0].Text
	}
	f.sent = append(f.sent, strings.Join(strings.Fields(line), " "))
	if err := f.refuse[e.Call]; err != nil {
		return nil, err
	}
	return []client.Event{{ID: fmt.Sprintf("sent%d", len(f.sent)), Type: e.Type}}, nil
}

func (f *fakeServer) Latest(_ context.Context, _ string, types ...string) (*client.Event, error) {
	for i := len(f.log) - 1; i >= 0; i-- {
		for _, t := range types {
			if f.log[i].Type == t {
				return &f.log[i], nil
			}
		}
	}
	return nil, nil
}

func (f *fakeServer) FindEvents(_ context.Context, _ string, ids []string, _ ...string) (map[string]client.Event, error) {
	found := map[string]client.Event{}
	for _, e := range f.log {
		for _, id := range ids {
			if e.ID == id {
				found[id] = e
			}
		}
	}
	return found, nil
}

func (f *fakeServer) Follow(ctx context.Context, _ string, o client.FollowOptions, yield func(client.Event) error) error {
	go o.OnOpen()
	for {
		select {
		case e := <-f.feed:
			if err := yield(e); err != nil {
				return err
			}
		case err := <-f.ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// talk is a run in a bubble.
type talk struct {
	t          *testing.T
	server     *fakeServer
	lines      chan string
	interrupts chan struct{}
	shown      bytes.Buffer
	done       chan struct{}
	result     Result
	err        error
}

func start(t *testing.T, server *fakeServer, o Options) *talk {
	k := &talk{t: t, server: server, lines: make(chan string, 8), interrupts: make(chan struct{}, 8), done: make(chan struct{})}
	o.Session, o.Screen, o.Interrupts = "s", terminal.NewPlainScreen(&k.shown, &k.shown), k.interrupts
	if o.Approve == "" {
		o.Approve = Ask
		o.Lines = k.lines
	}
	go func() {
		defer close(k.done)
		k.result, k.err = Run(t.Context(), server, o)
	}()
	synctest.Wait()
	return k
}

func (k *talk) event(raw string) {
	k.t.Helper()
	select {
	case k.server.feed <- parse(raw):
		synctest.Wait()
	case <-k.done:
		k.t.Fatalf("the run was over (%v %v) before %s", k.result, k.err, raw)
	}
}

func (k *talk) sent(want ...string) {
	k.t.Helper()
	if diff := cmp.Diff(want, k.server.sent); diff != "" {
		k.t.Fatalf("sent: %s", diff)
	}
}

func (k *talk) over(outcome Outcome) {
	k.t.Helper()
	synctest.Wait()
	select {
	case <-k.done:
	default:
		k.t.Fatalf("the run goes on; it showed:\n%s", &k.shown)
	}
	if k.err != nil || k.result.Outcome != outcome {
		k.t.Fatalf("ended with %+v, %v, want outcome %d", k.result, k.err, outcome)
	}
}

const at = `"processed_at":"2026-01-01T00:00:00.000000Z"`

func taken(id string) string { return fmt.Sprintf(`{"id":%q,"type":"user.message",%s}`, id, at) }

func idle(reason string) string {
	return fmt.Sprintf(`{"id":"i","type":"session.status_idle","stop_reason":{"type":%q},%s}`, reason, at)
}

func waiting(ids ...string) string {
	list, _ := json.Marshal(ids)
	return fmt.Sprintf(`{"id":"w","type":"session.status_idle","stop_reason":{"type":"requires_action","event_ids":%s},%s}`, list, at)
}

func call(id, name, permission string) string {
	return fmt.Sprintf(`{"id":%q,"type":"agent.tool_use","name":%q,"input":{"file_path":"/x"},"evaluated_permission":%q,%s}`, id, name, permission, at)
}

func custom(id string) string {
	return fmt.Sprintf(`{"id":%q,"type":"agent.custom_tool_use","name":"ticket","input":{},%s}`, id, at)
}

const running = `{"id":"r","type":"session.status_running"}`

func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.sent("message hi")
		k.event(idle("end_turn")) // of an earlier turn
		k.event(running)
		k.event(taken("sent1"))
		k.event(`{"id":"m","type":"agent.message","content":[{"type":"text","text":"hello"}],` + at + `}`)
		k.event(idle("end_turn"))
		k.over(Done)
		if !strings.Contains(k.shown.String(), "hello\n") {
			t.Errorf("shown:\n%s", &k.shown)
		}
	})
}

func TestEnds(t *testing.T) {
	for reason, want := range map[string]Outcome{
		"end_turn": Done, "retries_exhausted": Failed, "refusal": Failed, "budget_reached": Waiting, "new_reason": Done,
	} {
		synctest.Test(t, func(t *testing.T) {
			k := start(t, newFake("idle"), Options{Message: "hi"})
			k.event(taken("sent1"))
			k.event(`{"id":"e","type":"session.error","error":{"type":"x","message":"busy.","retry_status":{"type":"exhausted"}}}`)
			k.event(idle(reason))
			k.over(want)
			if reason == "retries_exhausted" && !strings.HasSuffix(k.result.Why, ": busy") {
				t.Errorf("why: %q", k.result.Why)
			}
		})
	}
}

func TestAMessageForARunningSessionWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("running"), Options{Message: "and this"})
		k.sent("message and this")
		k.event(idle("end_turn")) // the message came after the last request of the turn
		k.event(running)
		k.event(taken("sent1"))
		k.event(idle("end_turn"))
		k.over(Done)
	})
}

func TestWithoutAMessageItWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("running"), Options{})
		k.event(idle("end_turn"))
		k.over(Done)
		k = start(t, newFake("idle", idle("end_turn")), Options{})
		k.over(Done)
		k = start(t, newFake("terminated"), Options{Message: "hi"})
		k.over(Failed)
		if len(k.server.sent) != 0 {
			t.Errorf("sent %q", k.server.sent)
		}
	})
}

func TestApprovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.event(taken("sent1"))
		k.lines <- "y" // typed before the question
		k.event(call("a", "write", "ask"))
		k.event(call("b", "bash", "allow"))
		k.event(call("c", "edit", "ask"))
		k.event(waiting("a", "c"))
		k.sent("message hi")
		k.lines <- "y"
		synctest.Wait()
		k.sent("message hi", "tool_confirmation a allow")
		k.event(waiting("c"))
		k.lines <- "n"
		k.lines <- "not that file"
		synctest.Wait()
		k.sent("message hi", "tool_confirmation a allow", "tool_confirmation c deny not that file")
		k.event(running)
		k.event(call("d", "write", "ask"))
		k.event(waiting("d"))
		k.lines <- "a"
		synctest.Wait()
		k.event(running)
		k.event(call("e", "write", "ask"))
		k.event(waiting("e")) // not asked any more
		k.sent("message hi", "tool_confirmation a allow", "tool_confirmation c deny not that file", "tool_confirmation d allow", "tool_confirmation e allow")
		k.event(running)
		k.event(idle("end_turn"))
		k.over(Done)
	})
}

func TestApproveAllAndNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi", Approve: All})
		k.event(taken("sent1"))
		k.event(call("a", "write", "ask"))
		k.event(call("b", "write", "ask"))
		k.event(waiting("a", "b"))
		k.sent("message hi", "tool_confirmation a allow", "tool_confirmation b allow")
		k.event(idle("end_turn"))
		k.over(Done)
	})
	for _, o := range []Options{{Message: "hi", Approve: None}, {Message: "hi", Approve: Ask}} {
		synctest.Test(t, func(t *testing.T) {
			k := start(t, newFake("idle"), o)
			k.event(taken("sent1"))
			k.event(call("a", "write", "ask"))
			k.event(waiting("a"))
			k.over(Waiting)
			k.sent("message hi")
			if !strings.Contains(k.result.Why, "call a") || !cmp.Equal(k.result.Pending, []string{"a"}) {
				t.Errorf("result: %+v", k.result)
			}
		})
	}
}

func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.event(taken("sent1"))
		k.event(call("a", "write", "ask"))
		k.event(waiting("a"))
		close(k.lines)
		k.over(Waiting)
	})
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi"})
		close(k.lines)
		k.event(taken("sent1"))
		k.event(call("a", "write", "ask"))
		k.event(waiting("a"))
		k.over(Waiting)
	})
}

func TestASessionThatWaitsIsSettledBeforeTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle", call("a", "write", "ask"), waiting("a")), Options{Message: "then this"})
		if !strings.Contains(k.shown.String(), "file_path: /x") {
			t.Errorf("the call is not shown:\n%s", &k.shown)
		}
		k.lines <- "y"
		synctest.Wait()
		k.sent("tool_confirmation a allow")
		k.event(running)
		k.event(idle("end_turn"))
		k.sent("tool_confirmation a allow", "message then this")
		k.event(taken("sent2"))
		k.event(idle("end_turn"))
		k.over(Done)
	})
}

func TestSomebodyElseDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.event(taken("sent1"))
		k.event(call("a", "write", "ask"))
		k.event(call("b", "write", "ask"))
		k.event(waiting("a", "b"))
		k.event(`{"id":"c","type":"user.tool_confirmation","tool_use_id":"a","result":"allow",` + at + `}`)
		k.event(waiting("b"))
		k.server.refuse["b"] = &client.Error{Status: 400, Message: "was already answered"}
		k.server.log = append(k.server.log, parse(running))
		k.lines <- "y"
		synctest.Wait()
		k.sent("message hi", "tool_confirmation b allow")
		k.event(running)
		k.event(idle("end_turn"))
		k.over(Done)
		for _, want := range []string{"the call was decided elsewhere", "decided elsewhere in the meantime"} {
			if !strings.Contains(k.shown.String(), want) {
				t.Errorf("%q is not shown:\n%s", want, &k.shown)
			}
		}
	})
}

func TestARefusedDecisionThatStillWaitsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake("idle", call("a", "write", "ask"), waiting("a"))
		server.refuse["a"] = &client.Error{Status: 400, Message: "no"}
		k := start(t, server, Options{Approve: All})
		<-k.done
		var refused *client.Error
		if !errors.As(k.err, &refused) {
			t.Errorf("ended with %+v, %v", k.result, k.err)
		}
	})
}

func TestCallsOfClientsAreLeftToThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.event(taken("sent1"))
		k.event(custom("c"))
		k.event(call("a", "write", "ask"))
		k.event(waiting("c", "a"))
		k.lines <- "y"
		k.over(Waiting)
		k.sent("message hi", "tool_confirmation a allow")
		if !strings.Contains(k.result.Why, "ticket") {
			t.Errorf("why: %q", k.result.Why)
		}
	})
}

func TestInterruptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // once
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.event(taken("sent1"))
		k.interrupts <- struct{}{}
		synctest.Wait()
		k.sent("message hi", "interrupt")
		k.event(idle("end_turn"))
		k.over(Interrupted)
	})
	synctest.Test(t, func(t *testing.T) { // twice
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.event(taken("sent1"))
		k.interrupts <- struct{}{}
		k.interrupts <- struct{}{}
		k.over(Left)
	})
	synctest.Test(t, func(t *testing.T) { // at a question
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.event(taken("sent1"))
		k.event(call("a", "write", "ask"))
		k.event(waiting("a"))
		k.interrupts <- struct{}{}
		synctest.Wait()
		k.lines <- "y" // too late
		synctest.Wait()
		k.sent("message hi", "interrupt")
		k.event(idle("end_turn"))
		k.over(Interrupted)
	})
}

func TestTheEndOfTheSessionOrOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi"})
		k.server.ended <- nil
		k.over(Failed)
		k = start(t, newFake("idle"), Options{Message: "hi"})
		k.event(`{"id":"x","type":"session.status_terminated"}`)
		k.over(Failed)
		k = start(t, newFake("idle"), Options{Message: "hi"})
		gone := errors.New("gone")
		k.server.ended <- gone
		<-k.done
		if !errors.Is(k.err, gone) {
			t.Errorf("ended with %v", k.err)
		}
	})
}

func TestJSONWritesEachEventOnALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newFake("idle"), Options{Message: "hi", JSON: true})
		k.event(taken("sent1"))
		k.event(`{"type":"event_start","event":{"type":"agent.message","id":"m"}}`)
		k.event(`{"id":"m", "type":"agent.message", "content":[{"type":"text","text":"` + "\u202e\u009b" + `"}], ` + at + `}`)
		k.event(idle("end_turn"))
		k.over(Done)
		lines := strings.Split(strings.TrimSpace(k.shown.String()), "\n")
		if len(lines) != 3 || lines[1] != `{"id":"m","type":"agent.message","content":[{"type":"text","text":"\u202e\u009b"}],`+at+`}` {
			t.Errorf("lines:\n%s", strings.Join(lines, "\n"))
		}
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	})
}
