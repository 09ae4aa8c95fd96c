package resource

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// DomainLists bound where a web tool goes. At most one of the lists is set.
type DomainLists struct {
	Allowed Domains `json:"allowed_domains"`
	Blocked Domains `json:"blocked_domains"`
}

// Domains is a list of hosts, each of which stands for its subdomains too; nil is no list.
type Domains []string

// MarshalJSONTo writes no list as null.
func (d Domains) MarshalJSONTo(enc *jsontext.Encoder) error {
	if d == nil {
		return enc.WriteToken(jsontext.Null)
	}
	if err := enc.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for _, domain := range d {
		if err := enc.WriteToken(jsontext.String(domain)); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndArray)
}

// FetchSettings are those of web_fetch alone.
type FetchSettings struct {
	MaxContentTokens *int64      `json:"max_content_tokens"` // of fetched text in one call; nil for no bound
	URLSources       *URLSources `json:"url_sources"`        // nil allows every source
}

// URLSources say which parts of the conversation yield URLs that may be fetched. Nil allows all of a source.
type URLSources struct {
	UserInput         *URLSource `json:"user_input"`
	ClientToolResults *URLSource `json:"client_tool_results"`
	ServerToolResults *URLSource `json:"server_tool_results"`
}

// URLSource says how much of a source counts: all | none, or only | except with names of tools.
type URLSource struct {
	Type  string          `json:"type"`
	Tools []ToolReference `json:"tools,omitzero"`
}

// ToolReference names a tool.
type ToolReference struct {
	Type string `json:"type"` // tool_reference
	Name string `json:"name"`
}

// Includes reports whether results of this tool count.
func (s *URLSource) Includes(tool string) bool {
	if s == nil {
		return true
	}
	named := slices.ContainsFunc(s.Tools, func(r ToolReference) bool { return r.Name == tool })
	switch s.Type {
	case "only":
		return named
	case "except":
		return !named
	default:
		return s.Type == "all"
	}
}

// SearchSettings are those of web_search alone.
type SearchSettings struct {
	UserLocation *UserLocation `json:"user_location"`
}

// UserLocation says about where results should fit. Each part may be unknown.
type UserLocation struct {
	Type     string  `json:"type"` // approximate
	City     *string `json:"city"`
	Region   *string `json:"region"`
	Country  *string `json:"country"`  // two capital letters, ISO 3166-1
	Timezone *string `json:"timezone"` // an IANA name
}

func readDomainLists(o object) *DomainLists {
	read := func(name string) Domains {
		return optional(o.field(name), func(n node) Domains { return list(n, maxDomains+1, node.text) }).Or(nil)
	}
	return &DomainLists{Allowed: read("allowed_domains"), Blocked: read("blocked_domains")}
}

func readFetchSettings(o object) *FetchSettings {
	s := new(FetchSettings)
	if n := o.field("max_content_tokens"); !n.missing() {
		tokens := n.integer()
		if n.ok() && tokens <= 0 {
			n.refuse(n.path, "must be greater than 0")
		}
		s.MaxContentTokens = &tokens
	}
	if n := o.field("url_sources"); !n.missing() {
		s.URLSources = readURLSources(n.object("user_input", "client_tool_results", "server_tool_results"))
	}
	return s
}

func readURLSources(o object) *URLSources {
	read := func(name string, words ...string) *URLSource {
		return optional(o.field(name), func(n node) *URLSource { return readURLSource(n, words) }).Or(nil)
	}
	s := &URLSources{
		UserInput:         read("user_input", "all", "none"),
		ClientToolResults: read("client_tool_results", "all", "none", "only", "except"),
		ServerToolResults: read("server_tool_results", "all", "none", "only", "except"),
	}
	if s.UserInput.none() && s.ClientToolResults.none() && s.ServerToolResults.none() {
		o.refuse(o.path, "all sources are none, so that nothing could be fetched; disable web_fetch instead")
	}
	return s
}

func (s *URLSource) none() bool { return s != nil && s.Type == "none" }

func readURLSource(n node, words []string) *URLSource {
	if n.raw.Kind() == '"' {
		return &URLSource{Type: n.word("all", "none")}
	}
	if !n.is('{', "a string or an object") {
		return nil
	}
	kind := n.variant(words...)
	if kind != "only" && kind != "except" {
		n.object("type")
		return &URLSource{Type: kind}
	}
	o := n.object("type", "tools")
	tools := o.field("tools")
	source := &URLSource{Type: kind, Tools: list(tools, 128, func(n node) ToolReference {
		o := n.object("type", "name")
		return ToolReference{Type: o.field("type").word("tool_reference"), Name: o.field("name").text()}
	})}
	if len(source.Tools) == 0 {
		n.refuse(tools.path, "must name at least one tool")
	}
	for i, tool := range source.Tools {
		if slices.Contains(source.Tools[:i], tool) {
			n.refuse(index(tools.path, i), "duplicate entry for tool %s", quote(tool.Name))
		}
	}
	return source
}

func readSearchSettings(o object) *SearchSettings {
	n := o.field("user_location")
	if n.missing() {
		return new(SearchSettings)
	}
	l := n.object("type", "city", "region", "country", "timezone")
	part := func(name string) *string {
		n := l.field(name)
		if n.missing() {
			return nil
		}
		text := n.text()
		n.length(n.path, text, 1, 255)
		return &text
	}
	at := &UserLocation{
		Type:     l.field("type").word("approximate"),
		City:     part("city"),
		Region:   part("region"),
		Country:  part("country"),
		Timezone: part("timezone"),
	}
	if c := at.Country; c != nil && (len(*c) != 2 || strings.Trim(*c, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		n.refuse(l.field("country").path, "%s is not a country code of two capital letters", quote(*c))
	}
	return &SearchSettings{UserLocation: at}
}
