package scripted

import (
	"context"
	"errors"
	"time"
)

// Listener is told of an answer as it is being given. A method that returns an error ends the play with it.
type Listener interface {
	Start() error // the answer has begun
	BlockStart(block int, part Part) error
	Delta(block int, part Part, text string) error // for text, thinking and tool_use
	BlockStop(block int, part Part) error
	BeforeStop() error // all blocks are complete and the stop reason is known; only the end is missing
	Ping() error
}

// ErrBroken is what Play returns when the script breaks the answer off.
var ErrBroken = errors.New("the script breaks the answer off here")

// pingInterval is the time between the pings of an answer that hangs.
const pingInterval = time.Second

// Play gives the answer to the listener at the pace of the script. It returns nil after the last block, ErrBroken where
// the script stops short with error, end or cut, and context.Cause(ctx) as soon as ctx ends, which is the only end of a
// stall.
func (a *Answer) Play(ctx context.Context, to Listener) error {
	if err := wait(ctx, a.delay); err != nil {
		return err
	}
	if err := to.Start(); err != nil {
		return err
	}
	p := &play{answer: a, to: to}
	if err := p.blocks(ctx); err != nil {
		return err
	}
	if err := to.BeforeStop(); err != nil {
		return err
	}
	if a.Break != nil {
		// Also where the script names a place that the answer does not reach.
		return p.breakOff(ctx)
	}
	return nil
}

type play struct {
	answer *Answer
	to     Listener
	sent   int  // characters of deltas
	any    bool // whether a delta has been sent
}

func (p *play) blocks(ctx context.Context) error {
	for i, part := range p.answer.Parts {
		if p.breaksAt(i) {
			return p.breakOff(ctx)
		}
		if err := p.to.BlockStart(i, part); err != nil {
			return err
		}
		if part.characters() > 0 {
			if err := p.deltas(ctx, i, part); err != nil {
				return err
			}
		}
		if err := p.to.BlockStop(i, part); err != nil {
			return err
		}
	}
	if p.breaksAt(len(p.answer.Parts)) {
		return p.breakOff(ctx)
	}
	return nil
}

func (p *play) deltas(ctx context.Context, block int, part Part) error {
	runes := []rune(part.Text)
	for len(runes) > 0 {
		size := min(p.answer.deltaSize, len(runes))
		if left, limited := p.charactersLeft(); limited {
			if left == 0 {
				return p.breakOff(ctx)
			}
			size = min(size, left)
		}
		if p.any {
			if err := wait(ctx, p.answer.deltaDelay); err != nil {
				return err
			}
		}
		if err := p.to.Delta(block, part, string(runes[:size])); err != nil {
			return err
		}
		p.any = true
		p.sent += size
		runes = runes[size:]
	}
	return nil
}

// breaksAt says whether the script breaks off when so many blocks are complete.
func (p *play) breaksAt(blocks int) bool {
	b := p.answer.Break
	switch {
	case b == nil || b.BeforeStop:
		return false
	case b.AfterBlocks != nil:
		return *b.AfterBlocks == blocks
	case b.AfterCharacters != nil:
		return *b.AfterCharacters == 0 && blocks == 0
	}
	return blocks == 0
}

func (p *play) charactersLeft() (left int, limited bool) {
	b := p.answer.Break
	if b == nil || b.AfterCharacters == nil {
		return 0, false
	}
	return max(*b.AfterCharacters-p.sent, 0), true
}

func (p *play) breakOff(ctx context.Context) error {
	switch p.answer.Break.How {
	case "stall":
		<-ctx.Done()
		return context.Cause(ctx)
	case "pings":
		for {
			if err := wait(ctx, pingInterval); err != nil {
				return err
			}
			if err := p.to.Ping(); err != nil {
				return err
			}
		}
	}
	return ErrBroken
}

func wait(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
