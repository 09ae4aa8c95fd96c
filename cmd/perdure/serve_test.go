package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// serveAloud runs perdure serve without --print-ready until its output has a text, stops it, and returns the output.
func serveAloud(t *testing.T, until string, args ...string) string {
	t.Helper()
	c := self(t, nil, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	lines := bufio.NewReader(out)
	for !strings.Contains(shown.String(), until) {
		line, err := lines.ReadString('\n')
		shown.WriteString(line)
		if err != nil {
			t.Errorf("%v before %q; the log:\n%s", err, until, &log)
			break
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("asked to stop it ended with %v; the log:\n%s", err, &log)
	}
	return shown.String() + string(rest)
}

func TestTheKeyIsPrintedOnceAtTheFirstStart(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first := serveAloud(t, "perdure run --url", "--data", data)
	if !regexp.MustCompile(`\n  pdr_[A-Za-z0-9_-]{43}\n`).MatchString(first) || !strings.Contains(first, "scripted/demo") {
		t.Errorf("the first start printed:\n%s", first)
	}
	second := serveAloud(t, "Perdure serves", "--data", data)
	if strings.Contains(second, "pdr_") || !strings.HasPrefix(second, "Perdure serves http://127.0.0.1:") {
		t.Errorf("the second start printed:\n%s", second)
	}
}

func TestDangerousChoicesAreToldLoudly(t *testing.T) {
	t.Parallel()
	server := serveForTest(t, "--data", t.TempDir(), "--sandbox", "none", "--listen", "0.0.0.0:0")
	if !strings.HasPrefix(server.url, "http://127.0.0.1:") {
		t.Errorf("the URL is %s, which no client can use", server.url)
	}
	if err := server.stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TOOLS RUN WITHOUT ISOLATION", "CAN BE REACHED FROM OTHER MACHINES"} {
		if !strings.Contains(server.log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, server.log.String())
		}
	}
}

func TestAnOpenStreamDoesNotKeepTheServerFromStopping(t *testing.T) {
	t.Parallel()
	server := serveForTest(t, "--data", t.TempDir())
	call := func(method, path, body string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Api-Key", server.key)
		request.Header.Set("Anthropic-Version", "2023-06-01")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s %s answered %s", method, path, response.Status)
		}
		return response
	}
	id := func(response *http.Response) string {
		t.Helper()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`"id":"([a-z]+_[A-Za-z0-9]+)"`).FindStringSubmatch(string(text))[1]
	}
	agent := id(call("POST", "/v1/agents", `{"name":"a","model":"scripted/echo"}`))
	environment := id(call("POST", "/v1/environments", `{"name":"e"}`))
	session := id(call("POST", "/v1/sessions", `{"agent":"`+agent+`","environment_id":"`+environment+`"}`))
	stream := call("GET", "/v1/sessions/"+session+"/events/stream", "")
	if err := server.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream did not end in good order: %v", err)
	}
	if !strings.Contains(server.log.String(), "stopped") {
		t.Errorf("the log does not say that it stopped:\n%s", server.log.String())
	}
}
