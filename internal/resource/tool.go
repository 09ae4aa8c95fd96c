package resource

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The types of entries in an agent's tools.
const (
	typeToolset    = "agent_toolset_20260401"
	typeMCPToolset = "mcp_toolset"
	typeCustom     = "custom"
)

// The built-in tools.
const (
	Bash      = "bash"
	Read      = "read"
	Write     = "write"
	Edit      = "edit"
	Glob      = "glob"
	Grep      = "grep"
	WebFetch  = "web_fetch"
	WebSearch = "web_search"
)

// Builtins are the built-in tools in the order in which a model is offered them.
var Builtins = []string{Bash, Read, Write, Edit, Glob, Grep, WebFetch, WebSearch}

// The permission policies.
const (
	AlwaysAllow = "always_allow"
	AlwaysAsk   = "always_ask"
	Auto        = "auto"
)

// Tool is one entry of an agent's tools. Exactly one field is set.
type Tool struct {
	Toolset *Toolset
	MCP     *MCPToolset
	Custom  *CustomTool
}

// Toolset is the built-in tools, as a whole and one by one.
type Toolset struct {
	Type          string        `json:"type"`
	DefaultConfig DefaultConfig `json:"default_config"`
	Configs       []ToolConfig  `json:"configs"` // only of the tools that were configured, in that order
}

// MCPToolset is the tools of one MCP server.
type MCPToolset struct {
	Type          string          `json:"type"`
	MCPServerName string          `json:"mcp_server_name"`
	DefaultConfig DefaultConfig   `json:"default_config"`
	Configs       []MCPToolConfig `json:"configs"`
}

// CustomTool is a tool that the client runs.
type CustomTool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema jsontext.Value `json:"input_schema"` // a JSON Schema object, as the client wrote it
}

// DefaultConfig holds for the tools of a toolset that have no config of their own.
type DefaultConfig struct {
	Enabled          bool   `json:"enabled"`
	PermissionPolicy Policy `json:"permission_policy"`
}

// Policy says who decides about a call: always_allow | always_ask | auto.
type Policy struct {
	Type string `json:"type"`
}

// ToolConfig is the resolved configuration of a built-in tool. Web tools have Domains and their own settings.
type ToolConfig struct {
	Type             string `json:"type"` // the same as Name
	Name             string `json:"name"`
	Enabled          bool   `json:"enabled"`
	PermissionPolicy Policy `json:"permission_policy"`

	Domains *DomainLists    `json:",embed"`
	Fetch   *FetchSettings  `json:",embed"`
	Search  *SearchSettings `json:",embed"`
}

// MCPToolConfig is the resolved configuration of a tool of an MCP server.
type MCPToolConfig struct {
	Name             string `json:"name"`
	Enabled          bool   `json:"enabled"`
	PermissionPolicy Policy `json:"permission_policy"`
}

// MarshalJSONTo writes the entry that is set.
func (t Tool) MarshalJSONTo(enc *jsontext.Encoder) error {
	switch {
	case t.Toolset != nil:
		return json.MarshalEncode(enc, t.Toolset)
	case t.MCP != nil:
		return json.MarshalEncode(enc, t.MCP)
	case t.Custom != nil:
		return json.MarshalEncode(enc, t.Custom)
	default:
		return errors.New("resource: a Tool without an entry cannot be written")
	}
}

// UnmarshalJSONFrom reads an entry that this package wrote.
func (t *Tool) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return err
	}
	*t = Tool{}
	switch head.Type {
	case typeToolset:
		return json.Unmarshal(value, &t.Toolset)
	case typeMCPToolset:
		return json.Unmarshal(value, &t.MCP)
	case typeCustom:
		return json.Unmarshal(value, &t.Custom)
	default:
		return fmt.Errorf("resource: unknown type of tool %s", quote(head.Type))
	}
}
