//go:build linux

package supervisor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/beneath"
	"github.com/perdure/perdure/internal/sandbox/cgroup"
	"github.com/perdure/perdure/internal/sandbox/egress"
	"github.com/perdure/perdure/internal/sandbox/guest"
	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/processes"
	"github.com/perdure/perdure/internal/sandbox/tooltext"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

const (
	readyTimeout = 20 * time.Second
	// maxStarts is how often a sandbox is started for one call when something kills it meanwhile.
	maxStarts = 5
	// interruptGrace is how long the guest may take to end a call before the whole sandbox is ended.
	interruptGrace = 900 * time.Millisecond
	// limitGrace is the same for a call that has run out of time.
	limitGrace = 5 * time.Second
)

// sandbox is one life of the session's sandbox. The files outlive it.
type sandbox struct {
	spec    wire.Spec
	conn    net.Conn
	pid     int // of the first process, as the host numbers it
	results string
	shownAs string // results as the agent knows it
	cgroups []wire.CgroupConfig
	killed  int // processes that lack of memory had killed before
	proxy   *egress.Proxy
	kill    func()
	gone    chan struct{} // closed when every process in it has ended

	writing sync.Mutex

	mu      sync.Mutex
	waiting map[string]chan wire.GuestResult
	why     string // it is being ended for this reason
}

// ready returns a sandbox that is as the spec says, started if need be.
func (s *supervisor) ready(spec wire.Spec) (*sandbox, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if err := s.syncUploads(spec.Uploads); err != nil {
		return nil, fmt.Errorf("show the session's files: %w", err)
	}
	s.mu.Lock()
	box, closing := s.sandbox, s.closing
	s.mu.Unlock()
	if closing {
		return nil, &wire.Failure{Code: wire.CodeClosing, Message: "the supervisor is ending"}
	}
	if box != nil {
		switch {
		case box.hasEnded():
		case box.spec.Network.Mode == spec.Network.Mode && box.spec.Limits == spec.Limits, box.busy():
			box.allow(spec.Network, s.config)
			return box, nil
		default:
			box.end("its limits or its network were changed")
		}
	}
	box, err := s.start(spec)
	for starts := 1; errors.Is(err, isolation.ErrKilled) && starts < maxStarts; starts++ {
		s.log.Warn("the sandbox is started again", "error", err)
		box, err = s.start(spec)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.sandbox = box
	s.mu.Unlock()
	return box, nil
}

func (s *supervisor) start(spec wire.Spec) (*sandbox, error) {
	box := &sandbox{
		spec:    spec,
		results: s.dir.Results(),
		cgroups: s.config.Cgroups,
		gone:    make(chan struct{}),
		waiting: map[string]chan wire.GuestResult{},
	}
	if err := cgroup.Make(s.config.Cgroups, spec.Limits); err != nil {
		return nil, fmt.Errorf("make the sandbox's control groups: %w", err)
	}
	box.killed = cgroup.MemoryKills(s.config.Cgroups)
	config := s.guestConfig(spec)
	box.shownAs = config.ResultsHere
	var process *isolation.Process
	var err error
	if s.config.Isolate {
		process, err = isolation.Start(s.spawner, s.isolationConfig(spec, config), s.output, func(pid int) error {
			return cgroup.Join(s.config.Cgroups, pid)
		})
	} else {
		process, err = s.startBare(config)
	}
	var refused *isolation.Failure
	if errors.As(err, &refused) {
		return nil, &wire.Failure{Code: wire.CodeUnavailable, Message: refused.Error(), Problems: []wire.Problem{Explain(refused, os.Getuid() == 0)}}
	}
	if err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	box.conn, box.pid = process.Guest, process.Cmd.Process.Pid
	box.kill = func() { _ = process.Cmd.Process.Kill() } // it fails only for one that has ended
	if process.Egress != nil {
		box.proxy = egress.New(s.log)
		box.allow(spec.Network, s.config)
		go func() {
			if err := box.proxy.Serve(process.Egress); err != nil {
				s.log.Error("the sandbox's proxy ended", "error", err)
			}
		}()
	}
	if err := s.dir.RecordGuest(process.Cmd.Process.Pid); err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", process.GiveUp(err))
	}
	if err := box.greet(config); err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", process.GiveUp(fmt.Errorf("its first process does not answer: %w", err)))
	}
	go box.listen()
	go func() {
		ended := process.Cmd.Wait()
		process.Kill()
		if !s.config.Isolate {
			processes.KillDescendants()
		}
		if box.proxy != nil {
			_ = box.proxy.Close() // its connections lead nowhere
		}
		if err := s.dir.ForgetGuest(); err != nil {
			s.log.Warn("forget the sandbox", "error", err)
		}
		s.log.Info("the sandbox ended", "why", box.reason(), "status", ended)
		close(box.gone)
	}()
	return box, nil
}

// startBare starts the guest as a program of the host, without any isolation.
func (s *supervisor) startBare(config wire.GuestConfig) (*isolation.Process, error) {
	conn, inside, err := isolation.Socketpair()
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{guest.Role},
		Env:         variables(config.Environment),
		Dir:         config.Workdir,
		Stderr:      s.output,
		ExtraFiles:  []*os.File{inside},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // it ends what it started when its socket closes, so it is not killed before
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &isolation.Process{Cmd: cmd, Guest: conn}, nil
}

func (b *sandbox) greet(config wire.GuestConfig) error {
	if err := b.conn.SetDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	if err := wire.Write(b.conn, config); err != nil {
		return err
	}
	var first wire.FromGuest
	if err := wire.Read(b.conn, &first); err != nil {
		return err
	}
	if !first.Ready {
		return wire.ErrFrame
	}
	return b.conn.SetDeadline(time.Time{})
}

// listen delivers what the guest says. A guest that says what it should not is ended.
func (b *sandbox) listen() {
	for {
		var message wire.FromGuest
		if err := wire.Read(b.conn, &message); err != nil {
			b.because("its first process ended")
			break
		}
		if message.Done == nil || len(message.Done.Text) > 2*tooltext.HeadBytes {
			b.because("its first process broke the protocol")
			break
		}
		b.mu.Lock()
		waiting, ok := b.waiting[message.Done.ID]
		delete(b.waiting, message.Done.ID)
		b.mu.Unlock()
		if ok {
			waiting <- *message.Done
		}
	}
	b.kill()
}

func (b *sandbox) send(message wire.ToGuest) {
	b.writing.Lock()
	defer b.writing.Unlock()
	err := b.conn.SetWriteDeadline(time.Now().Add(limitGrace))
	if err == nil {
		err = wire.Write(b.conn, message)
	}
	if err != nil {
		b.because("its first process does not listen")
		b.kill()
	}
}

// run has the guest run a call that is recorded as started, and always ends with something to tell the model.
func (b *sandbox) run(c *call, limit time.Duration) (text string, isError bool) {
	result := make(chan wire.GuestResult, 1)
	b.mu.Lock()
	b.waiting[c.ID] = result
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.waiting, c.ID)
	}()
	b.send(wire.ToGuest{Run: &wire.GuestCall{ID: c.ID, Tool: c.Tool, Input: c.Input, Limit: wire.Duration(limit)}})
	late := time.NewTimer(limit + limitGrace)
	defer late.Stop()
	interrupted := c.interrupted
	var unanswered <-chan time.Time
	sentence := ""
	for {
		select {
		case r := <-result:
			return r.Text, r.IsError
		case <-interrupted:
			interrupted = nil
			grace := time.NewTimer(interruptGrace)
			defer grace.Stop()
			unanswered = grace.C
			b.send(wire.ToGuest{Interrupt: c.ID})
		case <-unanswered:
			sentence = tooltext.Interrupted
			b.because("an interrupted call did not end")
			b.kill()
		case <-late.C:
			sentence = tooltext.TimedOut(limit)
			b.because("a call did not end in time")
			b.kill()
		case <-b.gone:
			select {
			case r := <-result: // it was there first
				return r.Text, r.IsError
			default:
			}
			if sentence == "" {
				sentence = tooltext.SandboxEnded(b.reason())
			}
			return tooltext.Join(b.partial(c.ID), tooltext.WithShellReset(sentence)), true
		}
	}
}

// partial is what the call had printed when the sandbox ended. The agent could write to that file too; nothing else than
// its own result depends on it.
func (b *sandbox) partial(id string) string {
	dir, err := beneath.Directory(b.results)
	if err != nil {
		return ""
	}
	defer dir.Close()
	f, info, err := beneath.File(dir, id+".txt")
	if err != nil {
		return "" // the tool printed nothing
	}
	defer f.Close()
	output := tooltext.Output{Total: info.Size(), File: filepath.Join(b.shownAs, id+".txt")}
	if output.Head, err = io.ReadAll(io.LimitReader(f, tooltext.HeadBytes)); err != nil {
		return ""
	}
	tail := io.NewSectionReader(f, max(0, info.Size()-tooltext.TailBytes), tooltext.TailBytes)
	if output.Tail, err = io.ReadAll(tail); err != nil {
		return ""
	}
	if output.Fits() {
		_ = os.Remove(filepath.Join(b.results, id+".txt")) // a name in a directory that is not followed; it is all here
	}
	return output.Text()
}

// end kills the sandbox and returns when all of it is gone.
func (b *sandbox) end(why string) {
	b.because(why)
	b.kill()
	<-b.gone
}

// hasEnded asks the kernel, so that a call is not given to a guest of whose death nobody has been told yet. If it has
// ended, it is gone when hasEnded returns.
func (b *sandbox) hasEnded() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, b.pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err == nil && info.Signo == 0 {
		return false
	}
	<-b.gone
	return true
}

func (b *sandbox) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

// because notes the first reason.
func (b *sandbox) because(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why == "" {
		b.why = why
		if cgroup.MemoryKills(b.cgroups) > b.killed && why == "its first process ended" {
			b.why = "it used up its memory"
		}
	}
}

func (b *sandbox) reason() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why
}

// allow puts the environment's present hosts into force.
func (b *sandbox) allow(network wire.Network, config wire.SupervisorConfig) {
	if b.proxy == nil {
		return
	}
	b.proxy.SetPolicy(egress.Policy{Mode: network.Mode, Allow: network.Allow, Reachable: config.Reachable})
	b.spec.Network = network
}
