package mockserver

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxSchemaDepth bounds the walk through a schema.
const maxSchemaDepth = 64

var (
	toolName     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	propertyName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
	schemaTypes  = []string{"string", "number", "integer", "boolean", "object", "array", "null"}
)

func (c *checker) tools() {
	names := map[string]int{}
	for i, raw := range c.request.Tools {
		path := fmt.Sprintf("tools.%d", i)
		members, ok := c.object(path, raw)
		if !ok {
			return
		}
		c.cacheControl(path, members)
		name := stringOf(members["name"])
		if !toolName.MatchString(name) {
			c.bad(path+".name", "must match %s", toolName)
		}
		if first, taken := names[name]; taken {
			c.bad(path+".name", "tool names must be unique; %q is that of tools.%d", name, first)
		}
		names[name] = i
		if kind, ok := members["type"]; ok && stringOf(kind) != "custom" {
			continue // a tool of the provider's own, which has no schema
		}
		c.known(path, members, "type", "name", "description", "input_schema", "cache_control", "strict", "input_examples",
			"defer_loading", "allowed_callers", "eager_input_streaming")
		if description, ok := members["description"]; ok && description.Kind() != '"' {
			c.bad(path+".description", "must be a string")
		}
		c.inputSchema(path+".input_schema", members["input_schema"])
	}
}

func (c *checker) inputSchema(path string, raw jsontext.Value) {
	members, ok := c.object(path, raw)
	if !ok {
		return
	}
	if stringOf(members["type"]) != "object" {
		c.bad(path+".type", "must be object")
	}
	for _, keyword := range []string{"oneOf", "anyOf", "allOf"} {
		if _, ok := members[keyword]; ok {
			c.bad(path, "%s is not supported at the top level", keyword)
		}
	}
	if properties, ok := members["properties"]; ok {
		named, ok := c.object(path+".properties", properties)
		if !ok {
			return
		}
		for name := range named {
			if !propertyName.MatchString(name) {
				c.bad(path+".properties", "the property name %q must match %s", name, propertyName)
			}
		}
	}
	c.schema(path, raw, 0)
}

// schema checks the parts of a JSON Schema whose form is certain.
func (c *checker) schema(path string, raw jsontext.Value, depth int) {
	if raw.Kind() == 't' || raw.Kind() == 'f' {
		return
	}
	if depth > maxSchemaDepth {
		c.bad(path, "the schema is nested deeper than %d", maxSchemaDepth)
		return
	}
	members, ok := c.object(path, raw)
	if !ok {
		return
	}
	for keyword, value := range members {
		at := path + "." + keyword
		switch keyword {
		case "type":
			c.schemaType(at, value)
		case "required":
			c.required(at, value)
		case "enum":
			c.array(at, value)
		case "properties", "patternProperties", "$defs", "definitions":
			if named, ok := c.object(at, value); ok {
				for name, inner := range named {
					c.schema(at+"."+name, inner, depth+1)
				}
			}
		case "items", "additionalProperties", "not":
			if value.Kind() != '[' {
				c.schema(at, value, depth+1)
			}
		case "anyOf", "oneOf", "allOf", "prefixItems":
			for i, inner := range c.array(at, value) {
				c.schema(fmt.Sprintf("%s.%d", at, i), inner, depth+1)
			}
		}
	}
}

func (c *checker) schemaType(path string, raw jsontext.Value) {
	types := []string{stringOf(raw)}
	if raw.Kind() == '[' {
		if err := json.Unmarshal(raw, &types); err != nil {
			c.bad(path, "must be a string or an array of strings")
			return
		}
	}
	for _, name := range types {
		if !slices.Contains(schemaTypes, name) {
			c.bad(path, "%q is not a type of JSON Schema", name)
		}
	}
}

func (c *checker) required(path string, raw jsontext.Value) {
	var names []string
	if err := json.Unmarshal(raw, &names); err != nil || raw.Kind() != '[' {
		c.bad(path, "must be an array of strings")
		return
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(names) {
		c.bad(path, "has a name twice")
	}
}
