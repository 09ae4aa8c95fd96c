package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDefaults(t *testing.T) {
	l, err := Load(Sources{Home: "/home/x"})
	if err != nil {
		t.Fatal(err)
	}
	rate := 8.0
	want := Config{
		Data: "/home/x/.perdure", Listen: "127.0.0.1:8700", Sandbox: "native", RuntimeCentsPerHour: &rate, RequestsPerTurn: 500,
		Retry: Retry{Attempts: 6, Base: time.Second, Cap: time.Minute}, Log: Log{Level: "info", Format: "auto"},
	}
	if diff := cmp.Diff(want, l.Config, comparePrefixes, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if err := l.Validate(); err != nil {
		t.Error(err)
	}
	if !l.Loopback() {
		t.Error("the default can be reached from elsewhere")
	}
}

func TestWithDefaultsCopies(t *testing.T) {
	rate := 5.0
	c := Config{RuntimeCentsPerHour: &rate, Providers: []Provider{{Models: []string{"a"}}}}
	d := c.WithDefaults()
	*d.RuntimeCentsPerHour, d.Providers[0].Name, d.Providers[0].Models[0] = 6, "x", "b"
	if rate != 5 || c.Providers[0].Name != "" || c.Providers[0].Models[0] != "a" || c.Listen != "" {
		t.Errorf("the original changed: %+v", c)
	}
}

func TestFileEnvironmentAndCommandLineInThisOrder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, FileName), `
listen: 127.0.0.1:1
requests_per_turn: 7
runtime_cents_per_hour: 0
allow_networks: [10.1.0.0/16, "fd00::/8"]
retry: {attempts: 2, base: 10ms}
log: {level: debug}
providers:
  - name: local
    kind: openai
    base_url: http://127.0.0.1:11434/v1
    models: [llama*]
`)
	l, err := Load(Sources{Data: dir, Environ: []string{
		"PERDURE_DATA=/elsewhere", "PERDURE_LISTEN=127.0.0.1:2", "PERDURE_RETRY_CAP=5s", "PERDURE_LOG_LEVEL=", "PERDURE_SANDBOX=none",
		"PERDURE_DEFAULT_MODEL=llama3",
	}})
	if err != nil {
		t.Fatal(err)
	}
	rate := 0.0
	want := Config{
		Data: dir, Listen: "127.0.0.1:2", Sandbox: "none", DefaultModel: "llama3", RuntimeCentsPerHour: &rate, RequestsPerTurn: 7,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")},
		Retry:         Retry{Attempts: 2, Base: 10 * time.Millisecond, Cap: 5 * time.Second}, Log: Log{Level: "debug", Format: "auto"},
		Providers: []Provider{{Name: "local", Kind: "openai", BaseURL: "http://127.0.0.1:11434/v1", Models: []string{"llama*"}}},
	}
	if diff := cmp.Diff(want, l.Config, comparePrefixes); diff != "" {
		t.Error(diff)
	}
	if l.File != filepath.Join(dir, FileName) || len(l.Warnings) != 0 {
		t.Errorf("file %q, warnings %q", l.File, l.Warnings)
	}
	if err := l.Validate(); err != nil {
		t.Error(err)
	}
}

func TestProvidersOfTheEnvironment(t *testing.T) {
	key := write(t, filepath.Join(t.TempDir(), "key"), "sk-from-file\n")
	for name, c := range map[string]struct {
		environ []string
		want    []Provider
	}{
		"none":             {[]string{"ANTHROPIC_API_KEY=", "ANTHROPIC_BASE_URL=https://gateway.example"}, nil},
		"anthropic":        {[]string{"ANTHROPIC_API_KEY=sk-1"}, []Provider{{Name: "anthropic", Kind: "anthropic", APIKey: "sk-1"}}},
		"anthropic, file":  {[]string{"ANTHROPIC_API_KEY_FILE=" + key}, []Provider{{Name: "anthropic", Kind: "anthropic", APIKey: "sk-from-file"}}},
		"openai, base URL": {[]string{"OPENAI_BASE_URL=http://127.0.0.1:11434/v1"}, []Provider{{Name: "openai", Kind: "openai", BaseURL: "http://127.0.0.1:11434/v1"}}},
		"both": {[]string{"OPENAI_API_KEY=sk-2", "ANTHROPIC_API_KEY=sk-1", "ANTHROPIC_BASE_URL=https://gateway.example"}, []Provider{
			{Name: "anthropic", Kind: "anthropic", APIKey: "sk-1", BaseURL: "https://gateway.example"}, {Name: "openai", Kind: "openai", APIKey: "sk-2"},
		}},
	} {
		l, err := Load(Sources{Environ: c.environ, Home: t.TempDir()})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, l.Providers, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProviderOfTheFileGetsItsKeyFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, FileName), "providers:\n  - {name: anthropic, kind: anthropic, base_url: https://a.example}\n  - {name: other, kind: openai, api_key_file: "+
		write(t, filepath.Join(dir, "key"), "sk-other")+"}\n")
	l, err := Load(Sources{Data: dir, Environ: []string{"ANTHROPIC_API_KEY=sk-1", "ANTHROPIC_BASE_URL=https://not.used"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Provider{
		{Name: "anthropic", Kind: "anthropic", BaseURL: "https://a.example", APIKey: "sk-1"},
		{Name: "other", Kind: "openai", APIKey: "sk-other"},
	}
	if diff := cmp.Diff(want, l.Providers); diff != "" {
		t.Error(diff)
	}
}

func TestWhatCannotBeLoaded(t *testing.T) {
	for name, c := range map[string]struct {
		yaml    string
		environ []string
		want    string
	}{
		"unknown key":        {"listen: x\nlisten_adress: y\n", nil, "[2:1]"},
		"unknown nested key": {"providers:\n  - name: a\n    kinds: b\n    api_key: canary-secret\n", nil, "[3:5]"},
		"key given twice":    {"listen: a\nlisten: b\n", nil, "[2:1]"},
		"wrong type":         {"requests_per_turn: many\n", nil, "[1:20]"},
		"no YAML":            {"a: [canary-secret\n", nil, "[1:"},
		"data in data":       {"data: /x\n", nil, "data: cannot be set"},
		"bad network":        {"allow_networks: [10.0.0.0/99]\n", nil, "perdure.yaml"},
		"bad variable":       {"", []string{"PERDURE_REQUESTS_PER_TURN=canary-secret"}, "RequestsPerTurn"},
		"key twice":          {"", []string{"ANTHROPIC_API_KEY=canary-secret", "ANTHROPIC_API_KEY_FILE=/x"}, "cannot both be set"},
		"no key file":        {"", []string{"ANTHROPIC_API_KEY_FILE=/does/not/exist"}, "/does/not/exist"},
		"too large":          {strings.Repeat("# canary-secret\n", 1<<17), nil, "larger than"},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, FileName), c.yaml)
		_, err := Load(Sources{Data: dir, Environ: c.environ})
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error is %q", name, err)
		}
	}
	if _, err := Load(Sources{File: "/does/not/exist.yaml"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that was named and is missing: %v", err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"data":                    func(c *Config) { c.Data = "" },
		"listen":                  func(c *Config) { c.Listen = "8700" },
		"sandbox":                 func(c *Config) { c.Sandbox = "off" },
		"log.level":               func(c *Config) { c.Log.Level = "loud" },
		"log.format":              func(c *Config) { c.Log.Format = "xml" },
		"runtime_cents_per_hour":  func(c *Config) { *c.RuntimeCentsPerHour = -1 },
		"requests_per_turn":       func(c *Config) { c.RequestsPerTurn = -1 },
		"retry.attempts":          func(c *Config) { c.Retry.Attempts = 1000 },
		"retry.base":              func(c *Config) { c.Retry.Base = -1 },
		"retry.cap":               func(c *Config) { c.Retry.Cap = time.Millisecond },
		"search_url":              func(c *Config) { c.SearchURL = "localhost:8888" },
		"allow_networks[0]":       func(c *Config) { c.AllowNetworks = make([]netip.Prefix, 1) },
		"providers[0].name":       func(c *Config) { c.Providers[0].Name = "a/b" },
		"providers[1].name":       func(c *Config) { c.Providers = append(c.Providers, c.Providers[0]) },
		"providers[0].kind":       func(c *Config) { c.Providers[0].Kind = "other" },
		"providers[0].base_url":   func(c *Config) { c.Providers[0].BaseURL = "gateway.example" },
		"providers[0].api_key":    func(c *Config) { c.Providers[0].APIKey = "" },
		"providers[0].models[0]":  func(c *Config) { c.Providers[0].Models = []string{"scripted/x"} },
		"providers[0]":            func(c *Config) { c.Providers[0].APIKeyFile = "/x" },
		" this server itself":     func(c *Config) { c.Providers[0].BaseURL = "http://localhost:8700" },
		" built-in models":        func(c *Config) { c.Providers[0].Name = "scripted" },
		"providers[0].api_key: h": func(c *Config) { c.Providers[0].APIKey = "a b" },
	} {
		c := Config{Data: "/x", Providers: []Provider{{Name: "p", Kind: "anthropic", APIKey: "k"}}}.WithDefaults()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		var wrong *FieldError
		if err := c.Validate(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: the error is %v", field, err)
		}
	}
}

func TestUnknownVariablesAreTold(t *testing.T) {
	l, err := Load(Sources{Home: t.TempDir(), Environ: []string{"PERDURE_LISTN=x", "PERDURE_URL=http://x", "PERDURE_API_KEY=x", "OTHER=1", "PERDURE_EMPTY="}})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "PERDURE_LISTN") {
		t.Errorf("warnings: %q", l.Warnings)
	}
}

func TestAFileWithAKeyShouldBePrivate(t *testing.T) {
	dir := t.TempDir()
	name := write(t, filepath.Join(dir, FileName), "providers: [{name: a, kind: openai, api_key: sk-1}]\n")
	l, err := Load(Sources{Data: dir})
	if err != nil || len(l.Warnings) != 0 {
		t.Fatalf("%v, %q", err, l.Warnings)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if l, err = Load(Sources{Data: dir}); err != nil || len(l.Warnings) != 1 {
		t.Errorf("%v, %q", err, l.Warnings)
	}
}

func TestYAMLIsReadAgainAndShowsNoSecret(t *testing.T) {
	c := Config{
		Data: "/x", Providers: []Provider{{Name: "p", Kind: "anthropic", APIKey: "canary-secret", Models: []string{"m"}}},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}.WithDefaults()
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "canary") {
		t.Errorf("a secret is shown:\n%s", text)
	}
	l, err := Load(Sources{File: write(t, filepath.Join(t.TempDir(), "c.yaml"), string(text))})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c.Providers[0].APIKey = "[redacted]"
	if diff := cmp.Diff(c, l.Config, comparePrefixes); diff != "" {
		t.Errorf("%s\n%s", diff, text)
	}
}
