package main

import (
	"bytes"
	"strings"
	"testing"
)

const controlC = "\x03"

// writeScript makes a directory of scripts for scripted models.
func writeScript(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, name+".yaml", text)
	return dir
}

// dataDir makes a data directory whose sandboxes end with the test.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { endSandboxes(dir) })
	return dir
}

// asksTwice asks for write twice and needs a sandbox only where it is allowed.
const asksTwice = `
rules:
  - when: {result: rejected}
    text: "You said: {{result}}"
steps:
  - answer: [{tool: write, input: {file_path: /workspace/a.txt, content: "one\n"}}]
  - answer: [{tool: write, input: {file_path: /workspace/b.txt, content: "two\n"}}]
  - text: Both are written.
`

func TestApprovalAtATerminal(t *testing.T) {
	t.Parallel()
	if ok, err := isolates(); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skip("this machine cannot isolate tools; perdure doctor says why")
	}
	scripts := writeScript(t, "asks", asksTwice)
	run := onTerminal(t, self(t, nil, "run", "--data", dataDir(t), "--scripts", scripts, "--model", "scripted/asks", "go"))
	run.until("file_path: /workspace/a.txt")
	run.until("[v]iew all")
	run.typed("perhaps\n")
	run.until("is none of the answers")
	run.typed("y\n")
	run.until("file_path: /workspace/b.txt")
	run.typed("a\n")
	run.until("Both are written.")
	run.until("✓ done")
	run.ends(0)
}

func TestDenialAtATerminal(t *testing.T) {
	t.Parallel()
	scripts := writeScript(t, "asks", asksTwice)
	run := onTerminal(t, self(t, nil, "run", "--data", dataDir(t), "--scripts", scripts, "--model", "scripted/asks", "go"))
	run.until("[v]iew all")
	run.typed("n\n")
	run.until("why (the agent is told")
	run.typed("not in there\n")
	run.until("Rejection message: not in there")
	run.ends(0)
}

func TestControlCStopsTheTurn(t *testing.T) {
	t.Parallel()
	scripts := writeScript(t, "endless", `otherwise: {delay: 1h, text: never}`)
	data := dataDir(t)
	run := onTerminal(t, self(t, nil, "run", "--data", data, "--scripts", scripts, "--model", "scripted/endless", "go"))
	run.until("working · ")
	run.typed(controlC)
	run.until("stopping the turn")
	run.until("■ stopped")
	run.until("go on: perdure run --data")
	run.ends(statusLeft)
}

func TestControlCTwiceLeavesAndTheSessionGoesOn(t *testing.T) {
	t.Parallel()
	scripts := writeScript(t, "slow", "otherwise: {delay: 1s, text: 'Here I am.'}")
	data := dataDir(t)
	run := onTerminal(t, self(t, nil, "run", "--data", data, "--scripts", scripts, "--model", "scripted/slow", "go"))
	run.until("working · ")
	run.typed(controlC + controlC)
	run.ends(statusLeft)
	run.until("go on: perdure run")
	_, session, _ := strings.Cut(run.text(), "session sesn_")
	session, _, _ = strings.Cut("sesn_"+session, " ")
	again := self(t, nil, "run", "--data", data, "--scripts", scripts, "--session", session, "again")
	var out bytes.Buffer
	again.Stdout, again.Stderr = &out, &out
	if err := again.Run(); err != nil || !strings.Contains(out.String(), "Here I am.") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestRunSurvivesTheServer kills the server under a run that watches from elsewhere.
func TestRunSurvivesTheServer(t *testing.T) {
	t.Parallel()
	scripts := writeScript(t, "long", `
otherwise: {delta_delay: 40ms, delta_size: 6, text: "One after the other these words come, and none of them is lost on the way to the end of it."}`)
	data := dataDir(t)
	server := serveForTest(t, "--data", data, "--scripts", scripts)
	environ := []string{"PERDURE_URL=" + server.url, "PERDURE_API_KEY=" + server.key}
	run := onTerminal(t, self(t, environ, "run", "--model", "scripted/long", "go"))
	run.until("One after the other")
	server.kill(t)
	again := serveForTest(t, "--data", data, "--scripts", scripts, "--listen", strings.TrimPrefix(server.url, "http://"))
	if again.url != server.url {
		t.Fatalf("the server is now at %s", again.url)
	}
	run.until("(the answer was broken off)")
	run.until("to the end of it.")
	run.until("✓ done")
	run.ends(0)
}
