package web

import (
	"net/netip"
	"net/url"
	"path"
	"strings"
)

// Domains is one pair of lists. An entry is a host name, which stands for its subdomains too; for web_search a path may
// follow. Comparison ignores case and a final dot.
type Domains struct {
	// Allowed lists all that may be reached. Nil allows everything; an empty list that is not nil allows nothing.
	Allowed []string
	// Blocked lists what may not be reached.
	Blocked []string
}

// check says why the URL, whose host is in normal form, may not be reached: a *failure with url_not_allowed, or nil.
func (s Settings) check(u *url.URL) *failure {
	host := normalHost(u.Hostname())
	if s.Limited {
		if len(s.AllowedHosts) == 0 {
			return failf(codeURLNotAllowed, "This session's environment allows no web hosts. Its owner can add hosts to "+
				"networking.allowed_hosts of the environment.")
		}
		if !anyHost(s.AllowedHosts, host) {
			return failf(codeURLNotAllowed, "The host %s is not among the hosts that this session's environment allows "+
				"(networking.allowed_hosts).", host)
		}
	}
	for _, d := range s.Domains {
		if d.Allowed != nil && !anyDomain(d.Allowed, host, u.Path) {
			return failf(codeURLNotAllowed, "The host %s is not in the allowed_domains of this tool.", host)
		}
		if anyDomain(d.Blocked, host, u.Path) {
			return failf(codeURLNotAllowed, "The host %s is in the blocked_domains of this tool.", host)
		}
	}
	return nil
}

func anyDomain(entries []string, host, urlPath string) bool {
	for _, entry := range entries {
		domain, below, hasPath := strings.Cut(entry, "/")
		if !isBelow(host, normalHost(domain), true) {
			continue
		}
		if !hasPath || isPathBelow(urlPath, "/"+below) {
			return true
		}
	}
	return false
}

func anyHost(entries []string, host string) bool {
	for _, entry := range entries {
		entry = normalHost(entry)
		if suffix, ok := strings.CutPrefix(entry, "*."); ok {
			if isBelow(host, suffix, false) {
				return true
			}
		} else if host == entry {
			return true
		}
	}
	return false
}

// isBelow says whether host is a subdomain of domain, or domain itself if that counts. An address has no subdomains.
func isBelow(host, domain string, itself bool) bool {
	if host == domain {
		return itself && domain != ""
	}
	if _, err := netip.ParseAddr(host); err == nil || domain == "" {
		return false
	}
	return strings.HasSuffix(host, "."+domain)
}

// isPathBelow compares whole segments, and after resolving "..", so that no other path can pass for one below prefix.
func isPathBelow(urlPath, prefix string) bool {
	urlPath = path.Clean("/" + urlPath)
	prefix = path.Clean(prefix)
	return prefix == "/" || urlPath == prefix || strings.HasPrefix(urlPath, prefix+"/")
}

func normalHost(host string) string {
	return strings.TrimSuffix(strings.ToLower(host), ".")
}
