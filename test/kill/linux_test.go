//go:build linux

package kill

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limit bounds every single wait. It is for slow machines, not an expectation.
const limit = 90 * time.Second

// process names a process for good, where its number may be used again.
type process struct {
	pid int
	fd  int
}

func openProcess(t *testing.T, pid int) process {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	return process{pid, fd}
}

func (p process) signal(t *testing.T, signal unix.Signal) {
	t.Helper()
	if err := unix.PidfdSendSignal(p.fd, signal, nil, 0); err != nil {
		t.Fatalf("signal process %d: %v", p.pid, err)
	}
}

// awaitEnd waits until the process is gone, and forgets it.
func (p process) awaitEnd(within time.Duration) error {
	defer unix.Close(p.fd)
	until := time.Now().Add(within)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(max(0, time.Until(until)).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", p.pid, err)
		default:
			return fmt.Errorf("process %d is still there after %v: %s", p.pid, within, commandLine(p.pid))
		}
	}
}

func commandLine(pid int) string {
	words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(words), "\x00", " "))
}

// holder is the process whose number stands in a file, at its beginning.
func holder(t *testing.T, path string) process {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return openProcess(t, pid)
}

// processesOf are the processes that have to do with a directory: by their command line, working directory, environment,
// control group, or, for those inside a sandbox, by what is mounted for them.
func processesOf(t *testing.T, dir string) []process {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !concerns(pid, dir) {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			found = append(found, process{pid, fd})
		}
	}
	return found
}

func concerns(pid int, dir string) bool {
	at := fmt.Sprintf("/proc/%d", pid)
	if cwd, _ := os.Readlink(at + "/cwd"); strings.Contains(cwd, dir) {
		return true
	}
	return slices.ContainsFunc([]string{"cmdline", "environ", "cgroup", "mountinfo"}, func(name string) bool {
		content, _ := os.ReadFile(filepath.Join(at, name)) // it may have ended
		return bytes.Contains(content, []byte(dir))
	})
}

// awaitFile waits until there is a file of this name in a directory that exists.
func awaitFile(t *testing.T, dir, name string) {
	t.Helper()
	awaitIn(t, dir, name, func() bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// awaitIn waits for something that comes with a change of the entries of a directory.
func awaitIn(t *testing.T, dir, what string, come func() bool) {
	t.Helper()
	watch(t, dir, unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVE, what, come)
}

// watch waits for something that comes with an event of a file or a directory. It looks first without one.
func watch(t *testing.T, path string, events uint32, what string, come func() bool) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	queue := os.NewFile(uintptr(fd), "inotify")
	defer queue.Close()
	if _, err := unix.InotifyAddWatch(fd, path, events); err != nil {
		t.Fatalf("watch %s: %v", path, err)
	}
	if err := queue.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	for !come() {
		if _, err := queue.Read(buffer); err != nil {
			t.Fatalf("wait for %s in %s: %v", what, path, err)
		}
	}
}

// awaitRemoval waits until a session that is being deleted has no directory any more.
func (c *conversation) awaitRemoval() {
	c.t.Helper()
	parent := filepath.Dir(c.dir())
	awaitIn(c.t, parent, "the removal of "+c.session, func() bool {
		_, err := os.Lstat(c.dir())
		return errors.Is(err, os.ErrNotExist)
	})
	trash := filepath.Join(parent, ".trash")
	if _, err := os.Lstat(trash); errors.Is(err, os.ErrNotExist) {
		return
	}
	awaitIn(c.t, trash, "the end of the removal of "+c.session, func() bool {
		entries, _ := os.ReadDir(trash) // it may be removed itself
		return len(entries) == 0
	})
}
