package session

import "time"

// Limits bound a turn.
type Limits struct {
	// Requests is how many answers the model may give in one turn.
	Requests int
	// Truncated is how many answers in a row may be cut off in the middle of a tool call.
	Truncated int
	// Lost is how many requests in a row may lose their maker: a session that kills its driver is not driven for ever.
	Lost int
}

// DefaultLimits bound a turn where nothing else is configured.
func DefaultLimits() Limits { return Limits{Requests: 500, Truncated: 3, Lost: 5} }

// ActionKind says what a session needs next.
type ActionKind int

// The kinds of action. Those of the first group need something from outside the log. Those of the second only add to it:
// Step.Settle performs them.
const (
	// Rest: nothing until an input comes.
	Rest ActionKind = iota
	// WaitUntil: nothing until Action.At, then Step.Resume.
	WaitUntil
	// Sample: deliver what is queued, log the start of a model request, make it.
	Sample
	// RunCalls: run Action.Calls.
	RunCalls
	// Evaluate: log the start of an evaluation of the outcome, have it graded, log what was found.
	Evaluate
	// Abandon: a model request is open. Whoever made it ends it; if nobody did, Step.AbandonRequest does.
	Abandon
	// Erase: the session was deleted. Remove its sandbox, and then all of it from the store.
	Erase
	// Stop: an interrupt was accepted. End what runs, then Step.ApplyInterrupt.
	Stop

	startTurn
	refuseCalls
	suspend
	pauseAtBudget
	stopAtLimit
	giveUp
	finish
)

// Action is what a session needs next.
type Action struct {
	Kind  ActionKind
	At    time.Time // with WaitUntil
	Calls []Call    // with RunCalls, in the order of the log
}

// Decide says what a session needs next. It is a function of the log alone.
func Decide(s *State, limits Limits) Action {
	if s.Deleted {
		return Action{Kind: Erase}
	}
	if s.Config == nil || s.Status == Terminated {
		return Action{Kind: Rest}
	}
	if s.Interrupt != nil {
		return Action{Kind: Stop}
	}
	switch s.Status {
	case Idle:
		if len(s.Queue) > 0 && (s.Stop == nil || s.Stop.Type == EndTurn || s.Stop.Type == Refusal) {
			return Action{Kind: startTurn}
		}
		return Action{Kind: Rest}
	case Rescheduling:
		return Action{Kind: WaitUntil, At: s.RetryAt}
	}
	if s.Request != nil {
		return Action{Kind: Abandon}
	}
	if !s.Settled() {
		return decideCalls(s)
	}
	ended := !s.Unanswered && (len(s.Queue) == 0 || s.Requests > 0)
	outcome := s.Outcome()
	switch {
	case outcome != nil && outcome.Evaluation != "":
		return Action{Kind: Evaluate} // it was begun within all bounds
	case ended && outcome == nil:
		return Action{Kind: finish}
	case s.Requests >= limits.Requests || s.Truncated >= limits.Truncated:
		return Action{Kind: stopAtLimit}
	case s.Lost >= limits.Lost:
		return Action{Kind: giveUp}
	case s.OverBudget():
		return Action{Kind: pauseAtBudget}
	case ended && len(s.Queue) == 0:
		return Action{Kind: Evaluate}
	default:
		return Action{Kind: Sample}
	}
}

// decideCalls runs what needs nobody at once, and what a client allowed as soon as the client has decided about all of
// them: until then the session waits, at no cost.
func decideCalls(s *State) Action {
	var refused, waiting bool
	var free, confirmed []Call
	for _, c := range s.Calls {
		switch {
		case c.Refused() && c.Permission == "deny":
			refused = true
		case c.Waiting():
			waiting = true
		case c.Runnable() && c.Confirmed == "":
			free = append(free, c)
		case c.Runnable():
			confirmed = append(confirmed, c)
		}
	}
	switch {
	case refused:
		return Action{Kind: refuseCalls}
	case len(free) > 0:
		return Action{Kind: RunCalls, Calls: free}
	case waiting:
		return Action{Kind: suspend}
	}
	for _, c := range s.Calls {
		if c.Refused() {
			return Action{Kind: refuseCalls}
		}
	}
	return Action{Kind: RunCalls, Calls: confirmed}
}

// WakeTime is when a session wants to be driven: now if it can go on at once, zero if it rests.
func WakeTime(s *State, now time.Time) time.Time {
	switch action := Decide(s, DefaultLimits()); action.Kind {
	case Rest:
		return time.Time{}
	case WaitUntil:
		return action.At
	default:
		return now
	}
}
