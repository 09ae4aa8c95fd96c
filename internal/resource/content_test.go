package resource_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/resource"
)

func TestDecodeContent(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`[ {"text" : "a\u0041\/\u00e9", "type":"text"} ]`, `[{"type":"text","text":"aA/é"}]`},
		{`[{"type":"text","text":"nul \u0000 <b> \u2028"}]`, `[{"type":"text","text":"nul \u0000 <b> ` + "\u2028" + `"}]`},
		{`[{"type":"text","text":"\ud83d\ude00"}]`, `[{"type":"text","text":"😀"}]`},
		{`[{"type":"image","source":{"data":"` + png + `","media_type":"image/png","type":"base64"}}]`,
			`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png + `"}}]`},
		{`[{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]`,
			`[{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]`},
		{`[{"type":"document","title":null,"context":"c","source":{"type":"file","file_id":"` + fileID + `"}}]`,
			`[{"type":"document","source":{"type":"file","file_id":"` + fileID + `"},"context":"c"}]`},
		{`[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"words"}}]`,
			`[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"words"}}]`},
		{`[{"type":"search_result","source":"https://a","title":"A","content":[{"type":"text","text":"x"}]}]`,
			`[{"type":"search_result","source":"https://a","title":"A","content":[{"type":"text","text":"x"}],"citations":{"enabled":false}}]`},
		{`[]`, `[]`},
	} {
		got, err := resource.DecodeContent("content", jsontext.Value(c.in), resource.ResultContent)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.in, err, got, c.want)
			continue
		}
		again, err := resource.DecodeContent("content", got, resource.ResultContent)
		if err != nil || string(again) != c.want {
			t.Errorf("canonical form %s became %s, %v", c.want, again, err)
		}
	}
}

func TestDecodeContentRefuses(t *testing.T) {
	image := func(source string) string { return `[{"type":"image","source":` + source + `}]` }
	data := func(data string) string {
		return image(`{"type":"base64","media_type":"image/png","data":"` + data + `"}`)
	}
	const notBase64 = `content[0].source.data: is not valid base64; use the standard alphabet with padding and without line breaks`
	const notURL = `content[0].source.url: must be an absolute http or https URL`
	for name, c := range map[string]struct{ in, want string }{
		"null":            {`null`, `content: expected an array, got null`},
		"string":          {`"hello"`, `content: expected an array, got a string`},
		"none":            {`[]`, `content: must have at least one content block`},
		"block":           {`["x"]`, `content[0]: expected an object, got a string`},
		"no type":         {`[{}]`, `content[0].type: field is required`},
		"kind":            {`[{"type":"audio"}]`, `content[0].type: "audio" is not a valid value; expected one of text, image, document`},
		"not here":        {`[{"type":"search_result"}]`, `content[0].type: "search_result" is not a valid value; expected one of text, image, document`},
		"redacted":        {`[{"type":"redacted"}]`, `content[0]: a redacted block stands for content that the server withheld; it cannot be sent`},
		"empty text":      {`[{"type":"text","text":""}]`, `content[0].text: text content blocks must be non-empty`},
		"blank text":      {`[{"type":"text","text":"ok"},{"type":"text","text":" \n\t\u00a0"}]`, `content[1].text: text content blocks must contain non-whitespace text`},
		"no text":         {`[{"type":"text"}]`, `content[0].text: field is required`},
		"foreign field":   {`[{"type":"text","text":"a","cache_control":{}}]`, `content[0].cache_control: unknown field`},
		"image nothing":   {`[{"type":"image"}]`, `content[0].source: field is required`},
		"image source":    {image(`{"type":"text"}`), `content[0].source.type: "text" is not a valid value; expected one of base64, url, file`},
		"image media":     {image(`{"type":"base64","media_type":"image/tiff","data":"aGk="}`), `content[0].source.media_type: "image/tiff" is not a valid value; expected one of image/png, image/jpeg, image/gif, image/webp`},
		"image empty":     {data(``), `content[0].source.data: must not be empty`},
		"image large":     {data(strings.Repeat("A", 5<<20+4)), `content[0].source.data: must be at most 5242880 bytes of base64, got 5242884`},
		"data URL":        {data(`data:image/png;base64,aGk=`), `content[0].source.data: is a data URL; give the base64 text after the comma alone`},
		"padding missing": {data(`aGk`), notBase64},
		"URL alphabet":    {data(`-_-_`), notBase64},
		"line break":      {data(`aGkh\naGkh`), notBase64},
		"padding inside":  {data(strings.Repeat("A", 4094) + "==" + "AAAA"), notBase64},
		"loose bits":      {data(`aGl=`), notBase64},
		"bad far in":      {data(strings.Repeat("A", 40_000) + "!AAA"), notBase64},
		"URL scheme":      {image(`{"type":"url","url":"file:///etc/passwd"}`), notURL},
		"URL relative":    {image(`{"type":"url","url":"/a.png"}`), notURL},
		"URL no host":     {image(`{"type":"url","url":"https://:80/"}`), notURL},
		"URL empty":       {image(`{"type":"url","url":""}`), `content[0].source.url: must not be empty`},
		"URL long":        {image(`{"type":"url","url":"https://a/` + strings.Repeat("x", 2048) + `"}`), `content[0].source.url: must be at most 2048 characters, got 2058`},
		"file":            {image(`{"type":"file","file_id":"f"}`), `Invalid file ID.`},
		"document media":  {`[{"type":"document","source":{"type":"base64","media_type":"application/zip","data":"aGk="}}]`, `content[0].source.media_type: "application/zip" is not a valid value; expected one of application/pdf`},
		"document text":   {`[{"type":"document","source":{"type":"text","media_type":"text/plain","data":" "}}]`, `content[0].source.data: text content blocks must contain non-whitespace text`},
		"document html":   {`[{"type":"document","source":{"type":"text","media_type":"text/html","data":"x"}}]`, `content[0].source.media_type: "text/html" is not a valid value; expected one of text/plain`},
		"document title":  {`[{"type":"document","title":"` + strings.Repeat("x", 501) + `","source":{"type":"file","file_id":"` + fileID + `"}}]`, `content[0].title: must be at most 500 characters, got 501`},
		"many":            {`[` + strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x"},`, 1001), ",") + `]`, `content: at most 1000 entries are allowed`},
		"surrogate":       {`[{"type":"text","text":"\ud83d"}]`, "content[0].text: invalid JSON at offset 24: invalid surrogate pair `\\ud83d` in string"},
		"duplicate":       {`[{"type":"text","text":"a","text":"b"}]`, `content[0]: duplicate key "text"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resource.DecodeContent("content", jsontext.Value(c.in), resource.UserContent)
			if err == nil {
				t.Fatalf("accepted as %.200s", got)
			}
			if name == "surrogate" { // the words after the place are those of the JSON library
				if message := refusal(t, err).Message; !strings.HasPrefix(message, "content[0].text: invalid JSON at offset ") {
					t.Errorf("got %s", message)
				}
				return
			}
			wantRefusal(t, err, c.want)
		})
	}
	_, err := resource.DecodeContent("content", nil, resource.UserContent)
	wantRefusal(t, err, `content: field is required`)
	_, err = resource.DecodeContent("c", jsontext.Value(`[{"type":"search_result","source":"s","title":"t","content":[{"type":"image"}]}]`), resource.ResultContent)
	wantRefusal(t, err, `c[0].content[0].type: "image" is not a valid value; expected one of text`)
	_, err = resource.DecodeContent("c", jsontext.Value(`[{"type":"search_result","source":"s","title":"t","content":[]}]`), resource.ResultContent)
	wantRefusal(t, err, `c[0].content: must have at least one text block`)
}

// png is a picture of one pixel.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

// gif is the beginning of a picture.
func gif(width, height int) string {
	return "GIF89a" + string([]byte{byte(width), byte(width >> 8), byte(height), byte(height >> 8), 0, 0, 0})
}

func TestImagesAreWhatTheySay(t *testing.T) {
	image := func(mediaType, data string) string {
		return fmt.Sprintf(`[{"type":"image","source":{"type":"base64","media_type":%q,"data":%q}}]`, mediaType, base64.StdEncoding.EncodeToString([]byte(data)))
	}
	for name, c := range map[string]struct{ in, want string }{
		"text":         {image("image/png", "not an image"), `c[0].source.data: it is not an image of a kind that models take`},
		"another kind": {image("image/png", gif(2, 2)), `c[0].source.media_type: the image is image/gif, not image/png`},
		"wide":         {image("image/gif", gif(8001, 1)), `c[0].source.data: the image has 8001 × 1 pixels, and the most is 8000 on a side`},
		"high":         {image("image/gif", gif(1, 8001)), `c[0].source.data: the image has 1 × 8001 pixels, and the most is 8000 on a side`},
		"webp as jpeg": {image("image/jpeg", "RIFF\x00\x00\x00\x00WEBPVP8 "), `c[0].source.media_type: the image is image/webp, not image/jpeg`},
		"not a PDF":    {`[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"aGVsbG8gd29ybGQ="}}]`, `c[0].source.data: it is not a PDF`},
		"short PDF":    {`[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"aGk="}}]`, `c[0].source.data: it is not a PDF`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resource.DecodeContent("c", jsontext.Value(c.in), resource.ResultContent)
			wantRefusal(t, err, c.want)
		})
	}
	for _, good := range []string{
		image("image/gif", gif(8000, 8000)), image("image/webp", "RIFF\x00\x00\x00\x00WEBPVP8 "),
		`[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjQ="}}]`,
	} {
		if _, err := resource.DecodeContent("c", jsontext.Value(good), resource.ResultContent); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// Every length of data must be judged as the standard decoder judges it, also around the pieces in which it is checked.
func TestBase64OfAnyLength(t *testing.T) {
	for _, n := range []int{13, 14, 15, 3071, 3072, 3073, 6143, 6144, 6145, 100_000} {
		text := base64.StdEncoding.EncodeToString([]byte((gif(1, 1) + strings.Repeat("\xff\x00z", n))[:n]))
		in := fmt.Sprintf(`[{"type":"image","source":{"type":"base64","media_type":"image/gif","data":%q}}]`, text)
		if _, err := resource.DecodeContent("c", jsontext.Value(in), resource.ContentImage); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestContentFiles(t *testing.T) {
	in := `[{"type":"text","text":"x"},{"type":"image","source":{"type":"file","file_id":"` + fileID + `"}},
		{"type":"search_result","source":"https://a","title":"A","content":[{"type":"text","text":"x"}]},
		{"type":"document","source":{"type":"file","file_id":"` + otherFileID + `"}},
		{"type":"document","source":{"type":"url","url":"https://example.com"}}]`
	content, err := resource.DecodeContent("c", jsontext.Value(in), resource.ResultContent)
	if err != nil {
		t.Fatal(err)
	}
	files, err := resource.ContentFiles(content)
	if want := "[{image " + fileID + "} {document " + otherFileID + "}]"; err != nil || fmt.Sprint(files) != want {
		t.Errorf("got %v, %v, want %s", files, err, want)
	}
}
