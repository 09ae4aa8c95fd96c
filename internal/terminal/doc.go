// Package terminal shows a session in a terminal.
//
// What models, tools and servers say is hostile until cleaned: an escape sequence can rewrite what a person sees, or type
// for them, and a bidirectional override can make one command look like another. So everything that is shown goes through
// Clean or a Cleaner, and only this package writes escape sequences. Screen is the single place that writes; Transcript
// turns events into what it writes; Approval is the conversation about one call that waits for a person.
//
// The agent's words go to standard output and all else to standard error, so that a redirected run keeps what was said.
package terminal
