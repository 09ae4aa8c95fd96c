package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestQuickstartsRun runs the programs that the first start prints, with the official clients as they are.
func TestQuickstartsRun(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	server := serveForTest(t, "--data", t.TempDir())
	for language, how := range map[string]struct {
		file    string
		dir     string // where the client library is found
		program []string
		missing string // what to check for first; "" if nothing can be missing
	}{
		"go":         {"main.go", root, []string{"go", "run"}, ""},
		"python":     {"quickstart.py", root, []string{"python3"}, "python"},
		"typescript": {"quickstart.mjs", filepath.Join(root, "test/conformance/ts"), []string{"node"}, "node"},
	} {
		t.Run(language, func(t *testing.T) {
			switch how.missing {
			case "python":
				if err := exec.CommandContext(t.Context(), "python3", "-c", "import anthropic").Run(); err != nil {
					t.Skip("the Python package anthropic is not installed")
				}
			case "node":
				if _, err := os.Stat(filepath.Join(how.dir, "node_modules/@anthropic-ai/sdk")); err != nil {
					t.Skip("the npm package @anthropic-ai/sdk is not installed in test/conformance/ts")
				}
			}
			text, err := quickstartProgram(language, server.url, server.key, "scripted/echo")
			if err != nil {
				t.Fatal(err)
			}
			// Node looks for packages from the directory of the file.
			dir := t.TempDir()
			if how.missing == "node" {
				if err := os.Symlink(filepath.Join(how.dir, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(dir, how.file)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, how.program[0], append(how.program[1:], file)...)
			run.Dir = how.dir
			out, err := run.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Hello!") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestQuickstartIsPrintedOnceWithAKey(t *testing.T) {
	text, err := quickstart("http://127.0.0.1:1", "pdr_key", "m")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "{{") || strings.Count(text, "pdr_key") != 1+len(quickstartLanguages)+1 {
		t.Errorf("printed:\n%s", text)
	}
}
