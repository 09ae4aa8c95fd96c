package session_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/session"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expectations in testdata/*.txt")

// TestScripts plays the scripts in testdata and compares every entry that they make, byte for byte. A line that begins
// with "> " is a command, one with "| " is its input, and one with "#" is a remark; the rest is what comes of it. An event
// is called e and its position, an outcome by its number; the clock goes on by one second with each command.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := &player{t: t, names: map[string]string{}, ids: map[string]string{}}
			got := p.play(string(want))
			if *rewrite {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(want, got) {
				t.Errorf("got\n%s\nwant\n%s\nrun with -rewrite if the change is meant", got, want)
			}
			p.checked(t)
			for _, e := range p.log {
				if e.Public() {
					checkSDK(t, e)
				}
				if e.Public() != session.KnownEventType(e.Type) {
					t.Errorf("%s: clients see it: %t; they can filter by it: %t", e.Type, e.Public(), session.KnownEventType(e.Type))
				}
			}
		})
	}
}

// player plays one script.
type player struct {
	*machine
	t     *testing.T
	out   bytes.Buffer
	names map[string]string // by id
	ids   map[string]string // by name
	// outcomes counts those that have a name.
	outcomes int
}

func (p *player) play(script string) []byte {
	lines := bufio.NewScanner(strings.NewReader(script))
	var command string
	var input []string
	run := func() {
		if command != "" {
			p.run(command, input)
		}
		command, input = "", nil
	}
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "> "):
			run()
			command = line[2:]
		case strings.HasPrefix(line, "| "):
			input = append(input, line[2:])
			fallthrough
		case line != "" && line[0] != '#':
			continue
		default:
			run()
		}
		fmt.Fprintln(&p.out, line)
	}
	run()
	return p.out.Bytes()
}

func (p *player) run(command string, input []string) {
	for _, line := range input {
		fmt.Fprintln(&p.out, "|", line)
	}
	for i := range input {
		input[i] = p.replaceNames(input[i])
	}
	verb, rest, _ := strings.Cut(command, " ")
	if verb == "create" {
		c := config()
		for _, option := range strings.Fields(rest) {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "self_hosted":
				c.SelfHosted = true
			case "budget":
				c.BudgetCents = p.number(value)
			}
		}
		p.machine = &machine{t: p.t, now: noon, state: &session.State{}, limits: session.DefaultLimits()}
		p.converse("m1")
		p.show(session.Create(c, p.now))
		return
	}
	p.now = p.now.Add(time.Second)
	switch verb {
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			p.t.Fatal(err)
		}
		p.now = p.now.Add(d - time.Second)
	case "context":
		p.context()
	case "send":
		p.send(input)
	default:
		p.act(verb, rest, input)
	}
}

func (p *player) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// replaceNames puts ids where the script has names of events.
func (p *player) replaceNames(line string) string {
	names := make([]string, 0, len(p.ids))
	for name := range p.ids {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		line = strings.ReplaceAll(line, `"`+name+`"`, `"`+p.ids[name]+`"`)
		if strings.HasPrefix(line, name+":") {
			line = p.ids[name] + line[len(name):]
		}
	}
	return line
}

// named puts names where a line has ids.
func (p *player) named(line string) string {
	for _, id := range outcomeID.FindAllString(line, -1) {
		if p.names[id] == "" {
			p.outcomes++
			p.names[id] = fmt.Sprintf("outcome%d", p.outcomes)
		}
	}
	for id, name := range p.names {
		line = strings.ReplaceAll(line, id, name)
	}
	return line
}

var outcomeID = regexp.MustCompile(`outc_01\w{22}`)

func (p *player) send(lines []string) {
	var inputs []session.Input
	for _, line := range lines {
		var in struct {
			Type    string         `json:"type"`
			Content jsontext.Value `json:"content"`
			Thread  string         `json:"session_thread_id"`
			Tool    string         `json:"tool_use_id"`
			Custom  string         `json:"custom_tool_use_id"`
			Result  string         `json:"result"`
			Message string         `json:"deny_message"`
			IsError bool           `json:"is_error"`
			Outcome string         `json:"description"`
			Rubric  session.Rubric `json:"rubric"`
			Max     int            `json:"max_iterations"`
		}
		if err := json.Unmarshal([]byte(line), &in); err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		inputs = append(inputs, session.Input{
			Type: in.Type, Content: in.Content, Thread: in.Thread, Call: in.Tool + in.Custom, Result: in.Result,
			Message: in.Message, IsError: in.IsError, Description: in.Outcome, Rubric: in.Rubric.Content, Max: in.Max,
		})
	}
	step := p.step()
	echoes, err := step.Accept(p, inputs)
	if err != nil {
		fmt.Fprintln(&p.out, "refused:", p.named(err.Error()))
		return
	}
	p.show(step)
	for _, echo := range echoes {
		i := slices.IndexFunc(step.Events, func(e session.Event) bool { return string(e.Body) == string(echo) })
		if i >= 0 {
			fmt.Fprintln(&p.out, "echo", p.names[step.Events[i].ID])
			continue
		}
		var b publicBody
		if err := json.Unmarshal(echo, &b); err != nil {
			p.t.Fatal(err)
		}
		fmt.Fprintln(&p.out, "echo", p.named(strings.ReplaceAll(string(echo), b.ID, "(not logged)")))
	}
}

// act does what a driver or an owner does.
func (p *player) act(verb, rest string, input []string) {
	step := p.step()
	action := session.Action{}
	word, more, _ := strings.Cut(rest, " ")
	var err error
	switch verb {
	case "settle":
	case "begin":
		if action = step.Settle(p.limits); action.Kind != session.Sample {
			p.t.Fatalf("a request begins, but the session needs %s", kindName(action.Kind))
		}
		step.BeginRequest()
	case "answer":
		step.EndRequest(p.readAnswer(rest, input))
	case "results":
		results := p.results(input)
		for _, c := range p.state.Calls {
			if r, ok := results[c.ID]; ok {
				step.AddResult(c.ID, r)
				delete(results, c.ID)
			}
		}
		for id := range results {
			p.t.Fatalf("%s is no call of the last answer", id)
		}
	case "retry":
		d, _ := time.ParseDuration(word)
		step.RetryRequest(usage(), session.Failure{Type: "model_overloaded_error", Message: more}, p.now.Add(d))
	case "fail":
		step.FailTurn(usage(), session.Failure{Type: word, Message: more})
	case "evaluate":
		step.BeginEvaluation()
	case "judge":
		step.EndEvaluation(word, more, usage())
	case "abandon":
		step.AbandonRequest()
	case "resume":
		step.Resume()
	case "stop":
		step.ApplyInterrupt(usage(), p.results(input))
	case "title":
		c := session.Change{Retitle: true}
		if rest != "null" {
			c.Title = &rest
		}
		err = step.Update(c)
	case "metadata":
		name, value, _ := strings.Cut(rest, "=")
		c := session.Change{Metadata: map[string]*string{name: &value}}
		if value == "" {
			c.Metadata[name] = nil
		}
		err = step.Update(c)
	case "agent":
		err = step.Update(session.Change{Agent: jsontext.Value(rest)})
	case "budget":
		err = step.Update(session.Change{Rebudget: true, BudgetCap: p.number(rest)})
	case "resources":
		err = step.SetResources([]jsontext.Value{jsontext.Value(rest)})
	case "archive":
		err = step.Archive()
	case "delete":
		err = step.Delete()
	default:
		p.t.Fatalf("unknown command %q", verb)
	}
	if err != nil {
		fmt.Fprintln(&p.out, "refused:", p.named(err.Error()))
		return
	}
	if verb != "begin" {
		action = step.Settle(p.limits)
	}
	p.show(step)
	next := kindName(action.Kind)
	for _, c := range action.Calls {
		next += " " + p.names[c.ID]
	}
	if action.Kind == session.WaitUntil {
		next += " until " + action.At.Format(session.TimeFormat)
	}
	fmt.Fprintln(&p.out, "next:", next)
}

func usage() session.Usage {
	return session.Usage{Input: 10, Output: 5, CacheRead: 100, CacheWrite5m: 20, CacheWrite1h: 3, Cost: cent}
}

func (p *player) results(lines []string) map[string]session.Result {
	results := map[string]session.Result{}
	for _, line := range lines {
		id, text, _ := strings.Cut(line, ": ")
		text, isError := strings.CutPrefix(text, "error ")
		results[id] = session.Result{Content: session.TextContent(text), IsError: isError}
	}
	return results
}

func (p *player) readAnswer(options string, lines []string) session.Answer {
	a := session.Answer{StopReason: "end_turn", Usage: usage(), Model: p.model, Provider: "msg_1"}
	for _, option := range strings.Fields(options) {
		switch name, value, _ := strings.Cut(option, "="); name {
		case "stop":
			a.StopReason = value
		case "details":
			a.Details = jsontext.Value(value)
		case "fast":
			a.Usage.Fast = true
		case "searches":
			a.Usage.WebSearches = p.number(value)
		case "unpriced":
			a.Usage.Unpriced = 1
		}
	}
	for i, line := range lines {
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "text":
			a.Blocks = append(a.Blocks, text(rest))
		case "thinking":
			a.Blocks = append(a.Blocks, thinking(p.model, rest))
		case "opaque":
			a.Blocks = append(a.Blocks, session.AnswerBlock{Type: "server_note", Raw: object("type", "server_note", "note", rest)})
		default:
			a.Blocks = append(a.Blocks, p.readCall(verb, strings.SplitN(rest, " ", 3), i))
		}
	}
	return a
}

// readCall reads "call NAME PERMISSION INPUT"; "custom NAME - INPUT"; "mcp:SERVER …"; "remote …"; "broken …"; "cut …".
func (p *player) readCall(verb string, fields []string, i int) session.AnswerBlock {
	c := session.AnswerCall{
		Provider: fmt.Sprintf("toolu_%d", i), Type: session.AgentToolUse, Name: fields[0], Permission: fields[1],
		Input: jsontext.Value(fields[2]), Evaluation: object("type", "always_"+fields[1]),
	}
	kind, server, _ := strings.Cut(verb, ":")
	switch kind {
	case "call":
	case "custom":
		c.Type, c.Permission, c.Evaluation, c.Remote = session.AgentCustomToolUse, "", nil, true
	case "mcp":
		c.Type, c.Server = session.AgentMCPToolUse, server
	case "remote":
		c.Remote = true
	case "broken":
		c.Refusal = "The input of this call is not a JSON object."
	case "cut":
		c.Refusal, c.Cut = "This call was cut off.", true
	default:
		p.t.Fatalf("unknown block %q", verb)
	}
	if c.Permission == "deny" {
		c.Evaluation = nil // the tool is not enabled
	}
	return session.AnswerBlock{Type: "tool_use", Raw: object("type", "tool_use"), Call: &c}
}

// show commits a step and prints its entries.
func (p *player) show(step *session.Step) {
	for _, e := range p.commit(step) {
		if _, known := p.names[e.ID]; !known {
			name := fmt.Sprintf("e%d", e.Seq)
			p.names[e.ID], p.ids[name] = name, e.ID
		}
		if e.Public() {
			fmt.Fprintf(&p.out, "%d %s\n", e.Seq, p.named(string(e.Body)))
		} else {
			fmt.Fprintf(&p.out, "%d %s\n", e.Seq, e.Type)
		}
		if e.Private != nil {
			fmt.Fprintf(&p.out, "  private %s\n", p.named(string(e.Private)))
		}
	}
}

func (p *player) context() {
	for _, m := range p.machine.context.Messages() {
		fmt.Fprintf(&p.out, "%s %s\n", m.Role, p.named(string(m.Content)))
	}
}
