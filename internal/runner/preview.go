package runner

import (
	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/bus"
	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/session"
)

// preview tells those who listen what the model is writing, under the ids that the events will have.
type preview struct {
	drive *drive
	ids   map[int]string // of the events, by the first block of each

	block   int    // of the last delta
	kind    string // of the last delta's event
	event   string // of the last delta
	index   int    // of the block in the event's content
	started bool   // the event was announced
}

// delta runs on the goroutine of the request.
func (p *preview) delta(d model.Delta) {
	kind := session.AgentMessage
	if d.Type == "thinking" {
		kind = session.AgentThinking
	}
	if d.Block != p.block {
		p.begin(d, kind)
	}
	if kind == session.AgentThinking {
		p.start(kind)
		return
	}
	if d.Text == "" {
		return
	}
	p.start(kind)
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type content struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Content text   `json:"content"`
	}
	type frame struct {
		Type  string  `json:"type"`
		Event string  `json:"event_id"`
		Delta content `json:"delta"`
	}
	p.publish(kind, frame{"event_delta", p.event, content{"content_delta", p.index, text{"text", d.Text}}})
}

// begin moves on to another block. Text blocks that follow one another are one event.
func (p *preview) begin(d model.Delta, kind string) {
	follows := kind == session.AgentMessage && d.Block == p.block+1 && p.kind == kind
	p.block = d.Block
	if follows {
		if p.started {
			p.index++
		}
		return
	}
	p.kind, p.event, p.index, p.started = kind, id.New(id.Event), 0, false
	p.ids[d.Block] = p.event
}

func (p *preview) start(kind string) {
	if p.started {
		return
	}
	p.started = true
	type event struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	type frame struct {
		Type  string `json:"type"`
		Event event  `json:"event"`
	}
	p.publish(kind, frame{"event_start", event{kind, p.event}})
}

func (p *preview) publish(kind string, frame any) {
	session := p.drive.lease.Session
	if !p.drive.Bus.Previewed(session) {
		return
	}
	raw, err := json.Marshal(frame)
	if err != nil {
		// The piece is not valid Unicode, perhaps a character cut in two. A preview may lack pieces; the event has all.
		return
	}
	p.drive.Bus.Publish(session, bus.Message{Preview: raw, Kind: kind})
}
