package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/goccy/go-yaml"

	"github.com/perdure/perdure/internal/model"
)

// FileName is the configuration file in a data directory.
const FileName = "perdure.yaml"

const (
	prefix    = "PERDURE_"
	maxFile   = 1 << 20
	maxSecret = 64 << 10
)

// known are the variables with our prefix that are no fields of Config.
var known = []string{
	"PERDURE_CONFIG", "PERDURE_URL", "PERDURE_API_KEY", "PERDURE_API_KEY_FILE",
	"PERDURE_FAILPOINT", // in test builds
}

// Sources say where a configuration comes from.
type Sources struct {
	// File is the configuration file; "" takes PERDURE_CONFIG, or the one in the data directory if there is one.
	File string
	// Data is the data directory that the command line names; "" for none.
	Data string
	// Environ is the environment, as os.Environ returns it.
	Environ []string
	// Home is the user's home directory; "" if it is not known.
	Home string
}

// Loaded is a configuration with its defaults, not yet validated, so that the command line can be applied before.
type Loaded struct {
	Config
	// File is the file that was read; "" for none.
	File string
	// Warnings are for the operator.
	Warnings []string
}

// Load reads a configuration.
func Load(s Sources) (*Loaded, error) {
	environ := Environ(s.Environ)
	l := &Loaded{}
	fallback := ""
	if s.Home != "" {
		fallback = filepath.Join(s.Home, ".perdure")
	}
	data := first(s.Data, environ[prefix+"DATA"], fallback)
	l.File = first(s.File, environ[prefix+"CONFIG"])
	inData := l.File == ""
	if inData && data != "" {
		l.File = filepath.Join(data, FileName)
	}
	if l.File != "" {
		read, err := readYAML(l.File, &l.Config)
		switch {
		case errors.Is(err, os.ErrNotExist) && inData:
			l.File = ""
		case err != nil:
			return nil, err
		case inData && l.Data != "":
			return nil, fmt.Errorf("%s: %w", l.File, &FieldError{"data", "cannot be set in the file that is found in the data directory; use --data or PERDURE_DATA"})
		}
		// A file that others can read does not keep a key.
		if read != nil && read.Mode().Perm()&0o077 != 0 && slices.ContainsFunc(l.Providers, func(p Provider) bool { return p.APIKey != "" }) {
			l.Warnings = append(l.Warnings, fmt.Sprintf("%s holds a key and can be read by others; chmod 600 %s", l.File, l.File))
		}
	}
	if err := env.ParseWithOptions(&l.Config, env.Options{Environment: environ, Prefix: prefix}); err != nil {
		return nil, environmentError(err)
	}
	l.Data = first(s.Data, l.Data, fallback)
	if err := l.providersFromEnvironment(environ); err != nil {
		return nil, err
	}
	if err := l.keyFiles(); err != nil {
		return nil, err
	}
	l.Warnings = append(l.Warnings, unknown(environ)...)
	l.Config = l.WithDefaults()
	return l, nil
}

// Environ makes a map of an environment. Variables that are set to nothing are left out.
func Environ(environ []string) map[string]string {
	m := map[string]string{}
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); value != "" {
			m[name] = value
		}
	}
	return m
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// readYAML reads a file strictly.
func readYAML(name string, into *Config) (os.FileInfo, error) {
	text, info, err := readSmall(name, maxFile)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(into)
	if err != nil && !errors.Is(err, io.EOF) {
		// The source is left out of the message, since it may hold a key.
		return nil, &fileError{name: name, message: strings.TrimSpace(yaml.FormatError(err, false, false))}
	}
	return info, nil
}

type fileError struct{ name, message string }

func (e *fileError) Error() string { return e.name + ": " + e.message }

func readSmall(name string, most int64) ([]byte, os.FileInfo, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, fmt.Errorf("%s is a directory", name)
	}
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return text, info, err
}

// environmentError tells what is wrong without quoting the value.
func environmentError(err error) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return fmt.Errorf("environment: %w", err)
	}
	var problems []error
	for _, e := range all.Errors {
		var parse env.ParseError
		if errors.As(e, &parse) {
			problems = append(problems, fmt.Errorf("environment: the variable of %s cannot be read as %s", parse.Name, parse.Type))
			continue
		}
		problems = append(problems, fmt.Errorf("environment: %w", e))
	}
	return errors.Join(problems...)
}

// Secret reads a secret from a variable, or from the file that the variable with _FILE names; "" if neither is set.
func Secret(environ map[string]string, name string) (model.Secret, error) {
	file := environ[name+"_FILE"]
	switch {
	case file == "":
		return model.Secret(strings.TrimSpace(environ[name])), nil
	case environ[name] != "":
		return "", fmt.Errorf("environment: %s and %s_FILE cannot both be set", name, name)
	}
	return secretFile(file)
}

func secretFile(name string) (model.Secret, error) {
	text, _, err := readSmall(name, maxSecret)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("read a secret: %s is empty", name)
	}
	return model.Secret(secret), nil
}

// providersFromEnvironment adds the providers that the customary variables ask for, and completes those of the file that
// have the same name.
func (l *Loaded) providersFromEnvironment(environ map[string]string) error {
	for _, kind := range []string{"anthropic", "openai"} {
		variable := strings.ToUpper(kind)
		key, err := Secret(environ, variable+"_API_KEY")
		if err != nil {
			return err
		}
		base := environ[variable+"_BASE_URL"]
		at := slices.IndexFunc(l.Providers, func(p Provider) bool { return p.Name == kind })
		if at < 0 {
			if key != "" || kind == "openai" && base != "" {
				l.Providers = append(l.Providers, Provider{Name: kind, Kind: kind, BaseURL: base, APIKey: key})
			}
			continue
		}
		p := &l.Providers[at]
		if p.Kind == kind && p.APIKey == "" && p.APIKeyFile == "" {
			p.APIKey = key
		}
	}
	return nil
}

// keyFiles reads the keys that files hold.
func (l *Loaded) keyFiles() error {
	for i, p := range l.Providers {
		if p.APIKeyFile == "" || p.APIKey != "" {
			continue
		}
		key, err := secretFile(p.APIKeyFile)
		if err != nil {
			return &FieldError{fmt.Sprintf("providers[%d].api_key_file", i), err.Error()}
		}
		l.Providers[i].APIKey, l.Providers[i].APIKeyFile = key, ""
	}
	return nil
}

// unknown finds variables with our prefix that nothing reads.
func unknown(environ map[string]string) []string {
	names := slices.Clone(known)
	fields, err := env.GetFieldParamsWithOptions(&Config{}, env.Options{Prefix: prefix})
	if err != nil {
		return []string{"the names of the environment variables could not be checked: " + err.Error()}
	}
	for _, f := range fields {
		names = append(names, f.Key)
	}
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		if strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, prefix+"TEST_") && !slices.Contains(names, name) {
			warnings = append(warnings, "the environment variable "+name+" is not known and does nothing")
		}
	}
	return warnings
}

// YAML writes the configuration as a file that can be read again, with placeholders for secrets.
func (c Config) YAML() ([]byte, error) { return yaml.Marshal(c) }
