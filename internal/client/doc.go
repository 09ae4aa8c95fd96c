// Package client is what the perdure command needs of a Perdure server: a few requests of the Managed Agents API, and a
// session's events followed through broken connections and restarts of the server.
//
// # What Follow promises
//
// The server is authoritative; the client only remembers where it is. A persisted event is given exactly once, in the
// order of the log, from the moment that Follow was called until its context ends, whatever happens to the connection in
// between. Previews (event_start, event_delta) have no place in the log: they come at most once and may be lost.
//
//   - Each connection is opened first, and history is read after it, so that no event falls between the two. The ids of
//     what was given are remembered, so that what comes both ways is given once.
//   - Where the server sends SSE ids, the next connection begins after the last one with Last-Event-ID. A server that
//     knows no such cursor is asked for the end of its history instead, back to the last event that was given.
//   - A connection on which nothing comes for Options.Silence, not even a ping, is taken for dead.
//   - Without a connection for Options.Patience, Follow gives up. A refusal (401, 404, …) ends it at once.
//
// # Requests
//
// Every POST carries an Idempotency-Key, so one whose answer was lost is safely sent again. Requests are repeated for
// Options.Patience when the server cannot be reached or says that it is busy; other refusals are returned as *Error.
// CreateKey is the exception to both.
//
// Answers are untrusted: their sizes are bounded, and nothing of them is fit for a terminal before it was cleaned.
package client
