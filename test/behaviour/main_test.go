//go:build linux

package behaviour

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure"
)

// common is the server of all tests that need none of their own.
var common *world

// providerKey is what the model's server asks for. It must not appear anywhere else.
const providerKey = "sk-canary-7d1f0c55e2"

func TestMain(m *testing.M) {
	perdure.Reexec()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "perdure-behaviour-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if common, err = newWorld(dir, nil); err != nil {
		return 1, err
	}
	code = m.Run()
	if code != 0 && testing.Verbose() {
		fmt.Fprintf(os.Stderr, "the server's log:\n%s", common.log.String())
	}
	return code, errors.Join(common.end(), findSecret(common))
}

// findSecret is an error if the key of the provider is in the log or in the data of a server that was closed.
func findSecret(w *world) error {
	if bytes.Contains([]byte(w.log.String()), []byte(providerKey)) {
		return errors.New("the provider's key is in the log")
	}
	return filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil && bytes.Contains(content, []byte(providerKey)) {
			return fmt.Errorf("the provider's key is in %s", path)
		}
		return err
	})
}
