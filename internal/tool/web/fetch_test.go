package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/perdure/perdure/internal/netguard"
)

// site is a server that the tools under test may reach, and a canary on the same loopback address that they may not.
type site struct {
	*httptest.Server
	mux    *http.ServeMux
	canary *httptest.Server
	hits   atomic.Int32 // of the canary
	dns    *nameServer
	tools  *Tools
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{mux: http.NewServeMux()}
	s.Server = httptest.NewServer(s.mux)
	t.Cleanup(s.Close)
	s.canary = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.hits.Add(1) }))
	t.Cleanup(s.canary.Close)
	s.dns = newNameServer(t)
	guard, err := netguard.New(netguard.Options{
		AllowHosts: []string{s.Listener.Addr().String()},
		Resolver:   s.dns.resolver(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.tools = New(Options{Guard: guard, Version: "1.2.3"})
	t.Cleanup(s.tools.Close)
	return s
}

func (s *site) canaryPort() string {
	_, port, _ := net.SplitHostPort(s.canary.Listener.Addr().String())
	return port
}

func (s *site) port() string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func (s *site) serve(path, contentType string, body []byte) string {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		if contentType == "" {
			w.Header()["Content-Type"] = nil
		} else {
			w.Header().Set("Content-Type", contentType)
		}
		_, _ = w.Write(body)
	})
	return s.URL + path
}

func urlInput(u string) jsontext.Value {
	v, err := json.Marshal(map[string]string{"url": u}, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err)
	}
	return v
}

func (s *site) fetch(t testing.TB, settings Settings, u string) Result {
	t.Helper()
	return s.tools.Fetch(t.Context(), settings, urlInput(u))
}

// document is the text block of a result that must be a success.
func document(t testing.TB, r Result) documentBlock {
	t.Helper()
	if r.IsError {
		t.Fatalf("error result: %s (%v)", r.Content, r.Cause)
	}
	var content []documentBlock
	if err := json.Unmarshal(r.Content, &content, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%s: %v", r.Content, err)
	}
	if len(content) != 1 || content[0].Type != "document" || content[0].Source.Data == "" {
		t.Fatalf("not one document: %s", r.Content)
	}
	return content[0]
}

// wantError holds that the result is an error with this code, that text blocks carry it and that it has no internals.
func wantError(t testing.TB, r Result, code string) string {
	t.Helper()
	var content []textBlock
	if err := json.Unmarshal(r.Content, &content); err != nil || len(content) != 1 || content[0].Type != "text" {
		t.Fatalf("not one text block: %s (%v)", r.Content, err)
	}
	if !r.IsError || !strings.HasPrefix(content[0].Text, code+": ") {
		t.Fatalf("want error %s, got is_error %v: %s (cause %v)", code, r.IsError, content[0].Text, r.Cause)
	}
	return content[0].Text
}

func TestFetchHTML(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var header http.Header
	s.mux.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<title>A
			title</title><nav>menu</nav><h1>Hello</h1><p>See <a href="other">this</a>.`)
	})
	doc := document(t, s.fetch(t, Settings{}, s.URL+"/page#part"))
	want := "URL: " + s.URL + "/page\nTitle: A title\n\n# Hello\n\nSee [this](" + s.URL + "/other)."
	if doc.Source.Data != want {
		t.Errorf("got %q\nwant %q", doc.Source.Data, want)
	}
	if doc.Title != "A title" || doc.Source.Type != "text" || doc.Source.MediaType != "text/plain" {
		t.Errorf("%+v", doc)
	}
	if agent := header.Get("User-Agent"); !strings.HasPrefix(agent, "Perdure/1.2.3 ") {
		t.Errorf("User-Agent %q", agent)
	}
}

func TestFetchKinds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, test := range []struct{ contentType, body, want string }{
		{"text/plain", "a\r\nb", "a\nb"},
		{"text/markdown", "# a", "# a"},
		{"application/json", `{"a": "é"}`, `{"a": "é"}`},
		{"application/problem+json; charset=utf-8", `{}`, `{}`},
		{"application/xml", "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?><a>\xe9</a>", "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?><a>é</a>"},
		{"application/rss+xml", "<rss/>", "<rss/>"},
		{"text/html; charset=iso-8859-1", "<p>\xe9t\xe9", "été"},
		{"text/html", "<meta charset=windows-1251><p>\xcf\xf0", "Пр"},
		{"text/html", "<p>" + strings.Repeat("a", 2000) + "é", strings.Repeat("a", 2000) + "é"},
		{"text/html", "\xff\xfe<\x00p\x00>\x00\xe9\x00", "é"},
		{"text/html; charset=shift_jis", "<p>\x93\xfa\x96\x7b", "日本"},
		{"text/html; charset=utf-8", "<p>\xe9 wrong", "\uFFFD wrong"},
		{"text/html; charset=no-such", "<p>é", "é"},
		{"text/html; charset=\"broken", "<p>é", "é"},
		{"text/plain; charset=utf-8", "a\xff\xfeb\x00c\x1b[31m", "a\uFFFD\uFFFDb" + "c[31m"},
		{"text/html", "<p>a\x00b", "ab"},
		{"", "<!doctype html><p>sniffed", "sniffed"},
		{"application/octet-stream", "just text", "just text"},
		{"application/xhtml+xml", "<html xmlns='http://www.w3.org/1999/xhtml'><body><p>x</p></body></html>", "x"},
		{"text/html", "", "[The page has no readable text.]"},
		{"text/html", "<script>app()</script><div id=root></div>", "[The page has no readable text.]"},
		{"text/plain", " \n ", "[The page has no readable text.]"},
	} {
		doc := document(t, s.fetch(t, Settings{}, s.serve(fmt.Sprintf("/%d", i), test.contentType, []byte(test.body))))
		_, text, _ := strings.Cut(doc.Source.Data, "\n\n")
		if text != test.want {
			t.Errorf("%d %q %q:\n got %q\nwant %q", i, test.contentType, test.body, text, test.want)
		}
	}
}

func TestFetchPDF(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	pdf := []byte("%PDF-1.7\n1 0 obj\n<<>>\nendobj\ntrailer<<>>\n%%EOF\n")
	doc := document(t, s.fetch(t, Settings{MaxContentTokens: 1}, s.serve("/dir/report%202.pdf", "application/pdf", pdf)))
	data, err := base64.StdEncoding.DecodeString(doc.Source.Data)
	if err != nil || !bytes.Equal(data, pdf) || doc.Source.Type != "base64" || doc.Source.MediaType != "application/pdf" || doc.Title != "report 2.pdf" {
		t.Errorf("%+v (%v)", doc, err)
	}
	document(t, s.fetch(t, Settings{}, s.serve("/sniffed", "application/octet-stream", pdf)))
	wantError(t, s.fetch(t, Settings{}, s.serve("/fake", "application/pdf", []byte("<html>login</html>"))), codeUnsupportedContent)
	wantError(t, s.fetch(t, Settings{}, s.serve("/locked", "application/pdf", append(pdf, "/Encrypt 5 0 R"...))), codeUnsupportedContent)
	wantError(t, s.fetch(t, Settings{}, s.serve("/big", "application/pdf", append(pdf, make([]byte, 10<<20)...))), codeURLNotAccessible)
}

func TestFetchRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, contentType := range []string{"image/png", "application/zip", "video/mp4", "application/octet-stream", "nonsense", "a/b/c"} {
		text := wantError(t, s.fetch(t, Settings{}, s.serve(fmt.Sprintf("/%d", i), contentType, []byte{0, 1, 2, 0xff})), codeUnsupportedContent)
		if !strings.Contains(text, strings.SplitN(contentType, "/", 2)[0]) {
			t.Errorf("%s: %s", contentType, text)
		}
	}
}

func TestFetchCutsLongPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const note = "\n\n[The page is longer; the rest was left out.]"
	for i, test := range []struct {
		contentType, body string
		tokens            int64
		want              string
	}{
		{"text/plain", "éééééé", 1, "éééé" + note},
		{"text/plain", "éééé", 1, "éééé"},
		{"text/html", "<p>ab<p>cd", 1, "ab\n\n" + note},
		{"text/plain", strings.Repeat("x", 100_001), 0, strings.Repeat("x", 100_000) + note},
		{"text/html", "<p>" + strings.Repeat("x", 100_001), 0, strings.Repeat("x", 100_000) + note},
		{"text/plain", strings.Repeat("x", 5<<20), 1 << 60, strings.Repeat("x", 4_000_000) + note},
	} {
		doc := document(t, s.fetch(t, Settings{MaxContentTokens: test.tokens}, s.serve(fmt.Sprintf("/%d", i), test.contentType, []byte(test.body))))
		if _, text, _ := strings.Cut(doc.Source.Data, "\n\n"); text != test.want {
			t.Errorf("%d: got %d bytes, want %d", i, len(text), len(test.want))
		}
	}
}

func TestFetchStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, status := range []int{304, 400, 401, 403, 404, 410, 429, 500, 503} {
		s.mux.HandleFunc(fmt.Sprintf("/%d", status), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		text := wantError(t, s.fetch(t, Settings{}, fmt.Sprintf("%s/%d", s.URL, status)), codeURLNotAccessible)
		if !strings.Contains(text, fmt.Sprint(status)) {
			t.Errorf("%d: %s", status, text)
		}
	}
}

func TestFetchInput(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, input := range []string{
		``, `null`, `[]`, `"x"`, `{}`, `{"url":null}`, `{"url":5}`, `{"url":""}`, `{"URL":"http://x.example"}`,
		`{"url":"http://a.example","url":"http://b.example"}`, "{\"url\":\"http://\xff.example\"}", `{"url":`,
	} {
		wantError(t, s.tools.Fetch(t.Context(), Settings{}, jsontext.Value(input)), codeInvalidInput)
	}
	wantError(t, s.fetch(t, Settings{}, "http://x.example/"+strings.Repeat("x", maxURLLength)), codeURLTooLong)
	document(t, s.tools.Fetch(t.Context(), Settings{}, jsontext.Value(`{"url":"`+s.serve("/p", "text/plain", []byte("x"))+`","prompt":"summarize"}`)))
}

// hostileURLs must not reach the canary at port.
func hostileURLs(port string) []string {
	var urls []string
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7f.1", "017700000001", "0177.0.0.1", "127.0.0.1.",
		"127.000.000.001", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[::]", "0", "0.0.0.0",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]", "localhost", "LOCALHOST.", "localhost.localdomain", "①②⑦.⓪.⓪.①", "127。0。0。1",
		"１２７.0.0.1", "loop.example", "2130706433.example", "169.254.169.254", "[::ffff:169.254.169.254]", "100.100.100.200", "10.0.0.1", "[fd00:ec2::254]",
	} {
		urls = append(urls, "http://"+host+":"+port+"/", "https://"+host+":"+port+"/")
	}
	target := "127.0.0.1:" + port
	return append(urls,
		"http://user@"+target, "http://good.example@"+target, "http://good.example:80@"+target, "http://@"+target, "http://good.example#@"+target,
		"http://good.example\\@"+target, "file:///etc/passwd", "gopher://"+target+"/_GET", "ftp://"+target, "dict://"+target, "unix:///run/x.sock",
		"http:"+target, "http:/"+target, "http:///"+target, "//"+target, target, "HTTP://"+target, "\thttp://"+target+"\n", "http://"+target+"\x00.example",
		"http://127.0.0.1:"+port+"\r\nHost: x/", "http://127.0.0.1:0"+port, "http://127.0.0.1:99999", "http://127.0.0.1:-1", "http://%31%32%37.0.0.1:"+port,
		"jar:http://"+target+"!/", "data:text/html,x", "javascript:alert(1)", "http://[::ffff:127.0.0.1]:"+port+"/../..", "about:blank", "http://", "http://:"+port,
	)
}

func TestHostileURLsReachNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.dns.answer("loop.example", "127.0.0.1")
	for _, name := range []string{"localhost", "localhost.localdomain", "2130706433.example", "good.example"} {
		s.dns.answer(name, "127.0.0.1")
	}
	for _, u := range hostileURLs(s.canaryPort()) {
		if r := s.fetch(t, Settings{}, u); !r.IsError {
			t.Errorf("%q was fetched: %s", u, r.Content)
		}
	}
	var n int
	s.mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
		n++
	})
	for _, u := range hostileURLs(s.canaryPort()) {
		if strings.HasPrefix(u, "//") || strings.HasPrefix(u, "127") {
			continue // means another thing when it is relative
		}
		r := s.fetch(t, Settings{}, s.URL+"/redirect?to="+url.QueryEscape(u))
		// Some of these are relative to the redirecting server, which may be fetched; the canary may not.
		if r.IsError == strings.Contains(string(r.Content), `"document"`) {
			t.Errorf("redirect to %q: %s", u, r.Content)
		}
	}
	if n == 0 {
		t.Error("the redirects were never served")
	}
	if hits := s.hits.Load(); hits != 0 {
		t.Errorf("the canary was reached %d times", hits)
	}
}

func TestRedirectToRefusedAddressSaysWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.mux.Handle("/r", http.RedirectHandler(s.canary.URL, http.StatusMovedPermanently))
	text := wantError(t, s.fetch(t, Settings{}, s.URL+"/r"), codeURLNotAllowed)
	if !strings.Contains(text, "loopback") || !strings.Contains(text, "127.0.0.1") {
		t.Error(text)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.mux.Handle("/loop", http.RedirectHandler("/loop", http.StatusFound))
	var referers []string
	s.mux.HandleFunc("/hop/{n}", func(w http.ResponseWriter, r *http.Request) {
		referers = append(referers, r.Header.Get("Referer"))
		var n int
		_, _ = fmt.Sscan(r.PathValue("n"), &n)
		if n == 0 {
			_, _ = io.WriteString(w, "arrived")
			return
		}
		http.Redirect(w, r, fmt.Sprintf("/hop/%d", n-1), http.StatusTemporaryRedirect)
	})
	wantError(t, s.fetch(t, Settings{}, s.URL+"/loop"), codeURLNotAccessible)
	doc := document(t, s.fetch(t, Settings{}, s.URL+"/hop/10"))
	if !strings.Contains(doc.Source.Data, "URL: "+s.URL+"/hop/0\nRedirected from: "+s.URL+"/hop/10\n") || !strings.Contains(doc.Source.Data, "arrived") {
		t.Error(doc.Source.Data)
	}
	if len(referers) != 11 || strings.Join(referers, "") != "" {
		t.Errorf("requests with referers %q", referers)
	}
	wantError(t, s.fetch(t, Settings{}, s.URL+"/hop/11"), codeURLNotAccessible)
}

func TestRebinding(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// Public for whoever looks first, then loopback, and so on.
	s.dns.answer("rebind.example", "203.0.113.7", "127.0.0.1")
	s.dns.answer("both.example", "127.0.0.1")
	for range 4 {
		wantError(t, s.fetch(t, Settings{}, "http://rebind.example:"+s.canaryPort()), codeURLNotAllowed)
	}
	if s.dns.queries.Load() == 0 {
		t.Error("the name server was never asked")
	}
	text := wantError(t, s.fetch(t, Settings{}, "http://both.example:"+s.canaryPort()), codeURLNotAllowed)
	if !strings.Contains(text, "both.example leads to a loopback address") {
		t.Error(text)
	}
	if hits := s.hits.Load(); hits != 0 {
		t.Errorf("the canary was reached %d times", hits)
	}
	// The name server works: the same name reaches what the operator allowed.
	s.serve("/ok", "text/plain", []byte("ok"))
	document(t, s.fetch(t, Settings{}, "http://both.example:"+s.port()+"/ok"))
	text = wantError(t, s.fetch(t, Settings{}, "http://unknown.example/"), codeURLNotAccessible)
	if strings.Contains(text, "127.0.0.1") || !strings.Contains(text, "unknown.example could not be resolved") {
		t.Error(text)
	}
}

func TestRulesHoldAtEachHop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, name := range []string{"good.example", "sub.good.example", "bad.example", "notgood.example"} {
		s.dns.answer(name, "127.0.0.1")
	}
	var reached atomic.Int32
	s.mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { reached.Add(1); _, _ = io.WriteString(w, "x") })
	s.mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.URL.RawQuery+":"+s.port()+"/page", http.StatusFound)
	})
	at := func(host, path string) string { return "http://" + host + ":" + s.port() + path }
	allowed := Settings{Domains: []Domains{{Allowed: []string{"Good.Example."}}}}
	blocked := Settings{Domains: []Domains{{Blocked: []string{"bad.example"}}}}
	limited := Settings{Limited: true, AllowedHosts: []string{"*.good.example"}}

	document(t, s.fetch(t, allowed, at("good.example", "/page")))
	document(t, s.fetch(t, allowed, at("SUB.good.example.", "/page")))
	document(t, s.fetch(t, blocked, at("good.example", "/page")))
	document(t, s.fetch(t, limited, at("sub.good.example", "/page")))
	document(t, s.fetch(t, allowed, at("good.example", "/to?sub.good.example")))
	if reached.Load() != 5 {
		t.Errorf("%d pages were fetched", reached.Load())
	}
	for _, test := range []struct {
		settings Settings
		url      string
	}{
		{allowed, at("notgood.example", "/page")},
		{allowed, at("127.0.0.1", "/page")},
		{allowed, at("good.example", "/to?bad.example")},
		{blocked, at("bad.example", "/page")},
		{blocked, at("BAD.example.", "/page")},
		{blocked, at("good.example", "/to?bad.example")},
		{limited, at("good.example", "/page")},
		{limited, at("sub.good.example", "/to?good.example")},
	} {
		wantError(t, s.fetch(t, test.settings, test.url), codeURLNotAllowed)
	}
	if reached.Load() != 5 {
		t.Error("a page was fetched against the rules")
	}
	text := wantError(t, s.fetch(t, Settings{Limited: true}, at("good.example", "/page")), codeURLNotAllowed)
	if !strings.Contains(text, "environment allows no web hosts") {
		t.Error(text)
	}
}

// endless writes as much as the client takes, up to a gigabyte, and counts it.
func endless(w io.Writer, sent *atomic.Int64) {
	chunk := bytes.Repeat([]byte("<p>x "), 64<<10)
	for sent.Load() < 1<<30 {
		n, err := w.Write(chunk)
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func TestHugeBodies(t *testing.T) {
	s := newSite(t)
	var sent, zipped atomic.Int64
	s.mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		endless(w, &sent)
	})
	s.mux.HandleFunc("/declared", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(1<<30))
		endless(w, &sent)
	})
	s.mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		endless(z, &zipped)
		_ = z.Close()
	})
	s.mux.HandleFunc("/shrinking", func(w http.ResponseWriter, _ *http.Request) { // very many bytes that hold nothing
		w.Header().Set("Content-Encoding", "gzip")
		var empty bytes.Buffer
		z := gzip.NewWriter(&empty)
		_ = z.Close()
		for chunk := bytes.Repeat(empty.Bytes(), 4096); ; {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, path := range []string{"/endless", "/declared", "/bomb", "/shrinking"} {
		text := wantError(t, s.fetch(t, Settings{}, s.URL+path), codeURLNotAccessible)
		if !strings.Contains(text, "10 MB") {
			t.Errorf("%s: %s", path, text)
		}
	}
	runtime.ReadMemStats(&after)
	if total := after.TotalAlloc - before.TotalAlloc; total > 400<<20 {
		t.Errorf("%d MB were allocated", total>>20)
	}
	if sent.Load() > 200<<20 || zipped.Load() > 200<<20 {
		t.Errorf("%d and %d MB were taken", sent.Load()>>20, zipped.Load()>>20)
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var ok bytes.Buffer
	z := gzip.NewWriter(&ok)
	_, _ = io.WriteString(z, "plain")
	_ = z.Close()
	for path, test := range map[string]struct {
		encoding string
		body     []byte
		code     string
	}{
		"/gzip":      {"gzip", ok.Bytes(), ""},
		"/identity":  {"identity", []byte("plain"), ""},
		"/empty":     {"gzip", nil, ""},
		"/truncated": {"gzip", ok.Bytes()[:ok.Len()-6], codeURLNotAccessible},
		"/damaged":   {"gzip", []byte("not gzip at all"), codeURLNotAccessible},
		"/brotli":    {"br", []byte("xx"), codeUnsupportedContent},
		"/twice":     {"gzip, gzip", ok.Bytes(), codeUnsupportedContent},
	} {
		s.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Encoding", test.encoding)
			_, _ = w.Write(test.body)
		})
		if r := s.fetch(t, Settings{}, s.URL+path); test.code != "" {
			wantError(t, r, test.code)
		} else {
			document(t, r)
		}
	}
}

func TestSlowServers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) }) // before the server closes, which waits for its handlers
	reading := make(chan struct{}, 8)
	s.mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		reading <- struct{}{}
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	s.mux.HandleFunc("/dripping", func(w http.ResponseWriter, r *http.Request) {
		reading <- struct{}{}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-stop:
				return
			case <-r.Context().Done():
				return
			}
		}
	})
	for _, path := range []string{"/silent", "/dripping"} {
		s.tools.limits.total = 200 * time.Millisecond
		text := wantError(t, s.fetch(t, Settings{}, s.URL+path), codeURLNotAccessible)
		if !strings.Contains(text, "did not arrive within 200ms") {
			t.Errorf("%s: %s", path, text)
		}
		<-reading

		s.tools.limits.total = time.Hour
		reason := errors.New("interrupted by the user")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-reading; cancel(reason) }()
		r := s.tools.Fetch(ctx, Settings{}, urlInput(s.URL+path)) // returns at all
		wantError(t, r, codeUnavailable)
		if !errors.Is(r.Cause, reason) {
			t.Errorf("%s: cause %v", path, r.Cause)
		}
	}
}

func TestBrokenServersAreExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "x")
	})
	s.mux.HandleFunc("/drop", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s.mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	for _, path := range []string{"/short", "/drop", "/headers"} {
		r := s.fetch(t, Settings{}, s.URL+path)
		wantError(t, r, codeURLNotAccessible)
		if r.Cause == nil {
			t.Errorf("%s: the operator is not told the cause", path)
		}
	}
	wantError(t, s.fetch(t, Settings{}, "https://"+s.Listener.Addr().String()), codeURLNotAccessible) // speaks no TLS
}

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	guard, err := netguard.New(netguard.Options{AllowHosts: []string{server.Listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	tools := New(Options{Guard: guard})
	defer tools.Close()
	text := wantError(t, tools.Fetch(t.Context(), Settings{}, urlInput(server.URL)), codeURLNotAccessible)
	if !strings.Contains(text, "certificate") {
		t.Error(text)
	}
}

// nameServer is a DNS server on loopback that answers with the addresses of a name in turn.
type nameServer struct {
	conn    net.PacketConn
	names   chan map[string]*turn // holds the map; taking it is the lock
	queries atomic.Int32
}

type turn struct {
	addresses []string
	next      int
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, names: make(chan map[string]*turn, 1)}
	s.names <- map[string]*turn{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run()
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return s
}

func (s *nameServer) answer(name string, addresses ...string) {
	names := <-s.names
	names[name+"."] = &turn{addresses: addresses}
	s.names <- names
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) run() {
	packet := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(packet)
		if err != nil {
			return
		}
		var query dnsmessage.Message
		if query.Unpack(packet[:n]) != nil || len(query.Questions) != 1 {
			continue
		}
		s.queries.Add(1)
		reply, err := s.reply(query)
		if err == nil {
			_, _ = s.conn.WriteTo(reply, from)
		}
	}
}

func (s *nameServer) reply(query dnsmessage.Message) ([]byte, error) {
	question := query.Questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, RecursionAvailable: true},
		Questions: query.Questions,
	}
	names := <-s.names
	known := names[strings.ToLower(question.Name.String())]
	if known == nil {
		reply.RCode = dnsmessage.RCodeNameError
	} else if question.Type == dnsmessage.TypeA {
		ip := net.ParseIP(known.addresses[known.next%len(known.addresses)]).To4()
		known.next++
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: [4]byte(ip)},
		}}
	}
	s.names <- names
	return reply.Pack()
}
