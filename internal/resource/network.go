package resource

import (
	"net/url"
	"strings"

	"github.com/perdure/perdure/internal/problem"
)

// The modes of a network.
const (
	NetworkUnrestricted = "unrestricted"
	NetworkLimited      = "limited"
)

// packageHosts are the public registries that allow_package_managers opens.
var packageHosts = []string{
	"archive.ubuntu.com", "security.ubuntu.com", // apt
	"crates.io", "index.crates.io", "static.crates.io", // cargo
	"rubygems.org", "index.rubygems.org", // gem
	"proxy.golang.org", "sum.golang.org", // go
	"registry.npmjs.org",                 // npm
	"pypi.org", "files.pythonhosted.org", // pip
}

// Network is what a sandbox may connect to.
type Network struct {
	Mode  string   // unrestricted | limited
	Hosts []string // with limited: host names and *.suffixes, in lower case; none of them allows nothing
}

// Network tells what the sandbox of a session may connect to. The hosts of package registries are among them if the
// environment allows package managers. MCP servers are not: the server itself talks to them.
func (c EnvironmentConfig) Network() Network {
	if c.Networking == nil || c.Networking.Limited == nil {
		return Network{Mode: NetworkUnrestricted}
	}
	limited := c.Networking.Limited
	n := Network{Mode: NetworkLimited, Hosts: limited.AllowedHosts.folded()}
	if limited.AllowPackageManagers {
		n.Hosts = append(n.Hosts, packageHosts...)
	}
	return n
}

// WebNetwork tells what the web tools of a session may reach: with limited networking, the allowed hosts and no more.
func (c EnvironmentConfig) WebNetwork() Network {
	if c.Networking == nil || c.Networking.Limited == nil {
		return Network{Mode: NetworkUnrestricted}
	}
	return Network{Mode: NetworkLimited, Hosts: c.Networking.Limited.AllowedHosts.folded()}
}

// Allows reports whether a host, given without a port, may be reached. A *.suffix stands for hosts below it at any depth,
// but not for the suffix itself.
func (n Network) Allows(host string) bool {
	if n.Mode != NetworkLimited {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, allowed := range n.Hosts {
		if suffix, ok := strings.CutPrefix(allowed, "*"); ok {
			if len(host) > len(suffix) && strings.HasSuffix(host, suffix) {
				return true
			}
		} else if host == allowed {
			return true
		}
	}
	return false
}

func (h Hosts) folded() []string {
	folded := make([]string, 0, len(h))
	for _, host := range h {
		folded = append(folded, strings.ToLower(host))
	}
	return folded
}

// checkMCPHosts refuses an agent with an MCP server that limited networking does not let it reach.
func (c EnvironmentConfig) checkMCPHosts(servers []MCPServer) error {
	if c.Networking == nil || c.Networking.Limited == nil || c.Networking.Limited.AllowMCPServers {
		return nil
	}
	network := c.WebNetwork()
	for i, server := range servers {
		u, err := url.Parse(server.URL)
		if err != nil || !network.Allows(u.Hostname()) {
			return problem.Invalidf("agent.%s: the host of MCP server %s is not in the environment's allowed_hosts; "+
				"add it there or set allow_mcp_servers", index("mcp_servers", i), quote(server.Name))
		}
	}
	return nil
}
