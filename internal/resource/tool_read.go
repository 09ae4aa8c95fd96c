package resource

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// maxTools bounds the entries of any list of tools or of tool configs. The rule about tools of an agent counts more
// finely; this bound only keeps reading short.
const maxTools = 256

func readTools(n node) []Tool { return list(n, maxTools, readTool) }

func readTool(n node) Tool {
	switch n.variant(typeToolset, typeMCPToolset, typeCustom) {
	case typeToolset:
		return Tool{Toolset: readToolset(n.object("type", "default_config", "configs"))}
	case typeMCPToolset:
		return Tool{MCP: readMCPToolset(n.object("type", "mcp_server_name", "default_config", "configs"))}
	case typeCustom:
		return Tool{Custom: readCustomTool(n.object("type", "name", "description", "input_schema"))}
	default:
		return Tool{}
	}
}

func readToolset(o object) *Toolset {
	base := readDefaultConfig(o.field("default_config"), AlwaysAllow)
	configs := optional(o.field("configs"), func(n node) []ToolConfig {
		return list(n, maxTools, func(n node) ToolConfig { return readToolConfig(n, base) })
	})
	return &Toolset{Type: typeToolset, DefaultConfig: base, Configs: configs.Or([]ToolConfig{})}
}

func readMCPToolset(o object) *MCPToolset {
	base := readDefaultConfig(o.field("default_config"), AlwaysAsk)
	configs := optional(o.field("configs"), func(n node) []MCPToolConfig {
		return list(n, maxTools, func(n node) MCPToolConfig {
			o := n.object("name", "enabled", "permission_policy")
			own := readOwnConfig(o, base)
			name := o.field("name")
			text := name.text()
			n.length(name.path, text, 1, 128)
			return MCPToolConfig{Name: text, Enabled: own.Enabled, PermissionPolicy: own.PermissionPolicy}
		})
	})
	return &MCPToolset{
		Type:          typeMCPToolset,
		MCPServerName: o.field("mcp_server_name").text(),
		DefaultConfig: base,
		Configs:       configs.Or([]MCPToolConfig{}),
	}
}

func readCustomTool(o object) *CustomTool {
	schema := o.field("input_schema")
	tool := &CustomTool{Type: typeCustom, Name: o.field("name").text(), Description: o.field("description").text()}
	if schema.is('{', "an object") {
		tool.InputSchema = readSchema(schema)
	}
	return tool
}

// readSchema copies a schema and leaves out properties and required that are null: the wire allows them to be, JSON Schema
// and with it the models' providers do not.
func readSchema(n node) jsontext.Value {
	schema := []byte{'{'}
	for name, value := range n.members() {
		if value.null() && (name == "properties" || name == "required") {
			continue
		}
		if len(schema) > 1 {
			schema = append(schema, ',')
		}
		key, err := jsontext.AppendQuote(nil, name)
		if err != nil {
			n.refuse(value.path, "invalid name: %v", err)
		}
		schema = append(append(append(schema, key...), ':'), value.compact()...)
	}
	return append(schema, '}')
}

func readDefaultConfig(n node, policy string) DefaultConfig {
	base := DefaultConfig{Enabled: true, PermissionPolicy: Policy{policy}}
	if n.missing() {
		return base
	}
	return readOwnConfig(n.object("enabled", "permission_policy"), base)
}

// readOwnConfig reads what every config has. What is left out comes from base.
func readOwnConfig(o object, base DefaultConfig) DefaultConfig {
	policy := optional(o.field("permission_policy"), readPolicy)
	enabled := optional(o.field("enabled"), node.boolean)
	return DefaultConfig{Enabled: enabled.Or(base.Enabled), PermissionPolicy: policy.Or(base.PermissionPolicy)}
}

func readPolicy(n node) Policy {
	kind := n.object("type").field("type")
	word := kind.text()
	if n.ok() && word != AlwaysAllow && word != AlwaysAsk && word != Auto {
		n.refuse(kind.path, "%s is not a valid value", quote(word))
	}
	return Policy{word}
}

// readToolConfig reads the policy before the name, and then the settings that only some names have.
func readToolConfig(n node, base DefaultConfig) ToolConfig {
	o := n.object("type", "name", "enabled", "permission_policy",
		"allowed_domains", "blocked_domains", "max_content_tokens", "url_sources", "user_location")
	own := readOwnConfig(o, base)
	name := readBuiltin(o.field("name"))
	config := ToolConfig{Type: name, Name: name, Enabled: own.Enabled, PermissionPolicy: own.PermissionPolicy}
	if kind := o.field("type"); !kind.missing() {
		if word := kind.text(); n.ok() && word != name {
			n.refuse(kind.path, "%s is not a valid value; expected the tool's name, %s", quote(word), name)
		}
	}
	refuseFields := func(names ...string) {
		for _, name := range names {
			if field := o.field(name); !field.absent() {
				n.refuse(field.path, "unknown field")
			}
		}
	}
	switch name {
	case WebFetch:
		refuseFields("user_location")
		config.Domains = readDomainLists(o)
		config.Fetch = readFetchSettings(o)
	case WebSearch:
		refuseFields("max_content_tokens", "url_sources")
		config.Domains = readDomainLists(o)
		config.Search = readSearchSettings(o)
	default:
		refuseFields("allowed_domains", "blocked_domains", "max_content_tokens", "url_sources", "user_location")
	}
	return config
}

func readBuiltin(n node) string {
	name := n.text()
	if n.ok() && !slices.Contains(Builtins, name) {
		n.refuseAs(problem.Invalidf("Failed to parse request: %s: %s is not a valid value; expected one of %s",
			n.path, quote(name), strings.Join(slices.Sorted(slices.Values(Builtins)), ", ")))
	}
	return name
}
