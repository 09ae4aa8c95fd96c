package terminal

import (
	"strings"

	"github.com/perdure/perdure/internal/client"
)

// Transcript shows the events of a session as they come. It is not safe for concurrent use.
type Transcript struct {
	screen *Screen
	calls  map[string]client.Event // calls without a result
	last   string                  // the call that the last line is about
	// thinking is the id of the thinking that was announced by its preview.
	thinking string
	// message is the id of the message that is being written, and shown what was shown of each of its blocks.
	message string
	shown   []int
}

// NewTranscript writes to the screen.
func NewTranscript(screen *Screen) *Transcript {
	return &Transcript{screen: screen, calls: map[string]client.Event{}}
}

// Show shows one event, or preview.
func (t *Transcript) Show(e client.Event) {
	switch e.Type {
	case "event_start":
		t.start(e)
	case "event_delta":
		t.delta(e)
	case "agent.thinking":
		t.think(e.ID)
	case "agent.message":
		t.say(e)
	case "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use":
		t.breakOff("")
		t.calls[e.ID] = e
		t.header("▸", e)
		t.last = e.ID
	case "agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result", "user.tool_result":
		t.result(e)
	case "span.model_request_end":
		t.breakOff("(the answer was broken off)")
	case "session.error":
		t.fault(e)
	case "session.status_rescheduled":
		t.screen.Note("waiting before another attempt")
		t.last = ""
	case "agent.thread_context_compacted":
		t.screen.Note("the conversation was summed up to make room")
		t.last = ""
	}
}

func (t *Transcript) start(e client.Event) {
	if e.Start == nil {
		return
	}
	switch e.Start.Type {
	case "agent.thinking":
		t.think(e.Start.ID)
	case "agent.message":
		t.breakOff("")
		t.message, t.shown = e.Start.ID, nil
	}
}

func (t *Transcript) think(id string) {
	if id == t.thinking {
		return
	}
	t.breakOff("")
	t.thinking = id
	t.screen.line(faint.Render("✻ thinking"))
	t.last = ""
}

func (t *Transcript) delta(e client.Event) {
	if e.Delta == nil || e.EventID != t.message || t.message == "" {
		return
	}
	at := e.Delta.Index
	switch {
	case at == len(t.shown):
		t.nextBlock()
	case at != len(t.shown)-1:
		// A piece was lost; the whole message comes at its end.
		return
	}
	t.shown[at] += len(e.Delta.Content.Text)
	t.screen.Words(e.Delta.Content.Text)
	t.last = ""
}

// nextBlock begins a block of the message on a line of its own.
func (t *Transcript) nextBlock() {
	if len(t.shown) > 0 {
		t.screen.EndWords()
	}
	t.shown = append(t.shown, 0)
}

// say shows a message, or what its previews did not show of it: they are a prefix of each block's text.
func (t *Transcript) say(e client.Event) {
	if e.ID != t.message {
		t.breakOff("")
		t.shown = nil
	}
	begun := len(t.shown)
	for i, block := range e.Content {
		text := block.Text
		if block.Type != "text" {
			text = "[" + block.Type + "]"
		}
		switch {
		case i < begun-1 && t.shown[i] < len(text), i < begun && t.shown[i] > len(text):
			// What is on the screen is not a beginning of the message, so it is shown again as a whole.
			t.screen.EndWords()
			t.screen.Words(text)
		case i < begun:
			t.screen.Words(text[t.shown[i]:])
		default:
			t.nextBlock()
			t.screen.Words(text)
		}
	}
	t.screen.EndWords()
	t.message, t.shown, t.last = "", nil, ""
}

// breakOff leaves a message whose end will not come.
func (t *Transcript) breakOff(note string) {
	if t.message != "" && len(t.shown) > 0 {
		t.screen.EndWords()
		if note != "" {
			t.screen.Note(note)
		}
	}
	t.message, t.shown = "", nil
}

func (t *Transcript) header(mark string, e client.Event) {
	line := toolName(e)
	rest := t.screen.width() - len(line) - 4
	t.screen.line(strings.TrimRight(mark+" "+bold.Render(line)+" "+shorten(summary(e), rest), " "))
}

func (t *Transcript) result(e client.Event) {
	t.breakOff("")
	call, known := t.calls[e.Call()]
	delete(t.calls, e.Call())
	if known && t.last != e.Call() {
		t.header("◂", call)
	}
	t.last = ""
	style := faint
	if e.Failed() {
		style = red
	}
	lines := resultLines(e, t.screen.width()-4)
	for i, line := range lines {
		lines[i] = "  " + style.Render("│ "+line)
	}
	t.screen.line(strings.Join(lines, "\n"))
}

func (t *Transcript) fault(e client.Event) {
	t.breakOff("(the answer was broken off)")
	t.last = ""
	if e.Error == nil {
		return
	}
	if e.Error.RetryStatus.Type == "retrying" {
		t.screen.Warn(e.Error.Message + " (it will be tried again)")
		return
	}
	t.screen.Fail(e.Error.Message)
}
