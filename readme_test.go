package perdure_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadme checks that the programs of the README are those that the server prints and that the client tests run.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"typescript", "python", "go"} {
		program, err := os.ReadFile("cmd/perdure/quickstart/" + language + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer("{{url}}", "http://127.0.0.1:8700", "{{key}}", "pdr_…", "{{model}}", "scripted/demo").Replace(string(program))
		if !strings.Contains(string(readme), strings.TrimSpace(want)) {
			t.Errorf("the README's %s program is not the one in cmd/perdure/quickstart", language)
		}
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		if target, ok := strings.CutPrefix(strings.TrimSpace(line), "make "); ok && !strings.Contains(string(makefile), "\n"+target+":") {
			t.Errorf("the README names make %s, which the Makefile does not have", target)
		}
	}
}
