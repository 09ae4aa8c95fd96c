// Package scripted is a model that plays scripts. It costs nothing, needs no key and always says the same, so it serves
// to try Perdure, to test an agent's tools and policies, and to make a failure of the model happen on purpose.
//
// The format of scripts is described for users in docs/scripted-models.md, whose examples the tests run.
//
// The step that answers a request is a function of the request, that is of the conversation so far: a server that was
// restarted, or another server, goes on where the session was. The attempts that a step is to fail are the only thing
// that is counted in the memory of the process.
package scripted
