// Package demo shows what survives: it gives a real server a small real job, kills the server twice without warning while
// the job runs, starts it again each time, follows the job to its end, and counts what was done twice and what was lost.
//
// The account is honest in this sense: all of it is counted, nothing is assumed. Model calls come from the spans in the
// log, runs of the tool from a file that the job appends a line to each time it really runs, events from comparing what
// was seen before each kill with the log at the end.
package demo

import "time"

// Moment is what a server was doing when it was killed.
type Moment string

// The moments.
const (
	InToolCall  Moment = "in the middle of a tool call"
	InModelCall Moment = "in the middle of a model call"
)

// Kill is one death of the server.
type Kill struct {
	// Moment is what the server was doing.
	Moment Moment
	// Call is the id of the tool call that ran, or of the model request that was under way.
	Call string
	// Ready is the time from the kill to the server answering again, the start of the process included.
	Ready time.Duration
	// Next is the time from the kill to the next event of the session.
	Next time.Duration
	at   time.Time
}

// Account is what is counted in the end.
type Account struct {
	Kills []Kill
	// ModelCalls were begun; ModelCallsCut of them were cut by a kill and made again.
	ModelCalls, ModelCallsCut int
	// ToolCalls are the calls that the model made; ToolRuns is how often the one that a kill hit has really run.
	ToolCalls, ToolRuns int
	// ToolResults are the results in the log; more than ToolCalls would mean that one was given twice.
	ToolResults int
	// Events is the length of the log; Lost were seen before a kill and are not in it.
	Events, Lost int
	// Session is its id, Took how long the job took with everything.
	Session string
	Took    time.Duration
	// Report is the first line of what the job ends with.
	Report string
}

// Clean reports whether nothing was repeated that must not be, and nothing was lost.
func (a *Account) Clean() bool {
	return a.ToolRuns == 1 && a.ToolResults == a.ToolCalls && a.Lost == 0 && a.ModelCallsCut <= len(a.Kills)
}
