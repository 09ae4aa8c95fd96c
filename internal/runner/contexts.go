package runner

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/perdure/perdure/internal/session"
	"github.com/perdure/perdure/internal/store"
)

// contexts keeps the conversations of sessions that were driven lately, so that a turn does not read the log from its
// start. A conversation belongs to the drive that took it until it is put back.
type contexts struct {
	mu     sync.Mutex
	kept   map[string]*list.Element // of keptContext
	recent *list.List
	bytes  int
}

type keptContext struct {
	session string
	context *session.Context
	bytes   int
}

// maxContextBytes bounds what is kept in all.
const maxContextBytes = 256 << 20

func newContexts() *contexts {
	return &contexts{kept: map[string]*list.Element{}, recent: list.New()}
}

func (c *contexts) take(id string) *session.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.kept[id]
	if !ok {
		return nil
	}
	return c.remove(e).context
}

func (c *contexts) put(id string, ctx *session.Context) {
	if ctx == nil || ctx.Bytes() > maxContextBytes/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.kept[id]; ok {
		c.remove(e)
	}
	k := keptContext{session: id, context: ctx, bytes: ctx.Bytes()}
	c.kept[id] = c.recent.PushFront(k)
	c.bytes += k.bytes
	for c.bytes > maxContextBytes {
		c.remove(c.recent.Back())
	}
}

func (c *contexts) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.kept[id]; ok {
		c.remove(e)
	}
}

func (c *contexts) remove(e *list.Element) keptContext {
	k := e.Value.(keptContext)
	c.recent.Remove(e)
	delete(c.kept, k.session)
	c.bytes -= k.bytes
	return k
}

// conversation is what the model sees at the head of the log that the drive knows.
func (d *drive) conversation(ctx context.Context, model string) ([]session.Message, error) {
	if d.context == nil {
		d.context = d.contexts.take(d.lease.Session)
	}
	if d.context == nil || d.context.Model() != model {
		d.context = session.NewContext(model, d.fileBlock(ctx))
	}
	for d.context.Seq() < d.state.Seq {
		var events []session.Event
		err := d.Store.In(d.lease.Workspace).View(ctx, func(r store.Reader) (err error) {
			events, err = r.Events(d.lease.Session, store.EventQuery{
				After: d.context.Seq(), Limit: logPage, MaxBytes: logPageBytes, All: true,
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			return nil, fmt.Errorf("runner: the log of session %s ends at %d, and %d was read from it before", d.lease.Session, d.context.Seq(), d.state.Seq)
		}
		if err := d.context.Fold(events...); err != nil {
			return nil, err
		}
	}
	return d.context.Messages(), nil
}

// Bounds of one read of a log.
const (
	logPage      = 512
	logPageBytes = 16 << 20
)

// foldContext folds in what this drive has just appended, if nothing is missing before it.
func (d *drive) foldContext(step *session.Step) {
	if d.context == nil || d.context.Seq() != step.Head() {
		return
	}
	if err := d.context.Fold(step.Events...); err != nil {
		d.log.Error("the conversation is read again from the log", "error", err)
		d.context = nil
	}
}
