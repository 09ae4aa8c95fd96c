package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const probeTimeout = 30 * time.Second

// probePrefix begins the names of the sessions for trying out, which no caller's session can have.
const probePrefix = ".probe-"

// misbehave prints a line for everything that should have failed and did not, and then that it came to its end.
const misbehave = `
worked() { echo "escaped: $1"; }
[ "$(id -u)" = 0 ] && worked "user 0"
{ : >/etc/perdure-probe; } 2>/dev/null && worked "write to /etc"
{ : >/usr/perdure-probe; } 2>/dev/null && worked "write to /usr"
{ : >/perdure-probe; } 2>/dev/null && worked "write to /"
{ : >>/proc/sys/kernel/core_pattern; } 2>/dev/null && worked "open core_pattern for writing"
{ : >/dev/tcp/127.0.0.1/PORT; } 2>/dev/null && worked "connect to the host's loopback"
[ -e /proc/HOSTPID/stat ] && [ "$(readlink /proc/HOSTPID/exe 2>/dev/null)" != "" ] && worked "see a process of the host"
[ -e DIR ] && worked "see the host's files"
unshare -U true 2>/dev/null && worked "make a user namespace"
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || worked "capabilities"
grep -q '^CapBnd:[[:space:]]*0*$' /proc/self/status || worked "capabilities in the bounding set"
grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/self/status || worked "new privileges"
grep -q '^Seccomp:[[:space:]]*2$' /proc/self/status || worked "no system call filter"
echo finished`

// probe starts a sandbox in the very way that sessions get theirs and tries to get out of it.
func (l *Local) probe(ctx context.Context) (isolation string, problems []Problem) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	session := fmt.Sprintf("%s%d-%d", probePrefix, os.Getpid(), time.Now().UnixNano())
	text, err := l.tryOut(ctx, session)
	if destroyed := l.destroy(context.WithoutCancel(ctx), session); destroyed != nil && err == nil {
		err = destroyed
	}
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &unavailable):
		return "unavailable", unavailable.Problems
	case err != nil:
		return "unavailable", []Problem{{What: "a sandbox cannot be tried out", Why: err.Error(), Fix: "see the reason"}}
	case strings.Contains(text, "/bin/bash"):
		return "unavailable", []Problem{{What: "a sandbox has no shell", Why: text, Fix: "install bash on the host"}}
	case text != "finished":
		return "unavailable", []Problem{{What: "a sandbox does not hold", Why: text, Fix: "report this, with the kernel's version and how the server is started"}}
	}
	return "full", l.weaknesses()
}

// weaknesses are limits that this host does not let the server enforce. Sandboxes hold all the same.
func (l *Local) weaknesses() []Problem {
	var problems []Problem
	const fix = "run the server as root, or in a systemd unit with Delegate=yes"
	if how := l.report.Enforced["memory"]; how == "rlimit" {
		problems = append(problems, Problem{What: "the memory of a sandbox is bounded for each process only", Why: "no control group can be made", Fix: fix})
	}
	if how := l.report.Enforced["cpu"]; how == "no" {
		problems = append(problems, Problem{What: "the processor time of a sandbox is not bounded", Why: "no control group can be made", Fix: fix})
	}
	return problems
}

func (l *Local) tryOut(ctx context.Context, session string) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	script := strings.NewReplacer(
		"PORT", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port),
		"HOSTPID", strconv.Itoa(os.Getpid()),
		"DIR", "'"+strings.ReplaceAll(l.options.Dir, "'", `'\''`)+"'",
	).Replace(misbehave)
	input, err := json.Marshal(map[string]string{"command": script})
	if err != nil {
		return "", err
	}
	call := Call{ID: "probe", Tool: "bash", Input: jsontext.Value(input)}
	result, err := l.run(ctx, Spec{Session: session}, call)
	if err != nil {
		return "", err
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(result.Content, &blocks); err != nil || len(blocks) != 1 {
		return "", fmt.Errorf("the result cannot be understood: %w", err)
	}
	return strings.TrimSpace(blocks[0].Text), nil
}
