// Package resource holds agents, environments, sessions, session resources, files and content blocks as they are on the
// wire: their types, the strict reading of requests, their rules, and the way a request changes a stored object.
//
// It is pure. It knows no clock, no database and no network: a caller gives ids and times, and decides whether a thing
// that a request names exists.
//
// What must stay true:
//
//   - A request is read in three steps, and the first step that finds something wrong decides the answer: syntax (is it
//     JSON, with no key twice, in valid Unicode, not too deep), shape (types, words, unknown fields), then meaning
//     (limits, references). Within a step the first problem in the order of reading is the one that is told.
//   - Every refusal is a *problem.Error and names the place, in the form tools[0].configs[0].name.
//   - Objects are resolved: what was left out is filled in when it is stored, so reading never fills in anything and the
//     same object always has the same bytes.
//   - What we answer is accepted as a request: fields that only a server sets are then ignored, and sending an object
//     back as its own update changes nothing.
//   - Stored objects are never changed in place: an update returns another object, which may share unchanged parts.
package resource
