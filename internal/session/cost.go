package session

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cost is an amount of money in picodollars, 1e-12 US dollars: fine enough for one token of the cheapest model to be a
// whole number, and wide enough for nine million dollars.
type Cost int64

const (
	dollar Cost = 1e12
	cent        = dollar / 100
)

// Cents makes a Cost of whole US cents.
func Cents(n int64) Cost { return Cost(n) * cent }

// RoundedCents is the cost in whole cents, to the nearest, half up: the form that the wire reports.
func (c Cost) RoundedCents() int64 { return int64((c + cent/2) / cent) }

// String is the exact amount in dollars, with as many decimals as it needs but at least two.
func (c Cost) String() string {
	sign := ""
	n := uint64(c)
	if c < 0 {
		sign, n = "-", -n
	}
	decimals := strings.TrimRight(fmt.Sprintf("%012d", n%uint64(dollar)), "0")
	for len(decimals) < 2 {
		decimals += "0"
	}
	return sign + "$" + strconv.FormatUint(n/uint64(dollar), 10) + "." + decimals
}

// Usage is what a session or a thread has used.
type Usage struct {
	Input        int64 `json:"input"` // not counting the cache
	Output       int64 `json:"output"`
	CacheRead    int64 `json:"cache_read"`
	CacheWrite5m int64 `json:"cache_write_5m"`
	CacheWrite1h int64 `json:"cache_write_1h"`
	WebSearches  int64 `json:"web_searches,omitzero"`
	Fast         bool  `json:"fast,omitzero"` // only of a single request
	// Cost is the list cost of the model requests and searches. Running time is not in it.
	Cost Cost `json:"cost"`
	// Unpriced counts requests to models that have no list price: Cost lacks them.
	Unpriced int64 `json:"unpriced,omitzero"`
}

// Add adds the usage of one more request.
func (u *Usage) Add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite5m += v.CacheWrite5m
	u.CacheWrite1h += v.CacheWrite1h
	u.WebSearches += v.WebSearches
	u.Cost += v.Cost
	u.Unpriced += v.Unpriced
}

// RuntimeCost is what running for d costs at an hourly rate. It is metered to the millisecond.
func RuntimeCost(d time.Duration, hourly Cost) Cost {
	const hour = int64(time.Hour / time.Millisecond)
	ms := d.Milliseconds()
	// Whole hours first and the rate in thousandths, so that no product leaves the range of an int64 for rates up to
	// $2,500 an hour.
	return Cost(ms/hour)*hourly + Cost(ms%hour)*(hourly/1000)/Cost(hour/1000)
}
