package web

import (
	"bytes"
	"io"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The bounds of a tree, chosen so that no page makes the conversion cost more than its text is worth.
const (
	maxNodes      = 100_000
	maxTags       = 500_000 // read, kept or not
	maxOpen       = 256     // elements open at once, kept or not
	maxDepth      = 48      // kept elements above a node
	maxIndents    = 8       // lists and quotations in one another: each puts a prefix before every line
	maxColumns    = 64      // cells of a row
	maxToken      = 2 << 20 // bytes of one tag or text
	maxAttributes = 512     // of one tag; the tokenizer gets slow after a tag with very many
)

// treeBuilder makes a tree of the elements that mean something in Markdown. It is used in place of html.Parse, whose
// tree can be very much larger than the page (it repeats open formatting elements in every paragraph, as the standard
// demands). Here a page of n tokens makes at most n nodes, and building ends when the text fills the answer.
type treeBuilder struct {
	base    *url.URL
	keepAll bool // do not leave out navigation and hidden parts

	root   *html.Node
	open   []element
	counts map[atom.Atom]int // of open, so that stray end tags cost nothing
	title  string
	nodes  int
	tags   int
	room   int  // bytes of text that still fit
	cut    bool // a bound was met and the rest of the page left out
	inPre  int

	skip      atom.Atom // inside an element that is left out; 0 if not
	skipDepth int
}

// element is one that has been opened. Its node is nil if only its content is kept.
type element struct {
	name      atom.Atom
	node      *html.Node
	container *html.Node // where content goes: node, or that of the element around it
	depth     int        // kept elements from the root to container
	indents   int        // and the lists and quotations among them
	cells     int        // of a row
}

// buildTree reads UTF-8, possibly damaged.
func buildTree(r io.Reader, base *url.URL, room int, keepAll bool) *treeBuilder {
	b := &treeBuilder{
		base:    base,
		keepAll: keepAll,
		root:    &html.Node{Type: html.DocumentNode},
		counts:  map[atom.Atom]int{},
		room:    room,
	}
	b.read(r)
	tidyTables(b.root)
	return b
}

func (b *treeBuilder) read(r io.Reader) {
	z := html.NewTokenizer(r)
	z.SetMaxBuf(maxToken)
	for !b.cut {
		switch z.Next() {
		case html.ErrorToken:
			b.cut = z.Err() != io.EOF //nolint:errorlint // the tokenizer returns it bare
			return
		case html.TextToken:
			if b.skip == 0 {
				b.text(string(z.Text()))
			}
		case html.StartTagToken:
			b.countTag()
			b.startTag(z, false)
		case html.SelfClosingTagToken:
			b.countTag()
			b.startTag(z, true)
		case html.EndTagToken:
			b.countTag()
			name, _ := z.TagName()
			b.endTag(atom.Lookup(name))
		case html.CommentToken, html.DoctypeToken:
		}
	}
}

func (b *treeBuilder) countTag() {
	if b.tags++; b.tags >= maxTags {
		b.cut = true
	}
}

func (b *treeBuilder) startTag(z *html.Tokenizer, selfClosing bool) {
	raw, more := z.TagName()
	name := atom.Lookup(raw)
	if selfClosing && name == atom.Svg {
		return // only foreign elements can close themselves
	}
	attributes := map[string]string{}
	for n := 0; more; n++ {
		if n == maxAttributes {
			b.cut = true
			return
		}
		var key, value []byte
		if key, value, more = z.TagAttr(); isWanted(key) {
			attributes[string(key)] = string(value)
		}
	}
	if name == atom.Noscript {
		z.NextIsNotRawText() // scripts do not run here, so what stands in for them is the page
	}
	switch {
	case b.skip != 0:
		// A page's main part is never inside its navigation: the end tag of what is left out must be missing.
		if (name == atom.Main || name == atom.Article) && b.skip != atom.Svg && b.skip != atom.Template {
			b.skip = 0
			break
		}
		if name == b.skip {
			b.skipDepth++
		}
		return
	case name == atom.Title && b.title == "":
		// The tokenizer gives the content of a title as one text.
		if z.Next() == html.TextToken {
			b.title = string(z.Text())
		}
		return
	case name == atom.Base:
		if u, err := b.base.Parse(attributes["href"]); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
			b.base = u
		}
		return
	case b.isLeftOut(name, attributes):
		b.skip, b.skipDepth = name, 1
		return
	}
	b.element(name, attributes)
}

func isWanted(key []byte) bool {
	switch string(key) {
	case "href", "src", "alt", "class", "start", "hidden", "style", "role":
		return true
	}
	return false
}

// isLeftOut says whether nothing inside the element belongs to the text of the page.
func (b *treeBuilder) isLeftOut(name atom.Atom, attributes map[string]string) bool {
	switch name {
	case atom.Script, atom.Style, atom.Template, atom.Svg, atom.Iframe, atom.Object, atom.Canvas, atom.Audio, atom.Video,
		atom.Noembed, atom.Noframes, atom.Select, atom.Textarea, atom.Datalist, atom.Map, atom.Title:
		return true
	}
	if b.keepAll {
		return false
	}
	switch name {
	case atom.Nav, atom.Button, atom.Dialog:
		return true
	case atom.Footer:
		return b.counts[atom.Article] == 0 && b.counts[atom.Main] == 0
	case atom.Div, atom.Section, atom.Span, atom.Aside, atom.Ul, atom.Ol, atom.Form, atom.Table, atom.Header:
		// Only elements that must have an end tag: with others, all that follows would be lost.
		switch attributes["role"] {
		case "navigation", "search", "menu", "menubar", "contentinfo":
			return true
		}
		if value, hidden := attributes["hidden"]; hidden && value != "until-found" {
			return true
		}
		style := strings.ToLower(strings.Join(strings.Fields(attributes["style"]), ""))
		return strings.Contains(style, "display:none") || strings.Contains(style, "visibility:hidden")
	}
	return false
}

// kept is the element as which a tag is kept: many mean the same in Markdown. What is missing is left out, its content
// is not.
var kept = map[atom.Atom]atom.Atom{
	atom.H1: atom.H1, atom.H2: atom.H2, atom.H3: atom.H3, atom.H4: atom.H4, atom.H5: atom.H5, atom.H6: atom.H6,
	atom.P: atom.P, atom.Div: atom.Div, atom.Section: atom.Div, atom.Article: atom.Div, atom.Main: atom.Div,
	atom.Header: atom.Div, atom.Footer: atom.Div, atom.Aside: atom.Div, atom.Nav: atom.Div, atom.Address: atom.Div,
	atom.Figure: atom.Div, atom.Figcaption: atom.P, atom.Details: atom.Div, atom.Summary: atom.P, atom.Center: atom.Div,
	atom.Fieldset: atom.Div, atom.Legend: atom.P, atom.Form: atom.Div, atom.Dl: atom.Div, atom.Dt: atom.P, atom.Dd: atom.P,
	atom.Ul: atom.Ul, atom.Menu: atom.Ul, atom.Ol: atom.Ol, atom.Li: atom.Li, atom.Blockquote: atom.Blockquote,
	atom.Pre: atom.Pre, atom.Code: atom.Code, atom.Tt: atom.Code, atom.Samp: atom.Code, atom.Kbd: atom.Code,
	atom.A: atom.A, atom.Img: atom.Img, atom.Strong: atom.Strong, atom.B: atom.Strong, atom.Em: atom.Em, atom.I: atom.Em,
	atom.Br: atom.Br, atom.Hr: atom.Hr, atom.Table: atom.Table, atom.Thead: atom.Thead, atom.Tbody: atom.Tbody,
	atom.Tfoot: atom.Tbody, atom.Tr: atom.Tr, atom.Th: atom.Th, atom.Td: atom.Td, atom.Caption: atom.Caption,
}

func (b *treeBuilder) element(name atom.Atom, attributes map[string]string) {
	as, isKept := kept[name]
	switch name {
	case atom.Br, atom.Hr, atom.Img:
		b.void(name, attributes)
		return
	case atom.Wbr, atom.Input, atom.Meta, atom.Link, atom.Area, atom.Col, atom.Embed, atom.Source, atom.Track, atom.Param, 0:
		return
	}
	if isBlock(as) {
		b.closeWithin(atom.P, atom.P)
	}
	switch name {
	case atom.Li:
		b.closeWithin(atom.Li, atom.Li, atom.Ul, atom.Ol, atom.Menu)
	case atom.Dt, atom.Dd:
		b.closeWithin(atom.Dt, atom.Dt, atom.Dl)
		b.closeWithin(atom.Dd, atom.Dd, atom.Dl)
	case atom.A:
		b.closeWithin(atom.A, atom.A)
	case atom.Td, atom.Th:
		b.closeWithin(atom.Td, atom.Td, atom.Tr)
		b.closeWithin(atom.Th, atom.Th, atom.Tr)
	case atom.Tr, atom.Thead, atom.Tbody, atom.Tfoot:
		for _, part := range []atom.Atom{atom.Caption, atom.Td, atom.Th, atom.Tr, atom.Thead, atom.Tbody, atom.Tfoot} {
			if name == atom.Tr && part == atom.Thead {
				break
			}
			b.closeWithin(part, part)
		}
	}
	if len(b.open) >= maxOpen {
		return
	}
	opened := b.top()
	opened.name, opened.node, opened.cells = name, nil, 0
	if isKept && b.fits(as) {
		opened.node = b.add(as)
		keepAttributes(opened.node, attributes, b)
		opened.container = opened.node
		opened.depth++
		if isIndented(as) {
			opened.indents++
		}
	}
	b.open = append(b.open, opened)
	b.counts[name]++
	if as == atom.Pre {
		b.inPre++
	}
}

// fits says whether an element may stand here as such.
func (b *treeBuilder) fits(as atom.Atom) bool {
	around := b.top()
	if around.depth >= maxDepth || b.inPre > 0 && as != atom.Code || isIndented(as) && around.indents >= maxIndents {
		return false
	}
	switch as {
	case atom.Li:
		return b.inside(atom.Ul, atom.Ol, atom.Menu)
	case atom.Tr, atom.Thead, atom.Tbody, atom.Caption:
		return b.inside(atom.Table)
	case atom.Td, atom.Th:
		row := b.innermost(atom.Tr, atom.Table)
		if row < 0 || b.open[row].name != atom.Tr || b.open[row].node == nil || b.open[row].cells == maxColumns {
			return false
		}
		b.open[row].cells++
	}
	return true
}

func (b *treeBuilder) inside(names ...atom.Atom) bool {
	i := b.innermost(names...)
	return i >= 0 && b.open[i].node != nil
}

// innermost is the index of the last open element with one of the names, or -1. It does not look out of a table cell.
func (b *treeBuilder) innermost(names ...atom.Atom) int {
	if !slices.ContainsFunc(names, func(name atom.Atom) bool { return b.counts[name] > 0 }) {
		return -1
	}
	for i := len(b.open) - 1; i >= 0; i-- {
		if slices.Contains(names, b.open[i].name) {
			return i
		}
		if b.open[i].name == atom.Td || b.open[i].name == atom.Th {
			return -1
		}
	}
	return -1
}

// closeWithin closes the innermost open element called name unless one of the barriers comes first.
func (b *treeBuilder) closeWithin(name atom.Atom, barriers ...atom.Atom) {
	if b.counts[name] == 0 {
		return
	}
	for i := len(b.open) - 1; i >= 0; i-- {
		switch {
		case b.open[i].name == name:
			b.closeFrom(i)
			return
		case b.open[i].name == atom.Table, slices.Contains(barriers, b.open[i].name):
			return
		}
	}
}

func (b *treeBuilder) closeFrom(i int) {
	for _, e := range b.open[i:] {
		b.counts[e.name]--
		if e.name == atom.Pre {
			b.inPre--
		}
	}
	b.open = b.open[:i]
}

func (b *treeBuilder) endTag(name atom.Atom) {
	if b.skip != 0 {
		if name == b.skip {
			if b.skipDepth--; b.skipDepth == 0 {
				b.skip = 0
			}
		}
		return
	}
	switch name {
	case atom.Br, atom.P:
		if name == atom.Br || b.counts[atom.P] == 0 {
			return
		}
	case atom.Body, atom.Html, 0:
		return // content after it belongs to the page all the same
	}
	b.closeWithin(name)
}

func (b *treeBuilder) void(name atom.Atom, attributes map[string]string) {
	if b.inPre > 0 {
		if name == atom.Br {
			b.text("\n")
		}
		return
	}
	if name == atom.Hr {
		b.closeWithin(atom.P, atom.P)
	}
	if name == atom.Img && !b.usefulImage(attributes) {
		return
	}
	keepAttributes(b.add(name), attributes, b)
}

func (b *treeBuilder) usefulImage(attributes map[string]string) bool {
	return strings.TrimSpace(attributes["alt"]) != "" && b.resolve(attributes["src"]) != ""
}

func (b *treeBuilder) add(name atom.Atom) *html.Node {
	return b.append(&html.Node{Type: html.ElementNode, DataAtom: name, Data: name.String()}, 0)
}

// text adds text, with white space collapsed as a browser would.
func (b *treeBuilder) text(s string) {
	parent := b.parent()
	if b.inPre == 0 {
		s = collapseSpace(s)
		if s == " " && (parent.LastChild == nil || isBlock(parent.LastChild.DataAtom)) {
			return
		}
	} else if parent.DataAtom == atom.Pre && parent.FirstChild == nil {
		s = strings.TrimPrefix(strings.TrimPrefix(s, "\r"), "\n")
	}
	if s == "" {
		return
	}
	if len(s) > b.room {
		s = strings.ToValidUTF8(s[:b.room], "")
		b.cut = true
	}
	b.append(&html.Node{Type: html.TextNode, Data: s}, len(s))
}

func (b *treeBuilder) append(node *html.Node, size int) *html.Node {
	b.parent().AppendChild(node)
	b.spend(size)
	if b.nodes++; b.nodes >= maxNodes {
		b.cut = true
	}
	return node
}

func (b *treeBuilder) spend(size int) {
	if b.room -= size; b.room <= 0 {
		b.cut = true
	}
}

func (b *treeBuilder) parent() *html.Node { return b.top().container }

// top is the innermost open element; outside all of them, one that stands for the root.
func (b *treeBuilder) top() element {
	if len(b.open) == 0 {
		return element{container: b.root}
	}
	return b.open[len(b.open)-1]
}

// keepAttributes sets those that show in Markdown. They count as text, which they become.
func keepAttributes(node *html.Node, attributes map[string]string, b *treeBuilder) {
	set := func(key, value string) {
		if value != "" {
			node.Attr = append(node.Attr, html.Attribute{Key: key, Val: value})
			b.spend(len(value))
		}
	}
	switch node.DataAtom {
	case atom.A:
		set("href", b.resolve(attributes["href"]))
	case atom.Img:
		set("src", b.resolve(attributes["src"]))
		set("alt", oneLine(attributes["alt"]))
	case atom.Pre, atom.Code:
		if class := attributes["class"]; len(class) <= 100 {
			set("class", class) // names the language
		}
	case atom.Ol:
		if start := attributes["start"]; len(start) <= 6 && strings.Trim(start, "0123456789") == "" {
			set("start", start)
		}
	}
}

// resolve makes a link absolute, or "" if it leads nowhere that can be fetched or written to.
func (b *treeBuilder) resolve(reference string) string {
	reference = strings.TrimSpace(reference)
	if reference == "" || len(reference) > maxURLLength || reference[0] == '#' {
		return ""
	}
	u, err := b.base.Parse(reference)
	if err != nil {
		return ""
	}
	switch u.Scheme {
	case "http", "https", "mailto":
		if s := u.String(); len(s) <= maxURLLength {
			return s
		}
	}
	return ""
}

func isIndented(name atom.Atom) bool {
	return name == atom.Ul || name == atom.Ol || name == atom.Blockquote
}

func isBlock(name atom.Atom) bool {
	switch name {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.P, atom.Div, atom.Ul, atom.Ol, atom.Li, atom.Blockquote,
		atom.Pre, atom.Hr, atom.Table, atom.Thead, atom.Tbody, atom.Tr, atom.Th, atom.Td, atom.Caption:
		return true
	}
	return false
}

func collapseSpace(s string) string {
	var out bytes.Buffer
	space := false
	for i := range len(s) {
		switch c := s[i]; c {
		case ' ', '\t', '\n', '\r', '\f':
			space = true
		default:
			if space {
				out.WriteByte(' ')
				space = false
			}
			out.WriteByte(c)
		}
	}
	if space {
		out.WriteByte(' ')
	}
	return out.String()
}
