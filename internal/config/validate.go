package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
)

var providerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Validate checks a configuration that has its defaults. The error names every field that is wrong, by its key in the
// file.
func (c Config) Validate() error {
	var v verdict
	v.wrong(c.Data == "", "data", "must name a directory")
	if host, port, err := net.SplitHostPort(c.Listen); err != nil {
		v.wrong(true, "listen", "must be host:port, such as 127.0.0.1:8700")
	} else {
		_, err := strconv.ParseUint(port, 10, 16)
		v.wrong(err != nil, "listen", "must end with a port from 0 to 65535")
		v.wrong(host != "" && host != "localhost" && net.ParseIP(host) == nil, "listen", "must begin with an IP address, or localhost")
	}
	v.oneOf(c.Sandbox, "sandbox", "native", "none")
	v.oneOf(c.Log.Level, "log.level", "debug", "info", "warn", "error")
	v.oneOf(c.Log.Format, "log.format", "auto", "text", "json")
	rate := *c.RuntimeCentsPerHour
	v.wrong(math.IsNaN(rate) || rate < 0 || rate > 1e6, "runtime_cents_per_hour", "must be from 0 to 1000000")
	v.wrong(c.RequestsPerTurn < 1 || c.RequestsPerTurn > 100_000, "requests_per_turn", "must be from 1 to 100000")
	v.wrong(c.Retry.Attempts < 1 || c.Retry.Attempts > 100, "retry.attempts", "must be from 1 to 100")
	v.wrong(c.Retry.Base < time.Millisecond || c.Retry.Base > time.Hour, "retry.base", "must be from 1ms to 1h")
	v.wrong(c.Retry.Cap < c.Retry.Base || c.Retry.Cap > 24*time.Hour, "retry.cap", "must be from retry.base to 24h")
	for i, network := range c.AllowNetworks {
		v.wrong(!network.IsValid(), fmt.Sprintf("allow_networks[%d]", i), "must be an address range such as 10.1.0.0/16")
	}
	v.wrong(c.SearchURL != "" && !strings.HasPrefix(c.SearchURL, "http://") && !strings.HasPrefix(c.SearchURL, "https://"),
		"search_url", "must be an http or https URL")
	names := map[string]bool{}
	for i, p := range c.Providers {
		v.provider(fmt.Sprintf("providers[%d]", i), p, c.Listen)
		v.wrong(names[p.Name], fmt.Sprintf("providers[%d].name", i), "is the name of two providers")
		names[p.Name] = true
	}
	return errors.Join(v...)
}

// FieldError says what is wrong with a field.
type FieldError struct {
	Field   string // its key in the file
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

type verdict []error

func (v *verdict) wrong(is bool, field, problem string) {
	if is {
		*v = append(*v, &FieldError{field, problem})
	}
}

func (v *verdict) oneOf(value, field string, allowed ...string) {
	v.wrong(!slices.Contains(allowed, value), field, "must be one of "+strings.Join(allowed, ", "))
}

func (v *verdict) provider(at string, p Provider, listen string) {
	v.wrong(!providerName.MatchString(p.Name), at+".name", "must have 1 to 63 of a-z, 0-9, - and _")
	v.wrong(p.Name == strings.TrimSuffix(scriptedPrefix, "/"), at+".name", "scripted is the name of the built-in models")
	v.oneOf(p.Kind, at+".kind", "anthropic", "openai")
	v.wrong(p.APIKey != "" && p.APIKeyFile != "", at, "api_key and api_key_file cannot both be set")
	v.wrong(p.Kind == "anthropic" && p.APIKey == "", at+".api_key", "is required for anthropic; set api_key, api_key_file or ANTHROPIC_API_KEY")
	v.wrong(!printable(p.APIKey), at+".api_key", "has characters that no key has; was it copied whole and without spaces?")
	if p.BaseURL != "" {
		u, err := url.Parse(p.BaseURL)
		bad := err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil
		v.wrong(bad, at+".base_url", "must be an http or https URL without a user name")
		v.wrong(!bad && itself(u, listen), at+".base_url", "is the address of this server itself; is ANTHROPIC_BASE_URL or OPENAI_BASE_URL meant for its clients?")
	}
	for j, m := range p.Models {
		v.wrong(m == "" || strings.HasPrefix(m, scriptedPrefix), fmt.Sprintf("%s.models[%d]", at, j), "must be a model id that does not begin with "+scriptedPrefix)
	}
}

// scriptedPrefix is what the ids of scripted models begin with.
const scriptedPrefix = "scripted/"

func printable(s model.Secret) bool {
	return !strings.ContainsFunc(s.Reveal(), func(r rune) bool { return r < '!' || r > '~' })
}

// itself reports whether a URL leads to the address that the server listens on.
func itself(u *url.URL, listen string) bool {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" || u.Port() != port {
		return false
	}
	return u.Hostname() == host || loopback(u.Hostname()) && (loopback(host) || host == "" || net.ParseIP(host).IsUnspecified())
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Loopback reports whether the server can only be reached from its own machine.
func (c Config) Loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && loopback(host)
}
