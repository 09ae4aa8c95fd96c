//go:build linux

// Package guest is what runs inside the sandbox: the official file and shell tools, and the end of whatever they start.
//
// It is the first process of the sandbox and of the same user as the agent's programs. They cannot signal it (it is
// process 1), trace it (it is not dumpable) or reach its descriptors. It does one thing at a time for the shell, because
// the shell is one, and tells the supervisor of the end of each call. It decides nothing about calls: the supervisor
// records and orders them, and kills the sandbox if the guest does not answer.
package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/tools/agenttoolset"
	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/isolation"
	"github.com/perdure/perdure/internal/sandbox/processes"
	"github.com/perdure/perdure/internal/sandbox/tooltext"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// Role is the first argument of the guest's command line.
const Role = "perdure-sandbox-guest"

// maxAbandoned is how many file operations may hang, on a fifo for example, before the sandbox is given up.
const maxAbandoned = 16

// Main is the guest's main function. It returns the exit status when the supervisor is gone or the sandbox is of no use.
func Main() int {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return 2
	}
	// Only matters where the guest is not process 1: what loses its parent must still be found.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 2
	}
	debug.SetMemoryLimit(256 << 20)
	// Caught rather than ignored, because programs would inherit that: a write beyond the file size limit is an error
	// for the guest and the end for others.
	signal.Notify(make(chan os.Signal, 1), unix.SIGXFSZ, unix.SIGPIPE)

	syscall.CloseOnExec(isolation.GuestSocket)
	socket := os.NewFile(isolation.GuestSocket, "supervisor")
	conn, err := net.FileConn(socket)
	if err = errors.Join(err, socket.Close()); err != nil {
		return 2
	}
	g := &guest{conn: conn, calls: map[string]context.CancelCauseFunc{}}
	if err := wire.Read(conn, &g.config); err != nil {
		return 2
	}
	if err := g.prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		return 2
	}
	g.send(wire.FromGuest{Ready: true})
	status := g.serve()
	if !g.config.Isolated {
		processes.KillDescendants() // elsewhere they end with process 1
	}
	return status
}

type guest struct {
	config   wire.GuestConfig
	conn     net.Conn
	writing  sync.Mutex
	tools    map[string]anthropic.BetaTool
	shell    *shell
	children *processes.Children
	results  *results

	mu        sync.Mutex
	calls     map[string]context.CancelCauseFunc
	abandoned int
}

var (
	errInterrupted = errors.New("interrupted")
	errTimedOut    = errors.New("timed out")
)

func (g *guest) prepare() error {
	for name, value := range g.config.Environment {
		if err := os.Setenv(name, value); err != nil { // grep runs ripgrep with the environment of this process
			return err
		}
	}
	toolset := &agenttoolset.AgentToolContext{
		Workdir:       g.config.Workdir,
		AllowedRoots:  g.config.AllowedRoots,
		ReadOnlyRoots: g.config.ReadOnlyRoots,
		Env:           g.config.Environment,
	}
	g.tools = map[string]anthropic.BetaTool{}
	for _, tool := range agenttoolset.BetaAgentToolset20260401(toolset) {
		g.tools[tool.Name()] = tool
	}
	g.children = processes.New(g.config.Isolated)
	g.results = &results{dir: g.config.Results, shownAs: g.config.ResultsHere}
	g.shell = &shell{
		tool:     g.tools["bash"],
		capture:  &capture{},
		command:  filepath.Join(g.config.Scratch, "command"),
		children: g.children,
		results:  g.results,
	}
	// These are the shell's and not the guest's, which must be able to work when the agent has used up all that it may.
	if g.config.ProcessBytes > 0 {
		g.shell.limits += fmt.Sprintf("ulimit -d %d; ", g.config.ProcessBytes>>10)
	}
	if g.config.Processes > 0 {
		g.shell.limits += fmt.Sprintf("ulimit -u %d; ", g.config.Processes)
	}
	return nil
}

func (g *guest) serve() int {
	for {
		var message wire.ToGuest
		if err := wire.Read(g.conn, &message); err != nil {
			return 0 // the supervisor is gone
		}
		switch {
		case message.Run != nil:
			g.begin(*message.Run)
		case message.Interrupt != "":
			g.mu.Lock()
			cancel := g.calls[message.Interrupt]
			g.mu.Unlock()
			if cancel != nil {
				cancel(errInterrupted)
			}
		}
	}
}

func (g *guest) begin(call wire.GuestCall) {
	ctx, cancel := context.WithCancelCause(context.Background())
	g.mu.Lock()
	g.calls[call.ID] = cancel
	g.mu.Unlock()
	go func() {
		text, isError := g.run(ctx, call)
		g.mu.Lock()
		delete(g.calls, call.ID)
		g.mu.Unlock()
		cancel(nil)
		g.send(wire.FromGuest{Done: &wire.GuestResult{ID: call.ID, Text: tooltext.Valid(text), IsError: isError}})
	}()
}

func (g *guest) send(message wire.FromGuest) {
	g.writing.Lock()
	defer g.writing.Unlock()
	if err := wire.Write(g.conn, message); err != nil {
		os.Exit(1) // nobody can be told, so the sandbox is of no use; everything in it ends with this process
	}
}

func (g *guest) run(ctx context.Context, call wire.GuestCall) (text string, isError bool) {
	tool, ok := g.tools[call.Tool]
	if !ok {
		return fmt.Sprintf("There is no tool named %q.", call.Tool), true
	}
	if call.Tool == "bash" {
		return g.shell.run(ctx, call)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(call.Limit), errTimedOut)
	defer cancel()
	type outcome struct {
		text    string
		isError bool
	}
	ended := make(chan outcome, 1)
	go func() {
		// Only grep starts a process of its own, which must not be reaped under its hands.
		done := g.children.Spawning()
		defer done()
		text, isError := execute(ctx, tool, call.Input)
		ended <- outcome{text, isError}
	}()
	select {
	case o := <-ended:
		if err := context.Cause(ctx); err != nil && o.isError {
			return why(err, call), true
		}
		return g.results.whole(call.ID, o.text), o.isError
	case <-ctx.Done():
		g.abandon()
		return why(context.Cause(ctx), call), true
	}
}

// abandon leaves an operation that cannot be stopped to itself.
func (g *guest) abandon() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.abandoned++; g.abandoned > maxAbandoned {
		os.Exit(1)
	}
}

func why(cause error, call wire.GuestCall) string {
	if errors.Is(cause, errTimedOut) {
		return tooltext.TimedOut(time.Duration(call.Limit))
	}
	return tooltext.Interrupted
}

// execute runs a tool of the official package. Its errors are for the model.
func execute(ctx context.Context, tool anthropic.BetaTool, input []byte) (text string, isError bool) {
	defer func() {
		if fault := recover(); fault != nil {
			text, isError = fmt.Sprintf("%s: the tool failed: %v", tool.Name(), fault), true
		}
	}()
	blocks, err := tool.Execute(ctx, input)
	if err != nil {
		return err.Error(), true
	}
	var b strings.Builder
	for _, block := range blocks {
		if block.OfText != nil {
			b.WriteString(block.OfText.Text)
		}
	}
	return b.String(), false
}
