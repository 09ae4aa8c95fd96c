package bus

import (
	"testing"

	"github.com/perdure/perdure/internal/session"
)

func event(seq int64, size int) Message {
	return Message{Events: []session.Event{{Seq: seq, Body: make([]byte, size)}}}
}

func TestSubscriberGetsWhatHappensAfterwards(t *testing.T) {
	b := New()
	b.Publish("s", event(1, 1))
	s := b.Subscribe("s", false)
	defer s.Close()
	b.Publish("s", event(2, 1))
	b.Publish("other", event(9, 1))
	b.Publish("s", event(3, 1))
	<-s.Ready()
	got, lagged := s.Take()
	if lagged || len(got) != 2 || got[0].Events[0].Seq != 2 || got[1].Events[0].Seq != 3 {
		t.Errorf("took %v, lagged %v", got, lagged)
	}
	if got, lagged := s.Take(); got != nil || lagged {
		t.Errorf("took %v, lagged %v a second time", got, lagged)
	}
}

func TestSlowSubscriberLosesAndIsTold(t *testing.T) {
	for name, size := range map[string]int{"many": 1, "large": maxPendingBytes / 100} {
		t.Run(name, func(t *testing.T) {
			b := New()
			slow, quick := b.Subscribe("s", false), b.Subscribe("s", false)
			defer slow.Close()
			defer quick.Close()
			received := 0
			const published = maxPending + 10
			for seq := range int64(published) {
				b.Publish("s", event(seq+1, size))
				got, lagged := quick.Take()
				received += len(got)
				if lagged {
					t.Fatalf("the quick one lost something at %d", seq)
				}
			}
			if received != published {
				t.Errorf("the quick one got %d of %d", received, published)
			}
			got, lagged := slow.Take()
			if !lagged || len(got) > maxPending || len(got) == 0 {
				t.Errorf("the slow one holds %d messages, lagged %v", len(got), lagged)
			}
			b.Publish("s", event(published+1, 1))
			if got, lagged := slow.Take(); len(got) != 1 || lagged {
				t.Errorf("after it has caught up it gets %d messages, lagged %v", len(got), lagged)
			}
		})
	}
}

func TestOneLargeMessageIsHeld(t *testing.T) {
	b := New()
	s := b.Subscribe("s", false)
	defer s.Close()
	b.Publish("s", event(1, 2*maxPendingBytes))
	if got, lagged := s.Take(); len(got) != 1 || lagged {
		t.Errorf("took %d messages, lagged %v", len(got), lagged)
	}
}

func TestPreviewsGoToThoseWhoWantThem(t *testing.T) {
	b := New()
	plain := b.Subscribe("s", false)
	defer plain.Close()
	if b.Previewed("s") {
		t.Error("nobody wants previews yet")
	}
	curious := b.Subscribe("s", true)
	if !b.Previewed("s") {
		t.Error("somebody wants previews")
	}
	b.Publish("s", Message{Preview: []byte("{}")})
	if got, _ := plain.Take(); len(got) != 0 {
		t.Errorf("previews came unasked: %v", got)
	}
	if got, _ := curious.Take(); len(got) != 1 {
		t.Errorf("%d previews came", len(got))
	}
	curious.Close()
	curious.Close()
	if b.Previewed("s") || len(b.subscribers["s"]) != 1 {
		t.Error("a subscription that was closed is still there")
	}
	plain.Close()
	if len(b.subscribers) != 0 {
		t.Error("a session that nobody listens to is still there")
	}
}
