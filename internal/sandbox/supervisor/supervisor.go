//go:build linux

// Package supervisor is the process that owns one session's sandbox. It outlives the server that started it; the protocol
// that it is one half of is written down in the package comment of sandbox.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/cgroup"
	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/journal"
	"github.com/perdure/perdure/internal/sandbox/sessiondir"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// Role is the first argument of the supervisor's command line; the session's directory follows, for people who list
// processes.
const Role = "perdure-sandbox-supervisor"

// starter is the descriptor on which the server says what to do and hears that it is done.
const starter = 3

// cleanup bounds how long the remains of a dead supervisor may take to go.
const cleanup = 10 * time.Second

// Main is the supervisor's main function. It returns the exit status.
func Main() int {
	closeInherited()
	syscall.CloseOnExec(starter)
	unix.Umask(0o077)
	socket := os.NewFile(starter, "server")
	var config wire.SupervisorConfig
	if err := wire.Read(socket, &config); err != nil {
		fmt.Fprintln(os.Stderr, "read what to supervise:", err)
		return 2
	}
	s, err := open(config)
	started := wire.Started{Busy: errors.Is(err, sessiondir.ErrLocked)}
	if err != nil && !started.Busy {
		started.Error = err.Error()
	}
	// A server that is gone by now has left a supervisor that nobody may ever ask; it ends by itself.
	if telling := wire.Write(socket, started); telling != nil && err == nil {
		s.log.Warn("the server is gone already", "error", telling)
	}
	closing := socket.Close()
	if err != nil {
		return 1
	}
	if closing != nil {
		s.log.Warn("close the starting socket", "error", closing)
	}
	return s.serve()
}

// closeInherited closes what the server was given by its own parent without knowing it, such as a listening socket: it is
// passed on by every start of a program, and this one outlives the server.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // without /proc there is no sandbox either, and it will be said
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= starter {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:[event") { // the runtime's own poller
			continue
		}
		_ = unix.Close(fd)
	}
}

type supervisor struct {
	config   wire.SupervisorConfig
	dir      sessiondir.Dir
	output   io.Writer // behind log
	log      *slog.Logger
	lock     *os.File
	journal  *journal.Journal
	listener *net.UnixListener
	spawner  *isolation.Spawner

	// One command at a time, because the shell is one; grep goes with it, because it starts a process.
	shellLane chan struct{}
	fileLane  chan struct{}

	starting sync.Mutex // held while the sandbox is started or changed

	mu            sync.Mutex
	calls         map[string]*call // those that have not ended, or whose receipt could not be written
	active        int              // those that have not ended
	performing    sync.WaitGroup
	sandbox       *sandbox // nil if none is up
	uploads       *[]wire.Upload
	idle          time.Duration
	connections   int
	lastConnected time.Time
	lastActive    time.Time
	closing       bool

	changed  chan struct{} // something that the lifetime depends on
	stopping chan struct{} // closed when closing is set
	ended    chan struct{} // closed when all is undone
}

func open(config wire.SupervisorConfig) (_ *supervisor, err error) {
	dir := sessiondir.Dir(config.Dir)
	output := &boundedLog{w: os.Stderr, left: 1 << 20}
	s := &supervisor{
		config:    config,
		dir:       dir,
		output:    output,
		log:       slog.New(slog.NewTextHandler(output, nil)).With("session", config.Session),
		spawner:   isolation.NewSpawner(),
		shellLane: make(chan struct{}, 1),
		fileLane:  make(chan struct{}, 4),
		calls:     map[string]*call{},
		idle:      time.Duration(config.ServerGone),
		changed:   make(chan struct{}, 1),
		stopping:  make(chan struct{}),
		ended:     make(chan struct{}),
	}
	s.lastConnected, s.lastActive = time.Now(), time.Now()
	if !config.Isolate {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, err
		}
	}
	if s.lock, err = dir.Lock(); err != nil {
		return nil, err
	}
	// The lock is left to the end of the process from here on: it goes last, whatever happens.
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	if err := dir.EndGuest(ctx); err != nil {
		return nil, err
	}
	if err := cgroup.Remove(ctx, config.Cgroups); err != nil {
		return nil, err
	}
	if s.journal, err = journal.Open(dir.Calls()); err != nil {
		return nil, err
	}
	if s.listener, err = dir.Listen(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *supervisor) serve() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	go func() {
		<-signals
		s.shutdown("the supervisor was told to end")
	}()
	go s.lifetime()
	go s.accept()
	<-s.ended
	return 0
}

func (s *supervisor) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			select {
			case <-s.stopping:
			default:
				s.log.Error("accept", "error", err)
				s.shutdown("its socket failed")
			}
			return
		}
		s.mu.Lock()
		s.connections++
		s.mu.Unlock()
		go func() {
			if err := s.converse(conn); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, unix.EPIPE) {
				s.log.Warn("a request failed", "error", err)
			}
			s.mu.Lock()
			s.connections--
			s.lastConnected = time.Now()
			s.mu.Unlock()
			s.nudge()
		}()
	}
}

func (s *supervisor) converse(conn *net.UnixConn) (err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := wire.Write(conn, wire.Hello{Protocol: wire.Protocol, Oldest: wire.Oldest, PID: os.Getpid()}); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	var request wire.Request
	if err := wire.Read(conn, &request); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // ends when the server does, or when this side closes
	}()
	response, ok := s.answer(request, gone)
	if !ok {
		return nil
	}
	return wire.Write(conn, response)
}

// answer returns ok false if the one who asked has gone.
func (s *supervisor) answer(request wire.Request, gone <-chan struct{}) (response wire.Response, ok bool) {
	failed := func(err error) (wire.Response, bool) {
		var f *wire.Failure
		if !errors.As(err, &f) {
			f = &wire.Failure{Code: wire.CodeFailed, Message: err.Error()}
		}
		return wire.Response{Failure: f}, true
	}
	switch {
	case request.Op == wire.OpRun && request.Call != nil && request.Spec != nil:
		c, result, err := s.begin(*request.Call, *request.Spec)
		if err != nil {
			return failed(err)
		}
		if c == nil {
			return wire.Response{Result: &result}, true
		}
		select {
		case <-c.done:
		case <-gone:
			return wire.Response{}, false
		}
		if c.failure != nil {
			return failed(c.failure)
		}
		return wire.Response{Result: &c.result}, true
	case request.Op == wire.OpInterrupt && len(request.Calls) == 1:
		if err := s.interrupt(request.Calls[0]); err != nil {
			return failed(err)
		}
	case request.Op == wire.OpAcknowledge:
		if err := s.acknowledge(request.Calls); err != nil {
			return failed(err)
		}
	case request.Op == wire.OpStop:
		s.shutdown("it was stopped")
	default:
		return failed(&wire.Failure{Code: wire.CodeInvalid, Message: fmt.Sprintf("the supervisor cannot do %q", request.Op)})
	}
	return wire.Response{}, true
}

func (s *supervisor) nudge() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// lifetime ends the supervisor when nothing runs and nothing has run for as long as the sandbox may idle, or no server
// has been there for as long as one may be away. A call that comes after the decision finds it closing. A supervisor whose
// directory was removed under it ends too: nobody can ever find it again.
func (s *supervisor) lifetime() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		why := ""
		s.mu.Lock()
		left := s.left(time.Now())
		if left <= 0 {
			why = "nothing used it"
		} else if !s.dir.Holds(s.lock) {
			why = "its directory was removed"
		}
		if why != "" && !s.closing {
			s.close()
			s.mu.Unlock()
			s.undo(why)
			return
		}
		s.mu.Unlock()
		timer.Reset(min(left, lookEvery))
		select {
		case <-timer.C:
		case <-s.changed:
		case <-s.stopping:
			return
		}
	}
}

// lookEvery is how often a supervisor looks whether its directory is still there.
const lookEvery = 30 * time.Second

// left is how long it may go on as it is. The caller holds mu.
func (s *supervisor) left(now time.Time) time.Duration {
	if s.active > 0 {
		return math.MaxInt64
	}
	left := s.lastActive.Add(s.idle).Sub(now)
	if s.connections == 0 {
		left = min(left, s.lastConnected.Add(time.Duration(s.config.ServerGone)).Sub(now))
	}
	return left
}

// shutdown ends the sandbox, gives every call that runs its receipt, and undoes what open did. It returns when that is
// done, whoever began it.
func (s *supervisor) shutdown(why string) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		<-s.ended
		return
	}
	s.close()
	s.mu.Unlock()
	s.undo(why)
}

// close lets nothing begin any more. The caller holds mu, and then undoes.
func (s *supervisor) close() {
	s.closing = true
	close(s.stopping)
}

func (s *supervisor) undo(why string) {
	s.log.Info("ending", "why", why)
	s.endSandbox(why)
	s.performing.Wait()
	s.starting.Lock() // for ever: one may have been starting meanwhile, and no other does any more
	s.endSandbox(why)
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	err := errors.Join(
		cgroup.Remove(ctx, s.config.Cgroups),
		s.dir.RemoveSocket(),
		s.listener.Close(),
		s.journal.Close(),
	)
	if err != nil {
		s.log.Error("clean up", "error", err)
	}
	close(s.ended)
}

func (s *supervisor) endSandbox(why string) {
	s.mu.Lock()
	box := s.sandbox
	s.mu.Unlock()
	if box != nil {
		box.end(why)
	}
}

// boundedLog stops writing when it has written enough: an agent can cause lines.
type boundedLog struct {
	mu   sync.Mutex
	w    io.Writer
	left int
}

func (l *boundedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(p) > l.left {
		l.left = 0
		return len(p), nil
	}
	l.left -= len(p)
	return l.w.Write(p)
}
