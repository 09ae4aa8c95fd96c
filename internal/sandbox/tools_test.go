//go:build linux

package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/sandbox"
)

func TestTools(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(call("write", map[string]any{"file_path": "a/b.txt", "content": "one\ntwo\nthree\n"}), "wrote 14 bytes to a/b.txt")
	f.expect(call("read", map[string]any{"file_path": "/workspace/a/b.txt"}), "one\ntwo\nthree\n")
	f.expect(call("read", map[string]any{"file_path": "a/b.txt", "view_range": []int{2, 2}}), "two")
	f.expect(call("edit", map[string]any{"file_path": "a/b.txt", "old_string": "two", "new_string": "2"}), "edited a/b.txt (1 replacement(s))")
	f.expect(call("glob", map[string]any{"pattern": "**/*.txt"}), "/workspace/a/b.txt")
	f.expect(call("grep", map[string]any{"pattern": "^2$"}), "/workspace/a/b.txt:2:2")
	f.expect(call("bash", map[string]any{"command": "cat a/b.txt"}), "one\n2\nthree")
	f.expectError(call("read", map[string]any{"file_path": "none"}), "no such file or directory")
	f.expectError(call("edit", map[string]any{"file_path": "a/b.txt", "old_string": "absent", "new_string": ""}), "old_string not found")
	f.expectError(sandbox.Call{ID: "sevt_odd", Tool: "bash", Input: jsontext.Value(`{"command":7}`)}, "bash: invalid input")
	f.expectError(call("bash", map[string]any{}), "bash: command is required")
	if _, err := f.host.Run(t.Context(), f.spec, sandbox.Call{ID: "sevt_none", Tool: "format_disk", Input: jsontext.Value(`{}`)}); err == nil {
		t.Error("a tool that does not exist was run")
	}
}

func TestShellKeepsState(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("mkdir d; cd d; x=7; export Y=8; f() { echo f$1; }; shopt -s nullglob"), "(no output)")
	f.expect(bash("pwd; echo $x $Y; f 9; echo *none*"), "/workspace/d\n7 8\nf9")
	f.expect(call("bash", map[string]any{"restart": true}), "bash session restarted")
	f.expect(bash("pwd; echo $x $Y."), "/workspace\n.")
	f.expect(call("bash", map[string]any{"restart": true, "command": "echo again"}), "again")
}

// Commands that break the framing of a shell on a terminal, and what is printed.
func TestShellCommands(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	for name, c := range map[string]struct {
		command, want string
		isError       bool
	}{
		"nothing printed":        {"true", "(no output)", false},
		"status":                 {"echo out; (exit 3)", "out\nexit code: 3", true},
		"status only":            {"false", "exit code: 1", true},
		"both streams":           {"echo a; echo b >&2", "a\nb", false},
		"syntax error":           {"echo )", "syntax error", true},
		"open quote":             {"echo 'never closed", "unexpected EOF", true},
		"open brace":             {"{ echo a", "unexpected end of file", true},
		"closing brace":          {"echo a; }; echo b; {", "syntax error", true},
		"here document":          {"cat <<E\nx'y\"z\nE", "x'y\"z", false},
		"comment at the end":     {"echo a # and so on", "a", false},
		"division by zero":       {"echo $((1/0)); echo after", "division by 0", true},
		"unset parameter":        {"echo ${nope:?gone}; echo after", "gone", true},
		"reads standard input":   {"cat; read x; echo \"[$x]\"", "[]", false},
		"history expansion":      {"echo hey!you !!", "hey!you !!", false},
		"output elsewhere":       {"exec >/dev/null 2>&1", "(no output)", false},
		"after output elsewhere": {"echo here", "here", false},
		"no newline":             {"printf x", "x", false},
		"colours":                {`printf '\033[31mred\033[0m\r\n'`, "red", false},
		"is a terminal":          {"[ -t 1 ] && echo tty", "tty", false},
		"no unicode":             {`printf 'a\000b\377c\xc3\xa9'`, "a\uFFFDb\uFFFDc\u00e9", false},
		"terminal modes":         {"stty -a </dev/tty >/dev/null; stty raw echo <&1; stty -F /dev/tty >/dev/null; echo fine", "fine", false},
	} {
		got, isError := f.run(bash(c.command))
		if isError != c.isError || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q (error %v), want %q (error %v)", name, got, isError, c.want, c.isError)
		}
	}
	long := strings.Repeat("x", 200_000)
	f.expect(bash(": "+long+"; echo ok"), "ok")
	f.expectError(bash("exit 4"), "terminated")
	f.expect(bash("echo a new shell"), "a new shell")
	f.expectError(bash("kill -9 $$"), "terminated")
	f.expect(bash("echo another shell"), "another shell")
}

// A shell that dies between calls, and a terminal that a program ruins, are not the next command's problem.
func TestShellIsReplaced(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	f.expect(bash("true"), "(no output)")
	f.fifo("go")
	f.fifo("gone")
	f.expect(bash(`setsid bash -c "read x <go; kill -9 $$; until grep -q State:.Z /proc/$$/status; do :; done; echo >gone" &`), "(no output)")
	f.release("go")
	f.await("gone")
	f.expect(bash("echo a new shell"), "a new shell")
	f.run(bash("setsid --ctty true </proc/$$/fd/1")) // the end of a terminal's session is the end of the terminal
	f.expect(bash("echo a new terminal"), "a new terminal")
}

func TestOutputTooLong(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	exact := call("bash", map[string]any{"command": "head -c 100000 /dev/zero | tr '\\0' a"})
	f.expect(exact, strings.Repeat("a", 100_000))
	c := bash("echo first; seq 1 200000; echo last")
	text, isError := f.run(c)
	path := "/mnt/session/tool_results/" + c.ID + ".txt"
	if isError || utf8.RuneCountInString(text) > 30_000 || !strings.Contains(text, path) || !strings.Contains(text, "first\n1\n2\n") || !strings.HasSuffix(text, "200000\nlast") {
		t.Fatalf("preview: error %v, %d characters: %.300q", isError, len(text), text)
	}
	f.expect(bash("wc -l <"+path+"; tail -1 "+path), "200002\nlast")
	f.expect(call("read", map[string]any{"file_path": path, "view_range": []int{2, 3}}), "1\n2")
	wide := call("write", map[string]any{"file_path": "wide", "content": strings.Repeat("é", 120_000)})
	f.expect(wide, "wrote 240000 bytes to wide")
	r := call("read", map[string]any{"file_path": "wide"})
	if text, _ := f.run(r); !strings.Contains(text, r.ID+".txt") || utf8.RuneCountInString(text) > 30_000 {
		t.Fatalf("preview: %.300q", text)
	}
}

// An agent that ruins what the guest works with can still run commands.
func TestSabotage(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	for _, command := range []string{
		"chmod 0 /mnt/session/tool_results",
		"rm -rf /mnt/session/tool_results/* /run/perdure/*",
		"rm /run/perdure/command; mkdir -p /run/perdure/command/d",
		"rm -f /run/perdure/command; ln -s /etc/passwd /run/perdure/command",
		"head -c 100M /dev/zero >/run/perdure/fill; true",
		"chmod 0 /run/perdure",
		"exec 1>&- 2>&-",
		"set -e; set -u; trap 'echo trapped' EXIT DEBUG; PROMPT_COMMAND='echo prompt'",
		"printf() { :; }; source() { :; }", // with which the shell is framed
	} {
		f.run(call("bash", map[string]any{"command": command, "timeout_ms": 2000})) // which may well fail
		f.run(call("bash", map[string]any{"restart": true}))
		if text, isError := f.run(bash("echo fine")); isError || text != "fine" {
			t.Errorf("after %s: %q (error %v)", command, text, isError)
		}
	}
	c := bash("seq 100000")
	f.run(bash("chmod 0 /mnt/session/tool_results"))
	if text, isError := f.run(c); isError || !strings.Contains(text, "The output was not kept") {
		t.Errorf("error %v: %.200q", isError, text)
	}
}

// A flood is bounded on disk and in memory, and the shell survives it.
func TestOutputFlood(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	c := bash("yes 0123456789abcdef | head -c 200000000; echo; echo end")
	text, isError := f.run(c)
	if isError || !strings.Contains(text, "All but the last") || !strings.HasSuffix(text, "end") {
		t.Fatalf("error %v: %.300q", isError, text)
	}
	info, err := os.Stat(filepath.Join(f.dir, "files/tool_results", c.ID+".txt"))
	if err != nil || info.Size() != 32<<20 {
		t.Fatalf("kept: %v %v", info, err)
	}
	f.expect(bash("echo still here"), "still here")
}

// Whoever holds the terminal open does not hold up the result (a background job is a wanted thing).
func TestBackgroundJobs(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	for _, command := range []string{"sleep 300 & echo hi", "setsid sleep 300 & echo hi", "nohup sleep 300 & echo hi", "(sleep 300 & (sleep 300 &)); echo hi", "trap '' TERM; sleep 300 & echo hi"} {
		begun := time.Now()
		text, isError := f.run(bash(command))
		if isError || !strings.Contains(text, "hi") || time.Since(begun) > 3*time.Second {
			t.Errorf("%s: %q (error %v) after %s", command, text, isError, time.Since(begun))
		}
	}
	f.expect(bash("pgrep -c sleep"), "6")
}
