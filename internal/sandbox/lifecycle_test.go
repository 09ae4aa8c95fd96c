//go:build linux

package sandbox_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox"
)

// traces are what a session leaves on the host: processes that name its directory or run as its user, mounts, groups.
func (f *fixture) traces(uid int) []string {
	f.Helper()
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		status, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if bytes.Contains(status, []byte("State:\tZ")) {
			continue // all that is left of it is a number, which the host's first process has yet to take note of
		}
		if bytes.Contains(line, []byte(f.dir)) || uid != os.Getuid() && bytes.Contains(status, fmt.Appendf(nil, "Uid:\t%d\t", uid)) {
			found = append(found, "process "+e.Name()+" "+string(line))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(f.dir)) {
		found = append(found, "mount")
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/*perdure*" + f.spec.Session, "/sys/fs/cgroup/*/*/*/*perdure*" + f.spec.Session, "/sys/fs/cgroup/*/*/*perdure*" + f.spec.Session, f.dir} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		found = append(found, paths...)
	}
	return found
}

func (f *fixture) uid() int {
	f.Helper()
	info, err := os.Stat(f.workspace(""))
	if err != nil {
		f.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func TestStopKeepsFilesAndDestroyLeavesNothing(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("echo kept >file; mkdir locked; touch locked/x; chmod 0 locked; (setsid sleep 5000 &) ; sleep 5001 & true"), "(no output)")
	uid := f.uid()
	if len(f.traces(uid)) < 2 {
		t.Fatalf("the test does not see a living sandbox: %v", f.traces(uid))
	}
	if err := f.host.Stop(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	if left := f.traces(uid); !slices.Equal(left, []string{f.dir}) {
		t.Errorf("after stop: %v", left)
	}
	f.expect(bash("cat file; pgrep -c sleep; true"), "kept\n0")
	if err := f.host.Destroy(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	if left := f.traces(uid); len(left) != 0 {
		t.Errorf("after destroy: %v", left)
	}
	for _, again := range []func() error{
		func() error { return f.host.Stop(t.Context(), f.spec.Session) },
		func() error { return f.host.Destroy(t.Context(), f.spec.Session) },
	} {
		if err := again(); err != nil {
			t.Error(err)
		}
	}
	f.expect(bash("ls | wc -l"), "0")
}

// A supervisor that hangs is no reason for anything to stay.
func TestDestroyHungSupervisor(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("sleep 5000 & true"), "(no output)")
	uid := f.uid()
	if err := unix.Kill(f.supervisor(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := f.host.Destroy(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	if left := f.traces(uid); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestStopEndsRunningCall(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("true"), "(no output)")
	f.fifo("started")
	c := bash(printed + "sleep 1000")
	running := f.begun(c)
	if err := f.host.Stop(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	// Its Run may have been told by the supervisor that stopped, or have found the receipt with the next one.
	if o := <-running; o.err != nil || !o.isError || !strings.Contains(o.text, "it was stopped") || !strings.HasPrefix(o.text, "partial output") {
		t.Errorf("got %+v", o)
	}
}

func TestIdleSandboxEnds(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.spec.Limits.Idle = 200 * time.Millisecond
	f.expect(bash("echo kept >file; sleep 5000 & true"), "(no output)")
	pidfd, err := unix.PidfdOpen(f.supervisor(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	ended(t, pidfd)
	if left := f.traces(f.uid()); !slices.Equal(left, []string{f.dir}) {
		t.Errorf("left: %v", left)
	}
	f.expect(bash("cat file"), "kept")
}

// The server goes away for good: the running call gets its receipt, then all ends.
func TestServerGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := session(t, hostAt(t, dir, func(o *sandbox.Options) { o.ServerGone = 100 * time.Millisecond }), dir)
	f.expect(bash("true"), "(no output)")
	// That call's supervisor may have ended by now: the fifos outlive it.
	f.fifo("started")
	f.fifo("go")
	c := bash("echo up >started; read x <go; echo done")
	running := f.begin(c)
	f.await("started")
	pidfd, err := unix.PidfdOpen(f.supervisor(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	f.release("go")
	if o := <-running; o.text != "done" {
		t.Errorf("got %+v", o)
	}
	ended(t, pidfd)
	f.expect(c, "done")
}

// A supervisor whose directory is gone can never be found again.
func TestDirectoryRemoved(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("true"), "(no output)")
	f.fifo("started")
	f.fifo("go")
	running := f.begun(bash(up + "read x <go; echo done"))
	uid := f.uid()
	pidfd, err := unix.PidfdOpen(f.supervisor(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	release, err := os.OpenFile(f.workspace("go"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := release.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	// It is told the result, though nothing can be recorded any more.
	if o := <-running; o.err != nil || o.text != "partial output\ndone" {
		t.Errorf("got %+v", o)
	}
	ended(t, pidfd)
	if left := f.traces(uid); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
}

// What killed supervisors left is removed by the next Open; living ones are not touched.
func TestOpenCleansUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := hostAt(t, dir)
	dead, alive := session(t, first, dir), session(t, first, dir)
	dead.expect(bash("sleep 5000 & true"), "(no output)")
	alive.expect(bash("x=7"), "(no output)")
	pidfd, err := unix.PidfdOpen(dead.guest(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	killed(t, dead.supervisor())
	if err := os.MkdirAll(filepath.Join(dir, ".trash/half/removed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".probe-1-1/files"), 0o700); err != nil {
		t.Fatal(err)
	}
	hostAt(t, dir)
	ended(t, pidfd)
	if left := dead.traces(dead.uid()); !slices.Equal(left, []string{dead.dir}) {
		t.Errorf("left: %v", left)
	}
	for _, gone := range []string{filepath.Join(dead.dir, "sock"), filepath.Join(dir, ".trash/half"), filepath.Join(dir, ".probe-1-1")} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
	alive.expect(bash("echo $x"), "7")
}

func TestUploads(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	source := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(source, []byte("given"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.spec.Uploads = []sandbox.Upload{{Path: "/mnt/session/uploads/a.txt", Source: source}}
	f.expect(bash("cd /mnt/session/uploads; cat a.txt; ls"), "givena.txt")
	f.spec.Uploads = append(f.spec.Uploads, sandbox.Upload{Path: "/mnt/session/uploads/d/e/b c.txt", Source: source})
	f.expect(bash("cat 'd/e/b c.txt'"), "given")
	f.expect(call("read", map[string]any{"file_path": "/mnt/session/uploads/d/e/b c.txt"}), "given")
	f.expectError(call("write", map[string]any{"file_path": "/mnt/session/uploads/a.txt", "content": "x"}), "read-only")
	f.expectError(bash("echo x >/mnt/session/uploads/a.txt"), "")
	f.expectError(bash("rm -f /mnt/session/uploads/a.txt"), "Read-only file system")
	f.spec.Uploads = f.spec.Uploads[1:]
	f.expect(bash("find . -type f"), "./d/e/b c.txt")
	for _, path := range []string{"/etc/x", "/mnt/session/uploads/../../x", "/mnt/session/uploads/", "/mnt/session/uploadsx", "/mnt/session/uploads/./x"} {
		spec := f.spec
		spec.Uploads = []sandbox.Upload{{Path: path, Source: source}}
		if _, err := f.host.Run(t.Context(), spec, bash("true")); err == nil {
			t.Errorf("an upload to %s was accepted", path)
		}
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	if outputs, err := f.host.Outputs(t.Context(), f.spec.Session, 10); err != nil || len(outputs) != 0 {
		t.Fatalf("before the first call: %v %v", outputs, err)
	}
	f.expect(bash(`cd /mnt/session/outputs; printf abc >a; mkdir -p d/e; echo x >d/e/b; ln -s /etc/passwd abs; ln -s ../../../secret rel; ln -s / root;
		ln -s d dlink; mkfifo fifo; ln -s fifo tofifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")' 2>/dev/null; touch "$(printf 'new\nline')"; chmod 0 d/e/b; true`), "(no output)")
	if err := os.WriteFile(filepath.Join(filepath.Dir(f.dir), "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	outputs, err := f.host.Outputs(t.Context(), f.spec.Session, 10)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, o := range outputs {
		paths = append(paths, o.Path)
	}
	want := []string{"a", "d/e/b", "new\nline"}
	if os.Getuid() != 0 {
		want = []string{"a", "new\nline"} // what the agent closed to the server's own user too
	}
	if !slices.Equal(paths, want) || outputs[0].Size != 3 || time.Since(outputs[0].Modified) > time.Minute {
		t.Errorf("got %+v, want %q", outputs, want)
	}
	if outputs, err := f.host.Outputs(t.Context(), f.spec.Session, 1); err != nil || len(outputs) != 1 || outputs[0].Path != "a" {
		t.Errorf("limit 1: %v %v", outputs, err)
	}
	file, err := f.host.OpenOutput(t.Context(), f.spec.Session, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if text, err := io.ReadAll(file); err != nil || string(text) != "abc" {
		t.Errorf("got %q %v", text, err)
	}
	for _, path := range []string{"abs", "rel", "root/etc/passwd", "dlink/e/b", "fifo", "tofifo", "sock", "d", "../workspace", "/etc/passwd", "", ".", "none", "a/../a"} {
		if file, err := f.host.OpenOutput(t.Context(), f.spec.Session, path); err == nil {
			t.Errorf("%s could be opened", path)
			_ = file.Close()
		}
	}
	// A directory that turns into a link all the time leads nowhere else.
	f.fifo("started")
	race := bash(`cd /mnt/session/outputs; mkdir r; echo inside >r/f; mkdir /workspace/w; echo outside >/workspace/w/f; ln -s ../workspace/w l; echo up >/workspace/started
		python3 -c '
import ctypes
c = ctypes.CDLL(None)
while True: c.renameat2(-100, b"r", -100, b"l", 2)'`)
	running := f.begun(race)
	read := 0
	for range 20_000 {
		file, err := f.host.OpenOutput(t.Context(), f.spec.Session, "r/f")
		if err != nil {
			continue
		}
		text, err := io.ReadAll(file)
		if string(text) != "inside\n" || err != nil {
			t.Fatalf("got %q %v", text, err)
		}
		read++
		_ = file.Close()
	}
	if read == 0 {
		t.Error("the file was never there: the race was not tried")
	}
	f.interrupt(race)
	<-running
}

func TestNames(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", ".trash", strings.Repeat("x", 65), "a\x00b"} {
		spec := f.spec
		spec.Session = name
		if _, err := f.host.Run(t.Context(), spec, bash("true")); err == nil {
			t.Errorf("session %q was accepted", name)
		}
		if err := f.host.Destroy(t.Context(), name); err == nil {
			t.Errorf("session %q was destroyed", name)
		}
		c := bash("true")
		c.ID = name
		if strings.Trim(name, "x") == "" && name != "" {
			continue // ids may be longer
		}
		if _, err := f.host.Run(t.Context(), f.spec, c); err == nil {
			t.Errorf("call %q was accepted", name)
		}
	}
}

// The path of a socket is bounded, that of a directory is not.
func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	f := session(t, hostAt(t, dir), dir)
	f.spec.Session = strings.Repeat("s", 64)
	f.dir = filepath.Join(dir, f.spec.Session)
	f.expect(bash("echo fine"), "fine")
	if err := f.host.Destroy(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
