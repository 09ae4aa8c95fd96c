// Package sandbox runs the tool calls of sessions where they can do no harm, each at most once, whatever dies meanwhile.
//
// # Processes
//
//	server ──unix socket──▶ supervisor ──socket pair──▶ guest ──▶ bash, rg, …
//	                        one per session             first process of the sandbox
//
// All three are the same program: Reexec, called first in main, recognises which one it is. The *server* holds nothing
// of a sandbox in memory. The *supervisor* belongs to one session, is started by the first Run, has its own operating
// system session and no descriptor of the server's, and outlives it; it is found again through a socket in the session's
// directory. The *guest* runs the official toolset inside the isolation. The guest dies with the supervisor; the
// supervisor does not die with the guest, and starts another for the next call, with the same files.
//
// # Authority
//
// A lock on a file in the session's directory decides who may touch its journal of calls, its socket and its sandbox. The
// kernel releases it when the holder dies. A supervisor holds it from its start to its end, so there is never a second
// one, whoever starts it and how often; one that finds it taken goes away. A server takes it only where no supervisor
// lives: to acknowledge, forestall, clean up and destroy. Nobody else reads or writes the journal.
//
// # A call
//
//	                 Run
//	never heard of ───────▶ waiting ───────▶ started ───────▶ ended ─────────────▶ acknowledged
//	      │                    │     record is    │   receipt is    │  Acknowledge:
//	      │ Interrupt          │     durable      │   durable       │  a mark stays
//	      └────────────────────┴─ receipt: it did not run ──────────┘
//
// What is durable when:
//   - the *started* record is on disk before the guest hears of the call. Without it, nothing of the call can have happened.
//   - the *receipt* is on disk before any server is told the result. It is the result, for ever, until acknowledged.
//   - an acknowledged call leaves a mark, so that a request which was held up on its way cannot run it again.
//   - waiting is not durable: such a call is as good as never heard of.
//
// Run of a call is therefore safe to repeat, by any server, any number of times, also concurrently.
//
// # What can die
//
//	the server                    the call goes on; Run by the next server waits for it or returns the receipt
//	the server, for ServerGone    the supervisor lets the call end, keeps the receipt, ends itself; the files stay
//	the supervisor, no record     the sandbox dies with it; the call had not begun: Run starts it
//	the supervisor, started       ErrOutcomeUnknown; a Repeatable call is run again
//	the supervisor, receipt       Run returns the receipt
//	the guest (memory, kill)      the supervisor saw it: the call's receipt is an error result that says that the sandbox
//	                              ended while it ran, with the output so far. That it may have had effects is certain
//	                              knowledge, which asking again would not improve, so it is final even if Repeatable
//	the guest, while it starts    no record yet: it is started again, some times; so is a supervisor
//	the guest does not answer     the supervisor ends the sandbox: as above
//	the disk is full              no started record: Run fails and the call did not run. No receipt: the server is told the
//	                              result all the same (its own log is durable), and the supervisor keeps it while it lives
//	the machine                   as the supervisor; records that were synced are there
//
// A supervisor that is stopped ends its sandbox and writes such receipts. Between a supervisor's death and its successor's
// first call, the successor kills what may be left of the sandbox and waits until it is gone, so that two sandboxes are
// never in one workspace.
//
// # Two programs, two versions
//
// A supervisor may be older than the server. It says first which protocol it speaks and which it still understands; a
// server that shares none with it fails with a *VersionError, and neither guesses nor kills.
//
// # What a call may leave
//
// Calls of bash and grep run one after the other, those of the other tools beside them. A command that ends leaves its
// background jobs running, as on any shell. One that is interrupted or runs out of time is killed with everything that it
// started, however detached. A sandbox in which no call has run for Limits.Idle ends, with its jobs. Output of more than
// 100 000 characters is a file in /mnt/session/tool_results, of which the model is given the beginning and the end.
package sandbox
