package scripted

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/perdure/perdure/internal/model"
)

// Prefix is what the ids of scripted models begin with.
const Prefix = "scripted/"

// maxCounters bounds the attempts that are remembered. When it is reached all are forgotten, so that a script may fail
// once more often than it says.
const maxCounters = 10_000

//go:embed scripts/*.yaml
var builtin embed.FS

// Library holds scripts by name and counts attempts. It is safe for concurrent use.
type Library struct {
	mu       sync.Mutex
	scripts  map[string]*Script
	attempts map[attemptKey]int
}

// attemptKey names one answer of one session. The fingerprint is left out: a request that changes between attempts, for
// instance because the user wrote something, is still an attempt at the same answer.
type attemptKey struct {
	session, model, where string
	answer                int
}

// NewLibrary returns a library of the given scripts and no others.
func NewLibrary(scripts ...*Script) *Library {
	l := &Library{scripts: map[string]*Script{}, attempts: map[attemptKey]int{}}
	for _, script := range scripts {
		l.Add(script)
	}
	return l
}

// Builtin returns a library of the scripts that come with Perdure.
func Builtin() (*Library, error) {
	l := NewLibrary()
	scripts, err := fs.Sub(builtin, "scripts")
	if err != nil {
		return nil, fmt.Errorf("built-in scripts: %w", err)
	}
	if err := l.Load(scripts); err != nil {
		return nil, fmt.Errorf("built-in scripts: %w", err)
	}
	return l, nil
}

// Load adds each file *.yaml and *.yml at the top of a directory, under its name without the extension. A script replaces
// another of the same name. If any file is wrong, nothing is added, and the error names all that are.
func (l *Library) Load(directory fs.FS) error {
	entries, err := fs.ReadDir(directory, ".")
	if err != nil {
		return fmt.Errorf("reading the directory of scripts: %w", err)
	}
	var scripts []*Script
	var problems []error
	for _, entry := range entries {
		extension := path.Ext(entry.Name())
		if entry.IsDir() || extension != ".yaml" && extension != ".yml" {
			continue
		}
		source, err := readFile(directory, entry.Name())
		if err != nil {
			problems = append(problems, err)
			continue
		}
		script, err := Parse(strings.TrimSuffix(entry.Name(), extension), source)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		scripts = append(scripts, script)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for _, script := range scripts {
		l.Add(script)
	}
	return nil
}

func readFile(directory fs.FS, name string) ([]byte, error) {
	file, err := directory.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	// One byte more than allowed is enough for Parse to refuse it.
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

// Add adds a script, in place of one of the same name.
func (l *Library) Add(script *Script) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scripts[script.Name] = script
}

// Scripts returns all scripts in the order of their names.
func (l *Library) Scripts() []*Script {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.scripts), func(a, b *Script) int { return strings.Compare(a.Name, b.Name) })
}

// Answer finds the step that answers a request and fills it in. It counts the attempt if the step fails some attempts.
// The request's model may be written with or without Prefix. Errors are *model.Error, for which no retry helps.
func (l *Library) Answer(request model.Request) (*Answer, error) {
	name := strings.TrimPrefix(request.Model, Prefix)
	l.mu.Lock()
	script := l.scripts[name]
	l.mu.Unlock()
	if script == nil {
		return nil, &model.Error{Class: model.RequestFailed, Status: 404, Message: fmt.Sprintf(
			"there is no scripted model %q; there are: %s", Shown(name), strings.Join(l.names(), ", "))}
	}
	chosen, err := script.choose(request)
	if err != nil {
		return nil, &model.Error{Class: model.RequestFailed, Status: 400, Message: err.Error()}
	}
	answer := chosen.render(request)
	l.fault(answer, chosen, request)
	return answer, nil
}

// Shown makes a name that a client sent fit for an error message.
func Shown(name string) string { return model.Shorten(strings.ToValidUTF8(name, "\uFFFD"), 128) }

func (l *Library) names() []string {
	var names []string
	for _, script := range l.Scripts() {
		names = append(names, Prefix+script.Name)
	}
	return names
}

// fault decides whether this attempt is one of those that the step lets fail.
func (l *Library) fault(answer *Answer, chosen choice, request model.Request) {
	fail, broken := chosen.step.Fail, chosen.step.Break
	if fail == nil && broken == nil {
		return
	}
	key := attemptKey{session: request.Session, model: request.Model, where: chosen.where, answer: chosen.answer}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.attempts) >= maxCounters {
		clear(l.attempts)
	}
	l.attempts[key]++
	attempt := l.attempts[key]
	if fail != nil {
		if fail.Times == 0 || attempt <= fail.Times {
			answer.Failure = fail
			return
		}
		attempt -= fail.Times
	}
	if broken != nil && (broken.Times == 0 || attempt <= broken.Times) {
		answer.Break = broken
	}
}
