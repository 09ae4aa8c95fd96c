//go:build linux

// Package egress is the only way out of a sandbox: an HTTP proxy that the supervisor serves on a listener inside the
// sandbox's network namespace, and that dials from the host.
//
// Two checks are independent. The policy looks at the name that was asked for. The address check looks at the address
// that is really being connected to, at the moment of connecting, so that no answer of a name server, redirect or change
// between check and use leads to the host itself, its network, or a cloud's metadata service. With a limited policy the
// name in the TLS handshake must be the name that was allowed; what is inside that TLS connection is not looked at, so a
// server that answers for several names can be asked for any of them.
package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// The modes of a policy.
const (
	None         = "none"
	Limited      = "limited"
	Unrestricted = "unrestricted"
)

// Policy says where a sandbox may connect to.
type Policy struct {
	// Mode is Limited or Unrestricted.
	Mode string
	// Allow, with Limited, are host names, *.suffixes (which do not match the suffix itself) and IP addresses, each on
	// ports 80 and 443 unless ":port" follows.
	Allow []string
	// Reachable are address ranges that are not public and may be reached all the same.
	Reachable []netip.Prefix
}

// denied is why a connection is refused; its text is shown to the agent.
type denied struct{ why string }

func (d *denied) Error() string { return d.why }

// check says whether the name may be asked for.
func (p Policy) check(host, port string) error {
	switch p.Mode {
	case Unrestricted:
		return nil
	case Limited:
		for _, entry := range p.Allow {
			if matches(entry, host, port) {
				return nil
			}
		}
		return &denied{fmt.Sprintf("%s port %s is not among the hosts that this environment allows", host, port)}
	}
	return &denied{"this environment allows no network"}
}

func matches(entry, host, port string) bool {
	entry = strings.ToLower(entry)
	name, wanted, withPort := strings.Cut(entry, ":")
	if _, err := netip.ParseAddr(entry); err == nil { // an IPv6 address has colons of its own
		name, withPort = entry, false
	}
	if withPort && wanted != port || !withPort && port != "80" && port != "443" {
		return false
	}
	name = strings.TrimSuffix(name, ".")
	if suffix, ok := strings.CutPrefix(name, "*"); ok && strings.HasPrefix(suffix, ".") {
		_, err := netip.ParseAddr(host)
		return err != nil && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return name == host
}

// canonical is the form in which hosts are compared.
func canonical(host string) string {
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// special are ranges that netip does not count among the private ones and that do not lead to the public internet.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // carrier-grade NAT, and the metadata service of some clouds
	netip.MustParsePrefix("168.63.129.16/32"), // a cloud's host agent
	netip.MustParsePrefix("192.0.0.0/24"),     //
	netip.MustParsePrefix("192.0.2.0/24"),     //
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  //
	netip.MustParsePrefix("203.0.113.0/24"),   //
	netip.MustParsePrefix("240.0.0.0/4"),      //
	netip.MustParsePrefix("64:ff9b::/96"),     // NAT64: an IPv4 address in disguise
	netip.MustParsePrefix("64:ff9b:1::/48"),   //
	netip.MustParsePrefix("100::/64"),         //
	netip.MustParsePrefix("2001::/23"),        // Teredo and others
	netip.MustParsePrefix("2001:db8::/32"),    //
	netip.MustParsePrefix("2002::/16"),        // 6to4: an IPv4 address in disguise
	netip.MustParsePrefix("fec0::/10"),        // site-local
	netip.MustParsePrefix("::/96"),            // IPv4-compatible
}

// checkAddress says whether an address may be connected to.
func (p Policy) checkAddress(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	if slices.ContainsFunc(p.Reachable, func(r netip.Prefix) bool { return r.Contains(address) }) {
		return nil
	}
	public := address.IsGlobalUnicast() && !address.IsPrivate() &&
		!slices.ContainsFunc(special, func(r netip.Prefix) bool { return r.Contains(address) })
	if !public {
		return &denied{fmt.Sprintf("%s is not a public address", address)}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return &denied{"the host's own addresses cannot be told from others"}
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			if mine, ok := netip.AddrFromSlice(n.IP); ok && mine.Unmap() == address {
				return &denied{fmt.Sprintf("%s is an address of the host", address)}
			}
		}
	}
	return nil
}

// control is for net.Dialer.Control: it sees the address that the kernel is about to be given.
func (p Policy) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errors.Join(&denied{"the address cannot be understood"}, err)
	}
	return p.checkAddress(to.Addr())
}
