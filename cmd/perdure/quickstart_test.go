package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/prerequisite"
)

// conformance is where the versions of the official clients are written.
const conformance = "../../test/conformance"

// TestQuickstartsRun runs the programs that the first start prints, with the official clients as they are.
func TestQuickstartsRun(t *testing.T) {
	t.Parallel()
	server := serveForTest(t, "--data", t.TempDir())
	for language, run := range map[string]func(t *testing.T, program string) *exec.Cmd{
		"go": runGo, "python": runPython, "typescript": runNode,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			text, err := quickstartProgram(language, server.url, server.key, "scripted/echo")
			if err != nil {
				t.Fatal(err)
			}
			out, err := run(t, strings.Replace(text, "Hello!", "Hello from a test!", 1)).CombinedOutput()
			if err != nil || string(out) != "Hello from a test!\n" {
				t.Errorf("%v, printed %q", err, out)
			}
		})
	}
}

// program makes a command that is ended with the test.
func program(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	return c
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// prepare runs what a client needs. Where that cannot be had the test is skipped, except in CI.
func prepare(t *testing.T, steps ...*exec.Cmd) {
	t.Helper()
	for _, step := range steps {
		if out, err := step.CombinedOutput(); err != nil {
			prerequisite.Missing(t, "%s: %v\n%s", step, err, out)
		}
	}
}

func runGo(t *testing.T, text string) *exec.Cmd {
	// The client is a requirement of this module, so the program is run within it.
	return program(t, "../..", "go", "run", write(t, t.TempDir(), "quickstart.go", text))
}

func runPython(t *testing.T, text string) *exec.Cmd {
	dir := t.TempDir()
	versions, err := filepath.Abs(conformance + "/python/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(dir, "venv/bin/python")
	prepare(t, program(t, dir, "python3", "-m", "venv", "venv"),
		program(t, dir, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", versions))
	return program(t, dir, python, write(t, dir, "quickstart.py", text))
}

func runNode(t *testing.T, text string) *exec.Cmd {
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(conformance, "ts", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, string(content))
	}
	prepare(t, program(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--omit=dev", "--ignore-scripts"))
	return program(t, dir, "node", write(t, dir, "quickstart.mjs", text))
}

func TestQuickstartIsFilledIn(t *testing.T) {
	t.Parallel()
	text, err := quickstart("http://127.0.0.1:1", "pdr_key", "m")
	if err != nil {
		t.Fatal(err)
	}
	// Once by itself, once in each program, once for perdure run.
	if strings.Contains(text, "{{url") || strings.Contains(text, "{{key") || strings.Contains(text, "{{model") || strings.Count(text, "pdr_key") != 1+len(quickstartLanguages)+1 {
		t.Errorf("printed:\n%s", text)
	}
}
