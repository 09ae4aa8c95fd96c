package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var testPage = &url.URL{Scheme: "https", Host: "example.com", Path: "/a/b"}

func convert(t testing.TB, page string) readPage {
	t.Helper()
	got := readHTML(strings.NewReader(page), testPage, 100_000)
	if got.cause != nil {
		t.Fatalf("fell back to plain text: %v", got.cause)
	}
	return got
}

func TestHTMLToMarkdown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ page, want string }{
		"heading and paragraph": {"<h1>One</h1><p>Two <b>three</b> <i>four</i>", "# One\n\nTwo **three** *four*"},
		"relative link":         {`<a href="../c?d=1">x</a>`, "[x](https://example.com/c?d=1)"},
		"base":                  {`<base href="https://other.example/z/"><a href="y">x</a>`, "[x](https://other.example/z/y)"},
		"script link":           {`<a href="javascript:alert(1)">x</a>`, "x"},
		"image":                 {`<p><img src="/i.png" alt="A cat"><img src="data:image/png;base64,AAAA" alt="no"><img src="/t.gif">`, "![A cat](https://example.com/i.png)"},
		"list":                  {"<ul><li>a<li>b<ul><li>c</ul></ul>", "- a\n- b\n  \n  - c"},
		"ordered list":          {`<ol start="3"><li>a</li><li>b</li></ol>`, "3. a\n4. b"},
		"code":                  {"<pre><code class=\"language-go\">func f() {\n\tg()\n}</code></pre>", "```go\nfunc f() {\n\tg()\n}\n```"},
		"pre with breaks":       {"<pre>a<br>b</pre>", "```\na\nb\n```"},
		"quotation":             {"<blockquote><p>a</p></blockquote>", "> a"},
		"table":                 {"<table><tr><th>a<th>b<tr><td>1<td>2</table>", "| a | b |\n|---|---|\n| 1 | 2 |"},
		"layout table":          {"<table><tr><td><table><tr><th>a<tr><td>1</table></table>", "| a |\n|---|\n| 1 |"},
		"unclosed paragraphs":   {"<p>a<p>b<div>c", "a\n\nb\n\nc"},
		"script and style":      {"<script>evil()</script><style>p{}</style><p>a", "a"},
		"navigation":            {"<nav><a href=/>Home</a></nav><main><p>a</p></main><footer>f</footer>", "a"},
		"unclosed navigation":   {"<nav><a href=/>Home</a><main><p>a</p></main>", "a"},
		"only navigation":       {"<nav><p>Home</p></nav>", "Home"},
		"article footer":        {"<article>a<footer>by b</footer></article>", "a\n\nby b"},
		"hidden":                {`<div hidden>x</div><div style="Display : none">y</div><span style="visibility:hidden">w</span><p>a`, "a"},
		"hidden body":           {`<body style="display:none"><p>a`, "a"},
		"self-closing svg":      {"<svg/><p>a</p><svg><text>t</text></svg>", "a"},
		"noscript":              {"<noscript><p>a</p></noscript>", "a"},
		"entities":              {"<p>a &lt; b &amp; c &eacute;", "a < b & c é"},
		"pound signs":           {"<h1>C#</h1><h2><a href=#x>#</a></h2>", "# C#\n\n## #"},
		"comment":               {"<!-- <p>no --><p>a", "a"},
		"misnested":             {"<b><p>a</b>b</p>", "**a**\n\nb"},
		"stray ends":            {"</p></td></table></b></html>a</body>b", "ab"},
		"cell outside a table":  {"<td>a<tr>b", "ab"},
	} {
		if got := strings.TrimSpace(convert(t, test.page).text); got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, test.want)
		}
	}
}

func TestTitle(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{
		"<title>A &amp; <b>B</b></title><title>C</title><p>x": "A & <b>B</b>",
		"<svg><title>icon</title></svg><title>T</title><p>x":  "T",
		"<title></title><p>x":                                 "",
		"<head><title>open <p>all of it":                      "open <p>all of it",
	} {
		if got := convert(t, page).title; got != want {
			t.Errorf("%q: title %q, want %q", page, got, want)
		}
	}
}

// Each of these makes a parser, a converter or a renderer that does the obvious thing take time or memory out of all
// proportion to the page.
func hostilePages() map[string]string {
	many := func(n int, format string) string {
		var s strings.Builder
		for i := range n {
			if strings.Contains(format, "%") {
				fmt.Fprintf(&s, format, i)
			} else {
				s.WriteString(format)
			}
		}
		return s.String()
	}
	return map[string]string{
		"deep":                     many(1_000_000, "<div>") + "x",
		"deep formatting":          many(400, "<b id=%d>") + many(200_000, "<p>x"),
		"many empty paragraphs":    many(3_000_000, "<p>"),
		"nested quotations":        many(3000, "<blockquote>") + many(1_000_000, "x<br>"),
		"nested lists":             many(3000, "<ul><li>") + many(1_000_000, "<li>x"),
		"nested tables":            many(200, "<table><tr><td>") + "x",
		"nested cells":             "<table><tr>" + many(1000, "<td><div>") + "x",
		"one wide row":             "<table><tr>" + many(50_000, "<td>") + many(50_000, "<tr><td>"),
		"wide span":                `<table><tr><td colspan=1000000000 rowspan=1000000000>x`,
		"huge list start":          `<ol start=999999999999999999999><li>x</ol>`,
		"one tag, many attributes": "<p " + many(300_000, "a%d ") + ">" + many(1_000_000, "<b a>"),
		"several attributes":       many(10_000, "<p "+many(400, "a%d ")+">")[:2<<20],
		"unclosed tag":             "<p>x</p><a " + strings.Repeat("x", 9<<20),
		"unclosed comment":         "<p>x</p><!--" + strings.Repeat("-", 9<<20),
		"unclosed script":          "<p>x</p><script>" + strings.Repeat("</scrip", 1<<20),
		"long word":                strings.Repeat("x", 9<<20),
		"white space":              "<p>x" + strings.Repeat(" \n", 4<<20),
		"white space in pre":       "<pre>" + strings.Repeat(" \n", 4<<20),
		"backticks":                "<code>" + strings.Repeat("`", 1<<20) + "</code>",
		"brackets":                 strings.Repeat("[", 1<<20) + strings.Repeat("](", 1<<20),
		"asterisks":                strings.Repeat("*_", 1<<20),
		"long base, many links":    `<base href="https://e.example/` + strings.Repeat("x", 1900) + `/">` + many(200_000, "<a href=y>z</a>"),
		"links in one another":     many(200_000, "<a href=y>"),
		"open spans and cells":     many(200, "<span>") + many(150_000, "<td>") + "<table>" + many(40, "<span>") + many(50_000, "<td>"),
		"alternating emphasis":     many(500_000, "<b><i>x</b></i>"),
		"emphasis in one another":  many(2000, "<b><i>") + "x" + many(2000, "</i></b>"),
		"headings in one another":  many(5000, "<h1><h2>") + "x",
		"entities":                 strings.Repeat("&#0;&#xD800;&notanentity;&NotEqualTilde;", 200_000),
	}
}

func TestHostilePagesCostLittle(t *testing.T) {
	for name, page := range hostilePages() {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			got := readHTML(strings.NewReader(page), testPage, 100_000)
			took := time.Since(begin)
			t.Logf("%d bytes, %s, %d bytes of text, cut %v", len(page), took.Round(time.Millisecond), len(got.text), got.cut)
			if got.cause != nil {
				t.Error(got.cause)
			}
			// A quadratic step takes minutes or more here; the bound leaves room for a slow machine and the race detector.
			if took > time.Minute {
				t.Errorf("took %s", took)
			}
			if len(got.text) > 16<<20 {
				t.Errorf("made %d bytes", len(got.text))
			}
		})
	}
}

func FuzzHTML(f *testing.F) {
	for _, page := range []string{
		"<h1>a</h1><p>b<b>c<ul><li>d<table><tr><th>e<td>f</table>", "<table><tr><td><table><td>x<tr>y<caption>z",
		"<pre><code>a\n\nb</pre></code>`", "<svg><title/><p>x", "<nav><main><nav></nav>", "<a href='//x'><a href=' '><img alt=a src=b>",
		"<p \x00=\xff>&\x00;</p>", "<select><option>a</select><noscript><p>", "<blockquote><ol start=07><li><hr>", "<title><b></title>",
	} {
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, page string) {
		begin := time.Now()
		got := readHTML(strings.NewReader(page), testPage, 1000)
		if d := time.Since(begin); d > 2*time.Second {
			t.Fatalf("%d bytes took %s", len(page), d)
		}
		if got.cause != nil {
			t.Fatalf("the converter failed: %v", got.cause)
		}
		text := cleanText(got.text)
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\r\x1b") {
			t.Fatalf("unclean text %q", text)
		}
		if strings.Contains(text, "](javascript:") || strings.Contains(text, "](data:") {
			t.Fatalf("a link that is no address: %q", text)
		}
	})
}
