// Package kill holds tests that kill the real server with SIGKILL, at named points and at random, start it again on the
// same data, and check that nothing was lost, repeated or left behind.
//
// # What a test is made of
//
// A world is a server in a process of its own and a strict scripted model in the test's process, which outlives the
// server: it counts what it was asked for, and refuses what the real API refuses. The server is the perdure binary, built
// with the tag failpoint, so that a test can name the point at which the process kills itself.
//
// A conversation is one session with a client that follows its stream over all deaths of the server, from the position
// that it has reached. What this client saw is later compared with what the server lists: each event once, in order.
//
// Side effects are counted in the sandbox: each command of a script adds a line to a file, which the agent itself is
// asked to print in the end.
//
// # What is checked after every case
//
//  1. The model refused no request.
//  2. Each call has one result, each request one end; ids are unique; all ways to read the log agree.
//  3. The session does not stay running.
//  4. A plain message is answered, before and after another kill.
//  5. The session's usage is the sum of its requests' and what the model reported.
//  6. Each counter is what was expected.
//  7. When the session is deleted and the server stopped, no process is left.
//
// Nothing waits by time: a wait is for an event, a process or a file, with a bound after which the test fails.
package kill
