package scripted

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/goccy/go-yaml"
)

// Limits of a script. They keep a mistake in a file from taking the process down, not from being slow.
const (
	maxFile   = 1 << 20 // bytes
	maxSteps  = 10_000
	maxRepeat = 1_000_000
)

// Script is a conversation as the model's side will play it. The package documentation is its reference.
type Script struct {
	Name        string `yaml:"-"`
	Description string `yaml:"description"`
	Defaults    Pace   `yaml:"defaults"`
	Rules       []Step `yaml:"rules"`
	Steps       []Step `yaml:"steps"`
	Otherwise   *Step  `yaml:"otherwise"`
}

// Pace is how fast an answer comes.
type Pace struct {
	Delay      *time.Duration `yaml:"delay"`       // before the first byte
	DeltaDelay *time.Duration `yaml:"delta_delay"` // between two deltas
	DeltaSize  int            `yaml:"delta_size"`  // characters of a delta
}

// Step is one answer of the model, or one way in which it fails to give one.
type Step struct {
	When    *When   `yaml:"when"`
	Repeat  int     `yaml:"repeat"`
	Text    *string `yaml:"text"`
	Answer  []Block `yaml:"answer"`
	Pace    `yaml:",inline"`
	Stop    string   `yaml:"stop"`
	Refusal *Refusal `yaml:"refusal"`
	Usage   *Usage   `yaml:"usage"`
	Fail    *Failure `yaml:"fail"`
	Break   *Break   `yaml:"break"`
}

// When is a condition on what came since the model's last answer. All that is set must hold.
type When struct {
	User   string `yaml:"user"`   // is part of the text of a user message
	Result string `yaml:"result"` // is part of a tool result
	Error  *bool  `yaml:"error"`  // whether a tool result is an error
	System string `yaml:"system"` // is part of the system prompt
}

// Block is one content block of an answer. Exactly one of Text, Thinking, RedactedThinking, Tool and Raw is set.
type Block struct {
	Text             *string `yaml:"text"`
	Thinking         *string `yaml:"thinking"`
	Signature        string  `yaml:"signature"`
	RedactedThinking string  `yaml:"redacted_thinking"`
	Tool             string  `yaml:"tool"`
	ID               string  `yaml:"id"`
	Input            any     `yaml:"input"`
	RawInput         *string `yaml:"raw_input"`
	Raw              string  `yaml:"raw"`

	input string // Input as JSON text, made by prepare
}

// Refusal is the reason that goes with the stop reason of that name.
type Refusal struct {
	Category    string `yaml:"category"`
	Explanation string `yaml:"explanation"`
}

// Usage overrides the numbers that are otherwise estimated from the lengths of request and answer.
type Usage struct {
	Input        int64 `yaml:"input"`
	Output       int64 `yaml:"output"`
	CacheRead    int64 `yaml:"cache_read"`
	CacheWrite   int64 `yaml:"cache_write"`
	CacheWrite1h int64 `yaml:"cache_write_1h"`
	WebSearches  int64 `yaml:"web_searches"`
	Fast         bool  `yaml:"fast"`
}

// Failure is an HTTP error in place of an answer.
type Failure struct {
	Times      int           `yaml:"times"` // the first so many attempts; 0 is every attempt
	Status     int           `yaml:"status"`
	Type       string        `yaml:"type"`
	Message    string        `yaml:"message"`
	RetryAfter time.Duration `yaml:"retry_after"`
}

// Break is an answer that begins and does not end as it should.
type Break struct {
	Times           int    `yaml:"times"` // the first so many attempts that were not failed; 0 is every attempt
	How             string `yaml:"how"`   // error | end | cut | stall | pings
	AfterCharacters *int   `yaml:"after_characters"`
	AfterBlocks     *int   `yaml:"after_blocks"`
	BeforeStop      bool   `yaml:"before_stop"`
	Type            string `yaml:"type"`    // of the error event; overloaded_error if empty
	Message         string `yaml:"message"` // of the error event
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Parse reads a script. Unknown and repeated keys are errors that give the line. The name is what comes after "scripted/"
// in the model id: lower-case letters, digits, dots, dashes and underscores, at most 64.
func Parse(name string, source []byte) (*Script, error) {
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("script %q: the name must be made of a-z, 0-9, dot, dash and underscore, and be at most 64 characters long", name)
	}
	if len(source) > maxFile {
		return nil, fmt.Errorf("script %s: %d bytes, the limit is %d", name, len(source), maxFile)
	}
	script := &Script{Name: name}
	if err := yaml.UnmarshalWithOptions(source, script, yaml.Strict(), yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	if err := script.prepare(); err != nil {
		return nil, fmt.Errorf("script %s: %w", name, err)
	}
	return script, nil
}

func (s *Script) prepare() error {
	if len(s.Steps) == 0 && len(s.Rules) == 0 && s.Otherwise == nil {
		return errors.New("it has no steps: give at least one entry under steps, rules or otherwise")
	}
	if len(s.Steps)+len(s.Rules) > maxSteps {
		return fmt.Errorf("it has more than %d steps; use repeat", maxSteps)
	}
	for i := range s.Rules {
		rule := &s.Rules[i]
		if rule.When == nil {
			return fmt.Errorf("rules[%d]: a rule needs when; what is always played belongs under steps", i)
		}
		if rule.Repeat != 0 {
			return fmt.Errorf("rules[%d]: repeat has no meaning here, a rule is played whenever it matches", i)
		}
		if err := rule.prepare(s.Defaults); err != nil {
			return fmt.Errorf("rules[%d]%w", i, err)
		}
	}
	for i := range s.Steps {
		if err := s.Steps[i].prepare(s.Defaults); err != nil {
			return fmt.Errorf("steps[%d]%w", i, err)
		}
	}
	if s.Otherwise != nil {
		if s.Otherwise.When != nil || s.Otherwise.Repeat != 0 {
			return errors.New("otherwise is played when nothing else is left: it takes neither when nor repeat")
		}
		if err := s.Otherwise.prepare(s.Defaults); err != nil {
			return fmt.Errorf("otherwise%w", err)
		}
	}
	return s.Defaults.check()
}

func (p Pace) check() error {
	switch {
	case p.Delay != nil && *p.Delay < 0:
		return errors.New(": delay must not be negative")
	case p.DeltaDelay != nil && *p.DeltaDelay < 0:
		return errors.New(": delta_delay must not be negative")
	case p.DeltaSize < 0:
		return errors.New(": delta_size must not be negative")
	}
	return nil
}

func (s *Step) prepare(defaults Pace) error {
	if err := s.check(); err != nil {
		return fmt.Errorf(": %w", err)
	}
	if err := s.Pace.check(); err != nil {
		return err
	}
	if s.Text != nil {
		s.Answer = []Block{{Text: s.Text}}
	}
	for i := range s.Answer {
		if err := s.Answer[i].prepare(); err != nil {
			return fmt.Errorf(".answer[%d]: %w", i, err)
		}
	}
	if s.Delay == nil {
		s.Delay = defaults.Delay
	}
	if s.DeltaDelay == nil {
		s.DeltaDelay = defaults.DeltaDelay
	}
	if s.DeltaSize == 0 {
		s.DeltaSize = defaults.DeltaSize
	}
	s.Repeat = max(s.Repeat, 1)
	return nil
}

func (s *Step) check() error {
	if s.Text != nil && s.Answer != nil {
		return errors.New("give either text or answer, not both")
	}
	if s.Repeat < 0 || s.Repeat > maxRepeat {
		return fmt.Errorf("repeat must be from 0 to %d", maxRepeat)
	}
	switch s.Stop {
	case "", "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn", "model_context_window_exceeded":
	default:
		return fmt.Errorf("stop: %q is not a stop reason", s.Stop)
	}
	if s.Refusal != nil && s.Stop != "" && s.Stop != "refusal" {
		return errors.New("refusal goes with no other stop reason")
	}
	if w := s.When; w != nil && *w == (When{}) {
		return errors.New("when has no condition: give user, result, error or system")
	}
	if f := s.Fail; f != nil && (f.Times < 0 || f.RetryAfter < 0 || f.Status != 0 && (f.Status < 400 || f.Status > 599)) {
		return errors.New("fail: status must be from 400 to 599, times and retry_after not negative")
	}
	if s.Break != nil {
		return s.Break.check()
	}
	return nil
}

func (b *Break) check() error {
	switch b.How {
	case "error", "end", "cut", "stall", "pings":
	default:
		return fmt.Errorf("break: how is %q, it must be error, end, cut, stall or pings", b.How)
	}
	places := 0
	for _, given := range []bool{b.AfterCharacters != nil, b.AfterBlocks != nil, b.BeforeStop} {
		if given {
			places++
		}
	}
	if places > 1 {
		return errors.New("break: give one of after_characters, after_blocks and before_stop")
	}
	if b.Times < 0 || b.AfterCharacters != nil && *b.AfterCharacters < 0 || b.AfterBlocks != nil && *b.AfterBlocks < 0 {
		return errors.New("break: numbers must not be negative")
	}
	return nil
}
