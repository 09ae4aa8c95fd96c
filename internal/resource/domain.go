package resource

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// maxDomains bounds the entries of a list of domains.
const maxDomains = 64

// check refuses lists that do not say plainly which sites are meant. The path is that of the tool's config.
func (d *DomainLists) check(v *verdict, path string, withPath bool) {
	if d.Allowed != nil && d.Blocked != nil {
		v.refuse(path+".allowed_domains", "cannot be combined with blocked_domains; use one of them")
	}
	d.Allowed.check(v, path+".allowed_domains", withPath)
	d.Blocked.check(v, path+".blocked_domains", withPath)
}

func (d Domains) check(v *verdict, path string, withPath bool) {
	switch {
	case d == nil:
		return
	case len(d) == 0:
		v.refuse(path, "Empty list of domains is ambiguous. Provide at least one domain or null.")
	case len(d) > maxDomains:
		v.refuse(path, "at most %d domains are allowed", maxDomains)
	}
	seen := make([]string, 0, len(d))
	for i, domain := range d {
		at := path + "." + strconv.Itoa(i)
		if fault := domainFault(domain, withPath); fault != "" {
			v.refuse(at, "%s %s", quote(domain), fault)
		}
		folded := strings.ToLower(domain)
		if slices.Contains(seen, folded) {
			v.refuse(at, "duplicate domain %s", quote(domain))
		}
		seen = append(seen, folded)
	}
}

// domainFault says what is wrong with an entry of a web tool's list, "" if nothing is.
func domainFault(domain string, withPath bool) string {
	if domain == "" || len(domain) > 255 {
		return "must be 1 to 255 characters"
	}
	for i := range len(domain) {
		if c := domain[i]; c <= ' ' || c >= 0x7f {
			return "must be plain ASCII without white space; write international names in Punycode"
		}
	}
	host, path, hasPath := strings.Cut(domain, "/")
	switch {
	case strings.Contains(domain, "://"):
		return "contains a URL scheme; give the host name alone"
	case strings.Contains(domain, "*"):
		return "contains a wildcard; a domain stands for its subdomains already"
	case strings.ContainsAny(domain, "?#"):
		return "contains a query or fragment; give the host name alone"
	case hasPath && (!withPath || path == ""):
		return "contains a path; give the host name alone"
	case strings.Contains(host, "@"):
		return "contains credentials; give the host name alone"
	case numericHost(host):
		return "is an IP address; only host names are allowed"
	case strings.Contains(host, ":"):
		return "contains a port; give the host name alone"
	case !hostName(host):
		return "is not a host name"
	case !strings.Contains(host, "."):
		return "is a single label; give a registrable domain such as example.com"
	}
	if suffix, _ := publicsuffix.PublicSuffix(strings.ToLower(host)); suffix == strings.ToLower(host) {
		return "is a public suffix; give a registrable domain such as example.com"
	}
	for _, suffix := range []string{"localhost", "local", "internal", "localdomain", "invalid"} {
		if strings.HasSuffix(strings.ToLower(host), "."+suffix) {
			return "is in a domain that is not public"
		}
	}
	return ""
}

// numericHost reports whether a host is an IP address in any form that a URL parser takes for one, be it 0x7f.1.
func numericHost(host string) bool {
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(bare); err == nil || bare != host {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last != "" && strings.Trim(last, "0123456789") == "" {
		return true
	}
	hex, ok := strings.CutPrefix(strings.ToLower(last), "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

// hostName reports whether text is made of labels of letters, digits and inner hyphens.
func hostName(text string) bool {
	if text == "" || len(text) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.ToLower(text), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}
