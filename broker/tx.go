package broker

import (
	"context"
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
)

// Bounds of a transaction.
const (
	txPublishesMax  = 16384
	txCopiesMax     = 65536   // messages times queues; a single message may have more
	txBytesMax      = 8 << 20 // of encoded messages; a single one may be larger
	txRunsMax       = 1 << 17 // settlements of messages that do not follow each other
	txTakenWait     = 3 * time.Second
	txCatalogTries  = 20
	txCatalogPause  = 50 * time.Millisecond
	txGonePause     = 20 * time.Millisecond
	txSettleRunsMax = 4096 // of one operation
	txPublishBytes  = 256  // what a publish takes beside its message
)

// TxSettlement ends a delivery with the transaction.
type TxSettlement struct {
	Kind     SettleKind
	Delivery *Delivery
}

// transaction is what a transactional channel has published since the last commit
// or rollback.
type transaction struct {
	publishes []txPublish
	mandatory []txMandatory
	replies   []*directReply
	copies    int
	bytes     int
	// full is why a direct reply exceeded the bounds, or nil.
	full error
	// counted is what Broker.txBytes has of this transaction.
	counted int64
	// committed: everything this channel has published before is applied, or a part of
	// an earlier transaction.
	committed bool
}

type txPublish struct {
	exchange string
	op       fsm.Publish
	queues   []*catalog.Queue
	// to is where it goes, once the transaction is committed: a queue of queues may go on in another life by then.
	to []*txQueue
}

// txMandatory is a mandatory message and its queues.
type txMandatory struct {
	message []byte // encoded
	queues  []*catalog.Queue
}

// TxReturn is a mandatory message of a committed transaction that no queue has.
type TxReturn struct {
	Exchange, Key string
	Properties    amqp.RawProperties
	Body          []byte
}

// TxSelect makes the channel transactional: from now on Publish collects. Settlements are
// kept by the caller until TxCommit.
func (ch *Channel) TxSelect() {
	if ch.tx == nil {
		ch.tx = &transaction{}
	}
}

// TxRollback forgets what was published. The deliveries, of TxSettles, are the client's again: the time after which they
// are taken back from it begins anew.
func (ch *Channel) TxRollback(back []*Delivery) {
	ch.tx.reset(ch.conn.b)
	for _, d := range back {
		d.queue.reage(d)
	}
}

// TxSettles tells that the open transaction is going to settle deliveries of this channel. The client has done its work: until
// TxRollback they are not taken back from it, however long the commit takes. It does not block.
func (ch *Channel) TxSettles(ds ...*Delivery) {
	for _, d := range ds {
		d.queue.unage(d)
	}
}

func (t *transaction) reset(b *Broker) {
	b.txBytes.Add(-t.counted)
	*t = transaction{committed: t.committed}
}

// take counts a message, if it is within the bounds of a transaction and of the node.
func (t *transaction) take(b *Broker, copies, bytes int) error {
	n := len(t.publishes) + len(t.replies)
	if n >= txPublishesMax || n > 0 && (t.copies+copies > txCopiesMax || t.bytes+bytes > txBytesMax) {
		return Errorf(PreconditionFailed, "transaction exceeds %d messages, %d copies of messages or %d bytes", txPublishesMax, txCopiesMax, txBytesMax)
	}
	if err := t.count(b, bytes); err != nil {
		return err
	}
	t.copies += copies
	t.bytes += bytes
	return nil
}

// count counts what the transaction keeps, if it is within the bound of the node.
func (t *transaction) count(b *Broker, bytes int) error {
	counted := int64(bytes + txPublishBytes)
	if most := b.cfg.TxBytesMax; b.txBytes.Add(counted) > most && most > 0 {
		b.txBytes.Add(-counted)
		return Errorf(PreconditionFailed, "open transactions of the node exceed %d bytes", most)
	}
	t.counted += counted
	return nil
}

// collect keeps a routed publish until the commit; op has its message.
func (ch *Channel) collect(p *Publish, op fsm.Publish) error {
	t, exchange := ch.tx, p.Exchange
	if err := t.take(ch.conn.b, len(ch.targets), len(op.Message)); err != nil {
		return err
	}
	if p.Mandatory {
		t.mandatory = append(t.mandatory, txMandatory{op.Message, slices.Clone(ch.targets)})
	}
	op.Immediate = false // the gateway refuses it
	same := txPublish{exchange: exchange, op: op}
	for _, q := range ch.targets {
		if of := ch.opFor(q, op); of.TTLMillis != op.TTLMillis {
			t.publishes = append(t.publishes, txPublish{exchange: exchange, op: of, queues: []*catalog.Queue{q}}) // it waits there
		} else {
			same.queues = append(same.queues, q)
		}
	}
	if len(same.queues) > 0 {
		t.publishes = append(t.publishes, same)
	}
	return nil
}

// collectReply keeps a direct reply until the commit. A mandatory one counts as taken only
// if its requester is there now.
func (ch *Channel) collectReply(ctx context.Context, r *directReply, mandatory bool) (taken bool) {
	probe := directReply{probe: true, vhost: r.vhost, name: r.name}
	if mandatory && !ch.conn.b.directReply(ctx, &probe, true) {
		return false
	}
	t := ch.tx
	if err := t.take(ch.conn.b, 1, len(r.properties)+len(r.body)+replyOverheadBytes); err != nil {
		t.full = err
		return true
	}
	kept := *r
	kept.properties, kept.body = slices.Clone(r.properties), slices.Clone(r.body)
	t.replies = append(t.replies, &kept)
	return true
}

// TxCommit carries out what was published and the settlements, all of it or nothing, and
// begins the next transaction. An error of kind PreconditionFailed means that
// nothing was done; any other that the outcome is not known. Mandatory messages all of whose queues were deleted meanwhile are returned.
// See docs/adr/0007-transactions.md.
func (ch *Channel) TxCommit(ctx context.Context, settlements []TxSettlement) ([]TxReturn, error) {
	c := &commit{ch: ch, b: ch.conn.b, done: make(chan error, 1), order: !ch.tx.committed}
	c.publishes = ch.tx.publishes
	replies, full, mandatory := ch.tx.replies, ch.tx.full, ch.tx.mandatory
	defer c.b.txBytes.Add(-ch.tx.counted)
	ch.tx.counted = 0
	ch.tx.reset(c.b)
	if full != nil {
		return nil, full
	}
	for i := range c.publishes {
		p := &c.publishes[i]
		for _, q := range p.queues {
			x := c.queue(ch.conn.b.stream(q))
			x.q = q
			p.to = append(p.to, x)
			x.publishes++
			x.bytes += int64(p.op.BodyBytes)
		}
	}
	for _, m := range mandatory {
		to := make([]*txQueue, len(m.queues))
		for i, q := range m.queues {
			to[i] = c.queue(ch.conn.b.stream(q))
		}
		c.mandatory = append(c.mandatory, mandatoryPart{m.message, to})
	}
	runs := 0
	for _, s := range settlements {
		runs += c.queue(s.Delivery.queue).settle(s)
	}
	if runs > txRunsMax {
		return nil, Errorf(PreconditionFailed, "transaction exceeds %d settlements", txRunsMax)
	}
	if len(c.queues) == 0 {
		c.b.sendReplies(replies)
		return nil, nil
	}
	stopping := Errorf(Internal, "the transaction was not committed: the node is stopping")
	if c.b.ctx.Err() != nil {
		return nil, stopping
	}
	c.hold()
	if !c.b.tasks.start(c.run) {
		return nil, stopping
	}
	select {
	case err := <-c.done:
		if err == nil {
			ch.tx.committed = true
			for _, s := range settlements {
				ch.tally.settled(s.Kind, []*Delivery{s.Delivery})
			}
			ch.tally.flush(ch.conn.traffic, &ch.counts)
			c.count(settlements)
			c.b.sendReplies(replies)
		}
		return c.lost, err
	case <-ctx.Done():
		return nil, c.abandon()
	}
}

// sendReplies lets the direct replies of a committed transaction go. As ever, one that its
// requester cannot take is dropped.
func (b *Broker) sendReplies(list []*directReply) {
	for _, r := range list {
		b.directReply(b.ctx, r, false)
	}
}
