package resource

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// Limits of an agent, in characters or entries.
const (
	maxAgentName        = 256
	maxAgentDescription = 2_048
	maxAgentSystem      = 100_000
	maxModelID          = 256
	maxSkills           = 500
	maxRoleARN          = 2_048
)

// unsupported ends the refusal of what the wire knows and this server does not do.
const unsupported = "not supported by this version of the server"

// agentParams is the body of a create or an update.
type agentParams struct {
	name, description, system Optional[string]
	model                     Optional[modelParams]
	tools                     Optional[[]Tool]
	mcpServers                Optional[[]MCPServer]
	skills                    Optional[[]Skill]
	identity                  Optional[ExecutionIdentity]
	metadata                  MetadataPatch
	version                   Optional[int64]
}

// CreateAgent reads the body of a create and resolves it. The caller sets ID, CreatedAt and UpdatedAt.
//
// The name has 1 to 256 characters, the description at most 2,048, the system prompt at most 100,000; there are at most
// 256 tools, 20 MCP servers and 500 skills. Every error is a *problem.Error.
func CreateAgent(body []byte, d Defaults) (*Agent, error) {
	root, err := readBody(body)
	if err != nil {
		return nil, err
	}
	p := readAgentParams(root, func(n node) MetadataPatch { return patchOf(readMetadata(n)) })
	name, named := p.name.Value()
	model, modelled := p.model.Value()
	if !named {
		root.refuse("name", "field is required")
	}
	if !modelled {
		root.refuse("model", "field is required")
	}
	if !root.ok() {
		return nil, root.err()
	}
	agent := &Agent{
		Type:    "agent",
		Version: 1,
		AgentConfig: AgentConfig{
			Name:              name,
			Description:       textOrNull(p.description),
			Model:             model.resolve(d),
			System:            textOrNull(p.system),
			Tools:             p.tools.Or([]Tool{}),
			MCPServers:        p.mcpServers.Or([]MCPServer{}),
			Skills:            p.skills.Or([]Skill{}),
			ExecutionIdentity: p.identity.Or(ExecutionIdentity{Type: "service_account"}),
		},
	}
	agent.Metadata = p.metadata.apply(root.verdict, nil)
	agent.check(root.verdict, "")
	return agent, root.err()
}

// AgentUpdate is the body of POST /v1/agents/{id}.
type AgentUpdate struct {
	params  agentParams
	verdict *verdict
}

// DecodeAgentUpdate reads the body of an update. It does not know the agent; Apply has the rules that need it.
func DecodeAgentUpdate(body []byte) (*AgentUpdate, error) {
	root, err := readBody(body)
	if err != nil {
		return nil, err
	}
	p := readAgentParams(root, readMetadataPatch)
	if p.name.Null() {
		root.refuse("name", "cannot be cleared")
	}
	if p.model.Null() {
		root.refuse("model", "cannot be cleared")
	}
	return &AgentUpdate{p, root.verdict}, root.err()
}

// Apply applies the update to the current version. If that changes anything, next is the agent with the next version
// number, whose UpdatedAt the caller sets; otherwise next is current.
//
// What is left out stays. Null or "" clears description and system; null or [] clears tools, mcp_servers and skills, and a
// list replaces all of the list; metadata is changed key by key, null deletes a key. A version that is not the current one
// is refused with a conflict, an archived agent is not changed.
func (u *AgentUpdate) Apply(current *Agent, d Defaults) (next *Agent, changed bool, err error) {
	p, v := u.params, *u.verdict
	if current.ArchivedAt != nil {
		return nil, false, problem.Invalidf("Cannot modify archived agent")
	}
	if version, ok := p.version.Value(); ok && version != current.Version {
		return nil, false, problem.Conflictf("Concurrent modification detected. Please fetch the latest version and retry.")
	}
	merged := *current
	merged.Name = p.name.Or(current.Name)
	if model, ok := p.model.Value(); ok {
		merged.Model = model.replace(current.Model, d)
	}
	if p.description.Given() {
		merged.Description = textOrNull(p.description)
	}
	if p.system.Given() {
		merged.System = textOrNull(p.system)
	}
	merged.Tools = replaceList(p.tools, current.Tools)
	merged.MCPServers = replaceList(p.mcpServers, current.MCPServers)
	merged.Skills = replaceList(p.skills, current.Skills)
	if p.identity.Given() {
		merged.ExecutionIdentity = p.identity.Or(ExecutionIdentity{Type: "service_account"})
	}
	merged.Metadata = p.metadata.apply(&v, current.Metadata)
	merged.check(&v, "")
	if !v.ok() {
		return nil, false, v.err()
	}
	same, err := equal(current, &merged)
	if err != nil || same {
		return current, false, err
	}
	merged.Version++
	return &merged, true, nil
}

func readAgentParams(root node, metadata func(node) MetadataPatch) agentParams {
	o := root.object("name", "model", "description", "system", "tools", "mcp_servers", "skills", "metadata", "multiagent",
		"execution_identity", "version", "type", "id", "created_at", "updated_at", "archived_at")
	p := agentParams{
		name:        optional(o.field("name"), node.text),
		description: optional(o.field("description"), node.text),
		model:       optional(o.field("model"), readModel),
		system:      optional(o.field("system"), node.text),
		tools:       optional(o.field("tools"), readTools),
		mcpServers:  optional(o.field("mcp_servers"), readMCPServers),
		skills:      optional(o.field("skills"), readSkills),
		identity:    optional(o.field("execution_identity"), readIdentity),
		metadata:    metadata(o.field("metadata")),
		version:     optional(o.field("version"), readVersion),
	}
	if n := o.field("multiagent"); !n.missing() {
		n.refuse(n.path, unsupported)
	}
	if n := o.field("type"); !n.missing() {
		n.word("agent")
	}
	return p
}

func readVersion(n node) int64 {
	version := n.integer()
	if n.ok() && version < 1 {
		n.refuse(n.path, "must be at least 1")
	}
	return version
}

func readSkills(n node) []Skill {
	return list(n, maxSkills, func(n node) Skill {
		o := n.object("type", "skill_id", "version")
		return Skill{
			Type:    o.field("type").word("anthropic", "custom"),
			SkillID: o.field("skill_id").text(),
			Version: optional(o.field("version"), node.text).Or("latest"),
		}
	})
}

func readIdentity(n node) ExecutionIdentity {
	if n.variant("service_account", "aws_role") == "aws_role" {
		return ExecutionIdentity{Type: "aws_role", RoleARN: n.object("type", "role_arn").field("role_arn").text()}
	}
	n.object("type")
	return ExecutionIdentity{Type: "service_account"}
}

// check applies the rules of a whole agent. The prefix is the path of what holds its fields.
func (c *AgentConfig) check(v *verdict, prefix string) {
	v.length(prefix+"name", c.Name, 1, maxAgentName)
	v.length(prefix+"model", c.Model.ID, 1, maxModelID)
	if c.Description != nil {
		v.length(prefix+"description", *c.Description, 0, maxAgentDescription)
	}
	if c.System != nil {
		v.length(prefix+"system", *c.System, 0, maxAgentSystem)
	}
	if c.ExecutionIdentity.Type == "aws_role" {
		v.length(prefix+"execution_identity.role_arn", c.ExecutionIdentity.RoleARN, 1, maxRoleARN)
	}
	c.checkTools(v, prefix)
	seen := make(map[string]bool)
	for i, skill := range c.Skills {
		at := index(prefix+"skills", i)
		v.length(at+".skill_id", skill.SkillID, 1, 255)
		v.length(at+".version", skill.Version, 1, 255)
		if seen[skill.SkillID] {
			v.refuseAs(problem.Invalidf("Agent has invalid configuration: duplicate skill_id %s", quote(skill.SkillID)))
		}
		seen[skill.SkillID] = true
	}
}

// patchOf makes a patch that sets all of m.
func patchOf(m Metadata) MetadataPatch {
	p := MetadataPatch{}
	for key, value := range m {
		p[key] = &value
	}
	return p
}

// textOrNull returns the text of a field, for which null and "" are the same.
func textOrNull(field Optional[string]) *string {
	if text, ok := field.Value(); ok && text != "" {
		return &text
	}
	return nil
}

// replaceList returns the list that a request leaves: the current one if it names none, an empty one if it clears it.
func replaceList[T any](field Optional[[]T], current []T) []T {
	if !field.Given() {
		return current
	}
	return field.Or([]T{})
}

// equal reports whether two objects mean the same on the wire. The order of keys, which a client's library may change
// in a schema that it sends back, means nothing; the text of numbers does.
func equal(a, b any) (bool, error) {
	first, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	second, err := json.Marshal(b)
	if err != nil {
		return false, err
	}
	for _, value := range []*jsontext.Value{(*jsontext.Value)(&first), (*jsontext.Value)(&second)} {
		if err := value.Format(jsontext.ReorderRawObjects(true)); err != nil {
			return false, err
		}
	}
	return bytes.Equal(first, second), nil
}
