//go:build linux

package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox"
)

func withoutIsolation(o *sandbox.Options) { o.Mode = sandbox.ModeNone }

// Without isolation there are still the tools, the receipts, the interrupts and the cleaning up.
func TestWithoutIsolation(t *testing.T) {
	t.Parallel()
	f := fresh(t, withoutIsolation)
	if report := f.host.Report(); report.Isolation != "none" || report.Driver != "none" || report.Enforced["memory"] != "no" || report.Enforced["network"] != "no" {
		t.Errorf("got %+v", report)
	}
	f.expect(call("write", map[string]any{"file_path": "a.txt", "content": "one"}), "wrote 3 bytes to a.txt")
	f.expect(bash("cat a.txt; pwd"), "one"+f.workspace(""))
	f.expect(call("grep", map[string]any{"pattern": "one"}), f.workspace("a.txt")+":1:one")
	f.expectError(call("read", map[string]any{"file_path": "/etc/passwd"}), "outside the session's working directory")
	f.expect(bash("env | grep -c "+canary+"; true"), "0")
	long := bash("seq 1 100000")
	if text, _ := f.run(long); !strings.Contains(text, filepath.Join(f.dir, "files/tool_results", long.ID+".txt")) {
		t.Errorf("got %.200q", text)
	}

	f.fifo("started")
	c := bash(up + "(setsid sh -c 'echo $$ >deep; (sleep 1000 &) ; sleep 1000' &); until [ -s deep ]; do :; done; sleep 1000")
	running := f.begun(c)
	f.interrupt(c)
	if o := <-running; o.err != nil || !o.isError || !strings.Contains(o.text, "was interrupted while") || !strings.HasPrefix(o.text, "partial output") {
		t.Errorf("got %+v", o)
	}
	f.expect(bash("[ -e deep ] && kill -0 $(cat deep) 2>/dev/null; echo $?"), "1")

	// Everything ends with the supervisor, however it ends.
	f.expect(bash("(setsid sleep 5000 & echo $! >pid) ; cat a.txt"), "one")
	var pid int
	text, err := os.ReadFile(f.workspace("pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, digit := range strings.TrimSpace(string(text)) {
		pid = pid*10 + int(digit-'0')
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := f.host.Stop(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	ended(t, pidfd)
	f.expect(long, textOfRun(f, long))
}

func textOfRun(f *fixture, c sandbox.Call) string {
	f.Helper()
	text, _ := f.run(c)
	return text
}
