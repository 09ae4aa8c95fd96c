package resource

// Environment says where the tools of a session run.
type Environment struct {
	ID          string            `json:"id"`
	Type        string            `json:"type"` // environment
	Name        string            `json:"name"`
	Description *string           `json:"description"`
	Config      EnvironmentConfig `json:"config"`
	Metadata    Metadata          `json:"metadata"`
	Scope       string            `json:"scope"` // organization
	CreatedAt   Time              `json:"created_at"`
	UpdatedAt   Time              `json:"updated_at"`
	ArchivedAt  *Time             `json:"archived_at"`
}

// The types of environments.
const (
	Cloud      = "cloud"       // sandboxes of this server
	SelfHosted = "self_hosted" // machines of the client, which run a worker
)

// EnvironmentConfig is the resolved configuration. Networking and Packages are those of a cloud environment.
type EnvironmentConfig struct {
	Type       string      `json:"type"` // cloud | self_hosted
	Networking *Networking `json:"networking,omitzero"`
	Packages   *Packages   `json:"packages,omitzero"`
}

// Networking says what a sandbox may connect to. Limited is set exactly when Type is limited.
type Networking struct {
	Type    string   `json:"type"` // unrestricted | limited
	Limited *Limited `json:",embed"`
}

// Limited says what a limited sandbox may connect to.
type Limited struct {
	AllowedHosts         Hosts `json:"allowed_hosts"`
	AllowMCPServers      bool  `json:"allow_mcp_servers"`
	AllowPackageManagers bool  `json:"allow_package_managers"`
}

// Hosts is a list of host names and *.suffixes, as the client wrote them.
type Hosts []string

// Packages are installed in a sandbox before it is used, in the order of these fields.
type Packages struct {
	Type  string   `json:"type"` // packages
	Apt   []string `json:"apt"`
	Cargo []string `json:"cargo"`
	Gem   []string `json:"gem"`
	Go    []string `json:"go"`
	NPM   []string `json:"npm"`
	Pip   []string `json:"pip"`
}

// Empty reports whether there is nothing to install.
func (p *Packages) Empty() bool {
	return p == nil || len(p.Apt)+len(p.Cargo)+len(p.Gem)+len(p.Go)+len(p.NPM)+len(p.Pip) == 0
}

// SelfHosted reports whether the client's own machines run the tools.
func (e *Environment) SelfHosted() bool { return e.Config.Type == SelfHosted }

// Archive returns the environment archived at a moment, and whether that changed it: it is archived once.
func (e *Environment) Archive(at Time) (next *Environment, changed bool) {
	if e.ArchivedAt != nil {
		return e, false
	}
	archived := *e
	archived.ArchivedAt, archived.UpdatedAt = &at, at
	return &archived, true
}

// Deleted is the answer to a delete.
type Deleted struct {
	ID   string `json:"id"`
	Type string `json:"type"` // environment_deleted | session_deleted | session_resource_deleted | file_deleted
}
