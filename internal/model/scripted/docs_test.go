package scripted

import (
	"os"
	"strings"
	"testing"
)

// TestDocumentation parses every example of the page: the first is a whole script, the others are parts of one.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/scripted-models.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(page), "```yaml\n")[1:]
	if len(examples) < 5 {
		t.Fatalf("the page has %d examples", len(examples))
	}
	for i, example := range examples {
		example, _, _ = strings.Cut(example, "```")
		script := example
		if i > 0 {
			step := strings.ReplaceAll(strings.TrimSpace(example), "\n", "\n    ")
			if !strings.HasPrefix(step, "answer:") {
				step = "text: x\n    " + step
			}
			if strings.HasPrefix(step, "text: x\n    fail:") || strings.HasPrefix(step, "text: x\n    break:") {
				step, _, _ = strings.Cut(step, "\n    break: {how: cut")
			}
			step = strings.Replace(step, "\n    stop: max_tokens ", "\n    # stop: max_tokens ", 1) // a refusal sets it
			script = "steps:\n  - " + step + "\notherwise:\n  text: y\n"
		}
		if _, err := Parse("example", []byte(script)); err != nil {
			t.Errorf("example %d:\n%s\n%v", i+1, script, err)
		}
	}
}
