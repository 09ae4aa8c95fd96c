package web

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// readPage is a page as text.
type readPage struct {
	title string
	text  string
	cut   bool  // the page goes on
	cause error // why the text is not Markdown, if it is not
}

// readHTML makes Markdown of a page, at most a little more than limit runes.
func readHTML(r io.Reader, source *url.URL, limit int) readPage {
	data, _ := io.ReadAll(r) // in memory already: reading does not fail
	// Twice: a page that consists of nothing but its navigation is better shown than called empty.
	var page readPage
	for _, keepAll := range []bool{false, true} {
		built := buildTree(bytes.NewReader(data), source, limit*utf8.UTFMax, keepAll)
		page = readPage{title: built.title, cut: built.cut}
		page.text, page.cause = markdown(built.root)
		if page.cause != nil {
			page.text = plainText(built.root)
		}
		if strings.TrimSpace(page.text) != "" {
			break
		}
	}
	return page
}

// markdown converts a tree. The converter is not ours and its input is hostile: a page that makes it panic must not end
// the server, which has other sessions to look after.
func markdown(root *html.Node) (text string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("convert a page to Markdown: panic: %v", r)
		}
	}()
	c := converter.NewConverter(
		// Escaping is for renderers, and nothing renders this. It also takes quadratic time for some texts.
		converter.WithEscapeMode(converter.EscapeModeDisabled),
		converter.WithPlugins(
			base.NewBasePlugin(),
			commonmark.NewCommonmarkPlugin(commonmark.WithLinkEmptyHrefBehavior(commonmark.LinkBehaviorSkip)),
			table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal), table.WithHeaderPromotion(true)),
		),
	)
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			n.Data = hideMarks.Replace(n.Data)
		}
	}
	out, err := c.ConvertNode(root)
	if err != nil {
		return "", fmt.Errorf("convert a page to Markdown: %w", err)
	}
	return showMarks.Replace(string(out)), nil
}

// The converter writes "<" and ">" in text as entities and "#" at the end of a heading as "\#", which is wrong where nothing
// decodes them, and it panics when "#" is all that a heading has. Meanwhile they are noncharacters, which Unicode keeps
// for such use.
var (
	hideMarks = strings.NewReplacer("<", "\uFDD0", ">", "\uFDD1", "#", "\uFDD2")
	showMarks = strings.NewReplacer("\uFDD0", "<", "\uFDD1", ">", "\uFDD2", "#")
)

// plainText is the text of a tree, a line for each block.
func plainText(root *html.Node) string {
	var out strings.Builder
	for n := range root.Descendants() {
		switch {
		case n.Type == html.TextNode:
			out.WriteString(showMarks.Replace(n.Data))
		case isBlock(n.DataAtom) || n.DataAtom == atom.Br:
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// tidyTables takes apart tables that cannot be written in Markdown at a fair price: those that hold other tables, which
// are there for the layout, and those in which one row is so much longer than the rest that filling up the others would
// be most of the work.
func tidyTables(root *html.Node) {
	type shape struct {
		table       *html.Node
		parts       []*html.Node
		rows, cells int
		widest, row int
		hasInner    bool
	}
	var tables []*shape // all
	var around []*shape // those that the walk is in
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		var current *shape
		if len(around) > 0 {
			current = around[len(around)-1]
		}
		switch n.DataAtom {
		case atom.Table:
			if current != nil {
				current.hasInner = true
			}
			s := &shape{table: n}
			tables = append(tables, s)
			around = append(around, s)
			defer func() { around = around[:len(around)-1] }()
		case atom.Tr:
			current.rows++
			current.row = 0
			current.parts = append(current.parts, n)
		case atom.Td, atom.Th:
			current.cells++
			current.row++
			current.widest = max(current.widest, current.row)
			current.parts = append(current.parts, n)
		case atom.Thead, atom.Tbody, atom.Caption:
			current.parts = append(current.parts, n)
		}
		for child := range n.ChildNodes() {
			walk(child)
		}
	}
	walk(root)
	for _, s := range tables {
		if s.hasInner || s.rows*s.widest > 4*s.cells+1000 {
			for _, n := range append(s.parts, s.table) {
				n.DataAtom, n.Data = atom.Div, atom.Div.String()
			}
		}
	}
}
