//go:build linux

package sandbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/prerequisite"
	"github.com/perdure/perdure/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Reexec()
	switch {
	case os.Getenv("PERDURE_TEST_SERVER") != "":
		serverStandIn()
		return
	case os.Getenv("PERDURE_TEST_UNAVAILABLE") != "":
		openWithoutNamespaces()
		return
	case os.Getenv("PERDURE_TEST_ESCAPE") != "":
		tryToEscape()
		return
	}
	// What every sandbox must not see.
	if err := os.Setenv("PERDURE_TEST_SECRET", canary); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// hostAt opens a directory of sandboxes in which nothing is left behind.
func hostAt(t testing.TB, dir string, change ...func(*sandbox.Options)) *sandbox.Local {
	t.Helper()
	// Hosts are beside each other here, so each has users of its own.
	base := 200_000 + int(hosts.Add(1))*1000
	options := sandbox.Options{Dir: dir, UIDBase: base, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&options)
	}
	local, err := sandbox.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	if report := local.Report(); report.Isolation == "unavailable" {
		prerequisite.Missing(t, "this host cannot isolate: %+v", report.Problems)
	}
	return local
}

const canary = "canary-in-the-environment"

var counter, hosts atomic.Int64

// fixture is one session.
type fixture struct {
	testing.TB
	host *sandbox.Local
	dir  string
	spec sandbox.Spec
}

func session(t testing.TB, local *sandbox.Local, dir string) *fixture {
	t.Helper()
	f := &fixture{TB: t, host: local, spec: sandbox.Spec{Session: fmt.Sprintf("sesn_%d", counter.Add(1))}}
	f.dir = filepath.Join(dir, f.spec.Session)
	t.Cleanup(func() {
		if log := f.log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") {
			t.Errorf("the supervisor or the guest broke down:\n%s", log)
		}
		if err := local.Destroy(context.WithoutCancel(t.Context()), f.spec.Session); err != nil {
			t.Error(err)
		}
	})
	return f
}

// fresh is a session on a host of its own.
func fresh(t testing.TB, change ...func(*sandbox.Options)) *fixture {
	t.Helper()
	dir := t.TempDir()
	return session(t, hostAt(t, dir, change...), dir)
}

func bash(command string) sandbox.Call {
	return call("bash", map[string]any{"command": command})
}

func call(tool string, input map[string]any) sandbox.Call {
	raw, err := json.Marshal(input)
	if err != nil {
		panic(err) // the tests' own input
	}
	return sandbox.Call{ID: fmt.Sprintf("sevt_%d", counter.Add(1)), Tool: tool, Input: jsontext.Value(raw)}
}

// run returns the text of the call's result.
func (f *fixture) run(c sandbox.Call) (text string, isError bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 60*time.Second)
	defer cancel()
	result, err := f.host.Run(ctx, f.spec, c)
	if err != nil {
		f.Fatalf("run %s: %v\n%s", c.Input, err, f.log())
	}
	return textOf(f, result), result.IsError
}

func (f *fixture) log() string {
	log, _ := os.ReadFile(filepath.Join(f.dir, "supervisor.log"))
	return string(log)
}

func textOf(t testing.TB, result sandbox.Result) string {
	t.Helper()
	var blocks []struct{ Type, Text string }
	if err := json.Unmarshal(result.Content, &blocks, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("content %s: %v", result.Content, err)
	}
	if len(blocks) != 1 || blocks[0].Type != "text" || blocks[0].Text == "" {
		t.Fatalf("content %s is not one text block", result.Content)
	}
	return blocks[0].Text
}

// jobNumber is what an interactive shell prints when it starts a job.
var jobNumber = regexp.MustCompile(`(?m)^\[\d+\] \d+\n?`)

// expect runs a call that must succeed with exactly this text, jobs' numbers aside.
func (f *fixture) expect(c sandbox.Call, want string) {
	f.Helper()
	got, isError := f.run(c)
	got = jobNumber.ReplaceAllString(got, "")
	if got == "" {
		got = "(no output)"
	}
	if isError || got != want {
		f.Fatalf("%s %s: got %q (error %v), want %q\n%s", c.Tool, c.Input, got, isError, want, f.log())
	}
}

// expectError runs a call that must fail with a text that holds want.
func (f *fixture) expectError(c sandbox.Call, want string) string {
	f.Helper()
	got, isError := f.run(c)
	if !isError || !strings.Contains(got, want) {
		f.Fatalf("%s %s: got %q (error %v), want an error with %q", c.Tool, c.Input, got, isError, want)
	}
	return got
}
