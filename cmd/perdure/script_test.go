package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/perdure/perdure"
)

func TestMain(m *testing.M) {
	perdure.Reexec()
	testscript.Main(m, map[string]func(){"perdure": func() { os.Exit(command()) }})
}

// TestScripts runs testdata/script/*.txt. Beside the usual commands there are:
//
//	status N PROGRAM ARGS       runs a program that must end with this status
//	capture NAME FILE REGEXP    sets a variable to the first match in stdout, stderr or a file
//	jsonlines FILE              checks that each line is a JSON object with an id that no other has
//	serve DIR                   runs perdure serve until the script ends, and sets PERDURE_URL and PERDURE_API_KEY
//	empty DIR                   checks that a directory is empty
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			e.Setenv("NO_COLOR", "1")
			return os.Mkdir(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": scriptStatus, "capture": scriptCapture, "jsonlines": scriptJSONLines, "serve": scriptServe, "empty": scriptEmpty,
		},
		RequireExplicitExec: true,
	})
}

func scriptStatus(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM ARGS")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("ended with status %d, want %d", got, want)
	}
}

func scriptCapture(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 3 {
		ts.Fatalf("usage: capture NAME FILE REGEXP")
	}
	match := regexp.MustCompile(args[2]).FindString(ts.ReadFile(args[1]))
	if match == "" {
		ts.Fatalf("nothing matches %s", args[2])
	}
	ts.Setenv(args[0], match)
}

func scriptJSONLines(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: jsonlines FILE")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var event struct{ ID, Type string }
		ts.Check(json.Unmarshal([]byte(line), &event))
		if event.ID == "" || event.Type == "" || seen[event.ID] {
			ts.Fatalf("no event of its own: %s", line)
		}
		seen[event.ID] = true
	}
	if len(seen) == 0 {
		ts.Fatalf("there is no line")
	}
}

func scriptEmpty(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: empty DIR")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		ts.Fatalf("%s has %s", args[0], e.Name())
	}
}

func scriptServe(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: serve DIR")
	}
	program, err := exec.LookPath(filepath.Join(strings.SplitN(ts.Getenv("PATH"), string(filepath.ListSeparator), 2)[0], "perdure"))
	ts.Check(err)
	s, err := startServer(program, ts.MkAbs(args[0]), "HOME="+ts.Getenv("HOME"), "PATH="+ts.Getenv("PATH"))
	if s != nil {
		ts.Defer(func() {
			if err := s.stop(); err != nil {
				ts.Logf("the server: %v\n%s", err, s.log.String())
			}
		})
	}
	ts.Check(err)
	ts.Setenv("PERDURE_URL", s.url)
	ts.Setenv("PERDURE_API_KEY", s.key)
}

// testServer is a perdure serve in a process of its own.
type testServer struct {
	url, key string
	command  *exec.Cmd
	log      strings.Builder
}

func startServer(program, dir string, environ ...string) (*testServer, error) {
	s := &testServer{command: exec.Command(program, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--print-ready")}
	s.command.Env = environ
	s.command.Stderr = &s.log
	// A sandbox that outlives the server must not be waited for.
	s.command.WaitDelay = time.Second
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return s, err
	}
	var ready struct {
		URL    string `json:"url"`
		APIKey string `json:"api_key"`
	}
	err = json.Unmarshal(line, &ready)
	s.url, s.key = ready.URL, ready.APIKey
	return s, err
}

// stop asks the server to end and waits for it.
func (s *testServer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = s.command.Process.Kill() })()
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.command.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return err
	}
	return nil
}
