package harness_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/perdure/perdure/test/harness"
	"github.com/perdure/perdure/test/harness/raw"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A kill and a restart keep the address, the key and what was stored.
func TestRestart(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	if !strings.HasPrefix(s.URL, "http://127.0.0.1:") || s.APIKey == "" {
		t.Fatalf("URL %q, API key of %d characters", s.URL, len(s.APIKey))
	}
	c := raw.Client{URL: s.URL, Key: s.APIKey}
	id := c.Do(t, "POST", "/v1/agents", map[string]any{"name": "kept", "model": "scripted/demo"}).Want(t, 200).Get("id").String()
	before := s.PID()
	s.Kill()
	if _, err := c.Try("GET", "/healthz", nil); err == nil {
		t.Error("a killed server answers")
	}
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if s.PID() == before || s.PID() == 0 {
		t.Errorf("process %d after %d", s.PID(), before)
	}
	if got := c.Do(t, "GET", "/v1/agents/"+id, nil).Want(t, 200).Get("name").String(); got != "kept" {
		t.Errorf("the agent is named %q", got)
	}
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
}

// One process at a time may use a data directory, and the second says so.
func TestSecondServerOnTheSameData(t *testing.T) {
	first := harness.Start(t, harness.Options{})
	second, err := harness.Launch(harness.Options{Data: first.Data})
	if err == nil {
		t.Error("two servers run on one data directory")
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	if log := second.Log(); !strings.Contains(log, first.Data) {
		t.Errorf("the refusal does not name the directory: %s", log)
	}
	raw.Client{URL: first.URL, Key: first.APIKey}.Do(t, "GET", "/v1/agents", nil).Want(t, 200)
}

// What a killed server leaves behind is found by the file it runs from, and ended.
func TestSupervisorsAreEnded(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	s, err := harness.Launch(harness.Options{Scripts: root + "/test/conformance/scripts"})
	if s != nil {
		defer func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if n, err := s.Processes(); err != nil || n != 0 {
				t.Errorf("%d processes are left (%v)", n, err)
			}
		}()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := raw.Client{URL: s.URL, Key: s.APIKey}
	session := sleeper(t, c)
	stream := c.Stream(t, "/v1/sessions/"+session+"/events/stream")
	c.Do(t, "POST", "/v1/sessions/"+session+"/events", map[string]any{"events": []any{map[string]any{"type": "user.message",
		"content": []any{map[string]any{"type": "text", "text": "go"}}}}}).Want(t, 200)
	stream.UntilType(t, "span.model_request_end")
	s.Kill()
}

// sleeper is a session that runs a long command when it is told to go.
func sleeper(t *testing.T, c raw.Client) string {
	t.Helper()
	agent := c.Do(t, "POST", "/v1/agents", map[string]any{"name": "sleeper", "model": "scripted/sleeper",
		"tools": []any{map[string]any{"type": "agent_toolset_20260401"}}}).Want(t, 200).Get("id").String()
	environment := c.Do(t, "POST", "/v1/environments", map[string]any{"name": "sleeper"}).Want(t, 200).Get("id").String()
	return c.Do(t, "POST", "/v1/sessions", map[string]any{"agent": agent, "environment_id": environment}).Want(t, 200).Get("id").String()
}

// A server that does not come up is told about with its log.
func TestFailedStart(t *testing.T) {
	s, err := harness.Launch(harness.Options{Args: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error %v, want the words of the program in it", err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func TestBinaryIsBuiltOnce(t *testing.T) {
	first, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	second, err := harness.Binary()
	if err != nil || first != second {
		t.Errorf("%q, then %q (%v)", first, second, err)
	}
	if err := exec.Command(first, "--help").Run(); err != nil && os.Getenv(harness.BinaryVariable) == "" {
		t.Errorf("the binary does not run: %v", err)
	}
}
