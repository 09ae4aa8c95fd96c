package model

import "strings"

// Secret is a provider's key. It prints as a placeholder wherever it is formatted or encoded, so that it cannot slip into
// a log, an error or a configuration dump. Reveal is the only way to the value.
type Secret string

// Reveal returns the key itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// GoString keeps %#v from printing the key.
func (s Secret) GoString() string { return `"` + s.String() + `"` }

// MarshalText keeps every encoder from writing the key.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Redact replaces the key where it occurs in text that came from elsewhere, such as a provider's error message. Keys
// under eight characters are placeholders of local servers ("none", "ollama") and are left alone.
func (s Secret) Redact(text string) string {
	if len(s) < 8 {
		return text
	}
	return strings.ReplaceAll(text, string(s), s.String())
}
