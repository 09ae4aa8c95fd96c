package netguard

import (
	"encoding/binary"
	"net/netip"
)

// specialRange is a range that is not the public internet.
type specialRange struct {
	prefix netip.Prefix
	reason string // completes "it is …"
}

// specialIPv4 follows the IANA registry of special-purpose addresses, plus the addresses on which clouds serve
// credentials to their machines. The more telling reason stands first.
var specialIPv4 = ranges(
	"169.254.169.254/32", "a cloud metadata address",
	"100.100.100.200/32", "a cloud metadata address",
	"168.63.129.16/32", "a cloud metadata address", // public by number, but inside Azure it is the host's own agent
	"192.0.0.192/32", "a cloud metadata address",
	"0.0.0.0/8", "an unspecified address",
	"10.0.0.0/8", "a private address",
	"100.64.0.0/10", "a carrier-grade NAT address",
	"127.0.0.0/8", "a loopback address",
	"169.254.0.0/16", "a link-local address",
	"172.16.0.0/12", "a private address",
	"192.0.0.0/24", "an address of a protocol assignment",
	"192.0.2.0/24", "a documentation address",
	"192.31.196.0/24", "an address of a protocol assignment",
	"192.52.193.0/24", "an address of a protocol assignment",
	"192.88.99.0/24", "an address of a protocol assignment",
	"192.168.0.0/16", "a private address",
	"192.175.48.0/24", "an address of a protocol assignment",
	"198.18.0.0/15", "a benchmarking address",
	"198.51.100.0/24", "a documentation address",
	"203.0.113.0/24", "a documentation address",
	"224.0.0.0/4", "a multicast address",
	"240.0.0.0/4", "a reserved address",
)

// specialIPv6 names what is not public. Whatever it does not name must also lie in publicIPv6.
var specialIPv6 = ranges(
	"fd00:ec2::254/128", "a cloud metadata address",
	"fd20:ce::254/128", "a cloud metadata address",
	"::/128", "an unspecified address",
	"::1/128", "a loopback address",
	"fc00::/7", "a private address",
	"fe80::/10", "a link-local address",
	"fec0::/10", "a private address",
	"ff00::/8", "a multicast address",
	"2001:db8::/32", "a documentation address",
	"3fff::/20", "a documentation address",
	"2001::/23", "an address of a protocol assignment", // Teredo, ORCHID, benchmarking and others
	"2620:4f:8000::/48", "an address of a protocol assignment",
)

var (
	publicIPv6 = netip.MustParsePrefix("2000::/3") // all that has ever been handed out
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

func ranges(pairs ...string) []specialRange {
	list := make([]specialRange, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, specialRange{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return list
}

// special says why the address is not on the public internet, or "". An address that carries an IPv4 address inside
// ends at that one, so the inner one is judged too.
func special(addr netip.Addr) string {
	if !addr.IsValid() {
		return "not an address"
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return within(specialIPv4, addr)
	}
	if nat64.Contains(addr) {
		return within(specialIPv4, embeddedIPv4(addr, 12))
	}
	if reason := within(specialIPv6, addr); reason != "" {
		return reason
	}
	if !publicIPv6.Contains(addr) {
		return "a reserved address" // IPv4-compatible and IPv4-translated forms too
	}
	if sixToFour.Contains(addr) {
		return within(specialIPv4, embeddedIPv4(addr, 2))
	}
	if isISATAP(addr) {
		return within(specialIPv4, embeddedIPv4(addr, 12))
	}
	return ""
}

func within(list []specialRange, addr netip.Addr) string {
	for _, r := range list {
		if r.prefix.Contains(addr) {
			return r.reason
		}
	}
	return ""
}

func embeddedIPv4(addr netip.Addr, at int) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[at : at+4]))
}

// isISATAP recognises the interface identifier by which RFC 5214 tunnels to the IPv4 address in the last four bytes.
func isISATAP(addr netip.Addr) bool {
	b := addr.As16()
	return binary.BigEndian.Uint32(b[8:12])&^0x02000000 == 0x00005efe
}
