package terminal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/client"
)

func askAbout(t *testing.T, input string) (*Approval, *bytes.Buffer) {
	t.Helper()
	e, err := client.ParseEvent([]byte(fmt.Sprintf(`{"id":"sevt_1","type":"agent.tool_use","name":"write","input":%s,"evaluated_permission":"ask"}`, input)))
	if err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	a := NewApproval(NewPlainScreen(&shown, &shown), e)
	a.Ask()
	return a, &shown
}

func TestApprovalAnswers(t *testing.T) {
	for _, c := range []struct {
		lines  []string
		want   Decision
		reason string
	}{
		{[]string{"y"}, AllowOnce, ""},
		{[]string{" YES "}, AllowOnce, ""},
		{[]string{"a"}, AllowAll, ""},
		{[]string{"all"}, AllowAll, ""},
		{[]string{"n", "too early"}, Deny, "too early"},
		{[]string{"no", ""}, Deny, ""},
		{[]string{"n not in this folder"}, Deny, "not in this folder"},
		{[]string{"n", "y"}, Deny, "y"},
		{[]string{"", "  ", "what", "yes please", "a lot", "v", "y"}, AllowOnce, ""},
		{[]string{"yess"}, Undecided, ""},
		{[]string{""}, Undecided, ""},
	} {
		a, _ := askAbout(t, `{"file_path":"/x"}`)
		got := Undecided
		for i, line := range c.lines {
			if got != Undecided {
				t.Errorf("%q: decided before line %d", c.lines, i)
			}
			got = a.Answer(line)
		}
		if got != c.want || a.Reason != c.reason {
			t.Errorf("%q: %v, reason %q", c.lines, got, a.Reason)
		}
	}
}

func TestApprovalShowsTheInputAsItIs(t *testing.T) {
	_, shown := askAbout(t, `{"file_path":"/tmp/\u202egnp.exe","content":"one\ntwo\u001b[8mhidden","mode":7}`)
	for _, want := range []string{"file_path: /tmp/<U+202E>gnp.exe", "content:\n", "  two␛[8mhidden", "mode: 7", "[y]es once"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, shown)
		}
	}
}

func TestApprovalSaysWhatItDoesNotShow(t *testing.T) {
	a, shown := askAbout(t, `{"content":"`+strings.Repeat(`line\n`, 100)+`the end"}`)
	if !strings.Contains(shown.String(), "+78 lines; v shows all") || strings.Contains(shown.String(), "the end") {
		t.Errorf("folded:\n%s", shown)
	}
	a.Answer("v")
	if !strings.Contains(shown.String(), "the end") {
		t.Error("v does not show all")
	}
	a, shown = askAbout(t, `{"command":"true`+strings.Repeat(" ", 1000)+`; rm -rf ~"}`)
	if strings.Contains(shown.String(), "rm -rf") || !strings.Contains(shown.String(), "long lines are cut; v shows all") {
		t.Errorf("a long line:\n%s", shown)
	}
	a.Answer("v")
	if !strings.Contains(shown.String(), "rm -rf ~") {
		t.Error("v does not show the whole line")
	}
}

func TestApprovalOfAnInputThatIsNoObject(t *testing.T) {
	_, shown := askAbout(t, `"just\u001b text"`)
	if !strings.Contains(shown.String(), `"just\u001b text"`) {
		t.Errorf("shown:\n%s", shown)
	}
}
