package netguard

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/internal/prerequisite"
)

func mustNew(t testing.TB, options Options) *Guard {
	t.Helper()
	g, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestCheckRefusesWhatIsNotPublic(t *testing.T) {
	t.Parallel()
	g := mustNew(t, Options{})
	refused := map[string]string{
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
		"fc00::1": "private", "fdff::1": "private", "fec0::1": "private",
		"169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
		"100.64.0.1": "carrier-grade", "100.127.255.255": "carrier-grade",
		"169.254.169.254": "metadata", "fd00:ec2::254": "metadata", "100.100.100.200": "metadata", "168.63.129.16": "metadata",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast", "ff02::1": "multicast",
		"192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation",
		"2001:db8::1": "documentation", "3fff::1": "documentation",
		"198.18.0.1": "benchmarking", "198.19.255.255": "benchmarking",
		"240.0.0.1": "reserved", "255.255.255.255": "reserved",
		"192.0.0.1": "protocol", "192.88.99.1": "protocol",
		"2001::1": "protocol", "2001:2::1": "protocol", "2001:10::1": "protocol",
		"100::1": "reserved", "5f00::1": "reserved", "4000::1": "reserved",
		// An IPv4 address inside an IPv6 one.
		"::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "metadata", "::ffff:10.0.0.1": "private",
		"::127.0.0.1": "reserved", "::ffff:0:127.0.0.1": "reserved",
		"64:ff9b::7f00:1": "loopback", "64:ff9b::169.254.169.254": "metadata", "64:ff9b::10.1.2.3": "private",
		"64:ff9b:1::7f00:1": "reserved",
		"2002:7f00:1::1":    "loopback", "2002:a9fe:a9fe::": "metadata", "2002:c0a8:101::1": "private",
		"2400:cb00::5efe:7f00:1": "loopback", "2400:cb00::200:5efe:a00:1": "private",
	}
	for text, want := range refused {
		err := g.Check(netip.MustParseAddr(text))
		var e *RefusedError
		if !errors.As(err, &e) {
			t.Errorf("%s is not refused: %v", text, err)
		} else if !strings.Contains(e.Reason, want) {
			t.Errorf("%s: reason %q does not say %q", text, e.Reason, want)
		}
	}
	if g.Check(netip.Addr{}) == nil {
		t.Error("the zero address is allowed")
	}
}

func TestCheckAllowsThePublicInternet(t *testing.T) {
	t.Parallel()
	g := mustNew(t, Options{})
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
	} {
		if err := g.Check(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOperatorsWords(t *testing.T) {
	t.Parallel()
	g := mustNew(t, Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("::ffff:192.168.7.0/120"), netip.MustParsePrefix("fd12::/16")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("8.8.0.0/16")},
	})
	for text, allowed := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "192.168.7.9": true, "192.168.8.1": false,
		"fd12::5": true, "fd13::5": false, "8.8.8.8": false, "::ffff:8.8.8.8": false, "8.9.0.1": true,
		"64:ff9b::10.1.2.3": false, // allowing a range does not allow the ways around it
	} {
		if err := g.Check(netip.MustParseAddr(text)); (err == nil) != allowed {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOwnAddressesAreRefused(t *testing.T) {
	t.Parallel()
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	if len(own) == 0 {
		prerequisite.Missing(t, "this host has no interface")
	}
	for _, a := range own {
		addr, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if reason := ownAddress(addr.Unmap()); reason == "" {
			t.Errorf("%s is not known as our own", addr)
		}
	}
	if reason := ownAddress(netip.MustParseAddr("8.8.8.8")); reason != "" {
		t.Errorf("8.8.8.8: %s", reason)
	}
}

func TestNewRefusesMalformedOptions(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]Options{
		"no port":        {AllowHosts: []string{"localhost"}},
		"port zero":      {AllowHosts: []string{"localhost:0"}},
		"port too large": {AllowHosts: []string{"localhost:65536"}},
		"named port":     {AllowHosts: []string{"localhost:http"}},
		"no host":        {AllowHosts: []string{":80"}},
		"zero prefix":    {Allow: []netip.Prefix{{}}},
		"mapped, wide":   {Deny: []netip.Prefix{netip.MustParsePrefix("::ffff:0.0.0.0/90")}},
	} {
		if _, err := New(options); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTransportDialsOnlyWhatIsAllowed(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())

	refused := func(g *Guard, url string) {
		t.Helper()
		client := http.Client{Transport: g.Transport()}
		response, err := client.Get(url)
		if err == nil {
			_ = response.Body.Close()
		}
		var e *RefusedError
		if !errors.As(err, &e) {
			t.Fatalf("%s: %v", url, err)
		}
		if e.Host == "" || !e.Addr.IsValid() || e.Reason == "" {
			t.Errorf("%s: the error lacks a part: %#v", url, e)
		}
	}
	g := mustNew(t, Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "127.9.9.9"} {
		refused(g, "http://"+host+":"+port)
	}
	other := mustNew(t, Options{AllowHosts: []string{"127.0.0.1:1", "localhost:2"}})
	refused(other, "http://127.0.0.1:"+port)
	refused(other, "http://localhost:"+port)
	if hits.Load() != 0 {
		t.Fatalf("the server was reached %d times", hits.Load())
	}

	for name, g := range map[string]*Guard{
		"address": mustNew(t, Options{AllowHosts: []string{"127.0.0.1:" + port}}),
		"prefix":  mustNew(t, Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}),
		"name":    mustNew(t, Options{AllowHosts: []string{"LocalHost.:" + port}}),
	} {
		client := http.Client{Transport: g.Transport()}
		response, err := client.Get("http://localhost:" + port)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	if hits.Load() != 3 {
		t.Errorf("the server was reached %d times, not 3", hits.Load())
	}
}

func TestTransportIgnoresProxySettings(t *testing.T) {
	t.Parallel()
	if mustNew(t, Options{}).Transport().Proxy != nil {
		t.Error("the transport takes a proxy from somewhere")
	}
}

func TestDialContextSpeaksOnlyTCP(t *testing.T) {
	t.Parallel()
	g := mustNew(t, Options{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})
	for _, network := range []string{"unix", "udp", "ip4:icmp", ""} {
		if c, err := g.DialContext(context.Background(), network, "127.0.0.1:9"); err == nil {
			_ = c.Close()
			t.Errorf("dialled over %q", network)
		}
	}
}

// FuzzSpecial holds that wrapping an IPv4 address in IPv6 never makes a special address public.
func FuzzSpecial(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{169, 254, 169, 254})
	f.Add([]byte{8, 8, 8, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != 4 {
			t.Skip()
		}
		four := netip.AddrFrom4([4]byte(b))
		if special(four) == "" {
			t.Skip()
		}
		for _, prefix := range []string{"::", "::ffff:0.0.0.0", "64:ff9b::", "64:ff9b:1::", "::ffff:0:0:0", "2400:cb00::5efe:0:0"} {
			wrapped := netip.MustParseAddr(prefix).As16()
			copy(wrapped[12:], b)
			if addr := netip.AddrFrom16(wrapped); special(addr) == "" {
				t.Errorf("%s counts as public though %s does not", addr, four)
			}
		}
	})
}
