package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// Limits of metadata, in pairs and characters.
const (
	maxMetadataPairs = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// Metadata is what a client notes on an object: at most 16 pairs, keys of 1 to 64 and values of up to 512 characters.
type Metadata map[string]string

// MarshalJSONTo writes the pairs in the order of their keys. No metadata is an empty object.
func (m Metadata) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := enc.WriteToken(jsontext.String(key)); err != nil {
			return err
		}
		if err := enc.WriteToken(jsontext.String(m[key])); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

// check names every problem at once: a client that fills metadata from elsewhere can then repair all of it.
func (m Metadata) check(v *verdict, path string) {
	var problems []string
	if len(m) > maxMetadataPairs {
		problems = append(problems, fmt.Sprintf("at most %d pairs are allowed, got %d", maxMetadataPairs, len(m)))
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if n := utf8.RuneCountInString(key); n == 0 {
			problems = append(problems, "a key must not be empty")
		} else if n > maxMetadataKey {
			problems = append(problems, fmt.Sprintf("key %s must be at most %d characters, got %d", quote(key), maxMetadataKey, n))
		}
		if n := utf8.RuneCountInString(m[key]); n > maxMetadataValue {
			problems = append(problems, fmt.Sprintf("value of %s must be at most %d characters, got %d", quote(key), maxMetadataValue, n))
		}
		if len(problems) > maxMetadataPairs {
			break
		}
	}
	if len(problems) > 0 {
		v.refuseAs(problem.Invalidf("%s: %s", path, strings.Join(problems, "; ")).WithCode("invalid_metadata"))
	}
}

// MetadataPatch changes metadata key by key: a string sets, nil deletes.
type MetadataPatch map[string]*string

// Apply returns the metadata after the patch, and whether it is different. The pairs that result must keep the limits.
func (p MetadataPatch) Apply(m Metadata) (next Metadata, changed bool, err error) {
	var v verdict
	next = p.apply(&v, m)
	return next, !maps.Equal(m, next), v.err()
}

func (p MetadataPatch) apply(v *verdict, m Metadata) Metadata {
	next := Metadata{}
	maps.Copy(next, m)
	for key, value := range p {
		if value == nil {
			delete(next, key)
		} else {
			next[key] = *value
		}
	}
	next.check(v, "metadata")
	return next
}

// readMetadata reads the metadata of a create: strings only.
func readMetadata(n node) Metadata {
	m := Metadata{}
	if n.missing() || !n.is('{', "an object") {
		return m
	}
	for key, value := range n.members() {
		m[key] = value.text()
	}
	return m
}

// readMetadataPatch reads the metadata of an update. Null for all of it, like leaving it out, changes nothing.
func readMetadataPatch(n node) MetadataPatch {
	if n.missing() || !n.is('{', "an object") {
		return nil
	}
	p := MetadataPatch{}
	for key, value := range n.members() {
		if value.null() {
			p[key] = nil
			continue
		}
		text := value.text()
		p[key] = &text
	}
	return p
}
