//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox"
	"github.com/perdure/perdure/internal/sandbox/sessiondir"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// The server is killed while a command runs. The next one gets all of its output, once.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := session(t, hostAt(t, dir), dir)
	server := startServer(t, dir, f.spec.Session)
	server.run(bash("true"))
	f.fifo("started")
	f.fifo("go")
	c := bash("echo x >>count; echo before; echo up >started; read x <go; echo after $x; echo y >>count")
	server.begin(c)
	f.await("started")
	supervisor := f.supervisor()
	server.kill()

	ended := f.begin(c)
	f.release("go")
	if o := <-ended; o.err != nil || o.isError || o.text != "before\nafter go" {
		t.Fatalf("got %+v", o)
	}
	f.expect(c, "before\nafter go")
	if n := f.lines("count"); n != 2 {
		t.Errorf("the command wrote %d lines, want 2", n)
	}
	if f.supervisor() != supervisor {
		t.Error("another supervisor answered")
	}
	// The shell is the same too.
	f.expect(bash("echo $x"), "go")
}

// The server is killed, the command ends with nobody there, and its receipt waits.
func TestReceiptWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := session(t, hostAt(t, dir), dir)
	server := startServer(t, dir, f.spec.Session)
	server.run(bash("true"))
	f.fifo("started")
	f.fifo("go")
	f.fifo("last")
	c := bash("echo x >>count; echo up >started; read x <go; echo done")
	next := bash("echo up >last; echo next")
	server.begin(c)
	f.await("started")
	server.begin(next)
	server.kill()
	f.release("go")
	// What was asked for is done, whoever asked, unless the supervisor never read it.
	asked := f.begin(next)
	f.await("last")
	if o := <-asked; o.text != "next" {
		t.Fatalf("got %+v", o)
	}
	killed(t, f.supervisor())
	f.expect(c, "done")
	f.expect(next, "next")
	if n := f.lines("count"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	for _, repeatable := range []bool{false, true} {
		f := fresh(t)
		f.expect(bash("true"), "(no output)")
		f.fifo("started")
		c := bash("echo x >>count; if [ ! -e seen ]; then touch seen; echo up >started; sleep 1000; fi; echo done")
		c.Repeatable = repeatable
		result := f.begun(c)
		waiting := f.begin(bash("echo waited"))
		guest, err := unix.PidfdOpen(f.guest(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(guest)
		killed(t, f.supervisor())
		o := <-result
		want := 1
		if repeatable {
			want = 2
			if o.err != nil || o.text != "done" {
				t.Errorf("repeatable: got %+v", o)
			}
		} else if !errors.Is(o.err, sandbox.ErrOutcomeUnknown) {
			t.Errorf("got %+v, want ErrOutcomeUnknown", o)
		}
		// The sandbox was gone before the next one was there.
		ended(t, guest)
		if o := <-waiting; o.err != nil || o.text != "waited" {
			t.Errorf("a call that had not begun: got %+v", o)
		}
		_, err = f.host.Run(t.Context(), f.spec, c)
		if repeatable != (err == nil) {
			t.Errorf("asked again: %v", err)
		}
		if n := f.lines("count"); n != want {
			t.Errorf("the command ran %d times, want %d", n, want)
		}
	}
}

// The first process of the sandbox is killed: the supervisor saw it, and says so for ever.
func TestGuestKilled(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("echo kept >file; x=1"), "(no output)")
	f.fifo("started")
	c := bash("echo x >>count; " + printed + "sleep 1000")
	ended := f.begun(c)
	killed(t, f.guest())
	o := <-ended
	if o.err != nil || !o.isError || !strings.HasPrefix(o.text, "partial output") || !strings.Contains(o.text, "The sandbox ended while the call was running") {
		t.Fatalf("got %+v", o)
	}
	f.expect(bash("cat file; echo $x."), "kept\n.")
	f.expectError(c, "The sandbox ended")
	if n := f.lines("count"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

func TestConcurrentRunsOfOneCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hosts := []*sandbox.Local{hostAt(t, dir), hostAt(t, dir)}
	f := session(t, hosts[0], dir)
	c := bash("echo x >>count; echo ran")
	var running sync.WaitGroup
	for i := range 20 {
		running.Go(func() {
			result, err := hosts[i%2].Run(t.Context(), f.spec, c)
			if err != nil || textOf(t, result) != "ran" {
				t.Errorf("got %v %s", err, result.Content)
			}
		})
	}
	running.Wait()
	if n := f.lines("count"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

func TestRunGivesUpAndTheCallGoesOn(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("true"), "(no output)")
	f.fifo("started")
	f.fifo("go")
	ctx, cancel := context.WithCancelCause(t.Context())
	leaving := errors.New("leaving")
	c := bash("echo up >started; read x <go; echo went on")
	ended := make(chan error)
	go func() {
		_, err := f.host.Run(ctx, f.spec, c)
		ended <- err
	}()
	f.await("started")
	cancel(leaving)
	if err := <-ended; !errors.Is(err, leaving) {
		t.Errorf("got %v", err)
	}
	f.release("go")
	f.expect(c, "went on")
}

func TestAcknowledge(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	c, other := bash("echo x >>count; echo one"), bash("echo other")
	f.expect(c, "one")
	f.expect(other, "other")
	acknowledge := func(ids ...string) {
		t.Helper()
		if err := f.host.Acknowledge(t.Context(), f.spec.Session, ids...); err != nil {
			t.Fatal(err)
		}
	}
	acknowledge(c.ID)
	acknowledge(c.ID, "sevt_never_heard_of")
	check := func() {
		t.Helper()
		if _, err := f.host.Run(t.Context(), f.spec, c); !errors.Is(err, sandbox.ErrAcknowledged) {
			t.Errorf("a call that was held up on its way: %v", err)
		}
	}
	check()
	if err := f.host.Stop(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	check()
	f.expect(other, "other")
	if err := f.host.Stop(t.Context(), f.spec.Session); err != nil {
		t.Fatal(err)
	}
	acknowledge(other.ID) // with no supervisor
	left, err := filepath.Glob(filepath.Join(f.dir, "calls/*.*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if n := f.lines("count"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	if err := f.host.Acknowledge(t.Context(), "sesn_none", "sevt_x"); err != nil {
		t.Errorf("a session that does not exist: %v", err)
	}
}

// A full disk before the start of a call means that it does not start.
func TestNoRecordNoRun(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("true"), "(no output)")
	c := bash("echo x >>count; echo ran")
	// A link that leads nowhere makes writing the record fail as a full disk would.
	obstacle := filepath.Join(f.dir, "calls", c.ID+".started")
	if err := os.Symlink("/nonexistent/nowhere", obstacle); err != nil {
		t.Fatal(err)
	}
	if _, err := f.host.Run(t.Context(), f.spec, c); err == nil || errors.Is(err, sandbox.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	if n := f.lines("count"); n != 0 {
		t.Errorf("the command ran %d times", n)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	f.expect(c, "ran")
}

// The program is replaced on disk while it runs, and nobody but its owner may execute it.
func TestProgramRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := session(t, hostAt(t, dir), dir)
	program := filepath.Join(t.TempDir(), "server")
	copyProgram(t, program)
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	server := startProgram(t, program, dir, f.spec.Session)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	c := bash("echo from a program that is gone")
	if line := server.run(c); !strings.Contains(line, "from a program that is gone") {
		t.Errorf("got %s", line)
	}
	killed(t, f.guest())
	f.expect(bash("echo again"), "again") // by the supervisor of the program that is gone
}

// Nothing of the server goes on into a supervisor: no descriptor, no variable.
func TestSupervisorInheritsNothing(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	leaked, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	f.expect(bash("true"), "(no output)")
	proc := filepath.Join("/proc", strconv.Itoa(f.supervisor()))
	environment, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil || strings.Contains(string(environment), canary) {
		t.Errorf("its environment: %q %v", environment, err)
	}
	entries, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil || len(entries) < 4 {
		t.Fatalf("its descriptors: %v %v", entries, err)
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(proc, "fd", e.Name())); err == nil && target == "/etc/hostname" {
			t.Errorf("descriptor %s is the server's", e.Name())
		}
	}
}

// A supervisor of another release is neither guessed at nor killed.
func TestVersions(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	dir := sessiondir.Dir(f.dir)
	if err := dir.Make(0); err != nil {
		t.Fatal(err)
	}
	lock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := dir.Listen()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = wire.Write(conn, wire.Hello{Protocol: wire.Protocol + 9, Oldest: wire.Protocol + 1}) // the client may leave first
			_ = conn.Close()
		}
	}()
	var version *sandbox.VersionError
	if _, err := f.host.Run(t.Context(), f.spec, bash("true")); !errors.As(err, &version) || !strings.Contains(err.Error(), f.spec.Session) {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(listener.Close(), lock.Close()); err != nil {
		t.Fatal(err)
	}
}
