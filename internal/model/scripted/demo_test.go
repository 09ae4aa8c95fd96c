package scripted

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// TestDemoDoesTheWorkItSpeaksOf plays the demo against a real shell, with its two directories moved to temporary ones
// and its waiting taken out.
func TestDemoDoesTheWorkItSpeaksOf(t *testing.T) {
	library, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	workspace, outputs := t.TempDir(), t.TempDir()
	here := strings.NewReplacer("/workspace", workspace, "/mnt/session/outputs", outputs, "sleep 1", ":")
	k := &talk{t: t}
	k.say("go")
	var calls, results []string
	for range 10 {
		request := k.request()
		request.Model = "scripted/demo"
		answer, err := library.Answer(request)
		if err != nil {
			t.Fatal(err)
		}
		var blocks []string
		called := false
		for _, part := range answer.Parts {
			input, _ := model.ToolInput(part.Text)
			raw, err := part.Block(input)
			if err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, string(raw))
			if part.Type == "tool_use" {
				called = true
				calls = append(calls, part.Name)
				results = append(results, runTool(t, part.Name, here.Replace(part.Text)))
			}
		}
		k.messages = append(k.messages, model.Message{Role: "assistant", Content: []byte("[" + strings.Join(blocks, ",") + "]")})
		if answer.Usage.OutputTokens == 0 || answer.Usage.InputTokens == 0 {
			t.Errorf("answer without usage: %+v", answer.Usage)
		}
		if !called {
			if answer.StopReason != "end_turn" {
				t.Errorf("the demo ends with %s", answer.StopReason)
			}
			break
		}
		k.result(results[len(results)-1], false)
	}
	if got := strings.Join(calls, " "); got != "bash bash read edit bash write" {
		t.Fatalf("calls: %s", got)
	}
	if !strings.Contains(results[1], "FAIL: got 154.00, expected 43.00") {
		t.Errorf("the fault does not show: %q", results[1])
	}
	report, err := os.ReadFile(filepath.Join(outputs, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"check 1: PASS (43.00)", "check 3: PASS (43.00)", "times this check has run: 1"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

func runTool(t *testing.T, name, input string) string {
	t.Helper()
	var arguments struct {
		Command   string `json:"command"`
		FilePath  string `json:"file_path"`
		OldString string `json:"old_string"`
		NewString string `json:"new_string"`
		Content   string `json:"content"`
	}
	if err := json.Unmarshal([]byte(input), &arguments); err != nil {
		t.Fatal(err)
	}
	switch name {
	case "bash":
		output, err := exec.CommandContext(t.Context(), "sh", "-c", arguments.Command).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return string(output)
	case "write":
		if err := os.WriteFile(arguments.FilePath, []byte(arguments.Content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "wrote it"
	}
	content, err := os.ReadFile(arguments.FilePath)
	if err != nil {
		t.Fatal(err)
	}
	if name == "edit" {
		if strings.Count(string(content), arguments.OldString) != 1 {
			t.Fatalf("%q is not there exactly once:\n%s", arguments.OldString, content)
		}
		edited := strings.Replace(string(content), arguments.OldString, arguments.NewString, 1)
		if err := os.WriteFile(arguments.FilePath, []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
		return "edited it"
	}
	return string(content)
}

func TestDemoStopsWhenAStepFails(t *testing.T) {
	library, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{t: t, provider: New(library)}
	k.say("go")
	request := k.request()
	request.Model = "scripted/demo"
	first, err := library.Answer(request)
	if err != nil || first.StopReason != "tool_use" {
		t.Fatalf("%v, %v", first, err)
	}
	k.messages = append(k.messages, model.Message{Role: "assistant", Content: []byte(`[{"type":"tool_use","id":"a","name":"bash","input":{}}]`)})
	k.result("no sandbox driver works here", true)
	request = k.request()
	request.Model = "scripted/demo"
	response, err := New(library).Stream(context.Background(), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StopReason != "end_turn" || !strings.Contains(string(response.Content[0]), "no sandbox driver works here") {
		t.Errorf("%s %s", response.StopReason, response.Content)
	}
}
