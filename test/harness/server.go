package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// How long a server may take. They are bounds for slow machines, not expectations.
const (
	startLimit = 60 * time.Second
	stopLimit  = 20 * time.Second
)

// Options say how a server is run. The zero value is a server with an empty data directory and built-in scripts only.
type Options struct {
	// Data is the data directory. If it is "", the server gets one that is removed with it.
	Data string
	// Scripts is a directory of scripts for scripted models.
	Scripts string
	// Sandbox is native (the default) or none.
	Sandbox string
	// Tags are build tags of the binary.
	Tags []string
	// Args are further arguments of perdure serve.
	Args []string
	// Env is added to the environment of the process.
	Env []string
}

// Server is a perdure server in a process of its own. Its methods are for one goroutine at a time.
type Server struct {
	// URL is the base URL for clients. It stays the same over restarts.
	URL string
	// APIKey is the key that the first start printed.
	APIKey string
	// Data is the data directory.
	Data string

	options Options
	binary  string // a name of the binary that only this server has
	home    string
	remove  []string // directories to remove in the end
	log     logBuffer
	process *process
}

// process is one run of the binary.
type process struct {
	command *exec.Cmd
	ready   chan readiness // one value, when the server serves
	done    chan struct{}  // closed when the process has ended and its output is read
	err     error          // how it ended; read after done
}

// readiness is the line that perdure serve --print-ready prints.
type readiness struct {
	URL    string `json:"url"`
	APIKey string `json:"api_key"`
}

// Start runs a server for a test and stops it when the test ends. If the test failed by then, the log of the server is
// part of its output.
func Start(tb testing.TB, options Options) *Server {
	tb.Helper()
	s, err := Launch(options)
	if s != nil {
		tb.Cleanup(func() {
			err := s.Stop()
			if err != nil {
				tb.Error(err)
			}
			if tb.Failed() {
				tb.Logf("log of the server:\n%s", s.Log())
			}
		})
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Launch runs a server. The caller must Stop it, also if there is an error besides the server.
func Launch(options Options) (*Server, error) {
	binary, err := Binary(options.Tags...)
	if err != nil {
		return nil, err
	}
	s := &Server{Data: options.Data, options: options}
	if s.home, err = os.MkdirTemp("", "perdure-home-"); err != nil {
		return nil, err
	}
	s.remove = append(s.remove, s.home)
	if s.Data == "" {
		if s.Data, err = os.MkdirTemp("", "perdure-data-"); err != nil {
			return s, err
		}
		s.remove = append(s.remove, s.Data)
	}
	s.binary = filepath.Join(s.home, "perdure")
	if err := copyFile(s.binary, binary); err != nil {
		return s, err
	}
	return s, s.Run()
}

// Run starts the process and waits until it serves.
func (s *Server) Run() error {
	if s.process != nil {
		return errors.New("the server runs already")
	}
	listen := "127.0.0.1:0"
	if s.URL != "" {
		parsed, err := url.Parse(s.URL)
		if err != nil {
			return err
		}
		listen = parsed.Host
	}
	args := []string{"serve", "--data", s.Data, "--listen", listen, "--print-ready"}
	if s.options.Scripts != "" {
		args = append(args, "--scripts", s.options.Scripts)
	}
	if s.options.Sandbox != "" {
		args = append(args, "--sandbox", s.options.Sandbox)
	}
	p, err := s.spawn(append(args, s.options.Args...))
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	s.process = p
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	select {
	case ready := <-p.ready:
		s.URL = ready.URL
		if ready.APIKey != "" {
			s.APIKey = ready.APIKey
		}
		return s.healthy(ctx)
	case <-p.done:
		s.process = nil
		return fmt.Errorf("perdure serve ended before it served (%w); its log:\n%s", p.err, s.Log())
	case <-ctx.Done():
		s.Kill()
		return fmt.Errorf("perdure serve did not serve within %v; its log:\n%s", startLimit, s.Log())
	}
}

func (s *Server) spawn(args []string) (*process, error) {
	command := exec.Command(s.binary, args...)
	command.Dir = s.home
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "TMPDIR=" + s.home}, s.options.Env...)
	command.SysProcAttr = attributes()
	// The pipes are files, so that Wait is not held up by a supervisor that inherited them.
	outReader, outWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errReader, errWriter, err := os.Pipe()
	if err != nil {
		outReader.Close()
		outWriter.Close()
		return nil, err
	}
	command.Stdout, command.Stderr = outWriter, errWriter
	p := &process{command: command, ready: make(chan readiness, 1), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ends the process with the thread that started it, so this thread stays until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		outWriter.Close()
		errWriter.Close()
		if err != nil {
			outReader.Close()
			errReader.Close()
			started <- err
			return
		}
		var readers sync.WaitGroup
		readers.Go(func() { s.log.readFrom(errReader, nil) })
		readers.Go(func() { s.log.readFrom(outReader, p.ready) })
		started <- nil
		p.err = command.Wait()
		// What the process wrote is read before its end is told; a descendant that holds the pipes is not waited for.
		deadline := time.Now().Add(time.Second)
		_ = outReader.SetReadDeadline(deadline)
		_ = errReader.SetReadDeadline(deadline)
		readers.Wait()
		outReader.Close()
		errReader.Close()
		close(p.done)
	}()
	return p, <-started
}

func (s *Server) healthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("the server said it serves, but: %w", err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /healthz answered %s", response.Status)
	}
	return nil
}

// Kill ends the process at once, as a power cut would, and waits until it is gone. Supervisors live on.
func (s *Server) Kill() {
	if p := s.process; p != nil {
		_ = p.command.Process.Kill()
		<-p.done
		s.process = nil
	}
}

// Restart kills the process and starts another on the same data and address.
func (s *Server) Restart() error {
	s.Kill()
	return s.Run()
}

// Shutdown asks the process to end and waits for it. It is an error if it takes too long or ends with one.
func (s *Server) Shutdown() error {
	p := s.process
	if p == nil {
		return nil
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.done:
		s.process = nil
		if p.err != nil {
			return fmt.Errorf("the server was asked to stop and ended with: %w", p.err)
		}
		return nil
	case <-timer.C:
		s.Kill()
		return fmt.Errorf("the server was asked to stop and was still there after %v", stopLimit)
	}
}

// Stop shuts the server down, ends its supervisors, checks that no process is left, and removes its directories.
func (s *Server) Stop() error {
	err := errors.Join(s.Shutdown(), s.endProcesses(), s.log.raced())
	for _, dir := range s.remove {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// PID is the id of the running process, 0 if there is none.
func (s *Server) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.command.Process.Pid
}

// Log is the end of what the processes of the server wrote.
func (s *Server) Log() string { return s.log.String() }

// logBuffer keeps the last output, bounded.
type logBuffer struct {
	mu    sync.Mutex
	lines []string
	race  bool // the race detector has found something
}

const maxLogLines = 400

func (b *logBuffer) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.race = b.race || strings.Contains(line, "WARNING: DATA RACE")
	if len(b.lines) == maxLogLines {
		b.lines = append(b.lines[:0], b.lines[1:]...)
	}
	b.lines = append(b.lines, line)
}

// raced is an error if a server that was built with the race detector has reported a race, also one that was killed later.
func (b *logBuffer) raced() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.race {
		return errors.New("the race detector has found a data race in the server; its log says where")
	}
	return nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text []byte
	for _, line := range b.lines {
		text = append(append(text, line...), '\n')
	}
	return string(text)
}

// readFrom keeps the lines of a pipe until it ends. The first that says where the server is goes to ready.
func (b *logBuffer) readFrom(pipe *os.File, ready chan<- readiness) {
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		b.add(lines.Text())
		if ready == nil {
			continue
		}
		var r readiness
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.URL != "" {
			ready <- r
			ready = nil
		}
	}
	// After a line that is too long the rest is not kept, but it is read: a full pipe would hold up the server.
	_, _ = io.Copy(io.Discard, pipe)
}

func copyFile(to, from string) error {
	// A link is enough, and cheap, where both are on one file system.
	if os.Link(from, to) == nil {
		return nil
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}
