// Package netguard decides which addresses server-side code may connect to when the destination was chosen by somebody
// else: a model, a page, the author of an agent.
//
// The public internet is allowed; everything else (loopback, private, link-local, metadata, …, and the addresses of this
// host itself) is refused unless the operator named it. The decision is made on the address that the kernel is about to
// connect to, after name resolution and once for every attempt, so neither a name that resolves differently the second
// time nor a redirect nor an unusual spelling of an address gets around it.
//
// The package knows nothing of URLs, ports or protocols; those rules belong to its callers. A Guard is immutable and safe
// for concurrent use.
package netguard

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Options is what the operator decided. The zero value allows the public internet only.
type Options struct {
	// Allow opens ranges that are otherwise refused, at every port.
	Allow []netip.Prefix
	// AllowHosts opens single services, each "host:port". With a name, whatever address that name resolves to is
	// trusted; with an address, connections to it are allowed by whichever name they were asked for.
	AllowHosts []string
	// Deny refuses ranges that are public by their number but not meant for agents: an internal network with public
	// addresses, or the operator's own NAT64 prefix. What Allow and AllowHosts name is allowed nevertheless.
	Deny []netip.Prefix
	// Resolver answers name lookups; nil is the system's.
	Resolver *net.Resolver
}

// Guard makes connections to permitted addresses and refuses the others.
type Guard struct {
	allow     []netip.Prefix
	deny      []netip.Prefix
	hosts     map[string]bool         // "name:port" in lower case, without the final dot
	endpoints map[netip.AddrPort]bool // unmapped
	resolver  *net.Resolver
}

// RefusedError says that a connection was not made because of the address it would have gone to.
type RefusedError struct {
	Host   string     // what was asked for, host:port; "" when an address alone was checked
	Addr   netip.Addr // what it resolved to
	Reason string     // completes "it is …": "a loopback address"
}

func (e *RefusedError) Error() string {
	if e.Host == "" {
		return fmt.Sprintf("address %s is refused: it is %s", e.Addr, e.Reason)
	}
	return fmt.Sprintf("connection to %s is refused: %s is %s", e.Host, e.Addr, e.Reason)
}

// New makes a guard. It fails if an entry of the options is malformed.
func New(options Options) (*Guard, error) {
	g := &Guard{
		hosts:     map[string]bool{},
		endpoints: map[netip.AddrPort]bool{},
		resolver:  options.Resolver,
	}
	var err error
	if g.allow, err = normalPrefixes("Allow", options.Allow); err != nil {
		return nil, err
	}
	if g.deny, err = normalPrefixes("Deny", options.Deny); err != nil {
		return nil, err
	}
	for _, entry := range options.AllowHosts {
		host, port, err := net.SplitHostPort(entry)
		if err != nil {
			return nil, fmt.Errorf("allowed host %q must be host:port: %w", entry, err)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 || host == "" {
			return nil, fmt.Errorf("allowed host %q must be host:port with a port from 1 to 65535", entry)
		}
		if addr, err := netip.ParseAddr(host); err == nil {
			g.endpoints[netip.AddrPortFrom(addr.Unmap().WithZone(""), uint16(number))] = true
			continue
		}
		g.hosts[hostKey(host, port)] = true
	}
	return g, nil
}

// normalPrefixes brings prefixes into the form in which addresses are compared: IPv4 as IPv4.
func normalPrefixes(field string, prefixes []netip.Prefix) ([]netip.Prefix, error) {
	list := make([]netip.Prefix, 0, len(prefixes))
	for i, p := range prefixes {
		if !p.IsValid() {
			return nil, fmt.Errorf("%s[%d] is not a valid prefix", field, i)
		}
		if p.Addr().Is4In6() {
			if p.Bits() < 96 {
				return nil, fmt.Errorf("%s[%d]: write %s as an IPv4 prefix", field, i, p)
			}
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

func hostKey(host, port string) string {
	return strings.ToLower(strings.TrimSuffix(host, ".")) + ":" + port
}

// Check says whether addr may be connected to at any port: nil, or a *RefusedError. It does not consult AllowHosts.
func (g *Guard) Check(addr netip.Addr) error {
	if reason := g.refusal(addr); reason != "" {
		return &RefusedError{Addr: addr, Reason: reason}
	}
	return nil
}

// refusal is the reason why addr may not be connected to, or "".
func (g *Guard) refusal(addr netip.Addr) string {
	plain := addr.Unmap().WithZone("")
	if contains(g.allow, plain) {
		return ""
	}
	if reason := special(addr); reason != "" {
		return reason
	}
	if contains(g.deny, plain) {
		return "in a range that the operator refuses"
	}
	return ownAddress(plain)
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// ownAddress says whether addr belongs to this host. A host that has its public address on an interface reaches its own
// services there without passing the firewall that protects them from the outside. The interfaces are read each time,
// because addresses come and go; when they cannot be read, nothing is known to be safe.
func ownAddress(addr netip.Addr) string {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return "not known to be foreign: this host's own addresses cannot be read"
	}
	for _, a := range own {
		network, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(network.IP); ok && ip.Unmap() == addr {
			return "an address of this server"
		}
	}
	return ""
}

// DialContext connects to address, host:port, over TCP. When the address that it comes to is refused, the error wraps a
// *RefusedError. When a name has several addresses, refused ones are passed over in favour of the others.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return nil, fmt.Errorf("netguard: network %q is not TCP", network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("netguard: %w", err)
	}
	trusted := g.hosts[hostKey(host, port)]
	dialer := net.Dialer{
		Timeout:   15 * time.Second,
		KeepAlive: 30 * time.Second,
		Resolver:  g.resolver,
		Control: func(_, actual string, _ syscall.RawConn) error {
			if trusted {
				return nil
			}
			return g.checkEndpoint(address, actual)
		},
	}
	return dialer.DialContext(ctx, network, address)
}

// checkEndpoint judges the address, as the kernel will be given it, of a connection that was asked for as host.
func (g *Guard) checkEndpoint(host, actual string) error {
	endpoint, err := netip.ParseAddrPort(actual)
	if err != nil {
		return &RefusedError{Host: host, Reason: "not an address that can be checked"}
	}
	if g.endpoints[netip.AddrPortFrom(endpoint.Addr().Unmap().WithZone(""), endpoint.Port())] {
		return nil
	}
	if reason := g.refusal(endpoint.Addr()); reason != "" {
		return &RefusedError{Host: host, Addr: endpoint.Addr(), Reason: reason}
	}
	return nil
}

// Transport is an HTTP transport that connects through the guard. It uses no proxy, whatever the environment says: a
// proxy would connect on our behalf where the guard cannot see. Redirects, sizes of bodies and the total time are the
// caller's to bound. Each call makes a transport with connections of its own.
func (g *Guard) Transport() *http.Transport {
	return &http.Transport{
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    15 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}
