package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// ledger is what clients have seen and done.
type ledger struct {
	mu sync.Mutex
	// settled are the settlements clients have made, by node number.
	settled   map[settlement]map[uint32]bool
	delivered map[message]sighting
	publishes map[string]*publish // by body
	txs       []*txRecord
}

type message struct {
	queue uint64
	id    queue.MessageID
}

type settlement struct {
	message
	attempt uint32
	kind    fsm.SettleKind
}

type sighting struct {
	at          time.Time
	node        string
	n           int
	attempt     uint32
	redelivered bool
}

func (s sighting) String() string {
	return fmt.Sprintf("%d deliveries before, the last %v ago on %s, attempt %d, redelivered %v", s.n, time.Since(s.at), s.node, s.attempt, s.redelivered)
}

type publishState uint8

const (
	sent publishState = iota
	confirmed
	refused
	unknown // its node died first
	unrouted
)

type publish struct {
	body, queue string
	node        string
	state       publishState
	at          time.Time
	again       bool // it is sent again until its fate is known
}

func newLedger() *ledger {
	return &ledger{settled: map[settlement]map[uint32]bool{}, delivered: map[message]sighting{}, publishes: map[string]*publish{}}
}

func (l *ledger) settle(node uint32, kind fsm.SettleKind, d *broker.Delivery) {
	q, id, attempt := d.Place()
	key := settlement{message{q, id}, attempt, kind}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled[key] == nil {
		l.settled[key] = map[uint32]bool{}
	}
	l.settled[key][node] = true
}

func (l *ledger) settledBy(q uint64, id queue.MessageID, attempt uint32, o fsm.Origin, kind fsm.SettleKind) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled[settlement{message{q, id}, attempt, kind}][o.Node]
}

// settledByAny is settledBy for a settlement that came by another queue.
func (l *ledger) settledByAny(q uint64, id queue.MessageID, attempt uint32, kind fsm.SettleKind) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.settled[settlement{message{q, id}, attempt, kind}]) > 0
}

// staleMax is how long a deposed leader may go on delivering under its lease.
const staleMax = 2500 * time.Millisecond

// deliver records a delivery. It returns the one before if this one should have been
// marked as redelivered and was not.
func (l *ledger) deliver(node string, d *broker.Delivery) *sighting {
	q, id, attempt := d.Place()
	key := message{q, id}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.delivered[key]
	now := sighting{time.Now(), node, s.n + 1, attempt, d.Redelivered}
	l.delivered[key] = now
	if s.n > 0 && !d.Redelivered && (s.node == node || time.Since(s.at) > staleMax) {
		return &s
	}
	return nil
}

func (l *ledger) publish(node, body, queue string) *publish {
	p := &publish{body: body, queue: queue, node: node, at: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.publishes[body] = p
	return p
}

func (l *ledger) end(p *publish, s publishState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state == sent {
		p.state = s
	}
}

// resend begins another attempt of a publish whose fate is not known.
func (l *ledger) resend(node string, p *publish) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.state, p.node, p.at = sent, node, time.Now()
}

// crashed makes the publishes of a node that have no answer unknown.
func (l *ledger) crashed(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.publishes {
		if p.node == node && p.state == sent {
			p.state = unknown
		}
	}
}

// waiting counts publishes without an answer and names one.
func (l *ledger) waiting() (n int, example *publish) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.publishes {
		if p.state == sent || p.state == unknown && p.again {
			n++
			example = p
		}
	}
	return n, example
}
