//go:build linux

package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox"
)

// serverStandIn is a server that can be killed: it runs the calls that it reads, a JSON object on each line.
func serverStandIn() {
	local, err := sandbox.Open(context.Background(), sandbox.Options{Dir: os.Getenv("PERDURE_TEST_SERVER"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var writing sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var c sandbox.Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		go func() {
			result, err := local.Run(context.Background(), sandbox.Spec{Session: os.Getenv("PERDURE_TEST_SESSION")}, c)
			writing.Lock()
			defer writing.Unlock()
			fmt.Printf("%s %v %s\n", c.ID, err, result.Content)
		}()
	}
}

type standIn struct {
	testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func startServer(t testing.TB, dir, session string) *standIn {
	t.Helper()
	return startProgram(t, "/proc/self/exe", dir, session)
}

// startProgram starts a copy of this program as a server.
func startProgram(t testing.TB, program, dir, session string) *standIn {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "PERDURE_TEST_SERVER="+dir, "PERDURE_TEST_SESSION="+session, "SERVER_SECRET=canary-in-the-server")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &standIn{TB: t, cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	t.Cleanup(s.kill)
	return s
}

func (s *standIn) begin(c sandbox.Call) {
	s.Helper()
	line, err := json.Marshal(c)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.stdin.Write(append(line, '\n')); err != nil {
		s.Fatal(err)
	}
}

func (s *standIn) run(c sandbox.Call) string {
	s.Helper()
	s.begin(c)
	if !s.lines.Scan() {
		s.Fatal("the server ended")
	}
	return s.lines.Text()
}

func (s *standIn) kill() {
	_ = s.cmd.Process.Kill() // it may have been killed before
	_ = s.cmd.Wait()
}

// fifo makes a fifo in the workspace, by which a command and the test wait for each other.
func (f *fixture) fifo(name string) {
	f.Helper()
	path := f.workspace(name)
	if err := unix.Mkfifo(path, 0o666); err != nil {
		f.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) workspace(name string) string { return filepath.Join(f.dir, "files/workspace", name) }

// await waits until a command writes to the fifo.
func (f *fixture) await(name string) string {
	f.Helper()
	text, err := os.ReadFile(f.workspace(name))
	if err != nil {
		f.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// release lets a command that reads the fifo go on.
func (f *fixture) release(name string) {
	f.Helper()
	if err := os.WriteFile(f.workspace(name), []byte("go\n"), 0); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) lines(name string) int {
	f.Helper()
	text, err := os.ReadFile(f.workspace(name))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		f.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// supervisor is the process of the session's supervisor.
func (f *fixture) supervisor() int {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "lock"))
	if err != nil {
		f.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		f.Fatal(err)
	}
	return pid
}

// guest is the first process of the sandbox, as the host sees it.
func (f *fixture) guest() int {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "guest"))
	if err != nil {
		f.Fatal(err)
	}
	number, _, _ := strings.Cut(string(text), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		f.Fatal(err)
	}
	return pid
}

// killed kills a process of the host and waits until it has ended.
func killed(t testing.TB, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	ended(t, fd)
}

func ended(t testing.TB, pidfd int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if n == 1 {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatalf("a process did not end: %v", err)
		}
	}
}

type outcome struct {
	text    string
	isError bool
	err     error
}

// begin runs a call beside the test.
func (f *fixture) begin(c sandbox.Call) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(f.Context(), 60*time.Second)
		defer cancel()
		result, err := f.host.Run(ctx, f.spec, c)
		o := outcome{isError: result.IsError, err: err}
		if err == nil {
			o.text = textOf(f, result)
		}
		ended <- o
	}()
	return ended
}
