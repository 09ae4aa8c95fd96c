//go:build linux

package guest

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// processes finds, kills and reaps what the tools started.
//
// A command's processes are those that were not there when it began and that descend from its shell, or that have lost
// their parent since (by a double fork, or by leaving the session) and so have become the guest's own children. What
// earlier calls left running stays. The exception: what an earlier call's job lets go of while a later call runs is taken
// for the later one's.
//
// Children of the guest that it did not start are reaped when they have ended. Those that the toolset started are its own
// to reap: the shell, which is known by number, and what grep starts, during which nothing is reaped.
type processes struct {
	self     int
	isolated bool
	reaping  sync.RWMutex // held for reading by whoever starts processes and waits for them

	mu   sync.Mutex
	kept int
}

type process struct {
	pid, parent int
	state       byte
	started     string
}

func newProcesses(isolated bool) *processes {
	p := &processes{self: os.Getpid(), isolated: isolated}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			p.reap()
		}
	}()
	return p
}

// spawning holds off reaping until done is called.
func (p *processes) spawning() (done func()) {
	p.reaping.RLock()
	return func() {
		p.reaping.RUnlock()
		p.reap()
	}
}

// keep says that pid is reaped by the one who started it.
func (p *processes) keep(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = pid
}

func (p *processes) reap() {
	if !p.reaping.TryLock() {
		return // the one who holds it comes back
	}
	defer p.reaping.Unlock()
	p.mu.Lock()
	kept := p.kept
	p.mu.Unlock()
	for _, child := range list() {
		if child.parent == p.self && child.state == 'Z' && child.pid != kept {
			_, _ = unix.Wait4(child.pid, nil, unix.WNOHANG, nil) // somebody else may have been faster
		}
	}
}

// snapshot is every process that exists.
func (p *processes) snapshot() map[process]struct{} {
	all := map[process]struct{}{}
	for _, q := range list() {
		all[q.identity()] = struct{}{}
	}
	return all
}

// identity is what stays the same of a process: numbers are used again.
func (q process) identity() process { return process{pid: q.pid, started: q.started} }

// killSince kills the shell and all that a command started since the snapshot, and returns when none of it is left.
func (p *processes) killSince(before map[process]struct{}, shell int) {
	p.killUntilNone(func(all map[int]process) []int {
		var victims []int
		for pid, q := range all {
			if pid == shell {
				victims = append(victims, pid)
				continue
			}
			if _, old := before[q.identity()]; old {
				continue
			}
			if p.descends(all, q, before, shell) {
				victims = append(victims, pid)
			}
		}
		return victims
	})
}

// descends says whether q's first ancestor that is the shell, the guest or older than the command is not an old job.
func (p *processes) descends(all map[int]process, q process, before map[process]struct{}, shell int) bool {
	for range len(all) {
		if q.parent == shell || q.parent == p.self {
			return true
		}
		parent, ok := all[q.parent]
		if !ok {
			return p.isolated // it has just lost its parent
		}
		if _, old := before[parent.identity()]; old {
			return false
		}
		q = parent
	}
	return false
}

// killAll kills every process that the guest can be held responsible for.
func (p *processes) killAll() {
	if p.isolated {
		return // they end with process 1
	}
	p.killUntilNone(func(all map[int]process) []int {
		var victims []int
		for pid, q := range all {
			for range len(all) {
				if q.parent == p.self {
					victims = append(victims, pid)
					break
				}
				parent, ok := all[q.parent]
				if !ok {
					break
				}
				q = parent
			}
		}
		return victims
	})
}

// killUntilNone repeats, because a process may be starting others meanwhile. If they are faster than it for too long,
// everything in the sandbox is killed at one blow.
func (p *processes) killUntilNone(victims func(map[int]process) []int) {
	deadline := time.Now().Add(500 * time.Millisecond)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		all := map[int]process{}
		for _, q := range list() {
			if q.state != 'Z' {
				all[q.pid] = q
			}
		}
		found := victims(all)
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			if p.isolated {
				_ = unix.Kill(-1, unix.SIGKILL) // as process 1: all others of the namespace, at once
			}
			if time.Now().After(deadline.Add(time.Second)) {
				return // in the kernel, and dead when it comes out
			}
		}
		for _, pid := range found {
			_ = unix.Kill(pid, unix.SIGKILL) // it may just have ended
		}
		<-ticker.C
	}
}

// list reads the processes that can be seen.
func list() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if q, ok := readProcess(pid); ok {
			all = append(all, q)
		}
	}
	return all
}

func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return process{}, false
	}
	return process{pid: pid, parent: parent, state: fields[0][0], started: string(fields[19])}, true
}
