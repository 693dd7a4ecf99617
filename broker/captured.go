package broker

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
)

// Led is a replicated queue that this node leads, in a term of its log.
type Led struct{ Queue, Term uint64 }

// Led lists the queues of which a leader here has applied all that earlier ones got into the log, by id.
func (b *Broker) Led() []Led {
	var list []Led
	for _, h := range b.queues.all() {
		if term, ok := h.led(); ok {
			list = append(list, Led{h.id, term})
		}
	}
	slices.SortFunc(list, func(a, b Led) int {
		if a.Queue < b.Queue {
			return -1
		}
		return 1
	})
	return list
}

// led returns the term in which the leader here has begun to serve.
func (h *hosted) led() (term uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term, !h.removed && h.group != nil && h.q.Kind == catalog.Replicated && h.leads != nil && h.leads.Opened()
}

// capturable is a Group whose state can be taken for a backup.
type capturable interface {
	// KeepLog keeps what the log and its newest snapshot have until release is called, once.
	KeepLog() (release func())
	// ConfirmLeader waits, at most until then, for a proof that this replica has led in term at some moment after since. wait waits
	// and tells whether to go on.
	ConfirmLeader(term uint64, since, until time.Time, wait func(time.Duration) bool) error
	// OpenState opens a state as the stream of a snapshot, of size bytes.
	OpenState(index uint64, manifest []byte, pins []fsm.IndexRange) (r io.ReadCloser, size int64, err error)
}

// ErrNotLed tells that a queue is not led here in the given term.
var ErrNotLed = errors.New("broker: queue is not led here in that term")

// Capture takes the state of a queue that is led here in term. The caller ends it with Close, soon: until Open the log takes
// no snapshots.
func (b *Broker) Capture(queue, term uint64) (*Captured, error) {
	h := b.queues.get(queue)
	if h == nil {
		return nil, fmt.Errorf("capture queue %d: %w", queue, ErrNotLed)
	}
	h.mu.Lock()
	g, can := h.group.(capturable)
	h.mu.Unlock()
	if !can {
		return nil, fmt.Errorf("capture queue %d: %w", queue, ErrNotLed)
	}
	c := &Captured{Queue: queue, Term: term, group: g, release: g.KeepLog()}
	if now, ok := h.led(); !ok || now != term {
		c.Close()
		return nil, fmt.Errorf("capture queue %d: %w", queue, ErrNotLed)
	}
	c.Index, c.encode = h.replica.State()
	return c, nil
}

// Captured is the state of a queue at one moment. It belongs to one goroutine.
type Captured struct {
	Queue, Term uint64
	// Index is that of the newest entry in it.
	Index uint64

	group   capturable
	encode  func() (manifest []byte, pins []fsm.IndexRange)
	release func() // nil once called
}

// Confirm waits, at most until then, for a proof that nobody else has led the queue in a later term up to some moment after since.
func (c *Captured) Confirm(since, until time.Time, wait func(time.Duration) bool) error {
	return c.group.ConfirmLeader(c.Term, since, until, wait)
}

// Open opens the state as the stream of a snapshot, of size bytes; once.
func (c *Captured) Open() (r io.ReadCloser, size int64, err error) {
	manifest, pins := c.encode()
	c.encode = nil
	r, size, err = c.group.OpenState(c.Index, manifest, pins)
	c.Close()
	return r, size, err
}

// Close lets the log go on; what was opened stays open. It is safe twice.
func (c *Captured) Close() {
	if c.release != nil {
		c.release()
		c.release = nil
	}
}
