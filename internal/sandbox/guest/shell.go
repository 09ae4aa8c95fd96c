//go:build linux

package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/perdure/perdure/internal/sandbox/processes"
	"github.com/perdure/perdure/internal/sandbox/tooltext"
	"github.com/perdure/perdure/internal/sandbox/wire"
)

// defaultLimit is the official toolset's time limit for a command that names none.
const defaultLimit = 120 * time.Second

// shell runs commands in the official toolset's persistent bash.
//
// The toolset gives back what a command printed only if it ends by itself, and at most its last 100 KiB. The shell is
// therefore told to read the command from a file and to print to a second terminal, which the guest reads: whatever was
// printed is known at any moment, also of a command that is killed, and long output is kept whole in a file. It also
// makes a command that is not valid bash an error at once, where the toolset's own framing would wait for its end until
// the time limit. Starting, framing, exit status and restarting of the shell are the toolset's.
type shell struct {
	tool     anthropic.BetaTool
	capture  *capture
	command  string // the file that holds the command
	children *processes.Children
	results  *results
	limits   string // a command that limits the shell's processes, or ""
	pid      int    // of the bash that is known to be up, or 0
}

type bashInput struct {
	Command   string `json:"command,omitzero"`
	Restart   bool   `json:"restart,omitzero"`
	TimeoutMS int64  `json:"timeout_ms,omitzero"`
}

// backstop is how much later than the guest's own limit the toolset would give up.
const backstop = time.Hour

func (s *shell) run(ctx context.Context, call wire.GuestCall) (text string, isError bool) {
	var input bashInput
	if err := json.Unmarshal(call.Input, &input); err != nil {
		return "bash: invalid input: " + err.Error(), true
	}
	if input.Restart {
		text, isError := s.restart(ctx)
		if input.Command == "" || isError {
			return text, isError
		}
	}
	if input.Command == "" {
		return "bash: command is required", true
	}
	if strings.Contains(input.Command, "\x00") {
		return "bash: the command holds a NUL byte, which no command can", true
	}
	limit := min(cmp.Or(max(0, time.Duration(input.TimeoutMS)*time.Millisecond), defaultLimit), time.Duration(call.Limit))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimedOut)
	defer cancel()
	if err := s.ensure(ctx); err != nil {
		return "bash: " + err.Error(), true
	}
	if err := s.writeCommand(input.Command); err != nil {
		return "bash: " + err.Error(), true
	}
	spool := s.results.begin(call.ID)
	before := s.children.Snapshot()
	terminal, err := s.capture.attach(spool)
	if err != nil {
		return tooltext.Join(spool.end(), "bash: "+err.Error()), true
	}
	line := fmt.Sprintf("source %s >%s 2>&1", quote(s.command), terminal)
	status, isError := s.execute(ctx, bashInput{Command: line, TimeoutMS: (limit + backstop).Milliseconds()})
	cause := context.Cause(ctx)
	killed := isError && cause != nil
	if killed {
		s.children.KillSince(before, s.pid)
	}
	s.capture.detach()
	output := spool.end()
	if killed {
		s.pid = 0
		sentence := tooltext.Interrupted
		if errors.Is(cause, errTimedOut) {
			sentence = tooltext.TimedOut(limit)
		}
		return tooltext.Join(output, tooltext.WithShellReset(sentence)), true
	}
	status = strings.Trim(status, "\n")
	if output != "" && status != "" {
		output += "\n"
	}
	if isError && !s.alive() {
		s.pid = 0
	}
	return output + status, isError
}

// execute runs one line in the shell and cleans what the toolset itself has to say.
func (s *shell) execute(ctx context.Context, input bashInput) (text string, isError bool) {
	raw, err := json.Marshal(input)
	if err != nil {
		return err.Error(), true
	}
	text, isError = execute(ctx, s.tool, raw)
	return tooltext.Clean([]byte(text)), isError
}

func (s *shell) restart(ctx context.Context) (string, bool) {
	s.pid = 0
	return s.execute(ctx, bashInput{Restart: true})
}

// ensure has a bash up whose process number is known. A shell that ended between two calls is replaced, so that it is
// not the next command that fails.
func (s *shell) ensure(ctx context.Context) error {
	if s.alive() {
		return nil
	}
	if text, isError := s.restart(ctx); isError {
		return errors.New(text)
	}
	// Its programs, not the guest, are to be the victims when memory runs out.
	text, isError := s.execute(ctx, bashInput{
		Command:   s.limits + "{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null; printf '%s' $$",
		TimeoutMS: (10 * time.Second).Milliseconds(),
	})
	if isError {
		return errors.New(text)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return fmt.Errorf("the shell does not answer: %q", text[:min(len(text), 100)])
	}
	s.pid = pid
	s.children.Keep(pid)
	return nil
}

func (s *shell) alive() bool {
	if s.pid == 0 {
		return false
	}
	p, ok := processes.Read(s.pid)
	return ok && p.State != 'Z'
}

// writeCommand makes the file anew each time: the guest is the same user as the agent, so that both the file and the
// directory may have become anything.
func (s *shell) writeCommand(text string) error {
	err := writeNew(s.command, text+"\n")
	if err == nil {
		return nil
	}
	dir := filepath.Dir(s.command)
	if os.Chmod(dir, 0o700) != nil {
		return err
	}
	entries, _ := os.ReadDir(dir) // those that could be read
	for _, entry := range entries {
		_ = os.RemoveAll(filepath.Join(dir, entry.Name())) // what stays is for the next line to complain of
	}
	return writeNew(s.command, text+"\n")
}

func writeNew(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
