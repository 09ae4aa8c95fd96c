//go:build linux

package sandbox_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/sandbox"
)

func reachableLoopback(o *sandbox.Options) {
	o.Reachable = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// website is a server of this process on the host's loopback.
func website(t testing.TB) (host, port string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "host=%s path=%s", r.Host, r.URL.Path)
	}))
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

func TestNetworkNone(t *testing.T) {
	t.Parallel()
	f := fresh(t, reachableLoopback)
	_, port := website(t)
	f.expect(bash("env | grep -ci proxy; true"), "0")
	f.expectError(bash("exec 3<>/dev/tcp/127.0.0.1/3128"), "refused")
	f.expectError(bash("exec 3<>/dev/tcp/127.0.0.1/"+port), "refused")
}

// get asks the proxy for a URL with nothing but the shell, which is all that every host has.
func get(url, host string) sandbox.Call {
	return bash(fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET %s HTTP/1.0\r\nHost: %s\r\nX-Other: 1\r\n\r\n' >&3; cat <&3; exec 3>&-`, url, host))
}

func TestNetworkLimited(t *testing.T) {
	t.Parallel()
	f := fresh(t, reachableLoopback)
	_, port := website(t)
	f.spec.Network = sandbox.Network{Mode: "limited", Allow: []string{"localhost:" + port, "*.allowed.example"}}
	f.expect(bash("echo $HTTP_PROXY $https_proxy $NO_PROXY"), "http://127.0.0.1:3128 http://127.0.0.1:3128 localhost,127.0.0.1,::1")
	if text, _ := f.run(get("http://localhost:"+port+"/x", "other.example")); !strings.HasSuffix(text, "host=localhost:"+port+" path=/x") {
		t.Errorf("an allowed host: %s", text)
	}
	for _, url := range []string{"http://127.0.0.1:" + port + "/", "http://localhost/", "http://denied.example/", "http://allowed.example/", "http://169.254.169.254/latest/", "/relative", "ftp://localhost/"} {
		if text, _ := f.run(get(url, "localhost")); !strings.Contains(text, "403 Forbidden") || !strings.Contains(text, "Refused by the sandbox's network policy") {
			t.Errorf("%s: %s", url, text)
		}
	}
	f.expectError(bash("exec 3<>/dev/tcp/127.0.0.1/"+port), "refused") // only through the proxy
	// The environment's hosts may change while the sandbox is up.
	f.expect(bash("x=7"), "(no output)")
	f.spec.Network.Allow = nil
	if text, _ := f.run(get("http://localhost:"+port+"/x", "localhost")); !strings.Contains(text, "403 Forbidden") {
		t.Errorf("a host that is not allowed any more: %s", text)
	}
	f.expect(bash("echo $x"), "7")
	// A change of mode is another sandbox.
	f.spec.Network.Mode = "none"
	f.expectError(bash("echo x=$x.; exec 3<>/dev/tcp/127.0.0.1/3128"), "x=.\n")
}

func TestNetworkUnrestricted(t *testing.T) {
	t.Parallel()
	f := fresh(t)
	_, port := website(t)
	f.spec.Network.Mode = "unrestricted"
	for _, url := range []string{"http://127.0.0.1:" + port + "/", "http://localhost:" + port + "/", "http://[::1]:" + port + "/", "http://[::ffff:127.0.0.1]:" + port + "/",
		"http://0.0.0.0:" + port + "/", "http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "http://100.100.100.200/", "http://[fd00:ec2::254]/"} {
		if text, _ := f.run(get(url, "x")); !strings.Contains(text, "403 Forbidden") || !strings.Contains(text, "is not a public address") {
			t.Errorf("%s: %s", url, text)
		}
	}
	for _, a := range ownAddresses(t) {
		if text, _ := f.run(get("http://"+a+":"+port+"/", "x")); !strings.Contains(text, "403 Forbidden") {
			t.Errorf("the host's own %s: %s", a, text)
		}
	}
	open := fresh(t, reachableLoopback)
	open.spec.Network.Mode = "unrestricted"
	if text, _ := open.run(get("http://localhost:"+port+"/y", "x")); !strings.HasSuffix(text, "path=/y") {
		t.Errorf("a host that may be reached: %s", text)
	}
}

func ownAddresses(t testing.TB) []string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			own = append(own, n.IP.String())
		}
	}
	return own
}
