//go:build linux

package behaviour

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// upload uploads a file and returns its id.
func (w *world) upload(t *testing.T, name, media string, content []byte) string {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	header := textproto.MIMEHeader{}
	header.Set("Content-Disposition", `form-data; name="file"; filename="`+name+`"`)
	header.Set("Content-Type", media)
	part, err := form.CreatePart(header)
	if err == nil {
		_, err = part.Write(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	r := w.Do(t, "POST", "/v1/files", body.Bytes(), "Content-Type", form.FormDataContentType()).Want(t, 200)
	if r.Get("downloadable").Bool() || r.Get("scope").Raw != "null" || r.Get("size_bytes").Int() != int64(len(content)) {
		t.Errorf("an upload is %s", r.Body)
	}
	return r.Get("id").String()
}

// files are those of the session, newest first.
func (c *conversation) files() []gjson.Result {
	c.t.Helper()
	return c.Do(c.t, "GET", "/v1/files?scope_id="+c.id, nil).Want(c.t, 200).Get("data").Array()
}

// picture is a PNG of one pixel.
var picture, _ = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

// Files in messages reach the model as their content, the same on every turn.
func TestFilesInMessages(t *testing.T) {
	t.Parallel()
	dot := common.upload(t, "dot.png", "image/png", picture)
	note := common.upload(t, "note.txt", "text/plain", []byte("a note"))
	paper := common.upload(t, "paper.pdf", "application/pdf", []byte("%PDF-1.4 paper"))
	c := common.converse(t, setup{script: `otherwise: {text: I see.}`})
	source := func(file string) object { return object{"type": "file", "file_id": file} }
	c.send(object{"type": "user.message", "content": []object{
		{"type": "text", "text": "look"},
		{"type": "image", "source": source(dot)},
		{"type": "document", "source": source(note), "title": "A note"},
		{"type": "document", "source": source(paper)},
	}})
	frames := c.idle("end_turn")
	if got := only(t, frames, "message").Get("content.1.source").Raw; got != `{"type":"file","file_id":"`+dot+`"}` {
		t.Errorf("the event names the file as %s", got)
	}
	told := c.last(1)
	for path, want := range map[string]string{
		"content.1.source.type": "base64", "content.1.source.media_type": "image/png", "content.1.source.data": base64.StdEncoding.EncodeToString(picture),
		"content.2.source.type": "text", "content.2.source.data": "a note", "content.2.title": "A note",
		"content.3.source.type": "base64", "content.3.source.media_type": "application/pdf", "content.3.source.data": base64.StdEncoding.EncodeToString([]byte("%PDF-1.4 paper")),
	} {
		if got := told.Get(path).String(); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	c.say("again")
	if r := c.Do(t, "GET", "/v1/files/"+dot+"/content", nil).WantError(t, 400, "invalid_request_error"); r.Get("error.details.error_code").String() != "file_not_downloadable" {
		t.Errorf("an upload is refused with %s", r.Body)
	}
	missing := object{"type": "user.message", "content": []object{{"type": "image", "source": source("file_011ChZnjfHDqrS6RaYAkyPdW")}}}
	c.post(missing).WantError(t, 404, "not_found_error")
}

// A file that the model's provider would refuse does not lock the session: the model is told that it cannot be shown (C09).
func TestUnfitFilesInMessages(t *testing.T) {
	t.Parallel()
	wide := image.NewGray(image.Rect(0, 0, 9000, 2))
	var large bytes.Buffer
	if err := png.Encode(&large, wide); err != nil {
		t.Fatal(err)
	}
	c := common.converse(t, setup{script: `otherwise: {text: I see.}`})
	for i, test := range []struct {
		block, name, media string
		content            []byte
		told               string
	}{
		{"image", "a.png", "image/png", []byte("not a png"), "not an image"},
		{"image", "a.txt", "text/plain", []byte("not a png"), "not an image"},
		{"image", "a.png", "image/png", large.Bytes(), "9000 × 2 pixels"},
		{"image", "a.png", "image/png", append(slices.Clone(picture), make([]byte, 4<<20)...), "larger than"},
		{"image", "a.jpg", "image/jpeg", picture, "image/png"}, // what it is counts
		{"document", "a.bin", "application/octet-stream", []byte("\x00\xff\xfe"), "neither text nor PDF"},
		{"document", "a.pdf", "application/pdf", []byte("\x00\xff\xfe"), "neither text nor PDF"},
		{"document", "a.txt", "text/plain", []byte("  \n"), "empty"},
		{"document", "a.json", "application/json", []byte(`{"a":1}`), `{\"a\":1}`},
		{"document", "a.txt", "text/plain", []byte("a\xffb"), "a\uFFFDb"},
	} {
		file := common.upload(t, test.name, test.media, test.content)
		c.send(object{"type": "user.message", "content": []object{{"type": test.block, "source": object{"type": "file", "file_id": file}}}})
		c.idle("end_turn")
		if got := c.last(i + 1).Raw; !strings.Contains(got, test.told) {
			t.Errorf("%s %s %s: the model was told %.300s", test.block, test.name, test.media, got)
		}
	}
}

// Uploads are seen in the sandbox, read-only; what the agent leaves becomes files of the session, a new one when it
// changes; all of that goes with the session, and the upload stays.
func TestFilesOfSession(t *testing.T) {
	t.Parallel()
	data := common.upload(t, "data.csv", "text/csv", []byte("a,b\n1,2\n"))
	c := common.converse(t, setup{
		session: object{"resources": []object{{"type": "file", "file_id": data, "mount_path": "/in/data.csv"}, {"type": "file", "file_id": data}}},
		script: `
rules: [{when: {user: again}, answer: [{tool: bash, input: {command: "echo two > /mnt/session/outputs/report.txt"}}]}]
steps:
  - answer:
      - {tool: bash, input: {command: "cat /mnt/session/uploads/in/data.csv; cat /mnt/session/uploads/` + data + `"}}
      - {tool: bash, input: {command: "echo x >> /mnt/session/uploads/in/data.csv"}}
      - {tool: bash, input: {command: "cd /mnt/session/outputs; echo one > report.txt; mkdir sub; echo s > sub/deep.txt; mkfifo fifo; ln -s /etc/passwd link"}}
otherwise: {text: done}
`})
	results := all(c.say("go"), "result")
	if got := text(results[0]); got != "a,b\n1,2\na,b\n1,2" {
		t.Errorf("the uploads are seen as %q", got)
	}
	if !results[1].Get("is_error").Bool() && text(results[1]) == "(no output)" {
		t.Error("an upload could be changed")
	}
	byName := func() map[string]gjson.Result {
		found := map[string]gjson.Result{}
		for _, f := range c.files() {
			if f.Get("downloadable").Bool() {
				found[f.Get("filename").String()] = f
			} else if f.Get("id").String() == data {
				t.Errorf("the session lists the upload itself: %s", f.Raw)
			}
		}
		return found
	}
	first := byName()
	if len(first) != 2 || first["report.txt"].Get("size_bytes").Int() != 4 || first["deep.txt"].Get("scope.id").String() != c.id {
		t.Fatalf("the outputs are %v", first)
	}
	report := first["report.txt"].Get("id").String()
	download := c.Do(t, "GET", "/v1/files/"+report+"/content", nil).Want(t, 200)
	if string(download.Body) != "one\n" || download.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the report is %q of type %s", download.Body, download.Header.Get("Content-Type"))
	}
	c.say("again")
	second := byName()
	changed := second["report.txt"].Get("id").String()
	if changed == report || len(second) != 2 || second["deep.txt"].Get("id").String() != first["deep.txt"].Get("id").String() {
		t.Errorf("after a change the outputs are %v, before %v", second, first)
	}
	if got := c.Do(t, "GET", "/v1/files/"+changed+"/content", nil).Want(t, 200); string(got.Body) != "two\n" {
		t.Errorf("the changed report is %q", got.Body)
	}

	var mounted []string
	for _, f := range c.files() {
		mounted = append(mounted, f.Get("id").String())
	}
	if len(mounted) != 4 {
		t.Errorf("the session has %d files, want two copies and two outputs", len(mounted))
	}
	c.check()
	for _, id := range mounted {
		c.Do(t, "GET", "/v1/files/"+id, nil).WantError(t, 404, "not_found_error")
	}
	c.Do(t, "GET", "/v1/files/"+data, nil).Want(t, 200)
	c.Do(t, "DELETE", "/v1/files/"+data, nil).Want(t, 200)
}

// A session that runs is neither deleted nor archived; one that was archived takes nothing more, and can be read.
func TestArchive(t *testing.T) {
	t.Parallel()
	c := common.converse(t, setup{policy: "always_ask", script: `otherwise: {answer: [{tool: bash, input: {command: ls}}]}`})
	gate := c.hold(1, 0)
	c.send(message("go"))
	gate.await(t)
	c.Do(t, "DELETE", c.path(""), nil).WantError(t, 400, "invalid_request_error")
	c.Do(t, "POST", c.path("/archive"), object{}).WantError(t, 400, "invalid_request_error")
	gate.release()
	call := only(t, c.idle("requires_action"), "use").Get("id").String()
	r := c.Do(t, "POST", c.path("/archive"), object{}).Want(t, 200)
	if r.Get("status").String() != "terminated" || r.Get("archived_at").Raw == "null" {
		t.Errorf("an archived session is %s", r.Body)
	}
	c.until("session.status_terminated")
	c.refuse("terminated", message("hello?"))
	c.refuse("terminated", confirm(call, "allow"))
	c.refuse("terminated", interrupt)
	c.update(object{"title": "x"}).WantError(t, 400, "invalid_request_error")
	c.wantAsked(1)
}
