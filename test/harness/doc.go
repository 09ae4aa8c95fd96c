// Package harness runs the real perdure binary for tests.
//
// A Server is one data directory and, while it runs, one process on it. Kill ends the process as a power cut would,
// Restart starts another on the same data and the same address, so a client keeps its base URL. The process gets an empty
// environment but for a search path and a home of its own: no key or setting of the machine reaches it.
//
// Nothing waits by time. A start waits for the line that the binary prints when it serves, an end waits for the process
// itself, and each wait has a bound after which the test fails with the log of the server.
//
// What a server leaves behind is part of the test: when the test ends, the server is asked to stop, and every process that
// was started from its binary must be gone soon after. Each server runs from a file name of its own, so its processes can be
// told from those of other tests. Supervisors of sandboxes outlive their server on purpose; they are ended here, and then
// nothing they ran may remain.
package harness
