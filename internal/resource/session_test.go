package resource_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
)

func sessionBody(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"agent":"` + agentID + `","environment_id":"` + environmentID + `"` + fields + `}`
}

func mustDecodeSession(t testing.TB, body string) *resource.SessionCreate {
	t.Helper()
	create, err := resource.DecodeSessionCreate([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return create
}

func TestDecodeSessionCreate(t *testing.T) {
	create := mustDecodeSession(t, sessionBody(`"title":"T","metadata":{"a":"b"},"vault_ids":[],
		"resources":[{"type":"file","file_id":"`+fileID+`"},{"type":"file","file_id":"`+otherFileID+`","mount_path":"/in/./data.csv"}],
		"budget":{"type":"limit","max_list_cost":{"amount":"2500","currency":"USD"}},
		"initial_events":[ {"type":"user.message", "content":[]} ]`))
	if create.Agent.ID != agentID || create.Agent.Version != 0 || create.Agent.Overrides != nil || create.EnvironmentID != environmentID {
		t.Errorf("got %+v", create)
	}
	if *create.Title != "T" || create.Metadata["a"] != "b" || create.Budget.Cents() != 2500 {
		t.Errorf("got %+v", create)
	}
	if got := fmt.Sprint(create.Files); got != "[{"+fileID+" /mnt/session/uploads/"+fileID+"} {"+otherFileID+" /mnt/session/uploads/in/data.csv}]" {
		t.Errorf("got files %s", got)
	}
	if got := string(create.InitialEvents[0]); got != `{"type":"user.message", "content":[]}` || len(create.InitialEvents) != 1 {
		t.Errorf("got events %s", got)
	}
}

func TestFormsOfAgent(t *testing.T) {
	snapshot := string(encode(t, fullAgent(t).Snapshot()))
	for agent, version := range map[string]int64{
		`"` + agentID + `"`:                                                    0,
		`{"type":"agent","id":"` + agentID + `"}`:                              0,
		`{"type":"agent","id":"` + agentID + `","version":3}`:                  3,
		`{"type":"agent","id":"` + agentID + `","version":null}`:               0,
		`{"type":"agent_with_overrides","id":"` + agentID + `","version":2}`:   2,
		`{"type":"agent_with_overrides","id":"` + agentID + `","system":null}`: 0,
		snapshot: 1,
	} {
		create := mustDecodeSession(t, `{"environment_id":"`+environmentID+`","agent":`+agent+`}`)
		if create.Agent.ID != agentID || create.Agent.Version != version {
			t.Errorf("%s: got %+v", agent, create.Agent)
		}
		if overridden := create.Agent.Overrides != nil; overridden != strings.Contains(agent, "with_overrides") {
			t.Errorf("%s: overrides are %v", agent, create.Agent.Overrides)
		}
	}
}

func TestSessionCreateRefuses(t *testing.T) {
	files := func(entries string) string { return sessionBody(`"resources":[` + entries + `]`) }
	mount := func(path string) string {
		return files(`{"type":"file","file_id":"` + fileID + `","mount_path":"` + path + `"}`)
	}
	two := func(first, second string) string {
		return files(`{"type":"file","file_id":"` + fileID + `","mount_path":"` + first + `"},{"type":"file","file_id":"` + otherFileID + `","mount_path":"` + second + `"}`)
	}
	budget := func(amount string) string {
		return sessionBody(`"budget":{"type":"limit","max_list_cost":{"amount":` + amount + `,"currency":"USD"}}`)
	}
	const notCents = ` is not a number of whole cents greater than 0, such as "2500" for 25 dollars`
	for name, c := range map[string]struct{ body, want string }{
		"nothing":            {`{}`, `agent: field is required`},
		"no environment":     {`{"agent":"` + agentID + `"}`, `environment_id: field is required`},
		"agent id":           {`{"agent":"agent_x","environment_id":"x"}`, `Invalid agent ID.`},
		"environment id":     {`{"agent":"` + agentID + `","environment_id":"x"}`, `Invalid environment ID.`},
		"agent number":       {`{"agent":1}`, `agent: expected a string or an object, got a number`},
		"agent null":         {`{"agent":null}`, `agent: expected a string or an object, got null`},
		"agent type":         {`{"agent":{"id":"x"}}`, `agent.type: field is required`},
		"agent version":      {`{"agent":{"type":"agent","id":"x","version":0}}`, `agent.version: must be at least 1`},
		"agent overrides":    {`{"agent":{"type":"agent","id":"x","tools":[]}}`, `agent.tools: unknown field; to change the agent for this session use type "agent_with_overrides"`},
		"override field":     {`{"agent":{"type":"agent_with_overrides","id":"x","description":"d"}}`, `agent.description: unknown field`},
		"override tool":      {`{"agent":{"type":"agent_with_overrides","id":"x","tools":[{"type":"x"}]}}`, `agent.tools[0].type: "x" is not a valid value; expected one of agent_toolset_20260401, mcp_toolset, custom`},
		"unknown field":      {sessionBody(`"foo":1`), `foo: unknown field`},
		"vaults":             {sessionBody(`"vault_ids":["vlt_1"]`), `vault_ids: not supported by this version of the server`},
		"title":              {sessionBody(`"title":"` + strings.Repeat("x", 1025) + `"`), `title: must be at most 1024 characters, got 1025`},
		"metadata":           {sessionBody(`"metadata":{"` + strings.Repeat("k", 65) + `":"v"}`), `metadata: key "` + strings.Repeat("k", 65) + `" must be at most 64 characters, got 65`},
		"repository":         {files(`{"type":"github_repository","url":"https://github.com/a/b"}`), `resources[0].type: "github_repository" is not supported by this version of the server`},
		"memory store":       {files(`{"type":"memory_store","memory_store_id":"x"}`), `resources[0].type: "memory_store" is not supported by this version of the server`},
		"resource kind":      {files(`{"type":"disk"}`), `resources[0].type: "disk" is not a valid value; expected one of file, github_repository, memory_store`},
		"file id":            {files(`{"type":"file","file_id":"x"}`), `Invalid file ID.`},
		"file missing":       {files(`{"type":"file"}`), `resources[0].file_id: field is required`},
		"mount escapes":      {mount(`/../../etc/x`), `Invalid file resource: mount path "/../../etc/x" escapes /uploads/`},
		"mount escapes late": {mount(`a/../../b`), `Invalid file resource: mount path "a/../../b" escapes /uploads/`},
		"mount escapes root": {mount(`/mnt/session/uploads/../outputs/x`), `Invalid file resource: mount path "/mnt/session/uploads/../outputs/x" escapes /uploads/`},
		"mount root":         {mount(`/`), `Invalid file resource: mount path "/" names no file`},
		"mount uploads":      {mount(`/mnt/session/uploads/`), `Invalid file resource: mount path "/mnt/session/uploads/" names no file`},
		"mount NUL":          {mount(`a\u0000b`), "Invalid file resource: mount path \"a\uFFFDb\" contains control characters"},
		"mount name":         {mount(strings.Repeat("x", 256)), `Invalid file resource: mount path "` + strings.Repeat("x", 80) + `…" has a name longer than 255 bytes`},
		"mount same":         {two(`a/b`, `/mnt/session/uploads/a/b`), "Invalid file resource: `mount_path` overlaps another resource: /uploads/a/b"},
		"mount above":        {two(`a/b/c`, `a`), "Invalid file resource: `mount_path` overlaps another resource: /uploads/a"},
		"mount below":        {two(`a`, `a/b/c`), "Invalid file resource: `mount_path` overlaps another resource: /uploads/a/b/c"},
		"same file twice":    {files(strings.Repeat(`{"type":"file","file_id":"`+fileID+`"},`, 2) + `{"type":"file","file_id":"` + otherFileID + `"}`), "Invalid file resource: `mount_path` overlaps another resource: /uploads/" + fileID},
		"many files":         {files(strings.TrimSuffix(strings.Repeat(`{"type":"file","file_id":"x"},`, 501), ",")), `resources: at most 500 entries are allowed`},
		"budget type":        {sessionBody(`"budget":{}`), `budget.type: field is required`},
		"budget number":      {budget(`2500`), `budget.max_list_cost.amount: expected a string of whole cents such as "2500", got a number`},
		"budget zero":        {budget(`"0"`), `budget.max_list_cost.amount: "0"` + notCents},
		"budget leading":     {budget(`"025"`), `budget.max_list_cost.amount: "025"` + notCents},
		"budget decimal":     {budget(`"25.00"`), `budget.max_list_cost.amount: "25.00"` + notCents},
		"budget sign":        {budget(`"+25"`), `budget.max_list_cost.amount: "+25"` + notCents},
		"budget huge":        {budget(`"99999999999999999999"`), `budget.max_list_cost.amount: "99999999999999999999"` + notCents},
		"budget large":       {budget(`"900000001"`), `budget.max_list_cost.amount: must be at most "900000000"`},
		"budget currency":    {sessionBody(`"budget":{"type":"limit","max_list_cost":{"amount":"1","currency":"EUR"}}`), `budget.max_list_cost.currency: "EUR" is not a valid value; expected one of USD`},
		"events":             {sessionBody(`"initial_events":{}`), `initial_events: expected an array, got an object`},
		"event":              {sessionBody(`"initial_events":["hello"]`), `initial_events[0]: expected an object, got a string`},
		"many events":        {sessionBody(`"initial_events":[` + strings.TrimSuffix(strings.Repeat(`{},`, 51), ",") + `]`), `initial_events: at most 50 entries are allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			create, err := resource.DecodeSessionCreate([]byte(c.body))
			if err == nil {
				t.Fatalf("accepted as %+v", create)
			}
			wantRefusal(t, err, c.want)
		})
	}
}

func TestApplyOverrides(t *testing.T) {
	agent := fullAgent(t)
	before := string(encode(t, agent))
	override := func(fields string) *resource.Overrides {
		body := `{"environment_id":"` + environmentID + `","agent":{"type":"agent_with_overrides","id":"` + agentID + `",` + fields + `}}`
		return mustDecodeSession(t, body).Agent.Overrides
	}
	if same, err := resource.ApplyOverrides(agent, nil, defaults); err != nil || same != agent {
		t.Errorf("got %v, %v", same, err)
	}
	next, err := resource.ApplyOverrides(agent, override(`"model":{"id":"claude-haiku-5-5","effort":"max"},"system":null,"skills":[]`), defaults)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(encode(t, next.Model)); got != `{"id":"claude-haiku-5-5","effort":{"type":"medium"},"speed":"standard"}` {
		t.Errorf("got model %s", got)
	}
	if next.System != nil || len(next.Skills) != 0 || len(next.Tools) != 3 || next.ID != agentID || next.Version != 1 {
		t.Errorf("got %s", encode(t, next))
	}
	if after := string(encode(t, agent)); after != before {
		t.Errorf("the agent was changed in place: %s", after)
	}
	const skills = "Missing required tool: skills require the read tool to be usable (enabled and not always_deny) on the session's `agent_toolset`"
	for fields, want := range map[string]string{
		`"model":null`:                `agent.model: cannot be null; leave it out to use the agent's model`,
		`"mcp_servers":null`:          `agent.tools.1.mcp_toolset.mcp_server_name: "tracker" is not declared in mcp_servers`,
		`"tools":[]`:                  `agent.mcp_servers[0]: "tracker" is not referenced by any mcp_toolset in tools`,
		`"tools":[],"mcp_servers":[]`: skills,
		`"system":"` + strings.Repeat("x", 100_001) + `"`: `agent.system: must be at most 100000 characters, got 100001`,
	} {
		_, err := resource.ApplyOverrides(agent, override(fields), defaults)
		wantRefusal(t, err, want)
	}
	_, err = resource.ApplyOverrides(agent, override(`"model":null`), defaults)
	if p := refusal(t, err); p.Code != "agent_model_required" {
		t.Errorf("got code %q", p.Code)
	}
}

func TestCheckSession(t *testing.T) {
	plain := mustDecodeSession(t, sessionBody(``))
	file := mustDecodeSession(t, sessionBody(`"resources":[{"type":"file","file_id":"`+fileID+`"}]`))
	agent := mustCreateAgent(t, `{"name":"a","model":"m"}`)
	archivedAgent, _ := agent.Archive(later)
	skilled := mustCreateAgent(t, `{"name":"a","model":"m","skills":[{"type":"anthropic","skill_id":"pdf"}]}`)
	unread := mustCreateAgent(t, `{"name":"a","model":"m","skills":[{"type":"anthropic","skill_id":"pdf"}],"tools":[{"type":"agent_toolset_20260401","configs":[{"name":"read","enabled":false}]}]}`)
	served := mustCreateAgent(t, `{"name":"a","model":"m","mcp_servers":[{"type":"url","name":"s","url":"https://mcp.example.com:8443/x"}],"tools":[{"type":"mcp_toolset","mcp_server_name":"s"}]}`)
	cloud := mustCreateEnvironment(t, `{"name":"a"}`)
	archived, _ := cloud.Archive(later)
	ours := mustCreateEnvironment(t, `{"name":"a","config":{"type":"self_hosted"}}`)
	limited := func(fields string) *resource.Environment {
		return mustCreateEnvironment(t, `{"name":"a","config":{"type":"cloud","networking":{"type":"limited",`+fields+`}}}`)
	}
	const skills = "Missing required tool: skills require the read tool to be usable (enabled and not always_deny) on the session's `agent_toolset`"
	const blocked = `agent.mcp_servers[0]: the host of MCP server "s" is not in the environment's allowed_hosts; add it there or set allow_mcp_servers`
	for name, c := range map[string]struct {
		agent       *resource.Agent
		environment *resource.Environment
		create      *resource.SessionCreate
		want        string
	}{
		"plain":                {agent, cloud, plain, ""},
		"file":                 {agent, cloud, file, ""},
		"archived agent":       {archivedAgent, archived, plain, "agent " + agentID + " is archived and cannot be used to create a session"},
		"archived environment": {agent, archived, plain, "Environment " + environmentID + " is archived."},
		"self-hosted":          {agent, ours, plain, ""},
		"self-hosted file":     {agent, ours, file, "Environment " + environmentID + " is a self-hosted environment. `resources` are not supported with self-hosted environments."},
		"skills":               {skilled, cloud, plain, skills},
		"skills unread":        {unread, cloud, plain, skills},
		"MCP":                  {served, cloud, plain, ""},
		"MCP blocked":          {served, limited(`"allowed_hosts":["example.com"]`), plain, blocked},
		"MCP allowed":          {served, limited(`"allowed_hosts":["*.example.com"]`), plain, ""},
		"MCP allowed as such":  {served, limited(`"allow_mcp_servers":true`), plain, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := resource.CheckSession(c.agent, c.environment, c.create)
			if c.want != "" {
				wantRefusal(t, err, c.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func mustDecodeUpdate(t testing.TB, body string) *resource.SessionUpdate {
	t.Helper()
	u, err := resource.DecodeSessionUpdate([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return u
}

func TestSessionUpdate(t *testing.T) {
	current := fullAgent(t).Snapshot()

	u := mustDecodeUpdate(t, `{}`)
	if _, changed, err := u.ApplyAgent(current); changed || err != nil || u.ChangesAgent() {
		t.Errorf("an empty update changed the agent: %v", err)
	}
	if u.Budget.Given() || u.Title.Given() {
		t.Error("an empty update gives a budget or a title")
	}

	u = mustDecodeUpdate(t, `{"title":null,"metadata":{"a":null,"b":"2"},"budget":null,"agent":{"tools":[],"mcp_servers":null}}`)
	if !u.Title.Null() || !u.Budget.Null() {
		t.Error("null for title and budget was not read")
	}
	if next, changed, err := u.Metadata.Apply(resource.Metadata{"a": "1"}); !changed || err != nil || len(next) != 1 || next["b"] != "2" {
		t.Errorf("got metadata %v, %v", next, err)
	}
	_, _, err := u.ApplyAgent(current)
	wantRefusal(t, err, "Missing required tool: skills require the read tool to be usable (enabled and not always_deny) on the session's `agent_toolset`")

	u = mustDecodeUpdate(t, `{"title":"U","agent":{"tools":[{"type":"agent_toolset_20260401"}],"mcp_servers":[]}}`)
	next, changed, err := u.ApplyAgent(current)
	if err != nil || !changed || len(next.Tools) != 1 || next.Name != current.Name || len(current.Tools) != 3 {
		t.Errorf("got %v, %v", next, err)
	}
	if title, given := u.Title.Value(); !given || title != "U" {
		t.Errorf("got title %q", title)
	}
}

func TestSessionUpdateRefuses(t *testing.T) {
	for body, want := range map[string]string{
		`{"vault_ids":["vlt_1"]}`:     `vault_ids: not supported by this version of the server`,
		`{"agent":"x"}`:               `agent: expected an object, got a string`,
		`{"agent":{"model":"m"}}`:     `agent.model: unknown field`,
		`{"agent":{"tools":[1]}}`:     `agent.tools[0]: expected an object, got a number`,
		`{"foo":1}`:                   `foo: unknown field`,
		`{"budget":{"type":"limit"}}`: `budget.max_list_cost: field is required`,
		`{"metadata":{"a":1}}`:        `metadata.a: expected a string, got a number`,
	} {
		_, err := resource.DecodeSessionUpdate([]byte(body))
		wantRefusal(t, err, want)
	}
}

// exampleSession is a session as served.
func exampleSession(t testing.TB) session.View {
	t.Helper()
	title := "T"
	state := &session.State{
		Status: session.Idle, ActiveNanos: int64(1500 * time.Millisecond), Updated: later.Time,
		Usage: session.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite5m: 4, CacheWrite1h: 5, WebSearches: 6},
		Config: &session.Config{
			ID: "sesn_01ABCDEFGHJKLMNPQRSTUVWX", Agent: encode(t, fullAgent(t).Snapshot()), Environment: environmentID,
			Title: &title, Metadata: resource.Metadata{"b": "2", "a": "1"}, BudgetCents: 2500, Created: moment.Time,
			Resources: []jsontext.Value{encode(t, resource.NewFileResource("sesrsc_01ABCDEFGHJKLMNPQRSTUVWX", fileID, "/mnt/session/uploads/in/data.csv", moment))},
		},
	}
	return session.NewView(state, moment.Add(2250*time.Millisecond))
}

func TestSessionOnTheWire(t *testing.T) {
	served := exampleSession(t)
	golden(t, "session", served)

	sent := encode(t, served)
	create := mustDecodeSession(t, string(sent))
	if create.Agent.Version != 1 || create.Budget.Cents() != 2500 || create.Files[0].MountPath != "/mnt/session/uploads/in/data.csv" {
		t.Errorf("got %+v", create)
	}
	u := mustDecodeUpdate(t, string(sent))
	if _, changed, err := u.ApplyAgent(fullAgent(t).Snapshot()); changed || err != nil {
		t.Errorf("agent: changed is %v, error %v", changed, err)
	}
	if budget, given := u.Budget.Value(); !given || budget.Cents() != 2500 {
		t.Errorf("budget %v", budget)
	}
	if title, given := u.Title.Value(); !given || title != "T" {
		t.Errorf("title %q", title)
	}
	if _, changed, err := u.Metadata.Apply(served.Metadata); changed || err != nil {
		t.Errorf("metadata: changed is %v, error %v", changed, err)
	}
}

func TestDecodeFileMount(t *testing.T) {
	taken := []string{"/mnt/session/uploads/a/b"}
	mount, err := resource.DecodeFileMount([]byte(`{"type":"file","file_id":"`+fileID+`","mount_path":"a/c"}`), taken)
	if err != nil || mount.MountPath != "/mnt/session/uploads/a/c" {
		t.Errorf("got %+v, %v", mount, err)
	}
	_, err = resource.DecodeFileMount([]byte(`{"type":"file","file_id":"`+fileID+`","mount_path":"a"}`), taken)
	wantRefusal(t, err, "Invalid file resource: `mount_path` overlaps another resource: /uploads/a")
	for i := range 499 {
		taken = append(taken, fmt.Sprintf("/mnt/session/uploads/%d", i))
	}
	_, err = resource.DecodeFileMount([]byte(`{"type":"file","file_id":"`+fileID+`"}`), taken)
	wantRefusal(t, err, "Invalid file resource: at most 500 files are allowed in a session")
	_, err = resource.DecodeFileMount([]byte(`{"type":"github_repository"}`), nil)
	wantRefusal(t, err, `type: "github_repository" is not supported by this version of the server`)
}
