package price

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Pico is an amount of money in pico-dollars: 10⁻¹² US dollars.
type Pico int64

const (
	// Dollar is one US dollar.
	Dollar Pico = 1_000_000_000_000
	// Cent is a hundredth of it.
	Cent Pico = Dollar / 100
	// WebSearch is the list price of one search: ten dollars for a thousand.
	WebSearch Pico = Cent
	// RuntimeCentsPerHour is the list price of an hour in which a session runs.
	RuntimeCentsPerHour = 8
)

// Runtime is the price of running for so long, counted in whole milliseconds and rounded to a pico-dollar.
func Runtime(running time.Duration, centsPerHour int64) Pico {
	const msPerHour = int64(time.Hour / time.Millisecond)
	if running <= 0 || centsPerHour <= 0 {
		return 0
	}
	ms := running.Milliseconds()
	whole := times(ms/msPerHour, times(centsPerHour, Cent))
	return plus(whole, divide(times(ms%msPerHour, times(centsPerHour, Cent)), msPerHour))
}

// Cents is an amount of whole cents.
func Cents(n int64) Pico { return times(n, Cent) }

// RoundedCents is the amount in whole cents, rounded to the nearest, halves up.
func (p Pico) RoundedCents() int64 {
	cents := int64(p / Cent)
	if p%Cent >= Cent/2 {
		cents++
	}
	return cents
}

// String gives the exact amount in dollars with as many decimals as it needs, but at least two.
func (p Pico) String() string {
	sign := ""
	n := uint64(p)
	if p < 0 {
		sign, n = "-", -n
	}
	decimals := strings.TrimRight(fmt.Sprintf("%012d", n%uint64(Dollar)), "0")
	for len(decimals) < 2 {
		decimals += "0"
	}
	return sign + "$" + strconv.FormatUint(n/uint64(Dollar), 10) + "." + decimals
}

// times multiplies and stays at the largest amount where the product is larger. Negative counts are taken as none.
func times(n int64, p Pico) Pico {
	if n <= 0 || p <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), uint64(p))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return Pico(low)
}

// plus adds amounts that are not negative and stays at the largest amount.
func plus(a, b Pico) Pico {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// divide rounds to the nearest, halves up.
func divide(p Pico, by int64) Pico {
	quotient, rest := p/Pico(by), p%Pico(by)
	if rest >= Pico(by)-rest {
		quotient++
	}
	return quotient
}

// perMillion reads dollars for a million tokens as pico-dollars for one.
func perMillion(text string) (Pico, error) {
	whole, decimals, _ := strings.Cut(text, ".")
	if whole == "" || len(whole) > 6 || len(decimals) > 6 || strings.HasSuffix(text, ".") {
		return 0, fmt.Errorf("%q is not a price: it must be dollars for a million tokens, with at most six digits before and after the point", text)
	}
	n, err := strconv.ParseUint(whole+decimals+strings.Repeat("0", 6-len(decimals)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a price: it must be a decimal number that is not negative", text)
	}
	return Pico(n), nil
}
