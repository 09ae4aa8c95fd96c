// Package mockserver is an HTTP server that speaks the Anthropic Messages API and plays scripts (package scripted).
//
// It serves POST /v1/messages, streamed or not, and GET /v1/models. It exists so that a client of the API, Perdure's own
// provider first of all, can be tested over a real connection: with the API's framing, its errors, its failures in the
// middle of a stream, and, in strict mode, its refusals. The model id is a script's name, with "scripted/" or without.
//
// Strict mode refuses with 400 what the real API refuses, since a client that was only tested against a lenient server
// finds out in production, where one bad block in a stored history makes every later request fail. It checks what can be
// checked without a model: JSON and Unicode; roles and the pairing of tool calls and results; empty texts; thinking that
// was altered or made by another model; tool names and schemas; images; cache breakpoints; sizes; unknown members.
//
// Which session a request belongs to is told by the header X-Perdure-Session, or metadata.user_id, or else by the first
// message. It only serves to count attempts and to tell requests apart in the record.
//
// # Concurrency
//
// A Server is safe for concurrent use. Each request is recorded once, when how it ends is certain: before the last
// bytes are sent, or when the client has gone away. Then the hook OnEnd runs; a record does not change afterwards. The answer to a request depends on the request and the number of
// attempts, never on what other sessions do, except for the simulated prompt cache, which all sessions share as they
// would at a provider.
package mockserver
