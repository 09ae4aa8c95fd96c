package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

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
			e.Defer(func() {
				for _, data := range []string{"d", "d2"} {
					endSandboxes(filepath.Join(e.WorkDir, data))
				}
			})
			return os.Mkdir(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": scriptStatus, "capture": scriptCapture, "jsonlines": scriptJSONLines, "serve": scriptServe, "empty": scriptEmpty,
		},
		Condition: func(name string) (bool, error) {
			if name != "sandbox" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return isolates()
		},
		RequireExplicitExec: true,
	})
}

// isolates reports whether tools can run in a sandbox here. Where tests must not be skipped it is an error if not.
var isolates = sync.OnceValues(func() (ok bool, err error) {
	dir, err := os.MkdirTemp("", "perdure-test-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := perdure.Open(context.Background(), perdure.Options{Dir: dir})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	for _, c := range server.Checks(context.Background()) {
		if c.Name == "sandbox" {
			ok = c.OK
			if !ok && os.Getenv("CI") == "true" {
				err = fmt.Errorf("no sandbox: %s", c.Detail)
			}
		}
	}
	return ok, err
})

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
	s, err := startServer(program, []string{"--data", ts.MkAbs(args[0])}, "HOME="+ts.Getenv("HOME"), "PATH="+ts.Getenv("PATH"))
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
