package resource_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/perdure/perdure/internal/resource"
)

func TestSyntax(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"truncated":         {`{"name":"a"`, `request body: invalid JSON at offset 11: unexpected end`},
		"trailing":          {`{} {}`, `request body: invalid JSON at offset 4: data after the end`},
		"trailing garbage":  {`{}x`, `request body: invalid JSON at offset 2: data after the end`},
		"not JSON":          {`name=a`, `request body: invalid JSON at offset 1: `},
		"bare word":         {`{"name":undefined}`, `name: invalid JSON at offset 8: `},
		"comma":             {`{"name":"a",}`, `request body: invalid JSON at offset `},
		"byte order mark":   {"\xef\xbb\xbf{}", `request body: invalid JSON at offset 0: `},
		"duplicate":         {`{"name":"a","metadata":{"k":"1","k":"2"}}`, `metadata: duplicate key "k"`},
		"duplicate top":     {`{"name":"a","name":"b"}`, `request body: duplicate key "name"`},
		"duplicate escaped": {`{"name":"a","n\u0061me":"b"}`, `request body: duplicate key "name"`},
		"index":             {`{"tools":[{},{"a":[1,tru]}]}`, `tools[1].a[1]: invalid JSON at offset `},
		"key like an index": {`{"metadata":{"0":x}}`, `metadata.0: invalid JSON at offset `},
		"UTF-8":             {"{\"name\":\"\xff\"}", `name: invalid JSON at offset `},
		"high surrogate":    {`{"name":"\ud83d"}`, `name: invalid JSON at offset `},
		"low surrogate":     {`{"name":"\ude00"}`, `name: invalid JSON at offset `},
		"surrogate key":     {`{"\ud83d":1}`, `request body: invalid JSON at offset `},
		"deep arrays":       {strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), `request body: nested more than 100 levels deep`},
		"deep unclosed":     {strings.Repeat("[", 1_000_000), `request body: nested more than 100 levels deep`},
		"deep objects":      {strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), `request body: nested more than 100 levels deep`},
		"many values":       {"[" + strings.Repeat("0,", 500_001) + "0]", `request body: more than 500000 values`},
		"many fields":       {`{"metadata":{` + manyFields(4_097) + `}}`, `metadata: more than 4096 fields in one object`},
		"number":            {`{"version":1e999}`, `version: expected an integer of at most 64 bits`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := updateAgent(fullAgent(t), []byte(c.body), defaults)
			message := refusal(t, err).Message
			// A message that ends in a space is followed by words of the JSON library.
			if message != c.want && (!strings.HasSuffix(c.want, " ") || !strings.HasPrefix(message, c.want)) {
				t.Errorf("got  %.300s\nwant %s", message, c.want)
			}
		})
	}
}

func manyFields(n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	return strings.Join(fields, ",")
}

func TestErrorsStayShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, body := range []string{
		`{"` + long + `":1}`,
		`{"name":"a","model":"m","type":"` + long + `"}`,
		`{"name":"a","model":"m","metadata":{"` + long + `":"v"}}`,
		`{"name":"a","model":"m","metadata":{"k":"` + long + `"}}`,
		`{"name":"a","model":"m","metadata":{"` + long + `":1}}`,
		`{"` + long + `":1,"` + long + `":1}`,
		`{"metadata":{"` + long + `":` + strings.Repeat("[", 200),
		`{"` + long + `":x}`,
		strings.Repeat(`{"`+strings.Repeat("é", 60)+`":`, 90) + "x",
	} {
		_, err := resource.CreateAgent([]byte(body), defaults)
		if message := refusal(t, err).Message; len(message) > 1_000 {
			t.Errorf("a message of %d bytes for %.40s: %.100s", len(message), body, message)
		}
	}
}

func TestDeepContent(t *testing.T) {
	deep := strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000)
	_, err := resource.DecodeContent("events[0].content", jsontext.Value(deep), resource.UserContent)
	wantRefusal(t, err, `events[0].content: nested more than 100 levels deep`)
}

func TestTime(t *testing.T) {
	for text, want := range map[string]string{
		"2026-03-15T10:00:00Z":                "2026-03-15T10:00:00.000000Z",
		"2026-03-15T10:00:00.4Z":              "2026-03-15T10:00:00.400000Z",
		"2026-03-15T11:00:00.123456789+01:00": "2026-03-15T10:00:00.123456Z",
	} {
		parsed, err := resource.ParseTime("created_at[gte]", text)
		if err != nil || parsed.String() != want {
			t.Errorf("%s: got %s, %v", text, parsed, err)
		}
		if got := string(encode(t, parsed)); got != `"`+want+`"` {
			t.Errorf("%s: got %s", text, got)
		}
	}
	parsed, err := resource.ParseTime("created_at[gt]", "2026-03-15T10:00:00.123456789Z")
	if err != nil || parsed.Nanosecond() != 123_456_789 {
		t.Errorf("a filter lost precision: %v, %v", parsed.Time, err)
	}
	_, err = resource.ParseTime("created_at[gte]", "yesterday")
	wantRefusal(t, err, `created_at[gte]: "yesterday" is not an RFC 3339 timestamp such as "2026-03-15T10:00:00Z"`)

	if got := string(encode(t, struct{ A, B *resource.Time }{A: &moment})); got != `{"A":"2026-03-15T10:00:00.000000Z","B":null}` {
		t.Errorf("got %s", got)
	}
	if got := resource.At(time.Unix(0, 1_999).In(time.FixedZone("", 3600))); got.String() != "1970-01-01T00:00:00.000001Z" {
		t.Errorf("got %s", got)
	}
}

func TestMetadata(t *testing.T) {
	pairs := func(n int) resource.MetadataPatch {
		p := resource.MetadataPatch{}
		for i := range n {
			value := "v"
			p[fmt.Sprintf("k%02d", i)] = &value
		}
		return p
	}
	full, changed, err := pairs(16).Apply(nil)
	if err != nil || !changed || len(full) != 16 {
		t.Fatalf("got %v, %v", full, err)
	}
	if _, _, err := pairs(17).Apply(nil); err == nil {
		t.Error("17 pairs were accepted")
	}
	// One key goes as another comes: the limit holds for the result.
	swap := resource.MetadataPatch{"k00": nil, "new": pairs(1)["k00"]}
	if next, changed, err := swap.Apply(full); err != nil || !changed || len(next) != 16 || len(full) != 16 {
		t.Errorf("got %v, %v", next, err)
	}
	_, _, err = resource.MetadataPatch{"": pairs(1)["k00"], strings.Repeat("é", 65): pairs(1)["k00"]}.Apply(full)
	wantRefusal(t, err, `metadata: at most 16 pairs are allowed, got 18; a key must not be empty; key "`+strings.Repeat("é", 65)+`" must be at most 64 characters, got 65`)
	if p := refusal(t, err); p.Code != "invalid_metadata" {
		t.Errorf("got code %q", p.Code)
	}
	long := strings.Repeat("é", 513)
	_, _, err = resource.MetadataPatch{"k": &long}.Apply(nil)
	wantRefusal(t, err, `metadata: value of "k" must be at most 512 characters, got 513`)
	if got := string(encode(t, resource.Metadata(nil))); got != `{}` {
		t.Errorf("got %s", got)
	}
}
