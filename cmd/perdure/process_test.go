package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// self makes this test binary run as the command.
func self(t *testing.T, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return &exec.Cmd{
		Path: program, Args: append([]string{"perdure"}, args...),
		Env:       append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm", "NO_COLOR=1"}, environ...),
		WaitDelay: time.Second,
	}
}

// testServer is a perdure serve in a process of its own.
type testServer struct {
	url, key string
	command  *exec.Cmd
	log      strings.Builder
}

func startServer(program string, args []string, environ ...string) (*testServer, error) {
	s := &testServer{command: &exec.Cmd{
		Path: program, Args: append([]string{"perdure", "serve", "--print-ready", "--listen", "127.0.0.1:0"}, args...), Env: environ,
		// A sandbox that outlives the server must not be waited for.
		WaitDelay: time.Second,
	}}
	s.command.Stderr = &s.log
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return s, err
	}
	var ready struct {
		URL    string `json:"url"`
		APIKey string `json:"api_key"`
	}
	err = json.Unmarshal(line, &ready)
	s.url, s.key = ready.URL, ready.APIKey
	return s, err
}

// serveForTest runs a server until the test ends.
func serveForTest(t *testing.T, args ...string) *testServer {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServer(program, args, "HOME="+t.TempDir(), "PATH="+os.Getenv("PATH"))
	if s != nil {
		t.Cleanup(func() {
			if err := s.stop(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("the server: %v\n%s", err, s.log.String())
			}
		})
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log.String())
	}
	return s
}

// kill ends the server at once.
func (s *testServer) kill(t *testing.T) {
	t.Helper()
	if err := s.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.command.Wait()
}

// stop asks the server to end and waits for it.
func (s *testServer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = s.command.Process.Kill() })()
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.command.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil
}

// screen is a command on a terminal.
type screen struct {
	t       *testing.T
	command *exec.Cmd
	tty     *os.File

	mu    sync.Mutex
	shown strings.Builder
	more  chan struct{}
}

// onTerminal starts a command on a terminal of its own.
func onTerminal(t *testing.T, command *exec.Cmd) *screen {
	t.Helper()
	tty, err := pty.StartWithSize(command, &pty.Winsize{Rows: 50, Cols: 120})
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, command: command, tty: tty, more: make(chan struct{}, 1)}
	go func() {
		defer close(s.more)
		buffer := make([]byte, 4096)
		for {
			n, err := tty.Read(buffer)
			s.mu.Lock()
			s.shown.Write(buffer[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
			select {
			case s.more <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = tty.Close()
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// until waits until the screen has shown a text.
func (s *screen) until(text string) {
	s.t.Helper()
	limit := time.After(30 * time.Second)
	for !strings.Contains(s.text(), text) {
		select {
		case _, open := <-s.more:
			if !open && !strings.Contains(s.text(), text) {
				s.t.Fatalf("%q was not shown:\n%s", text, s.text())
			}
		case <-limit:
			s.t.Fatalf("%q was not shown in time:\n%s", text, s.text())
		}
	}
}

// typed types, as a person does.
func (s *screen) typed(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the end of the command and checks its status.
func (s *screen) ends(status int) {
	s.t.Helper()
	err := s.command.Wait()
	if got := s.command.ProcessState.ExitCode(); got != status {
		s.t.Fatalf("ended with status %d (%v), want %d:\n%s", got, err, status, s.text())
	}
}
