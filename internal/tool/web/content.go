package web

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
)

const maxTitleRunes = 300

// present makes the document block of a response.
func present(got fetched, limit int) Result {
	mediaType := mediaTypeOf(got)
	switch {
	case mediaType == "application/pdf":
		return presentPDF(got)
	case mediaType == "text/html" || mediaType == "application/xhtml+xml":
		page := readHTML(decoded(got), got.final, limit)
		return presentText(got, page.title, page.text, page.cut, limit, page.cause)
	case isText(mediaType):
		text, cut := readText(decoded(got), limit)
		return presentText(got, "", text, cut, limit, nil)
	}
	return failf(codeUnsupportedContent, "The URL leads to content of type %s, which cannot be read. Text, HTML, JSON, XML "+
		"and PDF can be.", shorten(mediaType, 100)).result()
}

// mediaTypeOf trusts the header unless it says nothing.
func mediaTypeOf(got fetched) string {
	mediaType, _, err := mime.ParseMediaType(got.contentType)
	if mediaType == "" && err != nil {
		// A malformed parameter does not make the type itself unreadable.
		mediaType, _, _ = strings.Cut(got.contentType, ";")
		mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	}
	if mediaType == "" || mediaType == "application/octet-stream" || mediaType == "binary/octet-stream" {
		mediaType, _, _ = mime.ParseMediaType(http.DetectContentType(got.body))
	}
	return mediaType
}

func isText(mediaType string) bool {
	if strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "+json") ||
		strings.HasSuffix(mediaType, "+xml") || strings.HasSuffix(mediaType, "+yaml") {
		return true
	}
	switch strings.TrimPrefix(mediaType, "application/") {
	case "json", "xml", "xml-dtd", "javascript", "x-javascript", "ecmascript", "typescript", "yaml", "x-yaml", "toml",
		"x-ndjson", "ndjson", "jsonl", "json5", "graphql", "sql", "x-sh", "x-httpd-php", "x-tex", "x-latex", "x-subrip", "rtf":
		return true
	}
	return false
}

// presentPDF passes the file on. What the model's provider would refuse must not get into the session's history, where
// it would make every later request fail.
func presentPDF(got fetched) Result {
	if !isPDF(got.body) {
		return failf(codeUnsupportedContent, "The server says that this is a PDF file, but it is not.").result()
	}
	if bytes.Contains(got.body, []byte("/Encrypt")) {
		return failf(codeUnsupportedContent, "The PDF file is encrypted and cannot be read.").result()
	}
	title := ""
	if name := path.Base(got.final.Path); name != "/" && name != "." {
		title = oneLine(name)
	}
	return blocks(documentBlock{
		Type: "document",
		Source: documentSource{
			Type:      "base64",
			MediaType: "application/pdf",
			Data:      base64.StdEncoding.EncodeToString(got.body),
		},
		Title: title,
	})
}

// presentText puts a header before the text that says where it is from, since after redirects that is not what was asked
// for, and so that the text is never empty.
func presentText(got fetched, title, text string, cut bool, limit int, cause error) Result {
	var out strings.Builder
	out.WriteString("URL: " + got.final.String() + "\n")
	if got.final.String() != got.asked.String() {
		out.WriteString("Redirected from: " + got.asked.String() + "\n")
	}
	title = oneLine(title)
	if title != "" {
		out.WriteString("Title: " + title + "\n")
	}
	out.WriteString("\n")
	text, shortened := cutRunes(strings.Trim(cleanText(text), "\n"), limit)
	switch {
	case strings.TrimSpace(text) != "":
		out.WriteString(text)
	case cut:
		out.WriteString("[No readable text was found at the beginning of the page.]")
	default:
		out.WriteString("[The page has no readable text.]")
	}
	if cut || shortened {
		out.WriteString("\n\n[The page is longer; the rest was left out.]")
	}
	r := blocks(documentBlock{
		Type:   "document",
		Source: documentSource{Type: "text", MediaType: "text/plain", Data: cleanText(out.String())},
		Title:  title,
	})
	if r.Cause == nil {
		r.Cause = cause
	}
	return r
}

// oneLine makes a title.
func oneLine(s string) string { return shorten(collapse(s), maxTitleRunes) }

func collapse(s string) string { return strings.Join(strings.Fields(cleanText(s)), " ") }

func cutRunes(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return s, false
	}
	n := 0
	for i := range s {
		if n == limit {
			return s[:i], true
		}
		n++
	}
	return s, false
}

// readText reads as much as the answer may hold.
func readText(r io.Reader, limit int) (text string, cut bool) {
	most := limit*utf8.UTFMax + 1
	// A decoder replaces what it cannot read, and the bytes are in memory: reading does not fail.
	data, _ := io.ReadAll(io.LimitReader(r, int64(most)))
	return string(data), len(data) == most
}

var xmlEncoding = regexp.MustCompile(`^\s*<\?xml[^>]{0,200}\sencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)

// decoded is the body in UTF-8, possibly with errors in it. What the body says counts before a guess, and a body that is
// valid UTF-8 counts as that before the guess that the standard ends with.
func decoded(got fetched) io.Reader {
	found, name, certain := charset.DetermineEncoding(got.body, got.contentType)
	if !certain {
		declared := xmlEncoding.FindSubmatch(got.body[:min(len(got.body), 1024)])
		if declared != nil {
			if e, n := charset.Lookup(string(declared[1])); e != nil {
				found, name = e, n
			}
		}
		if name == "windows-1252" && utf8.Valid(got.body) {
			found = encoding.Nop
		}
	}
	return found.NewDecoder().Reader(bytes.NewReader(got.body))
}
