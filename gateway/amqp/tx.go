package amqp

import (
	"bytes"
	"slices"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/gateway/tags"
)

// tx is what a transactional channel keeps until the commit, under the channel's mutex;
// the messages are with the broker.
type tx struct {
	acks    []txAck
	returns []heldMessage
	bytes   int // of returns
	// published counts the messages that the commit publishes, or returns.
	published int
}

// txAck is a settlement; a rollback makes its delivery unacked again.
type txAck struct {
	tag      uint64
	kind     broker.SettleKind
	delivery *broker.Delivery
}

// Bounds of the messages that a transaction will return.
const (
	txReturnsMax     = 4096
	txReturnBytesMax = 4 << 20 // one message may exceed it
)

// settled counts the deliveries that end with the commit.
func (t *tx) settled() int {
	if t == nil {
		return 0
	}
	return len(t.acks)
}

// publishes counts the messages that end with the commit.
func (t *tx) publishes() int {
	if t == nil {
		return 0
	}
	return t.published
}

// txMethod handles tx.select, commit and rollback. The reader does nothing else of the
// connection until a commit has its answer.
func (ch *channel) txMethod(m wire.Method) error {
	if _, selects := m.(*wire.TxSelect); !selects && ch.tx == nil {
		return wire.Errorf(wire.PreconditionFailed, m.ID(), "channel is not transactional")
	}
	switch m.(type) {
	case *wire.TxSelect:
		if ch.confirm {
			return wire.Errorf(wire.PreconditionFailed, m.ID(), "cannot switch from confirm to tx mode")
		}
		ch.mu.Lock()
		if ch.tx == nil {
			ch.tx = &tx{}
		}
		ch.mu.Unlock()
		ch.broker.TxSelect()
		ch.reply(&wire.TxSelectOk{})
		return nil
	case *wire.TxCommit:
		return ch.commit()
	case *wire.TxRollback:
		ch.mu.Lock()
		defer ch.mu.Unlock()
		back := make([]*broker.Delivery, len(ch.tx.acks))
		for i, a := range ch.tx.acks {
			back[i] = a.delivery
		}
		ch.broker.TxRollback(back)
		ch.unsettle()
		ch.replyLocked(&wire.TxRollbackOk{})
		return nil
	}
	return unexpectedMethod(m.ID())
}

// commit carries the transaction out; returns go to the client before commit-ok.
func (ch *channel) commit() error {
	ch.mu.Lock()
	settlements := make([]broker.TxSettlement, len(ch.tx.acks))
	for i, a := range ch.tx.acks {
		settlements[i] = broker.TxSettlement{Kind: a.kind, Delivery: a.delivery}
	}
	ch.mu.Unlock()
	ctx, cancel := ch.c.operation()
	defer cancel()
	lost, err := ch.broker.TxCommit(ctx, settlements)
	if err != nil {
		return err
	}
	ch.mu.Lock()
	for _, a := range ch.tx.acks {
		ch.fetched.Take(a.tag)
	}
	for i := range ch.tx.returns {
		m := &ch.tx.returns[i]
		ch.giveBack(wire.NoRoute, m.exchange, m.key, m.props, m.body)
	}
	for i := range lost {
		m := &lost[i]
		ch.giveBack(wire.NoRoute, m.Exchange, m.Key, m.Properties, m.Body)
	}
	*ch.tx = tx{}
	ch.replyLocked(&wire.TxCommitOk{})
	ch.openGate()
	ch.mu.Unlock()
	ch.c.out.waitRoom()
	return nil
}

// unsettle makes unacked again what the transaction has settled, in the order of delivery,
// and forgets the rest of it; called with mu held.
func (ch *channel) unsettle() {
	back := ch.tx.acks
	*ch.tx = tx{}
	if len(back) == 0 || ch.silent {
		return
	}
	for tag, d := range ch.unacked.All() {
		back = append(back, txAck{tag: tag, delivery: d})
	}
	slices.SortFunc(back, func(a, b txAck) int {
		if a.tag < b.tag {
			return -1
		}
		return 1
	})
	ch.unacked = tags.List[*broker.Delivery]{}
	for _, a := range back {
		ch.unacked.Push(a.tag, a.delivery)
	}
}

// ackInTx notes the end of deliveries for the commit.
func (ch *channel) ackInTx(kind broker.SettleKind, tag uint64, multiple bool) (n int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	take := func(tag uint64) {
		if d, ok := ch.unacked.Take(tag); ok {
			ch.tx.acks = append(ch.tx.acks, txAck{tag, kind, d})
			ch.broker.TxSettles(d)
			n++
		}
	}
	switch {
	case !multiple:
		take(tag)
	case tag == 0 || ch.unacked.Find(tag) >= 0:
		for low, ok := ch.unacked.Lowest(); ok && (tag == 0 || low <= tag); low, ok = ch.unacked.Lowest() {
			take(low)
		}
	}
	return n
}

// keepReturn keeps a mandatory message without a queue until the commit.
func (ch *channel) keepReturn(props wire.RawProperties, body []byte) error {
	m := &ch.publish.method
	if !m.Mandatory {
		return nil
	}
	kept := heldMessage{exchange: m.Exchange, key: m.RoutingKey, props: props.Clone(), body: bytes.Clone(body)}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	t := ch.tx
	if len(t.returns) >= txReturnsMax || len(t.returns) > 0 && t.bytes+kept.bytes() > txReturnBytesMax {
		return wire.Errorf(wire.PreconditionFailed, wire.MethodBasicPublish,
			"unroutable messages of the transaction exceed %d or %d bytes", txReturnsMax, txReturnBytesMax)
	}
	t.bytes += kept.bytes()
	t.returns = append(t.returns, kept)
	return nil
}
