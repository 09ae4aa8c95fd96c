package perdure_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDependenciesAreExplained checks that each module that go.mod names on purpose has its row, and each row its module.
func TestDependenciesAreExplained(t *testing.T) {
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]bool{}
	for line := range strings.Lines(string(module)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && strings.HasPrefix(line, "\t") && strings.HasPrefix(fields[1], "v") && !strings.Contains(line, "// indirect") {
			required[fields[0]] = true
		}
	}
	if len(required) < 10 {
		t.Fatalf("go.mod names %d modules", len(required))
	}
	explained := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		first := strings.SplitN(line, "|", 3)[1]
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			explained[name[1]] = true
		}
	}
	for name := range required {
		if !explained[name] {
			t.Errorf("docs/dependencies.md does not say why %s is there", name)
		}
	}
	for name := range explained {
		if !required[name] {
			t.Errorf("docs/dependencies.md explains %s, which go.mod does not name", name)
		}
	}
}

// maxLines is what one can hold in mind of a file.
const maxLines = 800

func TestFilesAreShort(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".venv" || entry.Name() == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		if n := bytes.Count(text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, more than %d", path, n, maxLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}
