package price

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/session"
)

func catalogue(t testing.TB) *Catalogue {
	t.Helper()
	c, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTheReferenceBill is the bill that the requirements work out by hand.
func TestTheReferenceBill(t *testing.T) {
	tokens, ok := catalogue(t).Cost("scripted/demo", model.Usage{InputTokens: 40_000, CacheReadTokens: 140_000, OutputTokens: 12_000}, Terms{})
	if !ok || tokens.String() != "$0.228" {
		t.Errorf("tokens cost %s", tokens)
	}
	running := session.RuntimeCost(14*time.Minute, session.Cents(8))
	if got := running.String(); got != "$0.018666666666" {
		t.Errorf("running costs %s", got)
	}
	if total := tokens + running; total.RoundedCents() != 25 || total.String() != "$0.246666666666" {
		t.Errorf("the bill is %s, %d cents", total, total.RoundedCents())
	}
}

func TestListPrices(t *testing.T) {
	c := catalogue(t)
	million := model.Usage{InputTokens: 1e6, CacheReadTokens: 1e6, CacheWrite5mTokens: 1e6, CacheWrite1hTokens: 1e6, OutputTokens: 1e6}
	small := model.Usage{InputTokens: 50_000, CacheReadTokens: 30_000, CacheWrite5mTokens: 10_000, CacheWrite1hTokens: 10_000, OutputTokens: 1e6}
	fast := million
	fast.Fast = true
	for _, test := range []struct {
		id    string
		usage model.Usage
		terms Terms
		want  string // "" for unknown
	}{
		{"claude-opus-5", model.Usage{InputTokens: 10_000, CacheReadTokens: 40_000, OutputTokens: 15_000}, Terms{}, "$0.445"},
		{"claude-opus-5", million, Terms{}, "$46.75"},
		{"claude-opus-5", fast, Terms{}, "$93.50"},
		{"claude-opus-4-7", fast, Terms{}, ""},
		{"claude-opus-5-5", million, Terms{}, "$37.20"},
		{"claude-opus-5-5", million, Terms{USOnly: true}, "$40.92"},
		{"claude-fable-5-1", million, Terms{}, "$92.75"},
		{"claude-fable-5-2", million, Terms{}, "$74.20"},
		{"claude-sonnet-5-5", million, Terms{}, "$18.60"},
		{"claude-sonnet-4-5-20250929", million, Terms{}, "$28.05"},
		{"claude-haiku-4-5-20251001", million, Terms{}, "$9.35"},
		{"anthropic/claude-haiku-4-5", million, Terms{}, "$9.35"},
		{"claude-haiku-5-5", small, Terms{}, "$0.50855"},
		{"claude-haiku-5-5", model.Usage{InputTokens: 100_000}, Terms{}, "$0.01"},
		{"claude-haiku-5-5", model.Usage{InputTokens: 60_000, CacheReadTokens: 40_001}, Terms{}, "$0.03200005"},
		{"claude-haiku-5-5", million, Terms{}, "$4.675"},
		{"claude-opus-5", model.Usage{WebSearchRequests: 3}, Terms{USOnly: true}, "$0.03"},
		{"claude-opus-5", model.Usage{InputTokens: -5, OutputTokens: -1}, Terms{}, "$0.00"},
		{"claude-opus-9", million, Terms{}, ""},
		{"claude-opus-5-preview", million, Terms{}, ""},
		{"gpt-9", model.Usage{}, Terms{}, ""},
		{"scripted/*", million, Terms{}, ""},
		{"", model.Usage{}, Terms{}, ""},
	} {
		cost, ok := c.Cost(test.id, test.usage, test.terms)
		if ok != (test.want != "") || ok && cost.String() != test.want {
			t.Errorf("%s %+v: %s, %t, want %q", test.id, test.usage, cost, ok, test.want)
		}
	}
}

// TestCostIsExact compares with arithmetic that has no limits.
func TestCostIsExact(t *testing.T) {
	c := catalogue(t)
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.Int64Range(0, math.MaxInt64)
		if rapid.Bool().Draw(t, "small") {
			tokens = rapid.Int64Range(0, 10_000_000)
		}
		usage := model.Usage{
			InputTokens: tokens.Draw(t, "input"), OutputTokens: tokens.Draw(t, "output"), CacheReadTokens: tokens.Draw(t, "read"),
			CacheWrite5mTokens: tokens.Draw(t, "write5m"), CacheWrite1hTokens: tokens.Draw(t, "write1h"), WebSearchRequests: tokens.Draw(t, "searches"),
			Fast: rapid.Bool().Draw(t, "fast"),
		}
		us := rapid.Bool().Draw(t, "us")
		want := new(big.Int)
		add := func(n, rate int64) { want.Add(want, new(big.Int).Mul(big.NewInt(n), big.NewInt(rate))) }
		add(usage.InputTokens, 2_000_000)
		add(usage.CacheReadTokens, 200_000)
		add(usage.CacheWrite5mTokens, 2_500_000)
		add(usage.CacheWrite1hTokens, 4_000_000)
		add(usage.OutputTokens, 10_000_000)
		if usage.Fast {
			want.Mul(want, big.NewInt(2))
		}
		if us {
			want.Div(want.Mul(want, big.NewInt(11)), big.NewInt(10)) // exact: every rate is a multiple of ten
		}
		add(usage.WebSearchRequests, 10_000_000_000)
		if limit := big.NewInt(math.MaxInt64); want.Cmp(limit) > 0 {
			want = limit
		}
		if got, ok := c.Cost("scripted/x", usage, Terms{USOnly: us}); !ok || int64(got) != want.Int64() {
			t.Fatalf("got %d, %t, want %s", int64(got), ok, want)
		}
	})
}

func TestAUsersCatalogue(t *testing.T) {
	base := catalogue(t)
	c, err := base.Extended([]byte(`
models:
  - id: qwen3-*
    prices: {input: 0.22, output: 0.95}
  - id: qwen3-coder
    aliases: [coder]
    default_effort: low
    prices: {input: 0, cache_read: "0.000001", cache_write_5m: 3, output: 0.5}
  - id: mystery
  - id: claude-opus-5
    display_name: Mine
    prices: {input: 1, output: 2}
`))
	if err != nil {
		t.Fatal(err)
	}
	million := model.Usage{InputTokens: 1e6, CacheReadTokens: 1e6, CacheWrite5mTokens: 1e6, CacheWrite1hTokens: 1e6, OutputTokens: 1e6}
	for id, want := range map[string]string{"qwen3-big": "$1.83", "coder": "$6.500001", "claude-opus-5": "$6.00", "mystery": ""} {
		cost, ok := c.Cost(id, million, Terms{})
		if ok != (want != "") || ok && cost.String() != want {
			t.Errorf("%s costs %s, %t", id, cost, ok)
		}
	}
	if m := c.Lookup("mystery"); m == nil || m.Priced() || m.DisplayName != "mystery" {
		t.Errorf("%+v", m)
	}
	if m := base.Lookup("claude-opus-5"); m.DisplayName != "Claude Opus 5" || base.Lookup("coder") != nil {
		t.Error("the catalogue that was extended has changed")
	}
	if c, err := base.Extended([]byte(`{"models":[{"id":"j","prices":{"input":1.5,"output":2}}]}`)); err != nil || !c.Lookup("j").Priced() {
		t.Errorf("JSON: %v", err)
	}
}

func TestCataloguesThatAreWrongAreRefused(t *testing.T) {
	for file, want := range map[string]string{
		"models:\n  - id: a\n    price: 1\n":                       "3:",
		"models: [{id: ''}]":                                       "id must be",
		"models: [{id: 'a*b'}]":                                    "id must be",
		"models: [{id: a, prices: {input: 1}}]":                    "input and output",
		"models: [{id: a, prices: {input: -1, output: 1}}]":        "not a price",
		"models: [{id: a, prices: {input: 1e3, output: 1}}]":       "not a price",
		"models: [{id: a, prices: {input: 0.0000001, output: 1}}]": "not a price",
		"models: [{id: a, prices: {input: 1234567, output: 1}}]":   "not a price",
		"models: [{id: a, default_effort: huge}]":                  "default_effort",
		"models: [{id: a, released: soon}]":                        "released",
		"models: [{id: a, context: -1}]":                           "negative",
		"models: [{id: a, long_prompt: {above: 1}}]":               "long_prompt",
		"models: [{id: a, aliases: [claude-opus-5]}]":              "belongs to both",
	} {
		if _, err := catalogue(t).Extended([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
}

func FuzzExtended(f *testing.F) {
	f.Add([]byte("models: [{id: a, prices: {input: 1, output: 2}}]"))
	base := catalogue(f)
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := base.Extended(file)
		if err != nil {
			return
		}
		for _, m := range c.Models() {
			c.Cost(m.ID, model.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64}, Terms{USOnly: true})
		}
	})
}
