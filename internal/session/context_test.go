package session_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/session"
)

// C05: thinking of another model is not shown to this one, and stays in the log.
func TestThinkingOfAnotherModel(t *testing.T) {
	m := started(t)
	m.answer(thinking("m1", "hm"), text("ok"))
	m.mustAccept(message("again"))
	m.converse("m2")
	asked := m.answer(thinking("m2", "hm"), text("ok"))
	if err := checkMessages(asked, "m2"); err != nil {
		t.Error(err)
	}
	if n := len(slices.DeleteFunc(types(m.log), func(s string) bool { return s != session.AgentThinking })); n != 2 {
		t.Errorf("the log has %d thoughts, want 2", n)
	}
	m.checked(t)
}

// C07: blank text of a tool or the model never reaches the model again.
func TestBlankTextIsLeftOut(t *testing.T) {
	m := started(t)
	m.answer(text(" \n"), allowed("c1"), allowed("c2"))
	step := m.step()
	step.AddResult("c1", session.Result{Content: jsontext.Value(`[{"type":"text","text":""}]`)})
	step.AddResult("c2", session.Result{})
	m.commit(step)
	asked := m.answer(text(""))
	wantValid(t, asked)
	if got := string(asked[2].Content); strings.Count(got, "(no output)") != 2 {
		t.Errorf("empty results are shown as %s", got)
	}
	stop(t, m, session.EndTurn)
	m.mustAccept(message("again"))
	wantValid(t, m.answer(text("ok")))
	m.checked(t)
}

// C08: the provider repeats the id of a call. Ours are unique, and are what the model is shown.
func TestProviderRepeatsIDs(t *testing.T) {
	m := started(t)
	for i := range 3 {
		a, b := allowed(fmt.Sprint("a", i)), allowed(fmt.Sprint("b", i))
		a.Call.Provider, b.Call.Provider = "tool_0", "tool_0"
		m.answer(a, b)
		m.addResult(a.Event, "of "+a.Event)
		m.addResult(b.Event, "of "+b.Event)
	}
	asked := m.answer(text("ok"))
	wantValid(t, asked)
	if all := show(asked); strings.Contains(all, "tool_0") || !strings.Contains(all, `"b2","content":[{"type":"text","text":"of b2"}]`) {
		t.Errorf("the model is asked\n%s", all)
	}
}

// C11: mending a conversation never replaces a result that there is.
func TestMendingKeepsGoodResults(t *testing.T) {
	m := started(t)
	for i := range 10 {
		for j := range 3 {
			if j == 0 {
				m.answer(allowed(fmt.Sprint("a", i)), allowed(fmt.Sprint("b", i)), allowed(fmt.Sprint("c", i)))
			}
			m.addResult(string(rune('c'-j))+fmt.Sprint(i), "good")
		}
	}
	before := m.begin()
	again := session.NewContext("m1", nil)
	m.fold(again, m.log)
	if diff := cmp.Diff(before, again.Messages()); diff != "" {
		t.Errorf("before and after a restart (-before +after):\n%s", diff)
	}
	if strings.Contains(show(before), "not recorded") {
		t.Errorf("a good result was replaced:\n%s", show(before))
	}
}

// A conversation may be looked at while calls are open, and goes on as if it had not been.
func TestLookingAtAConversationDoesNotChangeIt(t *testing.T) {
	m := started(t)
	m.answer(allowed("c1"), allowed("c2"))
	m.addResult("c1", "first")
	m.context.Messages()
	m.addResult("c2", "second")
	asked := m.begin()
	again := session.NewContext("m1", nil)
	m.fold(again, m.log)
	if diff := cmp.Diff(again.Messages(), asked); diff != "" {
		t.Errorf("conversation that was looked at (-not +looked at):\n%s", diff)
	}
}

// A log with holes is read so that the model's API takes it.
func TestConversationIsMended(t *testing.T) {
	entries := []session.Event{
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"hello"}]}`)},
		{Type: session.AgentToolUse, ID: "c1", Body: jsontext.Value(`{"name":"bash","input":null}`)},
		{Type: session.AgentToolUse, ID: "c2", Body: jsontext.Value(`{"name":"bash","input":"cut"}`)},
		{Type: session.AgentToolUse, ID: "c3", Body: jsontext.Value(`{"name":"bash"}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c8","content":[{"type":"text","text":"of nothing"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c9","content":[{"type":"text","text":"of nothing"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c2","content":[{"type":"text","text":"first"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c2","content":[{"type":"text","text":"second"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c1","content":[{"type":"text","text":"in time"}]}`)},
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"between"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c3","content":[{"type":"text","text":"late"}]}`)},
		{Type: session.AgentToolResult, Body: jsontext.Value(`{"tool_use_id":"c9","content":[{"type":"text","text":"of nothing"}]}`)},
		{Type: session.AgentMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":" "}]}`)},
		{Type: session.AgentThinking, Private: jsontext.Value(`{"model":"m1","block":{"type":"thinking","signature":"signed by m1"}}`)},
		{Type: session.ModelRequestEnd},
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"\t"},{"type":"text","text":"last"}]}`)},
	}
	c := session.NewContext("m1", nil)
	for i, e := range entries {
		e.Seq = int64(i) + 1
		if err := c.Fold(e); err != nil {
			t.Fatal(err)
		}
	}
	wantValid(t, c.Messages())
	if all := show(c.Messages()); strings.Contains(all, "nothing") || strings.Contains(all, "second") || strings.Contains(all, "late") || !strings.Contains(all, "first") || !strings.Contains(all, "in time") {
		t.Errorf("results that answer nothing are shown, or a good one is not:\n%s", all)
	}
}

// A request that begins while a call lacks its result, which only a log with a hole has, shows one.
func TestRequestWithAnOpenCallIsMended(t *testing.T) {
	c := session.NewContext("m1", nil)
	for i, e := range []session.Event{
		{Type: session.UserMessage, Body: jsontext.Value(`{"content":[{"type":"text","text":"hello"}]}`)},
		{Type: session.AgentToolUse, ID: "c1", Body: jsontext.Value(`{"name":"bash","input":{}}`)},
		{Type: session.ModelRequestStart},
	} {
		e.Seq = int64(i) + 1
		if err := c.Fold(e); err != nil {
			t.Fatal(err)
		}
	}
	wantValid(t, c.Messages())
}

// What a request was made of stays as it was while the log goes on.
func TestMessagesDoNotChange(t *testing.T) {
	m := started(t)
	asked := m.begin()
	before := show(asked)
	step := m.step()
	step.RetryRequest(session.Usage{}, session.Failure{Type: "unknown_error"}, noon)
	m.commit(step)
	m.mustAccept(message("more"))
	step = m.step()
	step.Resume()
	m.commit(step)
	m.answer(text("ok"))
	if after := show(asked); after != before {
		t.Errorf("the messages of a request became\n%swere\n%s", after, before)
	}
}

// An answer of nothing but thinking leaves nothing in the conversation, neither then nor later.
func TestThinkingAloneIsLeftOut(t *testing.T) {
	m := started(t)
	m.answer(thinking("m1", "lonely"))
	m.mustAccept(message("again"))
	m.answer(thinking("m1", "useful"), text("ok"), thinking("m1", "trailing"))
	m.mustAccept(message("and again"))
	asked := m.begin()
	wantValid(t, asked)
	if all := show(asked); strings.Contains(all, "lonely") || strings.Contains(all, "trailing") || !strings.Contains(all, "useful") {
		t.Errorf("the model is asked\n%s", all)
	}
}

// Many blocks cost what they weigh, not their square.
func TestLargeMessageIsFoldedInLinearTime(t *testing.T) {
	block := object("type", "text", "text", strings.Repeat("x", 20_000))
	body := append([]byte(`{"content":[`), slices.Repeat(append(slices.Clone(block), ','), 999)...)
	body = append(append(body, block...), `]}`...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := session.NewContext("m1", nil)
	if err := c.Fold(session.Event{Seq: 1, Type: session.UserMessage, Body: body}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 20*uint64(len(body)) {
		t.Errorf("folding %d bytes allocates %d", len(body), allocated)
	}
}

// C09: an error that holds a picture would be refused for ever: the model's API takes only text in an error.
func TestErrorWithAPictureIsShownAsText(t *testing.T) {
	m := started(t)
	m.answer(allowed("c1"))
	step := m.step()
	picture := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}`
	step.AddResult("c1", session.Result{Content: jsontext.Value("[" + picture + "]"), IsError: true})
	m.commit(step)
	asked := m.answer(text("ok"))
	wantValid(t, asked)
	got := string(asked[2].Content)
	if strings.Contains(got, "is_error") || !strings.Contains(got, "The tool reported an error.") || !strings.Contains(got, picture) {
		t.Errorf("the result is shown as %s", got)
	}
	m.checked(t)
}
