//go:build linux

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/sandbox/wire"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var stream bytes.Buffer
	sent := wire.Request{Op: wire.OpRun, Call: &wire.Call{ID: "a", Tool: "bash", Input: jsontext.Value(`{"command":"x"}`)}, Spec: &wire.Spec{Limits: wire.Limits{Call: wire.Duration(time.Minute)}}}
	for range 2 {
		if err := wire.Write(&stream, sent); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		var got wire.Request
		if err := wire.Read(&stream, &got); err != nil {
			t.Fatal(err)
		}
		if got.Op != sent.Op || got.Call.ID != "a" || string(got.Call.Input) != `{"command":"x"}` || got.Spec.Limits.Call != sent.Spec.Limits.Call {
			t.Errorf("got %+v", got)
		}
	}
	if err := wire.Read(&stream, &sent); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	frame := func(body string) string { return string([]byte{0, 0, 0, byte(len(body))}) + body }
	for name, c := range map[string]struct {
		stream string
		want   error
	}{
		"too long":         {"\xff\xff\xff\xff", wire.ErrFrame},
		"not JSON":         {frame("{"), wire.ErrFrame},
		"a name twice":     {frame(`{"ready":true,"ready":true}`), wire.ErrFrame},
		"invalid UTF-8":    {frame("{\"done\":{\"text\":\"\xff\"}}"), wire.ErrFrame},
		"another type":     {frame(`{"ready":1}`), wire.ErrFrame},
		"cut off":          {frame(`{"ready":true}`)[:9], io.ErrUnexpectedEOF},
		"cut off early":    {"\x00\x00", io.ErrUnexpectedEOF},
		"claims 16 MiB":    {"\x01\x00\x00\x00{}", io.ErrUnexpectedEOF},
		"two in one frame": {frame(`{}{}`), wire.ErrFrame},
	} {
		var got wire.FromGuest
		if err := wire.Read(strings.NewReader(c.stream), &got); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := wire.Write(io.Discard, wire.GuestResult{Text: strings.Repeat("x", wire.MaxFrame)}); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("a message that is too long: %v", err)
	}
}

func FuzzFromGuest(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x0e{\"ready\":true}"))
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var got wire.FromGuest
		if err := wire.Read(bytes.NewReader(stream), &got); err == nil {
			var again bytes.Buffer
			if err := wire.Write(&again, got); err != nil {
				t.Error(err)
			}
		}
	})
}
