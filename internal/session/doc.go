// Package session is the heart of Perdure: a session is an append-only log of events, and everything else about it is
// derived from that log by pure functions.
//
//	state   = fold(events)          State.Apply, one event at a time
//	action  = decide(state)         Decide: sample the model | run these calls | wait | rest
//	events' = a Step over state     built by pure methods, appended atomically by somebody else
//
// # Authority
//
// The log decides. A State is a fold of the log up to State.Seq and never knows more. There is no second record of what
// a run was doing: after a crash at any point, Decide(fold(log)) is where to go on.
//
// # Invariants
//
//   - Intent before effect. span.model_request_start is in the log before the request is made; the event of a tool call
//     is in the log before the call runs. The event with the outcome is in the log before anything depends on it.
//   - Every call has exactly one result, and in the model's context it directly follows the call (I4). Context repairs a
//     log for which this does not hold when it is read; the log is never edited.
//   - The context is a function of the log (I7): the same log gives the same bytes, and a longer log only appends.
//   - Entries of one session carry strictly increasing times, one microsecond apart at the least.
//   - What is accepted from a client is judged against the state that its own append is based on. A step that was built
//     on a state which is no longer the head of the log is refused by the store, and is built again.
//
// # Inputs
//
// A session takes inputs at any time. An input that can be acted on at once is logged as processed, after the events
// that say the session runs. One that comes while a turn is running is logged as queued, which acknowledges it, and is
// logged again, with the same id, when it is delivered: before the next model request of the same turn, or as the start
// of the next turn. Readers see only the latest form of an event.
//
// # Failures
//
//	it dies                               what the log says                what Decide answers
//	before an input is logged             nothing                          nothing to do; the client was not answered
//	after an input                        running, input not answered      Sample
//	during a model request                start without end                Abandon, then Sample
//	after the answer                      calls, or the end of the turn    RunCalls, or Rest
//	while calls run                       calls without results            RunCalls for those; the sandbox knows the rest
//	while it waits for a client           calls without results            Rest; the answer wakes it
//	while it waits to try again           rescheduled until a time         WaitUntil that time
//
// The package knows no clock, no database and no network. Its callers pass the time in.
package session
