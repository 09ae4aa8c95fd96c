package resource

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// MCPServer is a server of tools that an agent may use.
type MCPServer struct {
	Type string `json:"type"` // url
	Name string `json:"name"`
	URL  string `json:"url"`
}

const maxMCPServers = 20

func readMCPServers(n node) []MCPServer {
	return list(n, maxMCPServers, func(n node) MCPServer {
		o := n.object("type", "name", "url")
		return MCPServer{Type: o.field("type").word("url"), Name: o.field("name").text(), URL: o.field("url").text()}
	})
}

// checkTools refuses tools and servers that do not fit each other. The prefix is the path of what holds them.
func (c *AgentConfig) checkTools(v *verdict, prefix string) {
	names := make(map[string]bool)
	served := make(map[string]bool)
	count, toolsets := 0, 0
	for i, tool := range c.Tools {
		switch {
		case tool.Toolset != nil:
			count += len(Builtins)
			toolsets++
			at := dotted(prefix, i, typeToolset)
			if toolsets > 1 {
				v.refuseAs(problem.Invalidf("%s: duplicate entry; at most one %s is allowed", at, typeToolset))
			}
			c.checkToolset(v, tool.Toolset, at)
		case tool.MCP != nil:
			count += max(1, len(tool.MCP.Configs))
			at := dotted(prefix, i, typeMCPToolset)
			c.checkMCPToolset(v, tool.MCP, at, served)
		case tool.Custom != nil:
			count++
			at := index(prefix+"tools", i)
			tool.Custom.check(v, at)
			if names[tool.Custom.Name] {
				v.refuse(at+".name", "duplicate entry for tool %s", quote(tool.Custom.Name))
			}
			names[tool.Custom.Name] = true
		}
	}
	if count > maxTools {
		v.refuse(prefix+"tools", "at most %d tools are allowed across all toolsets, got %d", maxTools, count)
	}
	c.checkMCPServers(v, prefix, served)
}

// dotted is the form in which the wire names a place inside an entry of tools once the request has been parsed.
func dotted(prefix string, i int, kind string) string {
	return prefix + "tools." + strconv.Itoa(i) + "." + kind
}

func (c *AgentConfig) checkToolset(v *verdict, t *Toolset, at string) {
	var seen []string
	for i, config := range t.Configs {
		entry := at + ".configs." + strconv.Itoa(i)
		if slices.Contains(seen, config.Name) {
			v.refuseAs(problem.Invalidf(`%s: duplicate entry for tool "AGENT_TOOL_NAME_%s"`, entry, strings.ToUpper(config.Name)))
		}
		seen = append(seen, config.Name)
		if config.Domains != nil {
			config.Domains.check(v, entry, config.Name == WebSearch)
		}
		if config.Fetch != nil && config.Fetch.URLSources != nil {
			c.checkURLSources(v, config.Fetch.URLSources, entry+".url_sources")
		}
	}
}

func (c *AgentConfig) checkURLSources(v *verdict, s *URLSources, at string) {
	if s.ClientToolResults != nil {
		for i, tool := range s.ClientToolResults.Tools {
			if c.custom(tool.Name) == nil {
				v.refuse(fmt.Sprintf("%s.client_tool_results.tools.%d.name", at, i), "%s is not a custom tool of this agent", quote(tool.Name))
			}
		}
	}
	if s.ServerToolResults != nil {
		for i, tool := range s.ServerToolResults.Tools {
			if tool.Name != WebFetch && tool.Name != WebSearch {
				v.refuse(fmt.Sprintf("%s.server_tool_results.tools.%d.name", at, i),
					"%s is not a valid value; expected one of %s, %s", quote(tool.Name), WebFetch, WebSearch)
			}
		}
	}
}

func (c *AgentConfig) checkMCPToolset(v *verdict, t *MCPToolset, at string, served map[string]bool) {
	name := t.MCPServerName
	if !slices.ContainsFunc(c.MCPServers, func(s MCPServer) bool { return s.Name == name }) {
		v.refuse(at+".mcp_server_name", "%s is not declared in mcp_servers", quote(name))
	}
	if served[name] {
		v.refuse(at, "duplicate entry for MCP server %s; each MCP server may have at most one mcp_toolset", quote(name))
	}
	served[name] = true
	var seen []string
	for i, config := range t.Configs {
		if slices.Contains(seen, config.Name) {
			v.refuse(at+".configs."+strconv.Itoa(i), "duplicate entry for tool %s", quote(config.Name))
		}
		seen = append(seen, config.Name)
	}
}

func (c *AgentConfig) checkMCPServers(v *verdict, prefix string, served map[string]bool) {
	names := make(map[string]bool)
	for i, server := range c.MCPServers {
		at := index(prefix+"mcp_servers", i)
		v.length(at+".name", server.Name, 1, 255)
		v.length(at+".url", server.URL, 1, 2048)
		checkURL(v, at+".url", server.URL)
		if names[server.Name] {
			v.refuse(at+".name", "duplicate entry for MCP server %s", quote(server.Name))
		}
		names[server.Name] = true
		if !served[server.Name] {
			v.refuse(at, "%s is not referenced by any mcp_toolset in tools", quote(server.Name))
		}
	}
}

// checkURL refuses what is not an absolute http or https URL. It never shows the URL, which may hold a password.
func checkURL(v *verdict, path, text string) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		v.refuse(path, "must be an absolute http or https URL")
	}
}

func (t *CustomTool) check(v *verdict, at string) {
	switch {
	case !pattern(t.Name, 128, "_-"):
		v.refuse(at+".name", "%s must be 1 to 128 letters, digits, underscores or hyphens", quote(t.Name))
	case slices.Contains(Builtins, t.Name):
		v.refuse(at+".name", "%s is the name of a built-in tool", quote(t.Name))
	case strings.HasPrefix(t.Name, mcpPrefix):
		v.refuse(at+".name", "%s begins with mcp__, which is reserved for tools of MCP servers", quote(t.Name))
	}
	if t.Description == "" {
		v.refuse(at+".description", "must not be empty")
	}
	checkSchema(v, at+".input_schema", t.InputSchema)
}

// checkSchema refuses the schemas that models are not offered. Everything else in a schema is the client's affair.
func checkSchema(v *verdict, path string, schema jsontext.Value) {
	if schema == nil {
		return // its absence has been refused
	}
	n := node{v, path, schema}
	var kind, properties, required node
	for name, value := range n.members() {
		switch name {
		case "type":
			kind = value
		case "properties":
			properties = value
		case "required":
			required = value
		case "oneOf", "anyOf", "allOf":
			v.refuse(value.path, "is not supported at the top level of an input_schema")
		}
	}
	if kind.absent() {
		v.refuse(path+".type", `field is required and must be "object"`)
	} else {
		kind.word("object")
	}
	if !properties.missing() && properties.is('{', "an object") {
		for name, value := range properties.members() {
			if !pattern(name, 64, "_.-") {
				v.refuse(properties.path, "property name %s must be 1 to 64 letters, digits, underscores, dots or hyphens", quote(name))
			}
			if k := value.raw.Kind(); k != '{' && k != 't' && k != 'f' {
				v.refuse(value.path, "expected a schema, got %s", kindName(k))
			}
		}
	}
	if !required.missing() {
		list(required, maxMembers, node.text)
	}
	refuseReferences(n)
}

// refuseReferences refuses the key $ref at any depth. It walks the tokens once, whatever the depth.
func refuseReferences(n node) {
	dec := n.decoder()
	for n.ok() && dec.StackDepth() > 0 {
		token, err := dec.ReadToken()
		if err != nil {
			n.refuse(n.path, "invalid JSON: %v", err)
			return
		}
		if token.Kind() != '"' {
			continue
		}
		kind, length := dec.StackIndex(dec.StackDepth())
		if kind == '{' && length%2 == 1 && token.String() == "$ref" {
			n.refuse(pathOf(n.path, dec, dec.StackPointer()), "references are not supported in an input_schema; write the schema out")
		}
	}
}

// pattern reports whether text is made of at most so many ASCII letters, digits and characters of extra.
func pattern(text string, most int, extra string) bool {
	if text == "" || len(text) > most {
		return false
	}
	for _, r := range text {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune(extra, r) {
			return false
		}
	}
	return true
}
