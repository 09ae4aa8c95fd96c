// Package behaviour tests what sessions do, from outside: a whole server in this process, reached over HTTP, with a real
// sandbox and a model behind a real connection that refuses what Anthropic's API refuses.
//
// Every conversation ends with the checks that hold whatever a test was about (see conversation.check): the strict model
// refused nothing, calls and results pair up, all ways to read the log agree, what the model was sent only ever grew, the
// usage is the sum of what the model reported, and nothing is left of the session once it is deleted.
package behaviour
