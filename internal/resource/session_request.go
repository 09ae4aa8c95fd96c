package resource

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
	"github.com/perdure/perdure/internal/problem"
)

// Limits of a session, in characters or entries.
const (
	maxTitle         = 1_024
	maxFiles         = 500
	maxVaults        = 50
	maxInitialEvents = 50
)

// SessionCreate is the body of POST /v1/sessions.
type SessionCreate struct {
	Agent         AgentReference
	EnvironmentID string
	Title         *string
	Metadata      Metadata
	Files         []FileMount // in the order of the request, with default paths filled in
	Budget        *Budget
	// InitialEvents are the events as sent, each a JSON object and otherwise unread. They share the body's memory.
	InitialEvents []jsontext.Value
}

// AgentReference names the agent of a session.
type AgentReference struct {
	ID        string
	Version   int64      // 0 for the latest
	Overrides *Overrides // nil if the agent is used as it is
}

// Overrides change an agent for one session. What is left out is as the agent has it.
type Overrides struct {
	System     Optional[string]
	Tools      Optional[[]Tool]
	MCPServers Optional[[]MCPServer]
	Skills     Optional[[]Skill]

	model Optional[modelParams]
}

// The fields that a served session has and its create and update do not use.
var sessionReadOnly = []string{"id", "type", "status", "usage", "stats", "outcome_evaluations", "deployment_id",
	"created_at", "updated_at", "archived_at"}

// DecodeSessionCreate reads the body of POST /v1/sessions. It does not know whether the agent, the environment and the
// files exist; CheckSession has the rules that need them.
//
// The title has at most 1,024 characters; there are at most 500 files and 50 initial events. Every error is a
// *problem.Error.
func DecodeSessionCreate(body []byte) (*SessionCreate, error) {
	root, err := readBody(body)
	if err != nil {
		return nil, err
	}
	o := root.object(append([]string{"agent", "environment_id", "title", "metadata", "resources", "vault_ids", "budget",
		"initial_events"}, sessionReadOnly...)...)
	if n := o.field("type"); !n.missing() {
		n.word("session")
	}
	c := &SessionCreate{
		Agent:         readAgentReference(o.field("agent")),
		EnvironmentID: o.field("environment_id").text(),
		Title:         optional(o.field("title"), pointer).Or(nil),
		Metadata:      readMetadata(o.field("metadata")),
		Files:         optional(o.field("resources"), readFileMounts).Or(nil),
		Budget:        optional(o.field("budget"), readBudget).Or(nil),
		InitialEvents: optional(o.field("initial_events"), readEvents).Or(nil),
	}
	refuseVaults(o.field("vault_ids"))
	root.checkID(id.Agent, c.Agent.ID, "Invalid agent ID.")
	root.checkID(id.Environment, c.EnvironmentID, "Invalid environment ID.")
	checkTitle(root.verdict, c.Title)
	c.Metadata.check(root.verdict, "metadata")
	c.Files = resolveMounts(root.verdict, c.Files)
	return c, root.err()
}

// checkID refuses an id that is not of the kind. The words are the wire's own, without a place.
func (v *verdict) checkID(prefix id.Prefix, text, words string) {
	if v.ok() && !id.Valid(prefix, text) {
		v.refuseAs(problem.Invalidf("%s", words))
	}
}

func checkTitle(v *verdict, title *string) {
	if title != nil {
		v.length("title", *title, 0, maxTitle)
	}
}

func refuseVaults(n node) {
	if !n.missing() && len(n.elements(maxVaults)) > 0 {
		n.refuse(n.path, unsupported)
	}
}

func readEvents(n node) []jsontext.Value {
	return list(n, maxInitialEvents, func(n node) jsontext.Value {
		n.is('{', "an object")
		return n.raw
	})
}

// readAgentReference reads the three forms of agent: an id, a reference, a reference with changes. A served snapshot counts
// as a reference.
func readAgentReference(n node) AgentReference {
	if n.raw.Kind() == '"' {
		return AgentReference{ID: n.text()}
	}
	if !n.is('{', "a string or an object") {
		return AgentReference{}
	}
	fields := []string{"type", "id", "version"}
	overridden := n.variant("agent", "agent_with_overrides") == "agent_with_overrides"
	switch {
	case overridden:
		fields = append(fields, "model", "system", "tools", "mcp_servers", "skills")
	case n.snapshot():
		fields = snapshotFields
	default:
		n.refuseOverrides()
	}
	o := n.object(fields...)
	reference := AgentReference{
		ID:      o.field("id").text(),
		Version: optional(o.field("version"), readVersion).Or(0),
	}
	if overridden {
		reference.Overrides = &Overrides{
			System:     optional(o.field("system"), node.text),
			Tools:      optional(o.field("tools"), readTools),
			MCPServers: optional(o.field("mcp_servers"), readMCPServers),
			Skills:     optional(o.field("skills"), readSkills),
			model:      optional(o.field("model"), readModel),
		}
	}
	return reference
}

var snapshotFields = []string{"type", "id", "version", "name", "description", "model", "system", "tools", "mcp_servers",
	"skills", "multiagent", "execution_identity"}

// snapshot reports whether an object is an agent as a session serves it. Only that has a name; no request does.
func (n node) snapshot() bool {
	for name := range n.members() {
		if name == "name" {
			return true
		}
	}
	return false
}

// refuseOverrides keeps a client that meant to change the agent from running it unchanged.
func (n node) refuseOverrides() {
	for name, field := range n.members() {
		switch name {
		case "model", "system", "tools", "mcp_servers", "skills":
			n.refuse(field.path, `unknown field; to change the agent for this session use type "agent_with_overrides"`)
		}
	}
}

// ApplyOverrides returns the agent as a session with these overrides has it, under the id and version of the agent. A nil
// o changes nothing. The effort of a model that is overridden is its default, whatever the request says.
func ApplyOverrides(agent *Agent, o *Overrides, d Defaults) (*Agent, error) {
	if o == nil {
		return agent, nil
	}
	if o.model.Null() {
		return nil, problem.Invalidf("agent.model: cannot be null; leave it out to use the agent's model").
			WithCode("agent_model_required")
	}
	next := *agent
	if model, ok := o.model.Value(); ok {
		model.effort = Optional[string]{}
		next.Model = model.resolve(d)
	}
	if o.System.Given() {
		next.System = textOrNull(o.System)
	}
	next.Tools = replaceList(o.Tools, agent.Tools)
	next.MCPServers = replaceList(o.MCPServers, agent.MCPServers)
	next.Skills = replaceList(o.Skills, agent.Skills)
	var v verdict
	next.check(&v, "agent.")
	if !v.ok() {
		return nil, v.err()
	}
	if err := next.CheckSkills(); err != nil {
		return nil, err
	}
	return &next, nil
}

// CheckSession refuses a session that could not run: the agent, with overrides applied, or the environment is archived,
// skills lack the read tool, an MCP server cannot be reached, or files are to go to machines that are not ours.
func CheckSession(agent *Agent, environment *Environment, create *SessionCreate) error {
	if agent.ArchivedAt != nil {
		return problem.Invalidf("agent %s is archived and cannot be used to create a session", agent.ID)
	}
	if environment.ArchivedAt != nil {
		return problem.Invalidf("Environment %s is archived.", environment.ID)
	}
	if err := agent.CheckSkills(); err != nil {
		return err
	}
	if err := environment.Config.checkMCPHosts(agent.MCPServers); err != nil {
		return err
	}
	if len(create.Files) > 0 {
		return CheckResources(environment)
	}
	return nil
}

// CheckResources refuses files for a session in this environment if it is self-hosted.
func CheckResources(environment *Environment) error {
	if environment.SelfHosted() {
		return problem.Invalidf("Environment %s is a self-hosted environment. "+
			"`resources` are not supported with self-hosted environments.", environment.ID)
	}
	return nil
}

// SessionUpdate is the body of POST /v1/sessions/{id}.
type SessionUpdate struct {
	Title      Optional[string] // null clears
	Metadata   MetadataPatch
	Tools      Optional[[]Tool]
	MCPServers Optional[[]MCPServer]
	Budget     Optional[*Budget] // null removes
}

// DecodeSessionUpdate reads the body of POST /v1/sessions/{id}. Every error is a *problem.Error.
func DecodeSessionUpdate(body []byte) (*SessionUpdate, error) {
	root, err := readBody(body)
	if err != nil {
		return nil, err
	}
	o := root.object(append([]string{"title", "metadata", "agent", "budget", "vault_ids", "environment_id", "resources"},
		sessionReadOnly...)...)
	u := &SessionUpdate{
		Title:    optional(o.field("title"), node.text),
		Metadata: readMetadataPatch(o.field("metadata")),
		Budget:   optional(o.field("budget"), readBudget),
	}
	if n := o.field("type"); !n.missing() {
		n.word("session")
	}
	if n := o.field("agent"); !n.missing() && n.is('{', "an object") {
		fields := []string{"tools", "mcp_servers"}
		if n.snapshot() {
			fields = snapshotFields
		}
		a := n.object(fields...)
		u.Tools = optional(a.field("tools"), readTools)
		u.MCPServers = optional(a.field("mcp_servers"), readMCPServers)
	}
	refuseVaults(o.field("vault_ids"))
	if title, ok := u.Title.Value(); ok {
		checkTitle(root.verdict, &title)
	}
	return u, root.err()
}

// ChangesAgent reports whether the update names tools or MCP servers. Such an update needs an idle session, if
// ApplyAgent finds that it changes anything.
func (u *SessionUpdate) ChangesAgent() bool { return u.Tools.Given() || u.MCPServers.Given() }

// ApplyAgent returns the agent of a session after the update, and whether it is different.
func (u *SessionUpdate) ApplyAgent(current *AgentSnapshot) (next *AgentSnapshot, changed bool, err error) {
	if !u.ChangesAgent() {
		return current, false, nil
	}
	merged := *current
	merged.Tools = replaceList(u.Tools, current.Tools)
	merged.MCPServers = replaceList(u.MCPServers, current.MCPServers)
	var v verdict
	merged.checkTools(&v, "agent.")
	if !v.ok() {
		return nil, false, v.err()
	}
	if err := merged.CheckSkills(); err != nil {
		return nil, false, err
	}
	same, err := equal(current, &merged)
	if err != nil || same {
		return current, false, err
	}
	return &merged, true, nil
}
