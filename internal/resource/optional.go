package resource

// Optional is a field of a request that may be left out, be null, or have a value. In an update the three mean different
// things: keep, clear, replace. The zero Optional was left out.
type Optional[T any] struct {
	given bool
	null  bool
	value T
}

// Some is a field that has a value.
func Some[T any](value T) Optional[T] { return Optional[T]{given: true, value: value} }

// Null is a field that is null.
func Null[T any]() Optional[T] { return Optional[T]{given: true, null: true} }

// Given reports whether the field is there, be it null.
func (o Optional[T]) Given() bool { return o.given }

// Null reports whether the field is there and null.
func (o Optional[T]) Null() bool { return o.null }

// Value returns the value, and whether there is one.
func (o Optional[T]) Value() (T, bool) { return o.value, o.given && !o.null }

// Or returns the value, or fallback if the field was left out or is null.
func (o Optional[T]) Or(fallback T) T {
	if value, ok := o.Value(); ok {
		return value
	}
	return fallback
}

// optional reads a field that may be left out or be null.
func optional[T any](n node, read func(node) T) Optional[T] {
	switch {
	case n.absent():
		return Optional[T]{}
	case n.null():
		return Null[T]()
	default:
		return Some(read(n))
	}
}
