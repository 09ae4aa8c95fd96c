package resource

import (
	"encoding/base64"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/id"
)

// ContentKinds is a set of the kinds of content blocks that a place allows.
type ContentKinds uint8

// The kinds of content blocks.
const (
	ContentText ContentKinds = 1 << iota
	ContentImage
	ContentDocument
	ContentSearchResult
	// ContentMayBeEmpty allows no block at all.
	ContentMayBeEmpty

	// UserContent is what a message of a user holds.
	UserContent = ContentText | ContentImage | ContentDocument
	// ResultContent is what the result of a tool holds.
	ResultContent = UserContent | ContentSearchResult | ContentMayBeEmpty
)

// Limits of content. A model's provider refuses what is larger, and with it every later request of the session, so it must
// not get in.
const (
	// MaxImageData bounds the base64 text of an image, in bytes.
	MaxImageData = 5 << 20
	// MaxDocumentData bounds the base64 text of a document, in bytes.
	MaxDocumentData = 32 << 20

	maxBlocks       = 1_000
	maxContentURL   = 2_048 // characters
	maxContentTitle = 500
)

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type imageBlock struct {
	Type   string `json:"type"`
	Source source `json:"source"`
}

type documentBlock struct {
	Type    string  `json:"type"`
	Source  source  `json:"source"`
	Title   *string `json:"title,omitzero"`
	Context *string `json:"context,omitzero"`
}

// source is where the data of an image or document is: in it (base64, text), at a url, or in a file.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitzero"`
	Data      string `json:"data,omitzero"`
	URL       string `json:"url,omitzero"`
	FileID    string `json:"file_id,omitzero"`
}

type searchResultBlock struct {
	Type      string      `json:"type"`
	Source    string      `json:"source"`
	Title     string      `json:"title"`
	Content   []textBlock `json:"content"`
	Citations struct {
		Enabled bool `json:"enabled"`
	} `json:"citations"`
}

// DecodeContent checks an array of content blocks and returns it in canonical form: compact, with the fields of each block
// in a fixed order and without those that are null. The same content in any spelling has the same canonical form, which is
// valid Unicode and may hold U+0000. The path says where the array stands, for errors.
//
// Text must not be blank. Images are png, jpeg, gif or webp of at most 5 MiB in base64; documents are PDF of at most 32 MiB
// in base64, or plain text; URLs are http or https. Whether a file exists is not known here: see ContentFiles. Every error
// is a *problem.Error.
func DecodeContent(path string, raw jsontext.Value, allow ContentKinds) (jsontext.Value, error) {
	if raw == nil {
		var v verdict
		v.refuse(path, "field is required")
		return nil, v.err()
	}
	n, err := readValue(path, raw)
	if err != nil {
		return nil, err
	}
	blocks := list(n, maxBlocks, func(n node) any { return readBlock(n, allow) })
	if n.ok() && len(blocks) == 0 && allow&ContentMayBeEmpty == 0 {
		n.refuse(path, "must have at least one content block")
	}
	if !n.ok() {
		return nil, n.err()
	}
	return json.Marshal(blocks)
}

func readBlock(n node, allow ContentKinds) any {
	kinds := []string{"redacted"}
	for _, kind := range []struct {
		flag ContentKinds
		name string
	}{{ContentText, "text"}, {ContentImage, "image"}, {ContentDocument, "document"}, {ContentSearchResult, "search_result"}} {
		if allow&kind.flag != 0 {
			kinds = append(kinds, kind.name)
		}
	}
	switch n.blockKind(kinds) {
	case "text":
		return readTextBlock(n)
	case "image":
		return readImageBlock(n)
	case "document":
		return readDocumentBlock(n)
	case "search_result":
		return readSearchResultBlock(n)
	case "redacted":
		n.refuse(n.path, "a redacted block stands for content that the server withheld; it cannot be sent")
	}
	return nil
}

// blockKind reads the type of a block. A redacted block is known, so that its refusal can say why, but never offered.
func (n node) blockKind(kinds []string) string {
	if !n.is('{', "an object") {
		return ""
	}
	for name, value := range n.members() {
		if name == "type" && string(value.raw) == `"redacted"` {
			return "redacted"
		}
	}
	return n.variant(kinds[1:]...)
}

func readTextBlock(n node) textBlock {
	text := n.object("type", "text").field("text")
	block := textBlock{Type: "text", Text: text.text()}
	refuseBlank(text, block.Text)
	return block
}

// refuseBlank refuses the texts that models' providers refuse.
func refuseBlank(n node, text string) {
	switch {
	case !n.ok():
	case text == "":
		n.refuse(n.path, "text content blocks must be non-empty")
	case strings.TrimSpace(text) == "":
		n.refuse(n.path, "text content blocks must contain non-whitespace text")
	}
}

func readImageBlock(n node) imageBlock {
	at := n.object("type", "source").field("source")
	switch kind := at.variant("base64", "url", "file"); kind {
	case "base64":
		media := []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
		source := readBase64(at, media, MaxImageData)
		at.checkImage(source)
		return imageBlock{Type: "image", Source: source}
	default:
		return imageBlock{Type: "image", Source: readReference(at, kind)}
	}
}

func readDocumentBlock(n node) documentBlock {
	o := n.object("type", "source", "title", "context")
	block := documentBlock{
		Type:    "document",
		Title:   optional(o.field("title"), pointer).Or(nil),
		Context: optional(o.field("context"), pointer).Or(nil),
	}
	if block.Title != nil {
		n.length(join(n.path, "title"), *block.Title, 0, maxContentTitle)
	}
	at := o.field("source")
	switch kind := at.variant("base64", "text", "url", "file"); kind {
	case "base64":
		block.Source = readBase64(at, []string{"application/pdf"}, MaxDocumentData)
		at.checkPDF(block.Source)
	case "text":
		o := at.object("type", "media_type", "data")
		data := o.field("data")
		block.Source = source{Type: kind, MediaType: o.field("media_type").word("text/plain"), Data: data.text()}
		refuseBlank(data, block.Source.Data)
	default:
		block.Source = readReference(at, kind)
	}
	return block
}

// readReference reads a source that is elsewhere.
func readReference(n node, kind string) source {
	switch kind {
	case "url":
		at := n.object("type", "url").field("url")
		s := source{Type: kind, URL: at.text()}
		if n.ok() {
			n.length(at.path, s.URL, 1, maxContentURL)
			checkURL(n.verdict, at.path, s.URL)
		}
		return s
	case "file":
		s := source{Type: kind, FileID: n.object("type", "file_id").field("file_id").text()}
		n.checkID(id.File, s.FileID, "Invalid file ID.")
		return s
	default:
		return source{}
	}
}

func readBase64(n node, media []string, most int) source {
	o := n.object("type", "media_type", "data")
	at := o.field("data")
	s := source{Type: "base64", MediaType: o.field("media_type").word(media...), Data: at.text()}
	if !n.ok() {
		return s
	}
	switch {
	case s.Data == "":
		n.refuse(at.path, "must not be empty")
	case len(s.Data) > most:
		n.refuse(at.path, "must be at most %d bytes of base64, got %d", most, len(s.Data))
	case strings.HasPrefix(s.Data, "data:"):
		n.refuse(at.path, "is a data URL; give the base64 text after the comma alone")
	case !validBase64(s.Data):
		n.refuse(at.path, "is not valid base64; use the standard alphabet with padding and without line breaks")
	}
	return s
}

// validBase64 decodes in pieces, so that checking costs no memory.
func validBase64(text string) bool {
	const piece = 4 << 10 // a multiple of 4, so that only the last piece can have padding
	if strings.ContainsAny(text, "\r\n") {
		return false // the decoder would skip them
	}
	var out [piece]byte
	encoding := base64.StdEncoding.Strict()
	for len(text) > piece {
		if strings.IndexByte(text[:piece], '=') >= 0 {
			return false
		}
		if _, err := encoding.Decode(out[:], []byte(text[:piece])); err != nil {
			return false
		}
		text = text[piece:]
	}
	_, err := encoding.Decode(out[:], []byte(text))
	return err == nil
}

func readSearchResultBlock(n node) searchResultBlock {
	o := n.object("type", "source", "title", "content", "citations")
	block := searchResultBlock{Type: "search_result", Source: o.field("source").text(), Title: o.field("title").text()}
	n.length(join(n.path, "source"), block.Source, 1, maxContentURL)
	n.length(join(n.path, "title"), block.Title, 1, maxContentTitle)
	content := o.field("content")
	block.Content = list(content, maxBlocks, func(n node) textBlock {
		n.variant("text")
		return readTextBlock(n)
	})
	if n.ok() && len(block.Content) == 0 {
		n.refuse(content.path, "must have at least one text block")
	}
	if c := o.field("citations"); !c.missing() {
		block.Citations.Enabled = c.object("enabled").field("enabled").boolean()
	}
	return block
}

// ContentFile is a file that a content block names.
type ContentFile struct {
	Kind   string // image | document
	FileID string
}

// ContentFiles lists the files that content names, in order. The content must come from DecodeContent.
func ContentFiles(content jsontext.Value) ([]ContentFile, error) {
	var blocks []struct {
		Type   string         `json:"type"`
		Source jsontext.Value `json:"source"` // a string in a search_result
	}
	if err := json.Unmarshal(content, &blocks); err != nil {
		return nil, err
	}
	var files []ContentFile
	for _, block := range blocks {
		if block.Source.Kind() != '{' {
			continue
		}
		var s source
		if err := json.Unmarshal(block.Source, &s); err != nil {
			return nil, err
		}
		if s.Type == "file" {
			files = append(files, ContentFile{Kind: block.Type, FileID: s.FileID})
		}
	}
	return files, nil
}
