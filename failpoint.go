//go:build !failpoint

package perdure

// failpoint is called at the named points of a drive. Only builds for tests do something there.
func failpoint(string) {}
