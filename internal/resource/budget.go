package resource

import "strconv"

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
