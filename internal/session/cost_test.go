package session_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/session"
)

func TestRoundedCents(t *testing.T) {
	for _, c := range []struct {
		cost session.Cost
		want int64
	}{
		{0, 0},
		{1, 0},
		{cent/2 - 1, 0},
		{cent / 2, 1},
		{cent, 1},
		{cent + cent/2 - 1, 1},
		{cent + cent/2, 2},
		{52*cent + cent/2, 53}, // the example of the documents, $0.525
		{9_000_000 * dollar, 900_000_000},
	} {
		if got := c.cost.RoundedCents(); got != c.want {
			t.Errorf("%d picodollars are %d cents, want %d", c.cost, got, c.want)
		}
	}
}

func TestCents(t *testing.T) {
	if got := session.Cents(2500); got != 25*dollar {
		t.Errorf("2500 cents are %d, want %d", got, 25*dollar)
	}
	if got := session.Cents(900_000_000); got != 9_000_000*dollar {
		t.Errorf("the largest budget is %d, want %d", got, 9_000_000*dollar)
	}
}

func TestCostString(t *testing.T) {
	for cost, want := range map[session.Cost]string{0: "$0.00", cent: "$0.01", -cent: "-$0.01", dollar*12 + cent*34: "$12.34", 50_000_000: "$0.00005", 1: "$0.000000000001", math.MaxInt64: "$9223372.036854775807"} {
		if got := cost.String(); got != want {
			t.Errorf("%d picodollars are %s, want %s", cost, got, want)
		}
	}
}

func TestRuntimeCost(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		rate session.Cost
		want session.Cost
	}{
		{0, 8 * cent, 0},
		{time.Hour, 8 * cent, 8 * cent},
		{90 * time.Minute, 8 * cent, 12 * cent},
		{999 * time.Microsecond, 8 * cent, 0},
		{time.Millisecond, 8 * cent, 22_222}, // 8e10 / 3.6e6, whole picodollars
		{45 * time.Second, 8 * cent, cent / 10},
		{100 * 365 * 24 * time.Hour, 8 * cent, 876_000 * 8 * cent},
		{time.Hour - time.Millisecond, 2500 * dollar, 2_499_999_305_555_555},
		{time.Hour, 0, 0},
	} {
		if got := session.RuntimeCost(c.d, c.rate); got != c.want {
			t.Errorf("%v at %v an hour cost %d, want %d", c.d, c.rate, got, c.want)
		}
	}
}

// The cost of running never falls, never leaves its range, and is within a picodollar per thousandth of the exact one.
func TestRuntimeCostIsExactEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := session.Cost(rapid.Int64Range(0, int64(2500*dollar)).Draw(t, "rate"))
		d := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "duration"))
		got := session.RuntimeCost(d, rate)
		exact := new(big.Int).Mul(big.NewInt(d.Milliseconds()), big.NewInt(int64(rate)))
		exact.Div(exact, big.NewInt(time.Hour.Milliseconds()))
		if diff := exact.Int64() - int64(got); diff < 0 || diff > 1000 {
			t.Fatalf("%v at %d an hour cost %d, exactly %v", d, rate, got, exact)
		}
		if later := session.RuntimeCost(d+time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "more")), rate); later < got {
			t.Fatalf("the cost falls from %d to %d", got, later)
		}
	})
}

func TestUsageAddsUp(t *testing.T) {
	var u session.Usage
	one := session.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite5m: 4, CacheWrite1h: 5, WebSearches: 6, Fast: true, Cost: 7, Unpriced: 8}
	u.Add(one)
	u.Add(one)
	want := session.Usage{Input: 2, Output: 4, CacheRead: 6, CacheWrite5m: 8, CacheWrite1h: 10, WebSearches: 12, Cost: 14, Unpriced: 16}
	if u != want {
		t.Errorf("twice %+v is %+v", one, u)
	}
}

// Running time counts against the budget, up to the last entry of the log.
func TestRunningTimeIsPartOfTheBudget(t *testing.T) {
	c := config()
	c.BudgetCents = 8
	m := newMachine(t, c)
	m.mustAccept(message("hello"))
	m.begin()
	m.now = m.now.Add(time.Hour - time.Second)
	m.end(session.Answer{Blocks: []session.AnswerBlock{allowed("c1")}, Model: "m1"})
	if m.state.OverBudget() {
		t.Errorf("a second before the hour it cost %v of %v", m.state.CostAt(m.state.At), session.Cents(8))
	}
	m.now = m.now.Add(2 * time.Second)
	m.addResult("c1", "done")
	m.want(session.Rest)
	stop(t, m, session.BudgetReached)
	m.checked(t)
}

func TestBudgetMustExceedTheCost(t *testing.T) {
	c := config()
	c.BudgetCents = 1000
	m := newMachine(t, c)
	m.mustAccept(message("hello"))
	m.begin()
	m.now = m.now.Add(time.Hour) // 8 cents
	m.end(session.Answer{Model: "m1", Usage: session.Usage{Cost: 50 * cent}})
	for cap, right := range map[int64]bool{-1: false, math.MinInt64 / int64(cent): false, 50: false, 57: false, 58: false, 59: true, 900_000_000: true, 0: true} {
		if err := m.step().Update(session.Change{Rebudget: true, BudgetCap: cap}); (err == nil) != right {
			t.Errorf("a budget of %d cents: %v", cap, err)
		}
	}
}

// A request that crosses the budget may also end its turn. A new message is then refused like at any other pause: it would
// start a turn that cannot make a request.
func TestMessageOverTheBudgetIsRefused(t *testing.T) {
	c := config()
	c.BudgetCents = 10
	m := newMachine(t, c)
	m.mustAccept(message("hello"))
	m.begin()
	m.end(session.Answer{Model: "m1", Usage: session.Usage{Cost: 50 * cent}, Blocks: []session.AnswerBlock{text("ok")}})
	stop(t, m, session.EndTurn)
	if _, _, err := m.accept(message("more")); err == nil {
		t.Error("a message is taken although the budget is used up")
	}
	step := m.step()
	if err := step.Update(session.Change{Rebudget: true, BudgetCap: 100}); err != nil {
		t.Fatal(err)
	}
	m.commit(step)
	stop(t, m, session.EndTurn)
	m.mustAccept(message("more"))
	m.want(session.Sample)
	m.checked(t)
}
