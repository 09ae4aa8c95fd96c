package sqlite_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/perdure/perdure/internal/prerequisite"
)

// The translated SQLite works with exactly the runtime library that it was made for; another version corrupts memory.
// Module resolution takes the highest version that any dependency asks for, so a new dependency can change it silently.
func TestLibcIsTheOneThatSQLiteRequires(t *testing.T) {
	requires := func(module string) map[string]string {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.GoMod}}", module).Output()
		if err != nil {
			prerequisite.Missing(t, "needs the go command and its module cache: %v", err)
		}
		path := string(out[:len(out)-1])
		out, err = exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Require []struct{ Path, Version string }
		}
		if err := json.Unmarshal(out, &file); err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, r := range file.Require {
			versions[r.Path] = r.Version
		}
		return versions
	}
	const libc = "modernc.org/libc"
	want := requires("modernc.org/sqlite")[libc]
	if want == "" {
		t.Fatalf("modernc.org/sqlite does not require %s any more: rewrite this test", libc)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", libc).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out[:len(out)-1]); got != want {
		t.Errorf("the build uses %s %s; modernc.org/sqlite requires exactly %s", libc, got, want)
	}
}
