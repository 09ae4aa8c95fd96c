package id

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestNewIsValidAndIncreases(t *testing.T) {
	previous := ""
	for range 10_000 {
		got := New(Session)
		if !Valid(Session, got) {
			t.Fatalf("New made %q, which Valid refuses", got)
		}
		if got <= previous {
			t.Fatalf("ids do not increase: %q after %q", got, previous)
		}
		previous = got
	}
}

func TestEncodeKnownValue(t *testing.T) {
	// 2^128-1 is the largest value: it must fit in 22 digits and sort last.
	largest := encode(uuid.Max)
	if want := "YcVfxkQb6JRzqk5kF2tNLv"; largest != want {
		t.Errorf("encode(max) = %q, want %q", largest, want)
	}
	if got, want := encode(uuid.Nil), strings.Repeat("1", digits); got != want {
		t.Errorf("encode(0) = %q, want %q", got, want)
	}
}

func TestValidRefuses(t *testing.T) {
	good := New(Agent)
	for name, s := range map[string]string{
		"empty":         "",
		"other kind":    New(Session),
		"short":         good[:len(good)-1],
		"long":          good + "1",
		"not base58":    good[:len(good)-1] + "0",
		"no version":    strings.Replace(good, "_01", "_02", 1),
		"path":          "agent_01/../../etc/passwd",
		"NUL":           good[:len(good)-1] + "\x00",
		"prefix only":   "agent_",
		"upper prefix":  "AGENT" + good[5:],
		"leading space": " " + good,
	} {
		if Valid(Agent, s) {
			t.Errorf("%s: Valid accepts %q", name, s)
		}
	}
}
