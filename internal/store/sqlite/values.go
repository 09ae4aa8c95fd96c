package sqlite

import (
	"database/sql"
	"hash/fnv"
	"strings"
	"time"
)

// timestamp is the stored form of a time: NULL for the zero time. What is less than a microsecond is dropped.
func timestamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// ceiling is the first whole microsecond that is not before t.
func ceiling(t time.Time) int64 {
	micro := t.UnixMicro()
	if time.UnixMicro(micro).Before(t) {
		micro++
	}
	return micro
}

// due is the stored form of a time before which something must not happen: never earlier than it.
func due(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return ceiling(t)
}

func instant(micro sql.NullInt64) time.Time {
	if !micro.Valid {
		return time.Time{}
	}
	return time.UnixMicro(micro.Int64).UTC()
}

// blob is the stored form of bytes: NULL for nil.
func blob[B ~[]byte](b B) any {
	if b == nil {
		return nil
	}
	return []byte(b)
}

// tag is a short stand-in for an id in the index of positions. It is stored: it must never change.
func tag(id string) int64 {
	h := fnv.New32a()
	h.Write([]byte(id))
	return int64(h.Sum32())
}

// filter puts a query together from fixed parts, so that no value is ever part of its text.
type filter struct {
	text strings.Builder
	args []any
}

func newFilter(text string, args ...any) *filter {
	f := &filter{args: args}
	f.text.WriteString(text)
	return f
}

// and adds a condition with its arguments.
func (f *filter) and(condition string, args ...any) {
	f.text.WriteString(" AND ")
	f.text.WriteString(condition)
	f.args = append(f.args, args...)
}

// in adds a condition that a column has one of the values; none of them matches if there are none. The number of
// placeholders is rounded up to a power of two, so that few texts are made.
func (f *filter) in(column string, values []string) {
	if len(values) == 0 {
		f.and("0")
		return
	}
	places := 1
	for places < len(values) {
		places *= 2
	}
	args := make([]any, places)
	for i := range args {
		args[i] = values[min(i, len(values)-1)]
	}
	f.and(column+" IN (?"+strings.Repeat(",?", places-1)+")", args...)
}

// page adds the order and the limit, which end a query.
func (f *filter) page(column string, ascending bool, limit int) {
	order := " ORDER BY " + column
	if !ascending {
		order += " DESC"
	}
	f.text.WriteString(order + " LIMIT ?")
	f.args = append(f.args, limit)
}
