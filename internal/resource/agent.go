package resource

// AgentConfig is what an agent is made of, without its identity. An agent and its snapshot in a session share it.
type AgentConfig struct {
	Name        string      `json:"name"`
	Description *string     `json:"description"`
	Model       Model       `json:"model"`
	System      *string     `json:"system"`
	Tools       []Tool      `json:"tools"`
	MCPServers  []MCPServer `json:"mcp_servers"`
	Skills      []Skill     `json:"skills"`
	// Multiagent is always null: an agent of this server works alone.
	Multiagent        *struct{}         `json:"multiagent"`
	ExecutionIdentity ExecutionIdentity `json:"execution_identity"`
}

// Skill names a skill that an agent has.
type Skill struct {
	Type    string `json:"type"` // anthropic | custom
	SkillID string `json:"skill_id"`
	Version string `json:"version"` // "latest" if the client named none
}

// ExecutionIdentity is the principal that runs of an agent act for.
type ExecutionIdentity struct {
	Type    string `json:"type"`              // service_account | aws_role
	RoleARN string `json:"role_arn,omitzero"` // of an aws_role
}

// Agent is one version of an agent.
type Agent struct {
	ID      string `json:"id"`
	Type    string `json:"type"` // agent
	Version int64  `json:"version"`
	AgentConfig
	Metadata   Metadata `json:"metadata"`
	CreatedAt  Time     `json:"created_at"`
	UpdatedAt  Time     `json:"updated_at"`
	ArchivedAt *Time    `json:"archived_at"`
}

// AgentSnapshot is the agent of a session, as it was when the session was made and with the session's own changes.
type AgentSnapshot struct {
	ID      string `json:"id"`
	Type    string `json:"type"` // agent
	Version int64  `json:"version"`
	AgentConfig
}

// Snapshot returns the agent as a session keeps it.
func (a *Agent) Snapshot() *AgentSnapshot {
	return &AgentSnapshot{ID: a.ID, Type: "agent", Version: a.Version, AgentConfig: a.AgentConfig}
}

// Archive returns the agent archived at a moment, and whether that changed it: an agent is archived once.
func (a *Agent) Archive(at Time) (next *Agent, changed bool) {
	if a.ArchivedAt != nil {
		return a, false
	}
	archived := *a
	archived.ArchivedAt, archived.UpdatedAt = &at, at
	return &archived, true
}
