//go:build linux

// Package sessiondir is the directory of one session's sandbox: what lies where, who may touch it, and how its socket is
// reached.
//
// Whoever holds the lock is the authority on everything in the directory except files. The supervisor holds it from its
// start to its end, so that there is never a second one; a server takes it only when no supervisor lives. The kernel
// releases it when its holder dies, however it dies.
package sessiondir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the absolute path of the directory, mode 0700.
type Dir string

// ErrLocked says that somebody else holds the lock.
var ErrLocked = errors.New("the session's directory is locked by a living supervisor")

func (d Dir) join(name string) string { return filepath.Join(string(d), name) }

// Workspace is the agent's, as are Home, Outputs and Results: it may do with them as it likes, so the host reads them only
// through opens that cannot be led astray.
func (d Dir) Workspace() string { return d.join("files/workspace") }

// Home is the agent's home directory.
func (d Dir) Home() string { return d.join("files/home") }

// Outputs holds what the agent leaves for its user.
func (d Dir) Outputs() string { return d.join("files/outputs") }

// Results holds tool output that was too long for the model.
func (d Dir) Results() string { return d.join("files/tool_results") }

// Uploads is read-only for the agent.
func (d Dir) Uploads() string { return d.join("uploads") }

// Calls holds the journal of calls.
func (d Dir) Calls() string { return d.join("calls") }

// Root is an empty directory on which the sandbox's own root is mounted, in its mount namespace only.
func (d Dir) Root() string { return d.join("root") }

// Scratch is the guest's own directory where there is no isolation.
func (d Dir) Scratch() string { return d.join("scratch") }

// Log is where the supervisor writes.
func (d Dir) Log() string { return d.join("supervisor.log") }

// Owned are the directories that belong to the session's user.
func (d Dir) Owned() []string {
	return []string{d.Workspace(), d.Home(), d.Outputs(), d.Results(), d.Scratch()}
}

// Make creates the directory and what is in it, and gives to uid what the agent owns; uid 0 leaves the owner as it is.
func (d Dir) Make(uid int) error {
	for _, path := range []string{string(d), d.join("files"), d.Calls(), d.Root()} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(d.Uploads(), 0o755); err != nil {
		return err
	}
	for _, path := range d.Owned() {
		err := os.Mkdir(path, 0o700)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if uid != 0 {
			if err := os.Lchown(path, uid, uid); err != nil {
				return err
			}
		}
	}
	return nil
}

// Lock takes the lock and writes this process's id into it, or returns ErrLocked. Closing the file releases the lock.
func (d Dir) Lock() (*os.File, error) {
	f, err := os.OpenFile(d.join("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		_ = f.Close() // only the lock was wanted of it
		return nil, err
	}
	// The directory may have been removed, and made again, since the file was opened.
	if !samePath(f) {
		return nil, errors.Join(ErrLocked, f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Holds says whether lock still is the lock of this directory: it is not if the directory was removed or made again.
func (d Dir) Holds(lock *os.File) bool { return samePath(lock) }

func samePath(f *os.File) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.Name())
	return err == nil && os.SameFile(held, there)
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		default:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// LockWithin is Lock, tried again until the holder is gone or ctx ends.
func (d Dir) LockWithin(ctx context.Context) (*os.File, error) {
	for {
		f, err := d.Lock()
		if !errors.Is(err, ErrLocked) {
			return f, err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// Holder is the process that holds the lock, or 0. It is right as long as the lock is not released meanwhile.
func (d Dir) Holder() int {
	text, err := os.ReadFile(d.join("lock"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return pid
}

// Dial connects to the supervisor. The socket is reached through the directory's descriptor because the path of a unix
// socket may have 107 bytes only.
func (d Dir) Dial(ctx context.Context) (*net.UnixConn, error) {
	dir, err := os.OpenFile(string(d), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", viaDescriptor(dir))
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// Listen makes the socket, in place of one that a dead supervisor left. Only the holder of the lock may.
func (d Dir) Listen() (*net.UnixListener, error) {
	dir, err := os.OpenFile(string(d), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := d.RemoveSocket(); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: viaDescriptor(dir), Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

func viaDescriptor(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/sock", dir.Fd()) }

// InUse says whether there are signs of a supervisor, alive or killed. One that ended by itself leaves none.
func (d Dir) InUse() bool {
	for _, sign := range []string{"sock", "guest"} {
		if _, err := os.Lstat(d.join(sign)); err == nil {
			return true
		}
	}
	return false
}

// RemoveSocket removes the socket if there is one. Only the holder of the lock may.
func (d Dir) RemoveSocket() error {
	if err := os.Remove(d.join("sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// RecordGuest notes the first process of the sandbox, so that it can be waited for when the supervisor was killed.
func (d Dir) RecordGuest(pid int) error {
	return os.WriteFile(d.join("guest"), []byte(fmt.Sprintf("%d %s", pid, startTime(pid))), 0o600)
}

// leaving is how long what a dead supervisor left may take to end by itself, which it does as soon as it notices.
const leaving = 2 * time.Second

// EndGuest waits until a sandbox that a dead supervisor left is gone, all of it, and kills it if that takes too long. Only
// the holder of the lock may.
func (d Dir) EndGuest(ctx context.Context) error {
	text, err := os.ReadFile(d.join("guest"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	number, started, _ := strings.Cut(string(text), " ")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 1 || started == "" {
		return d.ForgetGuest()
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // gone
		return d.ForgetGuest()
	}
	defer unix.Close(fd)
	if startTime(pid) != started { // the number belongs to another process by now
		return d.ForgetGuest()
	}
	patience := time.Now().Add(leaving)
	for {
		if time.Now().After(patience) {
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill the sandbox that a supervisor left (process %d): %w", pid, err)
			}
		}
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, 20)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return d.ForgetGuest()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the sandbox that a supervisor left (process %d): %w", pid, context.Cause(ctx))
		}
	}
}

// ForgetGuest says that no sandbox is up. Only the holder of the lock may.
func (d Dir) ForgetGuest() error {
	if err := os.Remove(d.join("guest")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// startTime tells two processes apart that had the same number: it is in clock ticks since boot, "" for none.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// LogTail is the end of the supervisor's log, for an error message.
func (d Dir) LogTail() string {
	f, err := os.Open(d.Log())
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 1024
	if info, err := f.Stat(); err == nil && info.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
