//go:build linux

package isolation

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// A Spawner forks processes that must die with this one from a thread that lives as long as this one: the kernel sends
// the parent-death signal when the forking thread ends, and Go ends threads as it likes.
type Spawner struct{ work chan func() }

// NewSpawner starts the thread. It is never given back.
func NewSpawner() *Spawner {
	s := &Spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

// Start starts the command from the spawner's thread.
func (s *Spawner) Start(cmd *exec.Cmd) error {
	started := make(chan error)
	s.work <- func() { started <- cmd.Start() }
	return <-started
}

// Process is a sandbox that was started.
type Process struct {
	Cmd *exec.Cmd
	// Guest is the socket to the guest.
	Guest *net.UnixConn
	// Egress listens inside, on ProxyAddress, for this process to accept; nil without Config.Egress. It was made by
	// the builder and belongs to the sandbox's network namespace.
	Egress net.Listener
}

// ErrKilled says that something killed the sandbox's first process while it started: nothing has run in it.
var ErrKilled = errors.New("its first process was killed while it started (was there memory enough?)")

var errNoListener = &Failure{Step: "start", Text: "the builder ended before the sandbox was ready"}

// Start builds a sandbox and returns when the guest's program has taken over. Confine is called with the process before
// it does anything, to put it under limits. What the builder or the guest cries out when it breaks down goes to stderr. A
// *Failure says which step this host refused; ErrKilled, that it may be tried again.
func Start(spawner *Spawner, config Config, stderr io.Writer, confine func(pid int) error) (*Process, error) {
	guest, guestInside, err := socketpair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer guestInside.Close()
	builder, builderInside, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, errors.Join(err, guest.Close())
	}
	defer builder.Close()
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{BuilderRole},
		Env:         []string{},
		Dir:         "/",
		Stderr:      stderr,
		ExtraFiles:  []*os.File{guestInside, builderInside},
		SysProcAttr: attributes(config.UID),
	}
	err = spawner.Start(cmd)
	if closing := builderInside.Close(); err == nil {
		err = closing
	} else {
		err = startFailure(err)
	}
	if err != nil {
		return nil, errors.Join(err, guest.Close())
	}
	p := &Process{Cmd: cmd, Guest: guest}
	if err := p.build(builder, config, confine); err != nil {
		return nil, p.GiveUp(err)
	}
	return p, nil
}

func (p *Process) build(builder *net.UnixConn, config Config, confine func(pid int) error) error {
	if err := confine(p.Cmd.Process.Pid); err != nil {
		return fmt.Errorf("put the sandbox under its limits: %w", err)
	}
	order, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if _, err := builder.Write(order); err != nil {
		return fmt.Errorf("tell the builder of the sandbox: %w", err)
	}
	message, control := make([]byte, 64<<10), make([]byte, 256)
	for {
		n, controlled, _, _, err := builder.ReadMsgUnix(message, control)
		if n == 0 { // the exec closed the builder's end
			break
		}
		if err != nil {
			return fmt.Errorf("hear from the builder of the sandbox: %w", err)
		}
		var r report
		if err := json.Unmarshal(message[:n], &r); err != nil {
			return fmt.Errorf("hear from the builder of the sandbox: %w", err)
		}
		if r.Failure != nil {
			return r.Failure
		}
		if p.Egress, err = receiveListener(control[:controlled]); err != nil {
			return err
		}
	}
	if config.Egress && p.Egress == nil {
		return errNoListener
	}
	return nil
}

// GiveUp ends a sandbox whose start failed with err and returns ErrKilled if err only tells that something else had killed
// it, and err otherwise.
func (p *Process) GiveUp(err error) error {
	p.Kill()
	if p.Cmd.ProcessState == nil {
		return err
	}
	status, ok := p.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed := ok && status.Signaled() && status.Signal() == unix.SIGKILL
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, unix.ESRCH, errNoListener} {
		if killed && errors.Is(err, cut) {
			return ErrKilled
		}
	}
	return err
}

// Kill ends the sandbox and waits until every process in it is gone.
func (p *Process) Kill() {
	if p.Egress != nil {
		_ = p.Egress.Close() // nothing is accepted from a dead sandbox anyway
	}
	_ = p.Guest.Close()      // the guest is killed next
	_ = p.Cmd.Process.Kill() // fails only if it has ended
	_ = p.Cmd.Wait()         // says how it ended, which is known
}

func attributes(uid int) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	if uid == 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: insideUID, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: insideUID, HostID: os.Getgid(), Size: 1}}
		a.Credential = &syscall.Credential{Uid: insideUID, Gid: insideUID, NoSetGroups: true}
		// Ambient, so that they outlive the exec of the builder, which is not user 0 in its namespace.
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE}
	}
	return a
}

func startFailure(err error) error {
	f := &Failure{Step: "namespaces", Text: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	return f
}

// socketpair returns this side as a connection and the other as a file to pass on.
func socketpair(kind int) (*net.UnixConn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	here, there := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	conn, err := net.FileConn(here)
	if err = errors.Join(err, here.Close()); err != nil {
		return nil, nil, errors.Join(err, there.Close())
	}
	return conn.(*net.UnixConn), there, nil
}

// Socketpair is a stream of which one end can be given to a child.
func Socketpair() (*net.UnixConn, *os.File, error) { return socketpair(unix.SOCK_STREAM) }

func receiveListener(control []byte) (net.Listener, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("receive the listener for the proxy: %d control messages: %w", len(messages), err)
	}
	descriptors, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != 1 {
		return nil, fmt.Errorf("receive the listener for the proxy: %d descriptors: %w", len(descriptors), err)
	}
	unix.CloseOnExec(descriptors[0])
	f := os.NewFile(uintptr(descriptors[0]), "egress")
	listener, err := net.FileListener(f)
	return listener, errors.Join(err, f.Close())
}
