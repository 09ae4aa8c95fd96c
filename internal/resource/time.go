package resource

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/problem"
)

// timeLayout has one width, so that timestamps as text sort as times do.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Time is a moment as on the wire: RFC 3339 in UTC with exactly six fractional digits. A moment that there may not be
// is a *Time, and null when it is nil.
type Time struct{ time.Time }

// At makes a Time of t, cut to the microseconds that the wire can carry, so that it survives a round trip unchanged.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Microsecond)} }

// String is the wire form.
func (t Time) String() string { return t.UTC().Format(timeLayout) }

// MarshalJSONTo writes the wire form.
func (t Time) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteToken(jsontext.String(t.String()))
}

// UnmarshalJSONFrom reads any RFC 3339 timestamp. A fraction finer than a microsecond is cut.
func (t *Time) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	parsed, err := time.Parse(time.RFC3339, token.String())
	if err != nil {
		return err
	}
	*t = At(parsed)
	return nil
}

// ParseTime reads the value of a query filter such as created_at[gte]: RFC 3339 with any offset and any fraction, which
// is kept in full. The error names the filter.
func ParseTime(filter, text string) (Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return Time{}, problem.Invalidf(`%s: %s is not an RFC 3339 timestamp such as "2026-03-15T10:00:00Z"`, filter, quote(text))
	}
	return Time{t.UTC()}, nil
}
