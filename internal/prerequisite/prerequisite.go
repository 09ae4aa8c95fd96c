// Package prerequisite says what a test may do without. On a developer's machine a test whose program or right is not there
// is skipped; in CI (CI=true) everything must be there, and a test that did not run must not look like one that passed.
package prerequisite

import (
	"os"
	"testing"
)

// Missing ends the test: it fails in CI and is skipped elsewhere.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI must run everything: "+format, args...)
	}
	t.Skipf(format, args...)
}
