package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endLimit bounds how long a sandbox may take to fall apart after its supervisor was killed.
const endLimit = 10 * time.Second

// attributes of a server's process. A process group of its own keeps the signals of a terminal away: they are for the test.
// And it does not outlive the test, however that ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// endProcesses ends what still runs from the server's binary, and waits until these processes and everything below them
// are gone. A descendant that outlives its supervisor is an error, and is ended as well.
func (s *Server) endProcesses() error {
	parents, err := processTable()
	if err != nil {
		return err
	}
	own := map[int]bool{}
	for pid := range parents {
		exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if err == nil && strings.TrimSuffix(exe, " (deleted)") == s.binary {
			own[pid] = true
		}
	}
	var handles []processHandle
	for pid := range parents {
		if !own[pid] && !descends(parents, pid, own) {
			continue
		}
		if h, err := openProcess(pid); err == nil {
			handles = append(handles, h)
			defer unix.Close(h.fd)
		}
	}
	for _, h := range handles {
		if own[h.pid] {
			_ = unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0)
		}
	}
	deadline := time.Now().Add(endLimit)
	var left error
	for _, h := range handles {
		if h.ended(time.Until(deadline)) {
			continue
		}
		left = errors.Join(left, fmt.Errorf("process %d (%s) was left behind by the sandbox", h.pid, h.command))
		_ = unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0)
	}
	return left
}

// Processes counts the processes that run from the server's binary: the server itself, and supervisors.
func (s *Server) Processes() (int, error) {
	parents, err := processTable()
	n := 0
	for pid := range parents {
		exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if err == nil && strings.TrimSuffix(exe, " (deleted)") == s.binary {
			n++
		}
	}
	return n, err
}

// processHandle names a process for good: its number may be used again, the descriptor is not.
type processHandle struct {
	pid     int
	fd      int
	command string
}

func openProcess(pid int) (processHandle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return processHandle{}, err
	}
	words, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return processHandle{pid, fd, strings.TrimSpace(strings.ReplaceAll(string(words), "\x00", " "))}, nil
}

func (h processHandle) ended(within time.Duration) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}, max(0, int(within.Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// processTable maps each process to its parent.
func processTable() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		// The name of the process stands in parentheses and may hold anything; the fields after it are safe to split.
		if end := strings.LastIndexByte(string(stat), ')'); end > 0 {
			fields := strings.Fields(string(stat[end+1:]))
			if len(fields) > 1 && fields[0] != "Z" {
				parents[pid], _ = strconv.Atoi(fields[1])
			}
		}
	}
	return parents, nil
}

func descends(parents map[int]int, pid int, from map[int]bool) bool {
	for range 64 {
		pid = parents[pid]
		if pid <= 1 {
			return false
		}
		if from[pid] {
			return true
		}
	}
	return false
}
