package api

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/perdure/perdure/internal/problem"
	"github.com/perdure/perdure/internal/resource"
	"github.com/perdure/perdure/internal/session"
)

// cursor is where a page begins. It is opaque to clients and remembers the order that it was made in.
type cursor struct {
	After string `json:"a,omitzero"` // the id after which the page begins
	Seq   int64  `json:"s,omitzero"` // the position after which it begins
	Order string `json:"o,omitzero"` // asc | desc
	Back  bool   `json:"b,omitzero"` // the page ends before After
}

func (c cursor) String() string {
	raw, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		// A cursor holds ids, which are ASCII.
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// page is what a list of the API looks like.
type page[T any] struct {
	Data []T     `json:"data"`
	Next *string `json:"next_page"`
}

func newPage[T any](data []T, next *cursor) page[T] {
	p := page[T]{Data: data}
	if data == nil {
		p.Data = []T{}
	}
	if next != nil {
		text := next.String()
		p.Next = &text
	}
	return p
}

// cursor reads the page parameter. Order is that of the request; a cursor of another order is refused.
func (c *call) cursor(order string) (cursor, error) {
	text := c.query.Get("page")
	if text == "" {
		return cursor{Order: order}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return cursor{}, problem.Invalidf("invalid page cursor")
	}
	var at cursor
	if json.Unmarshal(raw, &at) != nil || at.After == "" && at.Seq == 0 {
		return cursor{}, problem.Invalidf("invalid page cursor")
	}
	if at.Order != order {
		return cursor{}, problem.Invalidf("page token order does not match request")
	}
	return at, nil
}

// limit reads the limit parameter.
func (c *call) limit(fallback, most int) (int, error) {
	text := c.query.Get("limit")
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, problem.Invalidf("limit: must be an integer from 1 to %d", most)
	}
	return n, nil
}

// order reads the order parameter.
func (c *call) order(fallback string) (string, error) {
	switch text := c.query.Get("order"); text {
	case "":
		return fallback, nil
	case "asc", "desc":
		return text, nil
	default:
		return "", problem.Invalidf(`order: %q is not a valid value; expected one of asc, desc`, text)
	}
}

// values reads a parameter that may be given more than once, with brackets or without.
func (c *call) values(name string) []string {
	return append(slices.Clone(c.query[name+"[]"]), c.query[name]...)
}

// flag reads a boolean parameter.
func (c *call) flag(name string) (bool, error) {
	switch text := c.query.Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, problem.Invalidf("%s: expected true or false", name)
	}
}

// moment reads a time parameter; zero if it is not given.
func (c *call) moment(name string) (time.Time, error) {
	text := c.query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := resource.ParseTime(name, text)
	return t.Time, err
}

// moments reads the four bounds of created_at.
func (c *call) moments() (gte, gt, lte, lt time.Time, err error) {
	for _, bound := range []struct {
		name string
		at   *time.Time
	}{{"created_at[gte]", &gte}, {"created_at[gt]", &gt}, {"created_at[lte]", &lte}, {"created_at[lt]", &lt}} {
		if *bound.at, err = c.moment(bound.name); err != nil {
			return gte, gt, lte, lt, err
		}
	}
	return gte, gt, lte, lt, nil
}

// statuses reads the statuses of a list.
func (c *call) statuses() ([]string, error) {
	known := []string{string(session.Idle), string(session.Running), string(session.Rescheduling), string(session.Terminated)}
	given := c.values("statuses")
	for _, s := range given {
		if !slices.Contains(known, s) {
			return nil, problem.Invalidf("statuses: %q is not a valid value; expected one of idle, running, rescheduling, terminated", s)
		}
	}
	if len(given) == 0 {
		// A session that is being erased has another status.
		return known, nil
	}
	return given, nil
}
