package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Environment variables that steer the build.
const (
	// BinaryVariable names a perdure binary to use in place of a build without tags.
	BinaryVariable = "PERDURE_TEST_BINARY"
	// RaceVariable, if it is not empty, builds with the race detector.
	RaceVariable = "PERDURE_TEST_RACE"
)

// builds holds the binaries of this test process, one for each set of tags.
var builds struct {
	sync.Mutex
	dir  string
	made map[string]func() (string, error)
}

// Main runs the tests of a package and removes what the harness made for them. TestMain must call it.
func Main(m *testing.M) {
	code := m.Run()
	if err := stopShared(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	builds.Lock()
	if builds.dir != "" {
		_ = os.RemoveAll(builds.dir)
	}
	builds.Unlock()
	os.Exit(code)
}

// Binary builds perdure with the build tags, once for each set of tags, and answers its path.
func Binary(tags ...string) (string, error) {
	if given := os.Getenv(BinaryVariable); given != "" && len(tags) == 0 {
		return filepath.Abs(given)
	}
	tags = slices.Sorted(slices.Values(tags))
	key := strings.Join(tags, ",")
	builds.Lock()
	if builds.made[key] == nil {
		if builds.made == nil {
			builds.made = map[string]func() (string, error){}
		}
		builds.made[key] = sync.OnceValues(func() (string, error) { return build(key) })
	}
	once := builds.made[key]
	builds.Unlock()
	return once()
}

func build(tags string) (string, error) {
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "perdure-"+strings.ReplaceAll(tags, ",", "-"))
	args := []string{"build", "-o", binary}
	if tags != "" {
		args = append(args, "-tags", tags)
	}
	if os.Getenv(RaceVariable) != "" {
		args = append(args, "-race")
	}
	command := exec.Command("go", append(args, "./cmd/perdure")...)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build perdure: %w\n%s", err, output)
	}
	return binary, nil
}

func buildDir() (string, error) {
	builds.Lock()
	defer builds.Unlock()
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "perdure-test-")
		if err != nil {
			return "", err
		}
		builds.dir = dir
	}
	return builds.dir, nil
}

// Root is the directory of the module.
func Root() (string, error) {
	output, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(string(bytes.TrimSpace(output))), nil
}
