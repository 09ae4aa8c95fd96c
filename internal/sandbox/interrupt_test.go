//go:build linux

package sandbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/sandbox"
)

const (
	up = "echo partial output; echo up >started; "
	// What is printed takes its time to get out of a terminal, and a sandbox that ends does not wait for it.
	printed = "echo partial output; until grep -q output /mnt/session/tool_results/*.txt; do :; done; echo up >started; "
)

// begun starts a command that says when it runs.
func (f *fixture) begun(c sandbox.Call) <-chan outcome {
	f.Helper()
	ended := f.begin(c)
	if got := f.await("started"); got != "up" {
		f.Fatalf("got %q", got)
	}
	return ended
}

func (f *fixture) interrupt(c sandbox.Call) {
	f.Helper()
	if err := f.host.Interrupt(f.Context(), f.spec.Session, c.ID); err != nil {
		f.Fatal(err)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"plain":               "sleep 1000",
		"ignores signals":     "trap '' TERM INT HUP; sleep 1000; sleep 1000",
		"loop of builtins":    "while :; do :; done",
		"loop of programs":    "while :; do sleep 0.001; done",
		"new session":         "setsid sleep 1000 & setsid -w sh -c 'trap \"\" TERM; sleep 1000'",
		"double fork":         "(setsid sh -c '(sleep 1000 &) ; (sleep 1001 &)' &) ; sleep 1000",
		"forks all the time":  "f() { (sleep 0.01; f) & }; f; f; f; sleep 1000",
		"stopped":             "sleep 1000 & kill -STOP $!; kill -STOP $$",
		"floods the terminal": "yes",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t)
			f.expect(bash("sleep 5000 & echo earlier job"), "earlier job")
			f.fifo("started")
			c := bash(up + command)
			ended := f.begun(c)
			at := time.Now()
			f.interrupt(c)
			o := <-ended
			if took := time.Since(at); took > 1500*time.Millisecond {
				t.Errorf("it took %s", took)
			}
			if o.err != nil || !o.isError || !strings.Contains(o.text, "was interrupted while it was running") || !strings.Contains(o.text, "may have had effects") {
				t.Fatalf("got %+v", o)
			}
			if name != "floods the terminal" && !strings.HasPrefix(o.text, "partial output") {
				t.Errorf("the output so far is missing: %q", o.text)
			}
			f.expect(bash("pgrep -l -f 'sleep (1000|1001|0)|yes' ; echo none else"), "none else")
			again, err := f.host.Run(t.Context(), f.spec, c)
			if err != nil || textOf(t, again) != o.text {
				t.Errorf("the receipt is another: %v %s", err, again.Content)
			}
			f.interrupt(c) // changes nothing
		})
	}
}

func TestInterruptKeepsEarlierJobs(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("setsid sleep 5000 >/dev/null 2>&1 </dev/null & until pgrep -x sleep >/dev/null; do :; done"), "(no output)")
	f.fifo("started")
	c := bash(up + "sleep 1000")
	ended := f.begun(c)
	f.interrupt(c)
	<-ended
	f.expect(bash("pgrep -c sleep"), "1")
}

func TestInterruptWaiting(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("true"), "(no output)")
	f.fifo("started")
	f.fifo("go")
	first := bash(up + "read x <go; echo done")
	firstEnded := f.begun(first)
	second := bash("echo x >>count")
	secondEnded := f.begin(second)
	f.interrupt(second)
	o := <-secondEnded
	if o.err != nil || !o.isError || !strings.Contains(o.text, "did not run") {
		t.Fatalf("got %+v", o)
	}
	third := bash("echo x >>count")
	f.interrupt(third) // which nobody has heard of
	f.release("go")
	if o := <-firstEnded; o.text != "partial output\ndone" {
		t.Fatalf("got %+v", o)
	}
	f.expectError(third, "did not run")
	if err := f.host.Stop(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	fourth := bash("echo x >>count")
	f.interrupt(fourth) // with no supervisor to tell
	f.expectError(fourth, "did not run")
	if n := f.lines("count"); n != 0 {
		t.Errorf("%d calls that were not to run did", n)
	}
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	c := call("bash", map[string]any{"command": "echo partial output; setsid sleep 1000 & trap '' TERM; sleep 1000", "timeout_ms": 300})
	begun := time.Now()
	text := f.expectError(c, "timed out after 300ms")
	if !strings.HasPrefix(text, "partial output") || time.Since(begun) > 3*time.Second {
		t.Errorf("%s: %q", time.Since(begun), text)
	}
	f.spec.Limits.Call = 400 * time.Millisecond
	f.expectError(bash("sleep 1000"), "timed out after 400ms")
	f.expect(bash("pgrep -l sleep; echo none"), "none")
}
