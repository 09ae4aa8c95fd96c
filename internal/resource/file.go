package resource

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/problem"
)

// File is the metadata of a file.
type File struct {
	ID           string     `json:"id"`
	Type         string     `json:"type"` // file
	Filename     string     `json:"filename"`
	MimeType     string     `json:"mime_type"`
	SizeBytes    int64      `json:"size_bytes"`
	CreatedAt    Time       `json:"created_at"`
	Downloadable bool       `json:"downloadable"` // only what an agent made
	ExpiresAt    *Time      `json:"expires_at"`
	Scope        *FileScope `json:"scope"`
}

// FileScope says what a file belongs to.
type FileScope struct {
	Type string `json:"type"` // session
	ID   string `json:"id"`
}

// SessionScope is the scope of a file that belongs to a session.
func SessionScope(session string) *FileScope { return &FileScope{Type: "session", ID: session} }

// The bounds of a file's life, in seconds: an hour to ninety days.
const (
	minExpiry = 3_600
	maxExpiry = 7_776_000
)

// ParseExpiry reads the field expires_in_seconds of an upload.
func ParseExpiry(text string) (time.Duration, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, problem.Invalidf("expires_in_seconds: expected an integer, got %s", quote(text))
	}
	if seconds < minExpiry || seconds > maxExpiry {
		return 0, problem.Invalidf("expires_in_seconds: must be between %d and %d, got %d", minExpiry, maxExpiry, seconds)
	}
	return time.Duration(seconds) * time.Second, nil
}

const maxFilename = 255 // characters

// extensions end the name of a file that came without one. The list is fixed, so that a name does not depend on the host.
var extensions = map[string]string{
	"application/gzip":         ".gz",
	"application/json":         ".json",
	"application/pdf":          ".pdf",
	"application/zip":          ".zip",
	"image/gif":                ".gif",
	"image/jpeg":               ".jpg",
	"image/png":                ".png",
	"image/svg+xml":            ".svg",
	"image/webp":               ".webp",
	"text/css":                 ".css",
	"text/csv":                 ".csv",
	"text/html":                ".html",
	"text/javascript":          ".js",
	"text/markdown":            ".md",
	"text/plain":               ".txt",
	"text/xml":                 ".xml",
	"application/octet-stream": "",
}

// CleanFilename returns the name under which an upload is kept: the last component of the name that the client gave, or
// unnamed and an extension for the media type if that is nothing. A name that no common file system would take is refused.
func CleanFilename(name, mimeType string) (string, error) {
	if !utf8.ValidString(name) {
		return "", problem.Invalidf("filename: is not valid UTF-8")
	}
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	if name == "" || name == "." || name == ".." {
		media, _, _ := strings.Cut(mimeType, ";")
		return "unnamed" + extensions[strings.ToLower(strings.TrimSpace(media))], nil
	}
	if n := utf8.RuneCountInString(name); n > maxFilename {
		return "", problem.Invalidf("filename: must be at most %d characters, got %d", maxFilename, n)
	}
	for _, r := range name {
		if r < ' ' || r >= 0x7f && r < 0xa0 || strings.ContainsRune(`<>:"|?*`, r) {
			return "", problem.Invalidf(`filename: %s contains a forbidden character; control characters and < > : " | ? * \ / are not allowed`,
				quote(name))
		}
	}
	return name, nil
}
