package resource_test

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/resource"
)

const limitedBody = `{"name":"Limited","description":"","metadata":{"team":"a"},"scope":"organization","config":{"type":"cloud",
	"networking":{"type":"limited","allowed_hosts":["API.example.com","*.example.org"],"allow_package_managers":true},
	"packages":{"pip":["ruff==0.5.0","numpy"],"npm":["@scope/thing@1.0.0"]}}}`

func TestEnvironmentIsResolved(t *testing.T) {
	golden(t, "environment_default", mustCreateEnvironment(t, `{"name":"Default","config":null,"metadata":null,"scope":null}`))
	golden(t, "environment_limited", mustCreateEnvironment(t, limitedBody))
	golden(t, "environment_self_hosted", mustCreateEnvironment(t, `{"name":"Ours","config":{"type":"self_hosted"}}`))
}

func TestEnvironmentSurvivesStorageAndItsOwnAnswer(t *testing.T) {
	for _, body := range []string{`{"name":"a"}`, limitedBody, `{"name":"a","config":{"type":"self_hosted"}}`} {
		environment := mustCreateEnvironment(t, body)
		sent := encode(t, environment)
		var back resource.Environment
		if err := json.Unmarshal(sent, &back); err != nil {
			t.Fatal(err)
		}
		if got := encode(t, back); string(got) != string(sent) {
			t.Errorf("storage: got  %s\nwant %s", got, sent)
		}
		if got := encode(t, mustCreateEnvironment(t, string(sent))); string(got) != string(sent) {
			t.Errorf("create: got  %s\nwant %s", got, sent)
		}
		if next, changed, err := updateEnvironment(environment, sent); err != nil || changed || next != environment {
			t.Errorf("update: changed is %v, error %v", changed, err)
		}
	}
}

func TestCreateEnvironmentRefuses(t *testing.T) {
	config := func(fields string) string { return `{"name":"a","config":{"type":"cloud",` + fields + `}}` }
	host := func(host string) string {
		return config(`"networking":{"type":"limited","allowed_hosts":["ok.example.com",` + host + `]}`)
	}
	const at = "config.networking.allowed_hosts[1]: "
	for name, c := range map[string]struct{ body, want string }{
		"nothing":         {``, `name: field is required`},
		"empty name":      {`{"name":""}`, `name: must not be empty`},
		"unknown field":   {`{"name":"a","foo":1}`, `foo: unknown field`},
		"config field":    {config(`"foo":1`), `config.foo: unknown field`},
		"config type":     {`{"name":"a","config":{}}`, `config.type: field is required`},
		"config word":     {`{"name":"a","config":{"type":"local"}}`, `config.type: "local" is not a valid value; expected one of cloud, self_hosted`},
		"account":         {`{"name":"a","scope":"account"}`, `scope: "account" is not supported for API organizations; use "organization"`},
		"self-hosted":     {`{"name":"a","config":{"type":"self_hosted","packages":{}}}`, `config.packages: unknown field; a self_hosted environment has no settings`},
		"network type":    {config(`"networking":{}`), `config.networking.type: field is required`},
		"network word":    {config(`"networking":{"type":"none"}`), `config.networking.type: "none" is not a valid value; expected one of unrestricted, limited`},
		"network field":   {config(`"networking":{"type":"unrestricted","allowed_hosts":[]}`), `config.networking.allowed_hosts: unknown field`},
		"host scheme":     {host(`"https://a.com"`), at + `"https://a.com" contains a URL scheme. Entries must be bare hostnames like "example.com" or "*.example.com".`},
		"host port":       {host(`"a.com:443"`), at + `"a.com:443" contains a port. Entries must be bare hostnames without ports.`},
		"host path":       {host(`"a.com/x"`), at + `"a.com/x" contains a path. Entries must be bare hostnames without paths.`},
		"host user":       {host(`"u@a.com"`), at + `"u@a.com" contains credentials. Entries must be bare hostnames.`},
		"host wildcard":   {host(`"a.*.com"`), at + `"a.*.com" contains a misplaced wildcard. Only a leading "*." is allowed.`},
		"host all":        {host(`"*"`), at + `"*" contains a misplaced wildcard. Only a leading "*." is allowed.`},
		"host IP":         {host(`"169.254.169.254"`), at + `"169.254.169.254" is an IP address. Entries must be hostnames.`},
		"host IPv6":       {host(`"::1"`), at + `"::1" is an IP address. Entries must be hostnames.`},
		"host empty":      {host(`""`), at + `"" is not a hostname. Entries must be bare hostnames like "example.com" or "*.example.com".`},
		"host type":       {host(`1`), at + `expected a string, got a number`},
		"package option":  {config(`"packages":{"pip":["--index-url=http://x"]}`), `config.packages.pip[0]: "--index-url=http://x" must not begin with a hyphen`},
		"package words":   {config(`"packages":{"apt":["a b"]}`), `config.packages.apt[0]: "a b" must not contain white space or control characters`},
		"package manager": {config(`"packages":{"brew":[]}`), `config.packages.brew: unknown field`},
		"packages limited": {config(`"networking":{"type":"limited"},"packages":{"apt":["jq"]}`),
			`config.packages: packages under limited networking require config.networking.allow_package_managers to be true`},
	} {
		t.Run(name, func(t *testing.T) {
			environment, err := resource.CreateEnvironment([]byte(c.body))
			if err == nil {
				t.Fatalf("accepted as %s", encode(t, environment))
			}
			wantRefusal(t, err, c.want)
		})
	}
}

func TestUpdateEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		changed bool
		want    string // the config, or the object that look returns
		look    func(*resource.Environment) any
	}{
		"nothing":        {`{}`, false, ``, nil},
		"nulls":          {`{"name":null,"scope":null,"config":null,"metadata":null}`, false, ``, nil},
		"null parts":     {`{"config":{"type":"cloud","networking":null,"packages":{"pip":null}}}`, false, ``, nil},
		"no description": {`{"description":null}`, true, `null`, func(e *resource.Environment) any { return e.Description }},
		"one flag": {`{"config":{"networking":{"type":"limited","allow_mcp_servers":true}}}`, true,
			`{"type":"limited","allowed_hosts":["API.example.com","*.example.org"],"allow_mcp_servers":true,"allow_package_managers":true}`,
			func(e *resource.Environment) any { return e.Config.Networking }},
		"other network": {`{"config":{"networking":{"type":"unrestricted"}}}`, true, `{"type":"unrestricted"}`,
			func(e *resource.Environment) any { return e.Config.Networking }},
		"one manager": {`{"config":{"packages":{"npm":[]}}}`, true,
			`{"type":"packages","apt":[],"cargo":[],"gem":[],"go":[],"npm":[],"pip":["ruff==0.5.0","numpy"]}`,
			func(e *resource.Environment) any { return e.Config.Packages }},
		"metadata": {`{"metadata":{"team":"","new":"x"}}`, true, `{"new":"x"}`, func(e *resource.Environment) any { return e.Metadata }},
	} {
		t.Run(name, func(t *testing.T) {
			current := mustCreateEnvironment(t, limitedBody)
			before := encode(t, current)
			next, changed, err := updateEnvironment(current, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if changed != c.changed || !changed && next != current {
				t.Errorf("changed is %v, want %v", changed, c.changed)
			}
			if c.look != nil {
				if got := string(encode(t, c.look(next))); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			}
			if after := encode(t, current); string(after) != string(before) {
				t.Errorf("the stored environment was changed in place: %s", after)
			}
		})
	}
}

func TestUpdateEnvironmentRefuses(t *testing.T) {
	archived, changed := mustCreateEnvironment(t, limitedBody).Archive(later)
	if again, twice := archived.Archive(moment); !changed || twice || again != archived {
		t.Error("an environment must be archived exactly once")
	}
	for name, c := range map[string]struct {
		environment      *resource.Environment
		body, want, code string
	}{
		"archived": {archived, `{}`, `Environment ` + environmentID + ` is archived.`, "environment_archived"},
		"type": {mustCreateEnvironment(t, limitedBody), `{"config":{"type":"self_hosted"}}`,
			`config.type: cannot be changed from cloud to self_hosted; create another environment instead`, "invalid_config_type_change"},
		"packages": {mustCreateEnvironment(t, limitedBody), `{"config":{"networking":{"type":"limited","allow_package_managers":false}}}`,
			`config.packages: packages under limited networking require config.networking.allow_package_managers to be true`, ""},
		"metadata": {mustCreateEnvironment(t, limitedBody), `{"metadata":{"":"x"}}`, `metadata: a key must not be empty`, "invalid_metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := updateEnvironment(c.environment, []byte(c.body))
			wantRefusal(t, err, c.want)
			if p := refusal(t, err); p.Code != c.code {
				t.Errorf("got code %q, want %q", p.Code, c.code)
			}
		})
	}
}

func TestNetwork(t *testing.T) {
	if n := mustCreateEnvironment(t, `{"name":"a"}`).Config.Network(); n.Mode != resource.NetworkUnrestricted || !n.Allows("any.example") {
		t.Errorf("got %+v", n)
	}
	config := mustCreateEnvironment(t, limitedBody).Config
	n := config.Network()
	if n.Mode != resource.NetworkLimited || !slices.Contains(n.Hosts, "api.example.com") {
		t.Errorf("got %+v", n)
	}
	for host, allowed := range map[string]bool{
		"api.example.com": true, "API.EXAMPLE.COM.": true, "x.api.example.com": false, "example.com": false,
		"a.example.org": true, "b.a.example.org": true, "example.org": false, "evilexample.org": false, "": false,
		"pypi.org": true, "registry.npmjs.org": true,
	} {
		if got := n.Allows(host); got != allowed {
			t.Errorf("sandbox: %q is %v", host, got)
		}
	}
	if web := config.WebNetwork(); web.Allows("pypi.org") || !web.Allows("api.example.com") {
		t.Errorf("web tools may reach %+v", web)
	}
	nothing := mustCreateEnvironment(t, `{"name":"a","config":{"type":"cloud","networking":{"type":"limited"}}}`).Config.Network()
	if nothing.Allows("example.com") || len(nothing.Hosts) != 0 {
		t.Errorf("got %+v", nothing)
	}
}
