//go:build linux

package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// serve starts a proxy for which every name is that of a server on loopback.
func serve(t *testing.T, policy Policy) (p *Proxy, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = New(slog.New(slog.DiscardHandler))
	p.resolve = func(host string) string {
		if _, err := netip.ParseAddr(host); err == nil {
			return host
		}
		return "127.0.0.1"
	}
	p.SetPolicy(policy)
	done := make(chan error, 1)
	go func() { done <- p.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return p, listener.Addr().String()
}

func client(t *testing.T, proxy string, pool *x509.CertPool) *http.Client {
	t.Helper()
	at := &url.URL{Scheme: "http", Host: proxy}
	transport := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate()) // which is for example.com
	port := server.Listener.Addr().(*net.TCPAddr).Port
	_, proxy := serve(t, Policy{Mode: Limited, Allow: []string{fmt.Sprintf("example.com:%d", port)}, Reachable: loopback})
	response, err := client(t, proxy, pool).Get(fmt.Sprintf("https://example.com:%d/", port))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != fmt.Sprintf("example.com:%d", port) {
		t.Errorf("got %q %v", text, err)
	}
	if _, err := client(t, proxy, pool).Get(fmt.Sprintf("https://www.example.com:%d/", port)); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("a host that is not allowed: %v", err)
	}
}

// connectTo opens a tunnel and returns it after the proxy's answer.
func connectTo(t *testing.T, proxy, target string) (net.Conn, *bufio.Reader, int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	r := bufio.NewReader(conn)
	response, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	body := ""
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = string(text)
	}
	return conn, r, response.StatusCode, body
}

// Through a tunnel that was allowed for one host, no other host may be asked for, and nothing but TLS may be spoken.
func TestTunnelMustBeTLSForItsHost(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				text, _ := io.ReadAll(io.LimitReader(conn, 5)) // nothing if the proxy closes
				reached <- string(text)
			}()
		}
	}()
	target := fmt.Sprintf("good.example:%d", listener.Addr().(*net.TCPAddr).Port)
	_, proxy := serve(t, Policy{Mode: Limited, Allow: []string{target}, Reachable: loopback})
	for name, first := range map[string][]byte{
		"plain HTTP":      []byte("GET / HTTP/1.1\r\nHost: good.example\r\n\r\n"),
		"SSH":             []byte("SSH-2.0-OpenSSH_9\r\n"),
		"another name":    hello(t, "evil.example"),
		"no name":         hello(t, ""),
		"a longer name":   hello(t, "good.example.evil.example"),
		"not a handshake": {22, 3, 1, 0, 4, 1, 2, 3, 4},
		"half a message":  hello(t, "good.example")[:40],
	} {
		conn, r, status, _ := connectTo(t, proxy, target)
		if status != http.StatusOK {
			t.Fatalf("%s: status %d", name, status)
		}
		if _, err := conn.Write(first); err != nil {
			t.Fatal(err)
		}
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite() // the proxy may have closed already
		}
		if text, err := io.ReadAll(r); len(text) > 0 {
			t.Errorf("%s: got %q %v", name, text, err)
		}
		if got := <-reached; got != "" {
			t.Errorf("%s: the server was sent %q", name, got)
		}
	}
	conn, _, _, _ := connectTo(t, proxy, target)
	if _, err := conn.Write(hello(t, "GOOD.example")); err != nil {
		t.Fatal(err)
	}
	if got := <-reached; len(got) != 5 || got[0] != handshake {
		t.Errorf("the right name: the server was sent %q", got)
	}
}

// hello is the first message of a TLS client.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	recorded := &recorder{}
	config := &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}
	_ = tls.Client(recorded, config).Handshake() // it ends for want of an answer
	return recorded.written.Bytes()
}

type recorder struct {
	replay
	written bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { return r.written.Write(p) }
func (r *recorder) Read([]byte) (int, error)    { return 0, io.EOF }

func TestRefusals(t *testing.T) {
	t.Parallel()
	_, limited := serve(t, Policy{Mode: Limited, Allow: []string{"good.example", "*.sub.example", "192.0.2.7", "::1"}})
	_, unrestricted := serve(t, Policy{Mode: Unrestricted})
	_, none := serve(t, Policy{Mode: None})
	for _, c := range []struct{ proxy, target, want string }{
		{limited, "evil.example:443", "not among the hosts"},
		{limited, "good.example:22", "not among the hosts"},
		{limited, "sub.example:443", "not among the hosts"},
		{limited, "xsub.example:443", "not among the hosts"},
		{limited, "good.example.evil.example:443", "not among the hosts"},
		{limited, "192.0.2.8:443", "not among the hosts"},
		{limited, "good.example:443", "127.0.0.1 is not a public address"}, // what the name server says
		{limited, "a.sub.example:443", "127.0.0.1 is not a public address"},
		{limited, "192.0.2.7:443", "192.0.2.7 is not a public address"},
		{limited, "[::1]:443", "::1 is not a public address"},
		{unrestricted, "127.0.0.1:1", "not a public address"},
		{unrestricted, "[::ffff:169.254.169.254]:80", "169.254.169.254 is not a public address"},
		{unrestricted, "rebound.example:443", "not a public address"},
		{none, "good.example:443", "allows no network"},
		{limited, "good.example", "CONNECT needs host:port"},
	} {
		_, _, status, body := connectTo(t, c.proxy, c.target)
		if status != http.StatusForbidden || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %q, want 403 with %q", c.target, status, body, c.want)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	p := Policy{Mode: Unrestricted, Reachable: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	for _, s := range []string{"0.0.0.0", "127.0.0.1", "127.9.9.9", "10.0.0.1", "10.2.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200",
		"168.63.129.16", "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1",
		"::127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:1::", "fec0::1"} {
		if p.checkAddress(netip.MustParseAddr(s)) == nil {
			t.Errorf("%s may be connected to", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "2606:4700::1111", "10.1.2.3", "::ffff:10.1.2.3"} {
		if err := p.checkAddress(netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestPlainRequest(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
			return
		}
		fmt.Fprint(w, r.Host, r.Header.Get("Proxy-Authorization"), r.Header.Get("X-Forwarded-For"))
	}))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	p, proxy := serve(t, Policy{Mode: Limited, Allow: []string{fmt.Sprintf("*.example.net:%d", port)}, Reachable: loopback})
	c := client(t, proxy, nil)
	base := fmt.Sprintf("a.example.net:%d", port)
	get := func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequest(http.MethodGet, "http://"+base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Proxy-Authorization", "secret")
		response, err := c.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if status, text := get("/"); status != http.StatusOK || text != base {
		t.Errorf("got %d %q", status, text)
	}
	if status, text := get("/away"); status != http.StatusForbidden || !strings.Contains(text, "elsewhere.example") {
		t.Errorf("a redirect to a host that is not allowed: %d %q", status, text)
	}
	p.SetPolicy(Policy{Mode: None})
	if status, _ := get("/"); status != http.StatusForbidden {
		t.Errorf("after the policy changed: %d", status)
	}
}

func FuzzClientHello(f *testing.F) {
	f.Add([]byte{22, 3, 1, 0, 4, 1, 2, 3, 4})
	f.Add(hello(f, "good.example"))
	f.Add(hello(f, ""))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, name, err := readClientHello(bufio.NewReader(bytes.NewReader(raw)))
		if err == nil && !bytes.HasPrefix(raw, read) {
			t.Errorf("read %x of %x (name %q)", read, raw, name)
		}
	})
}
