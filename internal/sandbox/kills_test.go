//go:build linux

package sandbox_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox"
)

// Whatever is killed at whatever time, a call happens at most once, and what is said of it is true and stays so.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	f.expect(bash("true"), "(no output)")
	outcomes := map[string]int{}
	for i := range 40 {
		count := fmt.Sprintf("count-%d", i)
		c := bash("echo x >>" + count + "; echo ran")
		running := f.begin(c)
		<-time.After(time.Duration(random.IntN(12_000)) * time.Microsecond)
		f.killSomething([]string{"lock", "guest"}[random.IntN(2)])
		o := <-running
		what := classify(o)
		outcomes[what]++
		lines := f.lines(count)
		switch {
		case what == "ran" && lines != 1:
			t.Errorf("call %d is said to have run, and did so %d times", i, lines)
		case lines > 1:
			t.Errorf("call %d ran %d times (%s)", i, lines, what)
		case what == "other":
			t.Errorf("call %d: %q, error %v", i, o.text, o.err)
		}
		if again := classify(<-f.begin(c)); again != what {
			t.Errorf("call %d: %s, then %s", i, what, again)
		}
		if n := f.lines(count); n != lines {
			t.Errorf("call %d ran when it was asked for again", i)
		}
	}
	t.Logf("outcomes: %v", outcomes)
	if outcomes["ran"] == 0 {
		t.Error("no call ever ran to its end")
	}
}

// A sandbox that is killed while it starts is started again, and so is a supervisor: the call has not begun, so there is
// nothing to tell.
func TestKilledWhileItStarts(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"lock", "guest"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			outcomes := map[string]int{}
			for tries := 0; tries < 50 && outcomes["ran"] < 5; tries++ {
				outcomes[killedWhileItStarts(t, file)]++
			}
			t.Logf("outcomes: %v", outcomes)
			if outcomes["ran"] == 0 {
				t.Error("nothing was started again")
			}
		})
	}
}

func killedWhileItStarts(t *testing.T, file string) string {
	f := fresh(t)
	running := f.begin(bash("echo x >>count; echo ran"))
	for !f.killSomething(file) { // it can be before the sandbox is ready
		select {
		case <-running:
			return "over before it could be killed"
		default:
			runtime.Gosched()
		}
	}
	o := <-running
	what, lines := classify(o), f.lines("count")
	if what == "other" || lines > 1 || what == "ran" && lines != 1 {
		t.Errorf("%s: %q, error %v; it ran %d times", what, o.text, o.err, lines)
	}
	return what
}

func classify(o outcome) string {
	switch {
	case errors.Is(o.err, sandbox.ErrOutcomeUnknown):
		return "unknown"
	case o.err == nil && !o.isError && o.text == "ran":
		return "ran"
	case o.err == nil && o.isError && strings.Contains(o.text, "The sandbox ended while the call was running"):
		return "ended"
	}
	return "other"
}

// killSomething kills the process that a file of the session names, and says whether there was one.
func (f *fixture) killSomething(file string) bool {
	text, err := os.ReadFile(filepath.Join(f.dir, file))
	if err != nil {
		return false
	}
	number, _, _ := strings.Cut(string(text), " ")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 1 {
		return false
	}
	// The number may be an old one: only what belongs to sandboxes is killed.
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasPrefix(string(line), "perdure-sandbox") && unix.Kill(pid, unix.SIGKILL) == nil
}
