// Package anthropic serves models through the Anthropic Messages API, from Anthropic itself or from any server that
// speaks it.
//
// What goes out is a function of the request: the same model.Request makes the same bytes, and a request that continues
// another one begins with the same bytes, apart from the cache breakpoints. The members that change least come first
// (tools, system, messages), and content is written as it was given and never encoded again, because thinking blocks are
// only accepted unchanged and the provider's cache only finds equal prefixes.
//
// What comes back is put together from the stream block by block, keeping members and blocks that this package does not
// know. An answer counts only when the stream said so with message_stop. Everything else is an error: an error event, an
// early end, silence (see package attempt).
//
// Package model says what a provider owes; above all that this makes one attempt, so the client's retries are off.
package anthropic
