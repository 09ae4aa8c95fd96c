package resource_test

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/resource"
)

func TestFileOnTheWire(t *testing.T) {
	golden(t, "file_upload", resource.File{ID: fileID, Type: "file", Filename: "data.csv", MimeType: "text/csv", SizeBytes: 12,
		CreatedAt: moment, ExpiresAt: &later})
	golden(t, "file_output", resource.File{ID: fileID, Type: "file", Filename: "report.pdf", MimeType: "application/pdf",
		CreatedAt: moment, Downloadable: true, Scope: resource.SessionScope("sesn_01ABCDEFGHJKLMNPQRSTUVWX")})
	golden(t, "file_resource", resource.NewFileResource("sesrsc_01ABCDEFGHJKLMNPQRSTUVWX", fileID, "/mnt/session/uploads/a", moment))
	if got := string(encode(t, resource.Deleted{ID: fileID, Type: "file_deleted"})); got != `{"id":"`+fileID+`","type":"file_deleted"}` {
		t.Errorf("got %s", got)
	}
}

func TestCleanFilename(t *testing.T) {
	for _, c := range []struct{ name, media, want string }{
		{"data.csv", "text/csv", "data.csv"},
		{"/etc/passwd", "", "passwd"},
		{`C:\Users\me\Ünïcode 文.pdf`, "", "Ünïcode 文.pdf"},
		{"", "application/pdf", "unnamed.pdf"},
		{"", "Text/Plain; charset=utf-8", "unnamed.txt"},
		{"dir/", "application/x-thing", "unnamed"},
		{"..", "image/png", "unnamed.png"},
		{"a/.", "", "unnamed"},
		{".env", "", ".env"},
		{strings.Repeat("é", 255), "", strings.Repeat("é", 255)},
	} {
		if got, err := resource.CleanFilename(c.name, c.media); err != nil || got != c.want {
			t.Errorf("%q: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	for name, want := range map[string]string{
		"a<b":                    `filename: "a<b" contains a forbidden character; control characters and < > : " | ? * \ / are not allowed`,
		"a\x00b":                 "filename: \"a\uFFFDb\" contains a forbidden character; control characters and < > : \" | ? * \\ / are not allowed",
		"a\u0085b":               "filename: \"a\u0085b\" contains a forbidden character; control characters and < > : \" | ? * \\ / are not allowed",
		strings.Repeat("é", 256): `filename: must be at most 255 characters, got 256`,
		"\xff":                   `filename: is not valid UTF-8`,
	} {
		_, err := resource.CleanFilename(name, "")
		wantRefusal(t, err, want)
	}
}

func TestParseExpiry(t *testing.T) {
	if got, err := resource.ParseExpiry("3600"); err != nil || got != time.Hour {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := resource.ParseExpiry("7776000"); err != nil || got != 90*24*time.Hour {
		t.Errorf("got %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"3599":    `expires_in_seconds: must be between 3600 and 7776000, got 3599`,
		"7776001": `expires_in_seconds: must be between 3600 and 7776000, got 7776001`,
		"1h":      `expires_in_seconds: expected an integer, got "1h"`,
		"":        `expires_in_seconds: expected an integer, got ""`,
	} {
		_, err := resource.ParseExpiry(text)
		wantRefusal(t, err, want)
	}
}
