package price

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/session"
)

// webSearch is the list price of one search: ten dollars for a thousand.
var webSearch = session.Cents(1)

// times multiplies and stays at the largest amount where the product is larger. Negative counts are taken as none.
func times(n int64, p session.Cost) session.Cost {
	if n <= 0 || p <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(p))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return session.Cost(low)
}

// plus adds amounts that are not negative and stays at the largest amount.
func plus(a, b session.Cost) session.Cost {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// divide rounds to the nearest, halves up.
func divide(p session.Cost, by int64) session.Cost {
	quotient, rest := p/session.Cost(by), p%session.Cost(by)
	if rest >= session.Cost(by)-rest {
		quotient++
	}
	return quotient
}

// perMillion reads dollars for a million tokens as pico-dollars for one.
func perMillion(text string) (session.Cost, error) {
	whole, decimals, _ := strings.Cut(text, ".")
	if whole == "" || len(whole) > 6 || len(decimals) > 6 || strings.HasSuffix(text, ".") {
		return 0, fmt.Errorf("%q is not a price: it must be dollars for a million tokens, with at most six digits before and after the point", text)
	}
	n, err := strconv.ParseUint(whole+decimals+strings.Repeat("0", 6-len(decimals)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a price: it must be a decimal number that is not negative", text)
	}
	return session.Cost(n), nil
}
