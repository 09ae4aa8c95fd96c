package resource

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/problem"
)

// mcpPrefix begins the names under which a model is shown the tools of MCP servers: mcp__server__tool.
const mcpPrefix = "mcp__"

// ToolKind says where a tool comes from.
type ToolKind string

// The kinds of tools.
const (
	KindToolset ToolKind = "toolset"
	KindMCP     ToolKind = "mcp"
	KindCustom  ToolKind = "custom"
	KindUnknown ToolKind = "unknown"
)

// ToolPolicy tells what holds for a tool by the name that a model calls it. A built-in tool of an agent without the
// toolset, and a tool of an MCP server that has no mcp_toolset, are known and not enabled. A custom tool is always enabled
// and has no policy (""). The policy of a tool that is not enabled is still told; it decides nothing.
func (c *AgentConfig) ToolPolicy(name string) (kind ToolKind, enabled bool, policy string) {
	if slices.Contains(Builtins, name) {
		config, ok := c.builtin(name)
		return KindToolset, ok && config.Enabled, config.PermissionPolicy.Type
	}
	if c.custom(name) != nil {
		return KindCustom, true, ""
	}
	if rest, ok := strings.CutPrefix(name, mcpPrefix); ok {
		return c.mcpPolicy(rest)
	}
	return KindUnknown, false, ""
}

// mcpPolicy tells what holds for server__tool. Names of servers may hold two underscores, so the longest that fits counts.
func (c *AgentConfig) mcpPolicy(rest string) (kind ToolKind, enabled bool, policy string) {
	var best *MCPToolset
	for _, tool := range c.Tools {
		if tool.MCP == nil || !strings.HasPrefix(rest, tool.MCP.MCPServerName+"__") {
			continue
		}
		if best == nil || len(tool.MCP.MCPServerName) > len(best.MCPServerName) {
			best = tool.MCP
		}
	}
	if best == nil {
		return KindMCP, false, ""
	}
	name := rest[len(best.MCPServerName)+len("__"):]
	for _, config := range best.Configs {
		if config.Name == name {
			return KindMCP, config.Enabled, config.PermissionPolicy.Type
		}
	}
	return KindMCP, best.DefaultConfig.Enabled, best.DefaultConfig.PermissionPolicy.Type
}

// EnabledBuiltins returns the resolved configurations of the built-in tools that are enabled, in the order of Builtins.
func (c *AgentConfig) EnabledBuiltins() []ToolConfig {
	var enabled []ToolConfig
	for _, name := range Builtins {
		if config, ok := c.builtin(name); ok && config.Enabled {
			enabled = append(enabled, config)
		}
	}
	return enabled
}

// CustomTools returns the custom tools in the order of the agent.
func (c *AgentConfig) CustomTools() []CustomTool {
	var tools []CustomTool
	for _, tool := range c.Tools {
		if tool.Custom != nil {
			tools = append(tools, *tool.Custom)
		}
	}
	return tools
}

// WebFetch returns the settings of web_fetch; without any configured, all of them are unset.
func (c *AgentConfig) WebFetch() (DomainLists, FetchSettings) {
	config, _ := c.builtin(WebFetch)
	return value(config.Domains), value(config.Fetch)
}

// WebSearch returns the settings of web_search; without any configured, all of them are unset.
func (c *AgentConfig) WebSearch() (DomainLists, SearchSettings) {
	config, _ := c.builtin(WebSearch)
	return value(config.Domains), value(config.Search)
}

// CheckSkills refuses an agent whose skills could not be used. Agents with such a gap may be stored, but not run.
func (c *AgentConfig) CheckSkills() error {
	if len(c.Skills) == 0 {
		return nil
	}
	if config, ok := c.builtin(Read); !ok || !config.Enabled {
		return problem.Invalidf("Missing required tool: skills require the read tool to be usable " +
			"(enabled and not always_deny) on the session's `agent_toolset`")
	}
	return nil
}

// builtin returns the resolved configuration of a built-in tool, and whether the agent has the toolset at all.
func (c *AgentConfig) builtin(name string) (ToolConfig, bool) {
	for _, tool := range c.Tools {
		if tool.Toolset == nil {
			continue
		}
		for _, config := range tool.Toolset.Configs {
			if config.Name == name {
				return config, true
			}
		}
		base := tool.Toolset.DefaultConfig
		return ToolConfig{Type: name, Name: name, Enabled: base.Enabled, PermissionPolicy: base.PermissionPolicy}, true
	}
	return ToolConfig{}, false
}

func (c *AgentConfig) custom(name string) *CustomTool {
	for _, tool := range c.Tools {
		if tool.Custom != nil && tool.Custom.Name == name {
			return tool.Custom
		}
	}
	return nil
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
