//go:build linux

package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

const (
	maxConnections = 256
	dialTimeout    = 15 * time.Second
	idleTimeout    = 10 * time.Minute // of a tunnel with nothing going either way
	maxHeader      = 64 << 10
)

// Proxy serves one sandbox. Its policy can be changed while it runs; connections that are open stay.
type Proxy struct {
	policy    atomic.Pointer[Policy]
	log       *slog.Logger
	server    *http.Server
	transport *http.Transport
	forward   *httputil.ReverseProxy
	// resolve, in tests, stands for the name server.
	resolve func(host string) string
}

// New makes a proxy that allows nothing until SetPolicy. Refusals are logged.
func New(log *slog.Logger) *Proxy {
	p := &Proxy{log: log}
	p.policy.Store(&Policy{Mode: None})
	p.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return p.dial(ctx, host, port)
		},
		DisableCompression:     true,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
		ResponseHeaderTimeout:  5 * time.Minute,
		MaxResponseHeaderBytes: maxHeader,
	}
	p.forward = &httputil.ReverseProxy{
		Transport: p.transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host = r.In.URL.Host // the name that was checked
			r.Out.Header.Del("Proxy-Authorization")
			r.Out.Header.Del("Proxy-Connection")
		},
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { p.fail(w, r.URL.Host, err) },
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	p.server = &http.Server{
		Handler:           p,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p
}

// SetPolicy replaces the policy. Idle connections to hosts of the former one are not used again.
func (p *Proxy) SetPolicy(policy Policy) {
	p.policy.Store(&policy)
	p.transport.CloseIdleConnections()
}

// Serve accepts connections until the listener is closed.
func (p *Proxy) Serve(listener net.Listener) error {
	err := p.server.Serve(&boundedListener{Listener: listener, slots: make(chan struct{}, maxConnections)})
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close ends every connection.
func (p *Proxy) Close() error {
	p.transport.CloseIdleConnections()
	return p.server.Close()
}

// ServeHTTP handles one request of the proxy's client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		host, port, err := net.SplitHostPort(r.Host)
		if err != nil {
			p.fail(w, r.Host, &denied{"CONNECT needs host:port"})
			return
		}
		p.tunnel(w, r, canonical(host), port)
		return
	}
	if r.URL.Scheme != "http" || r.URL.Host == "" {
		p.fail(w, r.URL.Host, &denied{"this is a proxy: ask for an absolute http:// URL, or CONNECT for https"})
		return
	}
	port := r.URL.Port()
	if port == "" {
		port = "80"
	}
	if err := p.policy.Load().check(canonical(r.URL.Hostname()), port); err != nil {
		p.fail(w, r.URL.Host, err)
		return
	}
	p.forward.ServeHTTP(w, r)
}

// fail answers 403 with the reason if the policy refuses, else 502.
func (p *Proxy) fail(w http.ResponseWriter, target string, err error) {
	var d *denied
	if errors.As(err, &d) {
		p.log.Info("egress refused", "target", clip(target), "why", d.why)
		w.Header().Set("X-Egress-Denied", "1")
		http.Error(w, "Refused by the sandbox's network policy: "+d.why+".", http.StatusForbidden)
		return
	}
	http.Error(w, "The sandbox's proxy cannot reach "+clip(target)+": "+err.Error(), http.StatusBadGateway)
}

func clip(s string) string { return s[:min(len(s), 256)] }

func (p *Proxy) dial(ctx context.Context, host, port string) (net.Conn, error) {
	host = canonical(host)
	if p.resolve != nil {
		host = p.resolve(host)
	}
	dialer := net.Dialer{Timeout: dialTimeout, Control: p.policy.Load().control}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	var d *denied
	if errors.As(err, &d) {
		return nil, d // without the operation and addresses around it
	}
	return conn, err
}

func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request, host, port string) {
	target := net.JoinHostPort(host, port)
	policy := p.policy.Load()
	if err := policy.check(host, port); err != nil {
		p.fail(w, target, err)
		return
	}
	upstream, err := p.dial(r.Context(), host, port)
	if err != nil {
		p.fail(w, target, err)
		return
	}
	defer upstream.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.fail(w, target, err)
		return
	}
	defer client.Close()
	if err := client.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if policy.Mode == Limited {
		hello, name, err := readClientHello(buffered.Reader)
		if err == nil {
			err = sameName(name, host)
		}
		if err != nil {
			p.log.Info("egress refused", "target", clip(target), "why", err.Error())
			return
		}
		if _, err := upstream.Write(hello); err != nil {
			return
		}
	}
	splice(client, buffered.Reader, upstream)
}

// sameName says whether the name in the handshake is the one that was allowed. A host that was asked for by address has
// no name to give.
func sameName(name, host string) error {
	if _, err := netip.ParseAddr(host); err == nil && name == "" {
		return nil
	}
	if canonical(name) != host {
		return &denied{fmt.Sprintf("the TLS server name %q is not the host of the CONNECT request", clip(name))}
	}
	return nil
}

// splice carries bytes both ways until both sides have ended, or nothing came from either for idleTimeout.
func splice(client net.Conn, fromClient io.Reader, upstream net.Conn) {
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	upwards := make(chan struct{})
	go func() {
		defer close(upwards)
		pump(upstream, fromClient, client, &last)
	}()
	pump(client, upstream, upstream, &last)
	<-upwards
}

// pump copies from r, which reads source, to destination, and passes on its end.
func pump(destination net.Conn, r io.Reader, source net.Conn, last *atomic.Int64) {
	buffer := make([]byte, 32<<10)
	for {
		if err := source.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
			break
		}
		n, err := r.Read(buffer)
		if n > 0 {
			last.Store(time.Now().UnixNano())
			if err := destination.SetWriteDeadline(time.Now().Add(idleTimeout)); err != nil {
				break
			}
			if _, err := destination.Write(buffer[:n]); err != nil {
				break
			}
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && time.Since(time.Unix(0, last.Load())) < idleTimeout {
			continue // the other way is in use
		}
		if errors.Is(err, io.EOF) {
			if half, ok := destination.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	// One way is broken, so the other has no use.
	_ = destination.Close()
	_ = source.Close()
}

// boundedListener accepts only as many connections as can be open at once.
type boundedListener struct {
	net.Listener
	slots chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &boundedConn{Conn: conn, slots: l.slots}, nil
}

type boundedConn struct {
	net.Conn
	closed atomic.Bool
	slots  chan struct{}
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		<-c.slots
	}
	return err
}

func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Variables are the environment variables by which programs inside find the proxy.
func Variables(address string) map[string]string {
	proxy := "http://" + address
	variables := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		variables[name] = proxy
		variables[strings.ToLower(name)] = proxy
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		variables[name] = "localhost,127.0.0.1,::1"
	}
	return variables
}
