package conformance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/prerequisite"
	"github.com/perdure/perdure/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// limit bounds one suite with its installation.
const limit = 10 * time.Minute

func TestConformance(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(root, "test", "conformance")
	server := harness.Start(t, harness.Options{Scripts: filepath.Join(here, "scripts")})
	suite := func(name string, needs []string, commands ...[]string) {
		t.Run(name, func(t *testing.T) {
			for _, program := range needs {
				if _, err := exec.LookPath(program); err != nil {
					prerequisite.Missing(t, "%s is missing: install it to run this suite", program)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			for _, words := range commands {
				command := exec.CommandContext(ctx, words[0], words[1:]...)
				command.Dir = filepath.Join(here, name)
				command.Env = append(os.Environ(), "PERDURE_URL="+server.URL, "PERDURE_API_KEY="+server.APIKey)
				output, err := command.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %v\n%s", words, err, output)
				}
				t.Logf("%v:\n%s", words, output)
			}
		})
	}
	suite("ts", []string{"node", "npm"},
		[]string{"npm", "ci", "--no-audit", "--no-fund"},
		[]string{"npm", "test"})
	suite("python", []string{"python3"},
		[]string{"python3", "-m", "venv", ".venv"},
		[]string{".venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"},
		[]string{".venv/bin/python", "-W", "error::ResourceWarning", "-m", "unittest", "-v"})
}
