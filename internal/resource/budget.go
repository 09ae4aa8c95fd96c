package resource

import (
	"strconv"

	"github.com/perdure/perdure/internal/problem"
)

// MaxBudgetCents is the largest budget: nine million dollars, so that costs stay in the range of exact arithmetic.
const MaxBudgetCents = 900_000_000

// Budget is the most that a session may cost at list price.
type Budget struct {
	Type        string `json:"type"` // limit
	MaxListCost Money  `json:"max_list_cost"`
}

// Money is an amount in whole US cents.
type Money struct {
	Amount   string `json:"amount"`   // cents in decimal, without leading zeros
	Currency string `json:"currency"` // USD
}

// Cents makes Money of whole US cents.
func Cents(n int64) Money { return Money{Amount: strconv.FormatInt(n, 10), Currency: "USD"} }

// NewBudget makes a budget of whole US cents.
func NewBudget(cents int64) *Budget { return &Budget{Type: "limit", MaxListCost: Cents(cents)} }

// Cents is the budget in whole US cents, exactly.
func (b *Budget) Cents() int64 {
	n, ok := parseCents(b.MaxListCost.Amount)
	if !ok {
		return 0
	}
	return n
}

func parseCents(amount string) (int64, bool) {
	n, err := strconv.ParseInt(amount, 10, 64)
	// Only the plain decimal form of a number is printed back the same: no sign, no leading zero.
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == amount
}

func readBudget(n node) *Budget {
	o := n.object("type", "max_list_cost")
	b := &Budget{Type: o.field("type").word("limit")}
	cost := o.field("max_list_cost").object("amount", "currency")
	amount := cost.field("amount")
	b.MaxListCost.Amount = amount.textAs(`a string of whole cents such as "2500"`)
	b.MaxListCost.Currency = cost.field("currency").word("USD")
	cents, ok := parseCents(b.MaxListCost.Amount)
	switch {
	case !ok:
		n.refuse(amount.path, `%s is not a number of whole cents greater than 0, such as "2500" for 25 dollars`,
			quote(b.MaxListCost.Amount))
	case cents > MaxBudgetCents:
		n.refuse(amount.path, `must be at most "%d"`, MaxBudgetCents)
	}
	return b
}

// ApplyBudget returns the budget that an update leaves, and whether it is another one. A budget can be replaced or, for
// good, removed, but not added. It can only be set to an amount that is greater than what the session has cost exactly, which
// above tells for an amount in cents.
func (u *SessionUpdate) ApplyBudget(current *Budget, above func(cents int64) bool) (next *Budget, changed bool, err error) {
	if !u.Budget.Given() {
		return current, false, nil
	}
	wanted := u.Budget.Or(nil)
	switch {
	case wanted == nil:
		return nil, current != nil, nil
	case current == nil:
		return nil, false, problem.Invalidf("budget: a budget can only be set when the session is created, and not be " +
			"added again after it was removed").WithCode("budget_create_only")
	case *wanted == *current:
		return current, false, nil
	case !above(wanted.Cents()):
		return nil, false, problem.Invalidf("budget.max_list_cost must be greater than the session's consumed list cost").
			WithCode("budget_not_raised")
	}
	return wanted, true, nil
}
