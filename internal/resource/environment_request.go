package resource

import (
	"maps"
	"strings"

	"github.com/perdure/perdure/internal/problem"
)

// Limits of an environment, in characters or entries.
const (
	maxEnvironmentName        = 256
	maxEnvironmentDescription = 2_048
	maxHosts                  = 1_000
	maxPackages               = 500 // of one package manager
	maxPackage                = 255
)

// CreateEnvironment reads the body of a create and resolves it: cloud, unrestricted and without packages unless it says
// otherwise. Metadata with the value "" counts as left out, as in an update. The caller sets ID, CreatedAt and UpdatedAt.
//
// The name has 1 to 256 characters, the description at most 2,048; there are at most 1,000 allowed hosts, and 500
// packages of each manager. Every error is a *problem.Error.
func CreateEnvironment(body []byte) (*Environment, error) {
	root, err := readBody(body)
	if err != nil {
		return nil, err
	}
	o := environmentObject(root)
	e := &Environment{
		Type:        "environment",
		Name:        o.field("name").text(),
		Description: optional(o.field("description"), pointer).Or(nil),
		Metadata:    readMetadata(o.field("metadata")),
		Scope:       "organization",
	}
	maps.DeleteFunc(e.Metadata, func(_, value string) bool { return value == "" })
	e.Config = readEnvironmentConfig(o.field("config"), nil)
	readScope(o.field("scope"))
	e.check(root.verdict)
	return e, root.err()
}

// EnvironmentUpdate is the body of POST /v1/environments/{id}.
type EnvironmentUpdate struct{ object }

// DecodeEnvironmentUpdate reads the body of an update. It does not know the environment; Apply has the rules that need it.
func DecodeEnvironmentUpdate(body []byte) (*EnvironmentUpdate, error) {
	root, err := readBody(body)
	if err != nil {
		return nil, err
	}
	o := environmentObject(root)
	optional(o.field("name"), node.text)
	optional(o.field("description"), node.text)
	readMetadataPatch(o.field("metadata"))
	if config := o.field("config"); !config.missing() {
		config.is('{', "an object")
	}
	readScope(o.field("scope"))
	return &EnvironmentUpdate{o}, root.err()
}

// Apply applies the update. If that changes nothing, next is current; otherwise the caller sets its UpdatedAt.
//
// What is left out stays, also inside config, whose lists are replaced as a whole; null in place of name, scope or a part
// of config stays too. Null clears the description. Metadata is changed key by key; null or "" deletes a key. The type of
// an environment never changes.
func (u *EnvironmentUpdate) Apply(current *Environment) (next *Environment, changed bool, err error) {
	o := u.object
	merged := *current
	merged.Name = optional(o.field("name"), node.text).Or(current.Name)
	if n := o.field("description"); !n.absent() {
		merged.Description = optional(n, pointer).Or(nil)
	}
	patch := readMetadataPatch(o.field("metadata"))
	for key, value := range patch {
		if value != nil && *value == "" {
			patch[key] = nil
		}
	}
	merged.Config = readEnvironmentConfig(o.field("config"), &current.Config)
	if o.ok() && current.ArchivedAt != nil {
		return nil, false, environmentArchived(current)
	}
	merged.Metadata = patch.apply(o.verdict, current.Metadata)
	merged.check(o.verdict)
	if !o.ok() {
		return nil, false, o.err()
	}
	same, err := equal(current, &merged)
	if err != nil || same {
		return current, false, err
	}
	return &merged, true, nil
}

func environmentArchived(e *Environment) *problem.Error {
	return problem.Invalidf("Environment %s is archived.", e.ID).WithCode("environment_archived")
}

func environmentObject(root node) object {
	o := root.object("name", "description", "config", "metadata", "scope",
		"id", "type", "state", "created_at", "updated_at", "archived_at")
	if n := o.field("type"); !n.missing() {
		n.word("environment")
	}
	return o
}

func pointer(n node) *string {
	text := n.text()
	return &text
}

func readScope(n node) {
	if n.missing() {
		return
	}
	if n.word("organization", "account") == "account" {
		n.refuse(n.path, `"account" is not supported for API organizations; use "organization"`)
	}
}

// readEnvironmentConfig resolves a config. In an update, stored is what it is merged into; in a create it is nil.
func readEnvironmentConfig(n node, stored *EnvironmentConfig) EnvironmentConfig {
	base := EnvironmentConfig{
		Type:       Cloud,
		Networking: &Networking{Type: "unrestricted"},
		Packages:   &Packages{"packages", []string{}, []string{}, []string{}, []string{}, []string{}, []string{}},
	}
	if stored != nil {
		base = *stored
	}
	if n.missing() {
		return base
	}
	o := n.object("type", "networking", "packages")
	kind := base.Type
	if t := o.field("type"); stored == nil || !t.missing() {
		kind = t.word(Cloud, SelfHosted)
		if n.ok() && stored != nil && kind != stored.Type {
			n.refuseAs(problem.Invalidf("%s: cannot be changed from %s to %s; create another environment instead",
				t.path, stored.Type, kind).WithCode("invalid_config_type_change"))
		}
	}
	if kind == SelfHosted {
		for _, name := range []string{"networking", "packages"} {
			if field := o.field(name); !field.missing() {
				n.refuse(field.path, "unknown field; a self_hosted environment has no settings")
			}
		}
		return EnvironmentConfig{Type: SelfHosted}
	}
	return EnvironmentConfig{
		Type:       Cloud,
		Networking: readNetworking(o.field("networking"), base.Networking),
		Packages:   readPackages(o.field("packages"), base.Packages),
	}
}

func readNetworking(n node, base *Networking) *Networking {
	if n.missing() {
		return base
	}
	if n.variant("unrestricted", "limited") == "unrestricted" {
		n.object("type")
		return &Networking{Type: "unrestricted"}
	}
	o := n.object("type", "allowed_hosts", "allow_mcp_servers", "allow_package_managers")
	limited := Limited{AllowedHosts: Hosts{}}
	if base != nil && base.Limited != nil {
		limited = *base.Limited
	}
	return &Networking{Type: "limited", Limited: &Limited{
		AllowedHosts:         optional(o.field("allowed_hosts"), readHosts).Or(limited.AllowedHosts),
		AllowMCPServers:      optional(o.field("allow_mcp_servers"), node.boolean).Or(limited.AllowMCPServers),
		AllowPackageManagers: optional(o.field("allow_package_managers"), node.boolean).Or(limited.AllowPackageManagers),
	}}
}

func readHosts(n node) Hosts { return list(n, maxHosts, node.text) }

func readPackages(n node, base *Packages) *Packages {
	if n.missing() {
		return base
	}
	o := n.object("type", "apt", "cargo", "gem", "go", "npm", "pip")
	if t := o.field("type"); !t.missing() {
		t.word("packages")
	}
	read := func(name string, base []string) []string {
		return optional(o.field(name), func(n node) []string { return list(n, maxPackages, node.text) }).Or(base)
	}
	return &Packages{
		Type:  "packages",
		Apt:   read("apt", base.Apt),
		Cargo: read("cargo", base.Cargo),
		Gem:   read("gem", base.Gem),
		Go:    read("go", base.Go),
		NPM:   read("npm", base.NPM),
		Pip:   read("pip", base.Pip),
	}
}

func (e *Environment) check(v *verdict) {
	v.length("name", e.Name, 1, maxEnvironmentName)
	if e.Description != nil {
		v.length("description", *e.Description, 0, maxEnvironmentDescription)
	}
	e.Metadata.check(v, "metadata")
	if e.Config.Type != Cloud || !v.ok() {
		return
	}
	limited := e.Config.Networking.Limited
	if limited != nil {
		for i, host := range limited.AllowedHosts {
			if fault := hostFault(host); fault != "" {
				v.refuse(index("config.networking.allowed_hosts", i), "%s %s", quote(host), fault)
			}
		}
	}
	p := e.Config.Packages
	for _, manager := range []struct {
		name     string
		packages []string
	}{{"apt", p.Apt}, {"cargo", p.Cargo}, {"gem", p.Gem}, {"go", p.Go}, {"npm", p.NPM}, {"pip", p.Pip}} {
		for i, name := range manager.packages {
			checkPackage(v, index("config.packages."+manager.name, i), name)
		}
	}
	if limited != nil && !limited.AllowPackageManagers && !p.Empty() {
		v.refuse("config.packages", "packages under limited networking require config.networking.allow_package_managers to be true")
	}
}

// checkPackage refuses what an installer would not take for the name of a package but for an option or a second argument.
func checkPackage(v *verdict, path, name string) {
	v.length(path, name, 1, maxPackage)
	if strings.HasPrefix(name, "-") {
		v.refuse(path, "%s must not begin with a hyphen", quote(name))
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		v.refuse(path, "%s must not contain white space or control characters", quote(name))
	}
}

// hostFault says what is wrong with an allowed host, "" if nothing is.
func hostFault(host string) string {
	bare := strings.TrimPrefix(host, "*.")
	switch {
	case strings.Contains(host, "://"):
		return `contains a URL scheme. Entries must be bare hostnames like "example.com" or "*.example.com".`
	case strings.ContainsAny(host, "/?#"):
		return "contains a path. Entries must be bare hostnames without paths."
	case strings.Contains(host, "@"):
		return "contains credentials. Entries must be bare hostnames."
	case bare != "" && numericHost(bare):
		return "is an IP address. Entries must be hostnames."
	case strings.Contains(host, ":"):
		return "contains a port. Entries must be bare hostnames without ports."
	case strings.Contains(bare, "*"):
		return `contains a misplaced wildcard. Only a leading "*." is allowed.`
	case !hostName(bare):
		return `is not a hostname. Entries must be bare hostnames like "example.com" or "*.example.com".`
	}
	return ""
}
