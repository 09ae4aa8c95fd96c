package resource_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
)

func fullAgent(t testing.TB) *resource.Agent {
	t.Helper()
	body, err := os.ReadFile("testdata/agent_full_request.json")
	if err != nil {
		t.Fatal(err)
	}
	return mustCreateAgent(t, string(body))
}

func TestAgentIsResolved(t *testing.T) {
	golden(t, "agent_minimal", mustCreateAgent(t, `{"name":"Helper","model":"claude-haiku-5-5","description":"","system":null}`))
	golden(t, "agent_full", fullAgent(t))
	archived, changed := fullAgent(t).Archive(later)
	if !changed {
		t.Error("archiving changed nothing")
	}
	golden(t, "agent_archived", archived)
	golden(t, "agent_snapshot", fullAgent(t).Snapshot())
	if again, changed := archived.Archive(moment); changed || again != archived {
		t.Error("archiving twice changed the agent")
	}
}

// Stored agents are read back with plain JSON decoding: nothing may be lost on the way.
func TestAgentSurvivesStorage(t *testing.T) {
	for _, agent := range []*resource.Agent{fullAgent(t), mustCreateAgent(t, `{"name":"a","model":"m"}`)} {
		stored := encode(t, agent)
		var back resource.Agent
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		if again := encode(t, &back); string(again) != string(stored) {
			t.Errorf("got  %s\nwant %s", again, stored)
		}
	}
}

func TestCreateAgentAcceptsItsOwnAnswer(t *testing.T) {
	for _, agent := range []*resource.Agent{fullAgent(t), mustCreateAgent(t, `{"name":"a","model":"m"}`)} {
		sent := encode(t, agent)
		copied := mustCreateAgent(t, string(sent))
		if got := encode(t, copied); string(got) != string(sent) {
			t.Errorf("got  %s\nwant %s", got, sent)
		}
	}
}

func TestCreateAgentRefuses(t *testing.T) {
	long := func(n int) string { return strings.Repeat("é", n) }
	tools := func(entries string) string { return `{"name":"a","model":"m","tools":[` + entries + `]}` }
	toolset := func(configs string) string {
		return tools(`{"type":"agent_toolset_20260401","configs":[` + configs + `]}`)
	}
	custom := func(fields string) string { return tools(`{"type":"custom",` + fields + `}`) }
	schema := func(schema string) string {
		return custom(`"name":"t","description":"d","input_schema":` + schema)
	}
	domains := func(list string) string { return toolset(`{"name":"web_fetch","allowed_domains":` + list + `}`) }
	const dotted = "tools.0.agent_toolset_20260401.configs.0."
	servers := func(servers, tools string) string {
		return fmt.Sprintf(`{"name":"a","model":"m","mcp_servers":[%s],"tools":[%s]}`, servers, tools)
	}
	server := `{"type":"url","name":"s","url":"https://u:p@mcp.example.com"}`
	served := `{"type":"mcp_toolset","mcp_server_name":"s"}`
	customs := make([]string, 249)
	for i := range customs {
		customs[i] = fmt.Sprintf(`{"type":"custom","name":"t%d","description":"d","input_schema":{"type":"object"}}`, i)
	}

	for name, c := range map[string]struct{ body, want string }{
		"nothing":          {``, `name: field is required`},
		"no model":         {`{"name":"a"}`, `model: field is required`},
		"null name":        {`{"name":null,"model":"m"}`, `name: field is required`},
		"array":            {`[]`, `request body: expected an object, got an array`},
		"empty name":       {`{"name":"","model":"m"}`, `name: must not be empty`},
		"long name":        {`{"name":"` + long(257) + `","model":"m"}`, `name: must be at most 256 characters, got 257`},
		"long description": {`{"name":"a","model":"m","description":"` + long(2049) + `"}`, `description: must be at most 2048 characters, got 2049`},
		"long system":      {`{"name":"a","model":"m","system":"` + long(100_001) + `"}`, `system: must be at most 100000 characters, got 100001`},
		"name type":        {`{"name":7,"model":"m"}`, `name: expected a string, got a number`},
		"unknown field":    {`{"name":"a","model":"m","modle":1}`, `modle: unknown field`},
		"case mismatch":    {`{"Name":"a","model":"m"}`, `Name: unknown field`},
		"hostile field":    {`{"\u0000\"é":1}`, "[\"\uFFFD\"é\"]: unknown field"},
		"wrong type":       {`{"type":"environment"}`, `type: "environment" is not a valid value; expected one of agent`},

		"model type":     {`{"name":"a","model":[]}`, `model: expected a string or an object, got an array`},
		"model empty":    {`{"name":"a","model":""}`, `model: must not be empty`},
		"model without":  {`{"name":"a","model":{}}`, `model.id: field is required`},
		"effort":         {`{"name":"a","model":{"id":"m","effort":"huge"}}`, `model.effort: "huge" is not a valid value; expected one of low, medium, high, xhigh, max`},
		"effort object":  {`{"name":"a","model":{"id":"m","effort":{"type":"huge"}}}`, `model.effort.type: "huge" is not a valid value; expected one of low, medium, high, xhigh, max`},
		"speed":          {`{"name":"a","model":{"id":"m","speed":"slow"}}`, `model.speed: "slow" is not a valid value; expected one of standard, fast`},
		"geo":            {`{"name":"a","model":{"id":"m","inference_geo":"eu"}}`, `model.inference_geo: "eu" is not a valid value; expected one of us, global`},
		"effort number":  {`{"name":"a","model":{"id":"m","effort":3}}`, `model.effort: expected a string or an object, got a number`},
		"multiagent":     {`{"name":"a","model":"m","multiagent":{"type":"coordinator","agents":[]}}`, `multiagent: not supported by this version of the server`},
		"identity":       {`{"name":"a","model":"m","execution_identity":{"type":"x"}}`, `execution_identity.type: "x" is not a valid value; expected one of service_account, aws_role`},
		"role missing":   {`{"name":"a","model":"m","execution_identity":{"type":"aws_role"}}`, `execution_identity.role_arn: field is required`},
		"metadata value": {`{"name":"a","model":"m","metadata":{"k":1}}`, `metadata.k: expected a string, got a number`},
		"metadata null":  {`{"name":"a","model":"m","metadata":{"k":null}}`, `metadata.k: expected a string, got null`},

		"tool kind":        {tools(`{"type":"bash_20250124"}`), `tools[0].type: "bash_20250124" is not a valid value; expected one of agent_toolset_20260401, mcp_toolset, custom`},
		"tool without":     {tools(`{}`), `tools[0].type: field is required`},
		"tool string":      {tools(`"bash"`), `tools[0]: expected an object, got a string`},
		"tool field":       {tools(`{"type":"agent_toolset_20260401","foo":1}`), `tools[0].foo: unknown field`},
		"tool name":        {toolset(`{"name":"shell"}`), `Failed to parse request: tools[0].configs[0].name: "shell" is not a valid value; expected one of bash, edit, glob, grep, read, web_fetch, web_search, write`},
		"no name":          {toolset(`{"enabled":true}`), `tools[0].configs[0].name: field is required`},
		"policy":           {tools(`{"type":"agent_toolset_20260401","default_config":{"permission_policy":{"type":"never"}}}`), `tools[0].default_config.permission_policy.type: "never" is not a valid value`},
		"policy first":     {toolset(`{"name":"shell","permission_policy":{"type":"never"}}`), `tools[0].configs[0].permission_policy.type: "never" is not a valid value`},
		"type and name":    {toolset(`{"name":"bash","type":"read"}`), `tools[0].configs[0].type: "read" is not a valid value; expected the tool's name, bash`},
		"enabled":          {toolset(`{"name":"bash","enabled":"yes"}`), `tools[0].configs[0].enabled: expected a boolean, got a string`},
		"web on bash":      {toolset(`{"name":"bash","allowed_domains":null}`), `tools[0].configs[0].allowed_domains: unknown field`},
		"location on get":  {toolset(`{"name":"web_fetch","user_location":null}`), `tools[0].configs[0].user_location: unknown field`},
		"tokens on search": {toolset(`{"name":"web_search","max_content_tokens":1}`), `tools[0].configs[0].max_content_tokens: unknown field`},
		"same tool twice":  {toolset(`{"name":"bash"},{"name":"bash"}`), `tools.0.agent_toolset_20260401.configs.1: duplicate entry for tool "AGENT_TOOL_NAME_BASH"`},
		"same web twice":   {toolset(`{"name":"web_fetch"},{"name":"web_fetch"}`), `tools.0.agent_toolset_20260401.configs.1: duplicate entry for tool "AGENT_TOOL_NAME_WEB_FETCH"`},
		"two toolsets":     {tools(`{"type":"agent_toolset_20260401"},{"type":"agent_toolset_20260401"}`), `tools.1.agent_toolset_20260401: duplicate entry; at most one agent_toolset_20260401 is allowed`},
		"parse first":      {tools(`{"type":"agent_toolset_20260401"},{"type":"agent_toolset_20260401"},{"type":"x"}`), `tools[2].type: "x" is not a valid value; expected one of agent_toolset_20260401, mcp_toolset, custom`},
		"too many tools":   {tools(strings.Join(customs, ",") + `,{"type":"agent_toolset_20260401"}`), `tools: at most 256 tools are allowed across all toolsets, got 257`},
		"too many entries": {tools(strings.Join(slices.Repeat([]string{`{"type":"custom"}`}, 257), ",")), `tools: at most 256 entries are allowed`},

		"domains empty":     {domains(`[]`), dotted + `allowed_domains: Empty list of domains is ambiguous. Provide at least one domain or null.`},
		"domains both":      {toolset(`{"name":"web_search","allowed_domains":["a.com"],"blocked_domains":["b.com"]}`), dotted + `allowed_domains: cannot be combined with blocked_domains; use one of them`},
		"domains many":      {domains(`[` + strings.TrimSuffix(strings.Repeat(`"a.com",`, 65), ",") + `]`), dotted + `allowed_domains: at most 64 domains are allowed`},
		"domain scheme":     {domains(`["https://a.com"]`), dotted + `allowed_domains.0: "https://a.com" contains a URL scheme; give the host name alone`},
		"domain port":       {domains(`["a.com","a.com:80"]`), dotted + `allowed_domains.1: "a.com:80" contains a port; give the host name alone`},
		"domain path":       {domains(`["a.com/x"]`), dotted + `allowed_domains.0: "a.com/x" contains a path; give the host name alone`},
		"domain wildcard":   {domains(`["*.a.com"]`), dotted + `allowed_domains.0: "*.a.com" contains a wildcard; a domain stands for its subdomains already`},
		"domain user":       {domains(`["u@a.com"]`), dotted + `allowed_domains.0: "u@a.com" contains credentials; give the host name alone`},
		"domain space":      {domains(`["a .com"]`), dotted + `allowed_domains.0: "a .com" must be plain ASCII without white space; write international names in Punycode`},
		"domain IDN":        {domains(`["bücher.de"]`), dotted + `allowed_domains.0: "bücher.de" must be plain ASCII without white space; write international names in Punycode`},
		"domain IP":         {domains(`["127.0.0.1"]`), dotted + `allowed_domains.0: "127.0.0.1" is an IP address; only host names are allowed`},
		"domain IPv6":       {domains(`["[::1]"]`), dotted + `allowed_domains.0: "[::1]" is an IP address; only host names are allowed`},
		"domain hex":        {domains(`["0x7f000001"]`), dotted + `allowed_domains.0: "0x7f000001" is an IP address; only host names are allowed`},
		"domain short IP":   {domains(`["127.1"]`), dotted + `allowed_domains.0: "127.1" is an IP address; only host names are allowed`},
		"domain label":      {domains(`["com"]`), dotted + `allowed_domains.0: "com" is a single label; give a registrable domain such as example.com`},
		"domain local":      {domains(`["printer.LOCAL"]`), dotted + `allowed_domains.0: "printer.LOCAL" is in a domain that is not public`},
		"domain hyphen":     {domains(`["-a.com"]`), dotted + `allowed_domains.0: "-a.com" is not a host name`},
		"domain dot":        {domains(`["a.com."]`), dotted + `allowed_domains.0: "a.com." is not a host name`},
		"domain label long": {domains(`["` + strings.Repeat("a", 64) + `.com"]`), dotted + `allowed_domains.0: "` + strings.Repeat("a", 64) + `.com" is not a host name`},
		"domain query":      {domains(`["a.com?x"]`), dotted + `allowed_domains.0: "a.com?x" contains a query or fragment; give the host name alone`},
		"domain none":       {domains(`[""]`), dotted + `allowed_domains.0: "" must be 1 to 255 characters`},
		"domain twice":      {domains(`["a.com","A.com"]`), dotted + `allowed_domains.1: duplicate domain "A.com"`},
		"domain number":     {domains(`[1]`), `tools[0].configs[0].allowed_domains[0]: expected a string, got a number`},
		"tokens":            {toolset(`{"name":"web_fetch","max_content_tokens":0}`), `tools[0].configs[0].max_content_tokens: must be greater than 0`},
		"tokens fraction":   {toolset(`{"name":"web_fetch","max_content_tokens":1.5}`), `tools[0].configs[0].max_content_tokens: expected an integer of at most 64 bits`},
		"sources none":      {toolset(`{"name":"web_fetch","url_sources":{"user_input":"none","client_tool_results":{"type":"none"},"server_tool_results":"none"}}`), `tools[0].configs[0].url_sources: all sources are none, so that nothing could be fetched; disable web_fetch instead`},
		"source word":       {toolset(`{"name":"web_fetch","url_sources":{"user_input":"some"}}`), `tools[0].configs[0].url_sources.user_input: "some" is not a valid value; expected one of all, none`},
		"source only":       {toolset(`{"name":"web_fetch","url_sources":{"user_input":{"type":"only"}}}`), `tools[0].configs[0].url_sources.user_input.type: "only" is not a valid value; expected one of all, none`},
		"source empty":      {toolset(`{"name":"web_fetch","url_sources":{"server_tool_results":{"type":"except","tools":[]}}}`), `tools[0].configs[0].url_sources.server_tool_results.tools: must name at least one tool`},
		"source twice":      {toolset(`{"name":"web_fetch","url_sources":{"server_tool_results":{"type":"only","tools":[{"type":"tool_reference","name":"web_fetch"},{"type":"tool_reference","name":"web_fetch"}]}}}`), `tools[0].configs[0].url_sources.server_tool_results.tools[1]: duplicate entry for tool "web_fetch"`},
		"source client":     {toolset(`{"name":"web_fetch","url_sources":{"client_tool_results":{"type":"only","tools":[{"type":"tool_reference","name":"nope"}]}}}`), dotted + `url_sources.client_tool_results.tools.0.name: "nope" is not a custom tool of this agent`},
		"source server":     {toolset(`{"name":"web_fetch","url_sources":{"server_tool_results":{"type":"only","tools":[{"type":"tool_reference","name":"bash"}]}}}`), dotted + `url_sources.server_tool_results.tools.0.name: "bash" is not a valid value; expected one of web_fetch, web_search`},
		"location kind":     {toolset(`{"name":"web_search","user_location":{}}`), `tools[0].configs[0].user_location.type: field is required`},
		"location country":  {toolset(`{"name":"web_search","user_location":{"type":"approximate","country":"no"}}`), `tools[0].configs[0].user_location.country: "no" is not a country code of two capital letters`},
		"custom name":       {custom(`"name":"a b","description":"d","input_schema":{"type":"object"}`), `tools[0].name: "a b" must be 1 to 128 letters, digits, underscores or hyphens`},
		"custom built-in":   {custom(`"name":"bash","description":"d","input_schema":{"type":"object"}`), `tools[0].name: "bash" is the name of a built-in tool`},
		"custom mcp":        {custom(`"name":"mcp__x","description":"d","input_schema":{"type":"object"}`), `tools[0].name: "mcp__x" begins with mcp__, which is reserved for tools of MCP servers`},
		"custom words":      {custom(`"name":"t","description":"","input_schema":{"type":"object"}`), `tools[0].description: must not be empty`},
		"custom twice":      {tools(customs[0] + "," + customs[0]), `tools[1].name: duplicate entry for tool "t0"`},
		"schema missing":    {custom(`"name":"t","description":"d"`), `tools[0].input_schema: field is required`},
		"schema string":     {schema(`"object"`), `tools[0].input_schema: expected an object, got a string`},
		"schema no type":    {schema(`{}`), `tools[0].input_schema.type: field is required and must be "object"`},
		"schema type":       {schema(`{"type":"string"}`), `tools[0].input_schema.type: "string" is not a valid value; expected one of object`},
		"schema anyOf":      {schema(`{"type":"object","anyOf":[]}`), `tools[0].input_schema.anyOf: is not supported at the top level of an input_schema`},
		"schema property":   {schema(`{"type":"object","properties":{"a b":{}}}`), `tools[0].input_schema.properties: property name "a b" must be 1 to 64 letters, digits, underscores, dots or hyphens`},
		"schema required":   {schema(`{"type":"object","required":[1]}`), `tools[0].input_schema.required[0]: expected a string, got a number`},
		"schema properties": {schema(`{"type":"object","properties":[]}`), `tools[0].input_schema.properties: expected an object, got an array`},
		"schema reference":  {schema(`{"type":"object","properties":{"a":{"items":[{"$ref":"#"}]}}}`), `tools[0].input_schema.properties.a.items[0]["$ref"]: references are not supported in an input_schema; write the schema out`},

		"toolset without server": {servers(``, served), `tools.0.mcp_toolset.mcp_server_name: "s" is not declared in mcp_servers`},
		"server without toolset": {servers(server, ``), `mcp_servers[0]: "s" is not referenced by any mcp_toolset in tools`},
		"two mcp toolsets":       {servers(server, served+","+served), `tools.1.mcp_toolset: duplicate entry for MCP server "s"; each MCP server may have at most one mcp_toolset`},
		"two servers":            {servers(server+","+server, served), `mcp_servers[1].name: duplicate entry for MCP server "s"`},
		"mcp tool twice":         {servers(server, `{"type":"mcp_toolset","mcp_server_name":"s","configs":[{"name":"x"},{"name":"x"}]}`), `tools.0.mcp_toolset.configs.1: duplicate entry for tool "x"`},
		"mcp tool name":          {servers(server, `{"type":"mcp_toolset","mcp_server_name":"s","configs":[{"name":""}]}`), `tools[0].configs[0].name: must not be empty`},
		"mcp URL":                {servers(`{"type":"url","name":"s","url":"ftp://secret@x"}`, served), `mcp_servers[0].url: must be an absolute http or https URL`},
		"mcp kind":               {servers(`{"type":"stdio","name":"s","url":"https://x"}`, served), `mcp_servers[0].type: "stdio" is not a valid value; expected one of url`},
		"skill kind":             {`{"name":"a","model":"m","skills":[{"type":"x"}]}`, `skills[0].type: "x" is not a valid value; expected one of anthropic, custom`},
		"skill twice":            {`{"name":"a","model":"m","skills":[{"type":"anthropic","skill_id":"xlsx"},{"type":"anthropic","skill_id":"xlsx"}]}`, `Agent has invalid configuration: duplicate skill_id "xlsx"`},
		"skill name":             {`{"name":"a","model":"m","skills":[{"type":"anthropic","skill_id":""}]}`, `skills[0].skill_id: must not be empty`},
	} {
		t.Run(name, func(t *testing.T) {
			agent, err := resource.CreateAgent([]byte(c.body), defaults)
			if err == nil {
				t.Fatalf("accepted as %s", encode(t, agent))
			}
			wantRefusal(t, err, c.want)
		})
	}
}

func TestEffortWithoutDefaults(t *testing.T) {
	for _, d := range []resource.Defaults{{}, {DefaultEffort: func(string) string { return "" }}} {
		agent, err := resource.CreateAgent([]byte(`{"name":"a","model":{"id":"m","effort":null,"speed":null,"inference_geo":null}}`), d)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(encode(t, agent.Model)); got != `{"id":"m","effort":{"type":"high"},"speed":"standard"}` {
			t.Errorf("got %s", got)
		}
	}
}

func TestUpdateAgent(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		changed bool
		look    func(*resource.Agent) any
		want    string
	}{
		"nothing":            {``, false, nil, ``},
		"empty":              {`{}`, false, nil, ``},
		"same":               {`{"name":"Reviewer","description":"Reviews changes","metadata":{"zeta":"1"}}`, false, nil, ``},
		"current version":    {`{"version":1}`, false, nil, ``},
		"null version":       {`{"version":null}`, false, nil, ``},
		"name":               {`{"name":"Other"}`, true, func(a *resource.Agent) any { return a.Name }, `"Other"`},
		"clear description":  {`{"description":null}`, true, func(a *resource.Agent) any { return a.Description }, `null`},
		"empty system":       {`{"system":""}`, true, func(a *resource.Agent) any { return a.System }, `null`},
		"model keeps effort": {`{"model":"claude-opus-5-5"}`, true, func(a *resource.Agent) any { return a.Model }, `{"id":"claude-opus-5-5","effort":{"type":"low"},"speed":"standard"}`},
		"null effort":        {`{"model":{"id":"claude-opus-5-5","effort":null,"speed":"fast","inference_geo":"us"}}`, true, func(a *resource.Agent) any { return a.Model }, `{"id":"claude-opus-5-5","effort":{"type":"high"},"speed":"fast","inference_geo":"us"}`},
		"other model":        {`{"model":{"id":"claude-haiku-5-5"}}`, true, func(a *resource.Agent) any { return a.Model }, `{"id":"claude-haiku-5-5","effort":{"type":"medium"},"speed":"standard"}`},
		"metadata":           {`{"metadata":{"zeta":null,"new":"x"}}`, true, func(a *resource.Agent) any { return a.Metadata }, `{"alpha":"two","new":"x"}`},
		"metadata null":      {`{"metadata":null}`, false, nil, ``},
		"clear all":          {`{"tools":null,"mcp_servers":[],"skills":null}`, true, func(a *resource.Agent) any { return []any{a.Tools, a.MCPServers, a.Skills} }, `[[],[],[]]`},
		"identity":           {`{"execution_identity":null}`, true, func(a *resource.Agent) any { return a.ExecutionIdentity }, `{"type":"service_account"}`},
	} {
		t.Run(name, func(t *testing.T) {
			current := fullAgent(t)
			before := encode(t, current)
			next, changed, err := updateAgent(current, []byte(c.body), defaults)
			if err != nil {
				t.Fatal(err)
			}
			if changed != c.changed {
				t.Errorf("changed is %v, want %v", changed, c.changed)
			}
			if want := current.Version; changed && next.Version != want+1 || !changed && next != current {
				t.Errorf("got version %d after %d", next.Version, want)
			}
			if c.look != nil {
				if got := string(encode(t, c.look(next))); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			}
			if after := encode(t, current); string(after) != string(before) {
				t.Errorf("the current version was changed in place: %s", after)
			}
		})
	}
}

func TestUpdateAgentRefuses(t *testing.T) {
	archived, _ := fullAgent(t).Archive(later)
	for name, c := range map[string]struct {
		agent *resource.Agent
		body  string
		kind  problem.Kind
		want  string
	}{
		"stale version":           {fullAgent(t), `{"version":2,"name":"Reviewer"}`, problem.Conflict, `Concurrent modification detected. Please fetch the latest version and retry.`},
		"stale before merge":      {fullAgent(t), `{"version":2,"mcp_servers":[]}`, problem.Conflict, `Concurrent modification detected. Please fetch the latest version and retry.`},
		"parse before stale":      {fullAgent(t), `{"version":2,"name":1}`, problem.Invalid, `name: expected a string, got a number`},
		"version zero":            {fullAgent(t), `{"version":0}`, problem.Invalid, `version: must be at least 1`},
		"archived":                {archived, `{}`, problem.Invalid, `Cannot modify archived agent`},
		"clear name":              {fullAgent(t), `{"name":null}`, problem.Invalid, `name: cannot be cleared`},
		"empty name":              {fullAgent(t), `{"name":""}`, problem.Invalid, `name: must not be empty`},
		"clear model":             {fullAgent(t), `{"model":null}`, problem.Invalid, `model: cannot be cleared`},
		"servers still named":     {fullAgent(t), `{"mcp_servers":null}`, problem.Invalid, `tools.1.mcp_toolset.mcp_server_name: "tracker" is not declared in mcp_servers`},
		"servers no longer named": {fullAgent(t), `{"tools":[]}`, problem.Invalid, `mcp_servers[0]: "tracker" is not referenced by any mcp_toolset in tools`},
		"multiagent":              {fullAgent(t), `{"multiagent":{}}`, problem.Invalid, `multiagent: not supported by this version of the server`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := updateAgent(c.agent, []byte(c.body), defaults)
			p := refusal(t, err)
			if p.Message != c.want || p.Kind != c.kind {
				t.Errorf("got  %v %s\nwant %v %s", p.Kind, p.Message, c.kind, c.want)
			}
			if p.Final != (c.kind == problem.Conflict) {
				t.Errorf("final is %v", p.Final)
			}
		})
	}
}

func TestReorderedSchemaIsNoChange(t *testing.T) {
	current := mustCreateAgent(t, `{"name":"a","model":"m","tools":[{"type":"custom","name":"t","description":"d","input_schema":{"type":"object","properties":{"b":{},"a":{}}}}]}`)
	for schema, changed := range map[string]bool{
		`{"properties":{"a":{},"b":{}},"type":"object"}`:                 false,
		`{"properties":{"a":{},"b":{}},"type":"object","required":null}`: false,
		`{"properties":{"a":{},"c":{}},"type":"object"}`:                 true,
	} {
		body := `{"tools":[{"type":"custom","name":"t","description":"d","input_schema":` + schema + `}]}`
		if _, got, err := updateAgent(current, []byte(body), defaults); err != nil || got != changed {
			t.Errorf("%s: changed is %v, want %v, error %v", schema, got, changed, err)
		}
	}
}

func TestToolPolicy(t *testing.T) {
	agent := fullAgent(t)
	bare := mustCreateAgent(t, `{"name":"a","model":"m"}`)
	for _, c := range []struct {
		config  *resource.AgentConfig
		name    string
		kind    resource.ToolKind
		enabled bool
		policy  string
	}{
		{&agent.AgentConfig, "bash", resource.KindToolset, true, "auto"},
		{&agent.AgentConfig, "read", resource.KindToolset, true, "always_ask"},
		{&agent.AgentConfig, "write", resource.KindToolset, false, "always_ask"},
		{&agent.Snapshot().AgentConfig, "ticket", resource.KindCustom, true, ""},
		{&agent.AgentConfig, "mcp__tracker__close", resource.KindMCP, false, "always_ask"},
		{&agent.AgentConfig, "mcp__tracker__open", resource.KindMCP, true, "always_ask"},
		{&agent.AgentConfig, "mcp__other__open", resource.KindMCP, false, ""},
		{&agent.AgentConfig, "nope", resource.KindUnknown, false, ""},
		{&bare.AgentConfig, "bash", resource.KindToolset, false, ""},
	} {
		kind, enabled, policy := c.config.ToolPolicy(c.name)
		if kind != c.kind || enabled != c.enabled || policy != c.policy {
			t.Errorf("%s: got %s %v %q, want %s %v %q", c.name, kind, enabled, policy, c.kind, c.enabled, c.policy)
		}
	}

	var names []string
	for _, config := range agent.EnabledBuiltins() {
		names = append(names, config.Name+":"+config.PermissionPolicy.Type)
	}
	want := "bash:auto read:always_ask edit:always_ask glob:always_ask grep:always_ask web_fetch:always_ask web_search:always_ask"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if tools := agent.CustomTools(); len(tools) != 1 || tools[0].Name != "ticket" {
		t.Errorf("got custom tools %v", tools)
	}
	if domains, fetch := agent.WebFetch(); len(domains.Allowed) != 1 || *fetch.MaxContentTokens != 5000 ||
		!fetch.URLSources.ClientToolResults.Includes("ticket") || fetch.URLSources.ClientToolResults.Includes("other") ||
		fetch.URLSources.UserInput.Includes("") {
		t.Errorf("got web_fetch %+v %+v", domains, fetch)
	}
	if domains, search := agent.WebSearch(); domains.Allowed != nil || len(domains.Blocked) != 1 || *search.UserLocation.City != "Oslo" {
		t.Errorf("got web_search %+v %+v", domains, search)
	}
	if domains, fetch := bare.WebFetch(); domains.Allowed != nil || fetch.URLSources != nil {
		t.Errorf("got web_fetch %+v %+v of a bare agent", domains, fetch)
	}
}

func TestLongestServerNameDecides(t *testing.T) {
	agent := mustCreateAgent(t, `{"name":"a","model":"m",
		"mcp_servers":[{"type":"url","name":"a","url":"https://a.example"},{"type":"url","name":"a__b","url":"https://b.example"}],
		"tools":[{"type":"mcp_toolset","mcp_server_name":"a"},
			{"type":"mcp_toolset","mcp_server_name":"a__b","default_config":{"permission_policy":{"type":"always_allow"}}}]}`)
	if _, _, policy := agent.ToolPolicy("mcp__a__b__c"); policy != "always_allow" {
		t.Errorf("got %s", policy)
	}
	if _, _, policy := agent.ToolPolicy("mcp__a__c"); policy != "always_ask" {
		t.Errorf("got %s", policy)
	}
}
