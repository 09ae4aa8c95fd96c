//go:build linux

// Package processes finds, kills and reaps what a command of an agent started, however it hid.
package processes

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Children are the processes that this one can be held responsible for. It must be the first process of its namespace, or
// a subreaper, so that what loses its parent becomes its child.
//
// A command's processes are those that were not there when it began and that descend from its shell, or that have lost
// their parent since (by a double fork, or by leaving the session) and so have become children of this process. What
// earlier calls left running stays. The exception: what an earlier call's job lets go of while a later call runs is taken
// for the later one's.
//
// Children that this process did not start are reaped when they have ended. Those that the toolset started are its own
// to reap: the shell, which is known by number, and what grep starts, during which nothing is reaped.
type Children struct {
	self     int
	isolated bool
	reaping  sync.RWMutex // held for reading by whoever starts processes and waits for them

	mu   sync.Mutex
	kept int
}

// Process is one that exists or existed.
type Process struct {
	PID, Parent int
	State       byte   // as in /proc: Z has ended
	Started     string // in clock ticks since boot
}

// Snapshot is every process that existed at a time.
type Snapshot map[Process]struct{}

// New watches the children. Isolated says that this is the first process of a namespace.
func New(isolated bool) *Children {
	p := &Children{self: os.Getpid(), isolated: isolated}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			p.reap()
		}
	}()
	return p
}

// Spawning holds off reaping until done is called.
func (p *Children) Spawning() (done func()) {
	p.reaping.RLock()
	return func() {
		p.reaping.RUnlock()
		p.reap()
	}
}

// Keep says that pid is reaped by the one who started it.
func (p *Children) Keep(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = pid
}

func (p *Children) reap() {
	if !p.reaping.TryLock() {
		return // the one who holds it comes back
	}
	defer p.reaping.Unlock()
	p.mu.Lock()
	kept := p.kept
	p.mu.Unlock()
	for _, child := range list() {
		if child.Parent == p.self && child.State == 'Z' && child.PID != kept {
			_, _ = unix.Wait4(child.PID, nil, unix.WNOHANG, nil) // somebody else may have been faster
		}
	}
}

// Snapshot is every process that exists.
func (p *Children) Snapshot() Snapshot {
	all := Snapshot{}
	for _, q := range list() {
		all[q.identity()] = struct{}{}
	}
	return all
}

// identity is what stays the same of a process: numbers are used again.
func (q Process) identity() Process { return Process{PID: q.PID, Started: q.Started} }

// KillSince kills the shell and all that a command started since the snapshot, and returns when none of it is left.
func (p *Children) KillSince(before Snapshot, shell int) {
	killUntilNone(p.isolated, func(all map[int]Process) []int {
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
func (p *Children) descends(all map[int]Process, q Process, before Snapshot, shell int) bool {
	for range len(all) {
		if q.Parent == shell || q.Parent == p.self {
			return true
		}
		parent, ok := all[q.Parent]
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

// KillDescendants kills everything that descends from this process, and reaps what has become its child. Nobody may be
// waiting for a child meanwhile. It is for where there is no namespace whose end would do that.
func KillDescendants() {
	self := os.Getpid()
	killUntilNone(false, func(all map[int]Process) []int {
		var victims []int
		for pid, q := range all {
			for range len(all) {
				if q.Parent == self {
					victims = append(victims, pid)
					break
				}
				parent, ok := all[q.Parent]
				if !ok {
					break
				}
				q = parent
			}
		}
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
				return victims
			}
		}
	})
}

// killUntilNone repeats, because a process may be starting others meanwhile. If they are faster than it for too long,
// everything in the sandbox is killed at one blow.
func killUntilNone(isolated bool, victims func(map[int]Process) []int) {
	deadline := time.Now().Add(500 * time.Millisecond)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		all := map[int]Process{}
		for _, q := range list() {
			if q.State != 'Z' {
				all[q.PID] = q
			}
		}
		found := victims(all)
		if len(found) == 0 {
			return
		}
		if time.Now().After(deadline) {
			if isolated {
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
func list() []Process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if q, ok := Read(pid); ok {
			all = append(all, q)
		}
	}
	return all
}

// Read returns a process; false if there is none with this id.
func Read(pid int) (Process, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	// The name, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return Process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return Process{}, false
	}
	return Process{PID: pid, Parent: parent, State: fields[0][0], Started: string(fields[19])}, true
}
