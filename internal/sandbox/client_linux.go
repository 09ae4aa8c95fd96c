package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/sessiondir"
	"github.com/perdure/perdure/internal/sandbox/supervisor"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

const (
	startTimeout = 30 * time.Second // of a supervisor, with what a dead one left still to be waited for
	helloTimeout = 10 * time.Second
	pollInterval = 3 * time.Millisecond
)

// errGone says that the supervisor went away before it answered. Every request may then be made again.
var errGone = errors.New("the supervisor went away")

// dial connects to the session's supervisor, or fails with errGone if there is none.
func (l *Local) dial(ctx context.Context, session string) (*net.UnixConn, error) {
	conn, err := l.dir(session).Dial(ctx)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	hello, err := readHello(conn)
	if !stop() {
		err = context.Cause(ctx)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the supervisor of session %s does not answer; stop the session to end it: %w", session, err)
	}
	if err == nil && (hello.Protocol < wire.Oldest || hello.Oldest > wire.Protocol) {
		err = &VersionError{Session: session, Supervisor: [2]int{hello.Oldest, hello.Protocol}, Server: [2]int{wire.Oldest, wire.Protocol}}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func readHello(conn *net.UnixConn) (wire.Hello, error) {
	var hello wire.Hello
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return hello, err
	}
	if err := wire.Read(conn, &hello); err != nil {
		return hello, gone(err)
	}
	return hello, conn.SetReadDeadline(time.Time{})
}

// gone turns the ways in which a connection ends into errGone.
func gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return errGone
	}
	return err
}

// ask makes one request. It gives up when ctx ends; the supervisor goes on.
func (l *Local) ask(ctx context.Context, conn *net.UnixConn, request wire.Request) (wire.Response, error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var response wire.Response
	err := wire.Write(conn, request)
	if err == nil {
		err = wire.Read(conn, &response)
	}
	if ctx.Err() != nil {
		return response, context.Cause(ctx)
	}
	if err != nil {
		return response, gone(err)
	}
	if response.Failure != nil {
		return response, response.Failure
	}
	return response, nil
}

// start starts the session's supervisor, if no other one is. Callers at the same time share one start.
func (l *Local) start(ctx context.Context, session string) error {
	result := l.starts.DoChan(session, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		return nil, l.startSupervisor(ctx, session)
	})
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Local) startSupervisor(ctx context.Context, session string) error {
	dir := l.dir(session)
	uid, err := l.prepare(session)
	if err != nil {
		return fmt.Errorf("make the session's directory: %w", err)
	}
	log, err := openLog(dir.Log())
	if err != nil {
		return err
	}
	defer log.Close()
	conn, inside, err := isolation.Socketpair()
	if err != nil {
		return err
	}
	defer conn.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe",
		Args: []string{supervisor.Role, string(dir)},
		// Nothing of the server's environment, which holds its secrets.
		Env:         []string{"PATH=" + os.Getenv("PATH")},
		Dir:         "/",
		Stdout:      log,
		Stderr:      log,
		ExtraFiles:  []*os.File{inside},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	if err = errors.Join(err, inside.Close()); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	l.children.add(cmd.Process.Pid)
	if err := cmd.Process.Release(); err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	config := wire.SupervisorConfig{
		Session: session, Dir: string(dir), Isolate: l.options.Mode == ModeNative, UID: uid,
		ServerGone: wire.Duration(l.options.ServerGone), Cgroups: l.cgroups.For(session), Reachable: l.options.Reachable,
	}
	var started wire.Started
	if err = wire.Write(conn, config); err == nil {
		err = wire.Read(conn, &started)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("start the supervisor: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("start the supervisor: it ended before it was ready (%w): %s", gone(err), dir.LogTail())
	case started.Error != "":
		return fmt.Errorf("start the supervisor: %s", started.Error)
	}
	return nil // if Busy, another one is there or on its way
}

// prepare makes the session's directory and returns its user, 0 for the server's own.
func (l *Local) prepare(session string) (uid int, err error) {
	dir := l.dir(session)
	if err := os.Mkdir(string(dir), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, err
	}
	switch {
	case l.uids == nil:
	case strings.HasPrefix(session, probePrefix):
		uid = l.uids.probeUID()
	default:
		if uid, err = l.uids.of(string(dir)); err != nil {
			return 0, err
		}
	}
	return uid, dir.Make(uid)
}

func openLog(path string) (*os.File, error) {
	const most = 1 << 20
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > most {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}

// with asks the session's supervisor if there is one, and else has direct do it under the session's lock.
func (l *Local) with(ctx context.Context, session string, request wire.Request, direct func(sessiondir.Dir) error) error {
	dir := l.dir(session)
	for {
		conn, err := l.dial(ctx, session)
		if err == nil {
			_, err = l.ask(ctx, conn, request)
		}
		if !retriable(err) {
			return err
		}
		lock, err := dir.Lock()
		if err == nil {
			return errors.Join(direct(dir), lock.Close())
		}
		if !errors.Is(err, sessiondir.ErrLocked) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// retriable says that the supervisor that was asked is ending or has ended.
func retriable(err error) bool {
	var f *wire.Failure
	return errors.Is(err, errGone) || errors.As(err, &f) && f.Code == wire.CodeClosing
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(pollInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// children reaps the supervisors that this server started and that end before it does, with one goroutine for all.
type children struct {
	signals chan os.Signal
	closed  chan struct{}
	mu      sync.Mutex
	pids    map[int]struct{}
}

func newChildren() *children {
	c := &children{signals: make(chan os.Signal, 1), closed: make(chan struct{}), pids: map[int]struct{}{}}
	signal.Notify(c.signals, unix.SIGCHLD)
	go func() {
		for {
			select {
			case <-c.signals:
				c.reap()
			case <-c.closed:
				return
			}
		}
	}()
	return c
}

func (c *children) add(pid int) {
	c.mu.Lock()
	c.pids[pid] = struct{}{}
	c.mu.Unlock()
	c.reap()
}

func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid := range c.pids {
		if n, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); n == pid || errors.Is(err, unix.ECHILD) {
			delete(c.pids, pid)
		}
	}
}

func (c *children) close() {
	signal.Stop(c.signals)
	close(c.closed)
}
