package web

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const maxURLLength = 2048

// parseTarget reads what the model gave as a URL.
func parseTarget(raw string) (*url.URL, *failure) {
	raw = strings.TrimSpace(raw)
	if raw == "" {
		return nil, failf(codeInvalidInput, "The field url is empty. Give the full address, such as https://example.com/page.")
	}
	if len(raw) > maxURLLength {
		return nil, failf(codeURLTooLong, "The URL is longer than %d bytes.", maxURLLength)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, failf(codeInvalidInput, "The URL cannot be read. Give the full address, such as https://example.com/page.").because(err)
	}
	return u, normalizeTarget(u)
}

// normalizeTarget refuses URLs that cannot be fetched and brings u.Host into the one form in which rules compare and the
// dialler connects, so that both mean the same host.
func normalizeTarget(u *url.URL) *failure {
	switch u.Scheme {
	case "http", "https":
	case "":
		return failf(codeInvalidInput, "The URL has no scheme. Give the full address, such as https://example.com/page.")
	default:
		return failf(codeInvalidInput, "Only http and https URLs can be fetched, not %s.", shorten(u.Scheme, 32))
	}
	if u.User != nil {
		return failf(codeInvalidInput, "The URL contains a user name or password before the host; such URLs are not fetched.")
	}
	if u.Opaque != "" || u.Host == "" || u.Hostname() == "" {
		return failf(codeInvalidInput, "The URL has no host. Give the full address, such as https://example.com/page.")
	}
	host, ok := asciiHost(u.Hostname())
	if !ok {
		return failf(codeInvalidInput, "The host of the URL is not a valid host name or address.")
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := u.Port(); port != "" {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return failf(codeInvalidInput, "The port of the URL is not a number from 1 to 65535.")
		}
		host = net.JoinHostPort(strings.Trim(host, "[]"), strconv.FormatUint(number, 10))
	}
	u.Host = host
	u.Fragment, u.RawFragment = "", ""
	return nil
}

// asciiHost is the host as it is looked up: lower case, Punycode, without a final dot; an address in its usual spelling.
// Names that some resolvers read as an address (2130706433, 0x7f000001, 127.1) are refused: only netip's reading counts.
func asciiHost(host string) (string, bool) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", false
		}
		return addr.String(), true
	}
	if !isASCII(host) { // what is ASCII already may be a name with an underscore, which IDNA refuses
		var err error
		if host, err = idna.Lookup.ToASCII(host); err != nil {
			return "", false
		}
	}
	host = normalHost(host)
	if host == "" || len(host) > 253 {
		return "", false
	}
	// Mapping may have made an address of it, as of fullwidth digits.
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String(), true
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return "", false
		}
	}
	return host, !isNumeric(labels[len(labels)-1])
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// isNumeric says whether a last label makes its host an IPv4 address by the rules of the WHATWG URL standard.
func isNumeric(label string) bool {
	digits := "0123456789"
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		label, digits = rest, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}

// shorten cuts text that is only quoted.
func shorten(s string, runes int) string {
	n := 0
	for i := range s {
		if n == runes {
			return s[:i] + "…"
		}
		n++
	}
	return s
}
