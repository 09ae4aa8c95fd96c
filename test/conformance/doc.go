// Package conformance runs the official clients against the real binary, unmodified: they are given a base URL and a key,
// and nothing else.
//
//   - go: anthropic-sdk-go, as ordinary Go tests
//   - ts: @anthropic-ai/sdk, with node's test runner
//   - python: anthropic, with unittest
//   - wire: no client at all; what is on the wire, byte by byte
//   - scripts: the scripted models that all of them talk to
//
// TestConformance starts a server and runs the suites that are not written in Go. It installs what they need from their
// lock files. Where Node or Python is missing they are skipped, unless CI=true.
package conformance
