package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// txRecord is one transaction as its client knows it.
type txRecord struct {
	name      string
	publishes []*publish
	acks      []message
	state     publishState // as of its publishes; unrouted after a rollback
}

// txAnswered is a little less than the time after which a commit is answered although
// parts of it are still on their way.
const txAnswered = 2900 * time.Millisecond

// transactor moves messages between queues by transactions until the load ends.
func (w *World) transactor(name int) {
	for life := 0; w.loading(); life++ {
		n := w.nodes[w.rand(len(w.nodes))]
		c := w.dial(n)
		if c == nil {
			w.sleep(20 * time.Millisecond)
			continue
		}
		n.mu.Lock()
		work := n.work
		work.Add(1)
		n.mu.Unlock()
		c.ch.TxSelect()
		for i := 0; w.loading() && c.life.Err() == nil && w.transact(c, fmt.Sprintf("x%d.%d.%d", name, life, i)); i++ {
			pause(c.life, w.between(0, 20*time.Millisecond))
		}
		if c.life.Err() == nil {
			c.close()
		}
		work.Done()
	}
}

// transact makes one transaction; false means that the channel has ended with it.
func (w *World) transact(c *client, name string) (goesOn bool) {
	tx := &txRecord{name: name}
	list, from, ok := w.fetchSome(c)
	defer func() { from.holding.Add(-int64(len(list))); w.state.holding.Add(-int64(len(list))) }()
	if !ok {
		return false
	}
	for i := range 1 + w.rand(4) {
		q := w.state.specs[w.rand(len(w.state.specs))]
		body := fmt.Sprintf("%s-%d", name, i+1)
		routed, err := c.ch.Publish(c.life, &broker.Publish{Key: q.name, Properties: emptyProperties, Body: []byte(body)})
		if err != nil {
			w.expected(c, err, "publish in a transaction")
			return false
		}
		if routed {
			tx.publishes = append(tx.publishes, w.led.publish(c.n.id, body, q.name))
		}
	}
	var settlements []broker.TxSettlement
	c.ch.TxSettles(list...)
	for _, d := range list {
		kind := fsm.Ack
		if w.oneIn(5) {
			kind = fsm.Discard
		}
		q, id, _ := d.Place()
		tx.acks = append(tx.acks, message{q, id})
		settlements = append(settlements, broker.TxSettlement{Kind: kind, Delivery: d})
	}
	if w.oneIn(6) {
		c.ch.TxRollback(list)
		w.endTx(tx, unrouted)
		c.ch.Settle(fsm.RequeueFailed, list)
		c.ch.Flush()
		return true
	}
	for _, s := range settlements {
		w.led.settle(c.num, s.Kind, s.Delivery)
	}
	began := time.Now()
	_, err := c.ch.TxCommit(c.life, settlements)
	var e *broker.Error
	switch {
	case err == nil:
		w.endTx(tx, confirmed)
		if time.Since(began) < txAnswered && c.life.Err() == nil { // a node that ends does not wait
			w.checkShown(c, tx)
		}
	case errors.As(err, &e) && e.Kind == broker.PreconditionFailed:
		w.endTx(tx, refused)
	default:
		w.endTx(tx, unknown)
	}
	return err == nil
}

// fetchSome gets some messages of a queue to settle.
func (w *World) fetchSome(c *client) (list []*broker.Delivery, q *queueSpec, ok bool) {
	q = w.state.specs[w.rand(len(w.state.specs))]
	if q.noAck || q.exclusive || q.name == morgue {
		return nil, q, true
	}
	for range w.rand(4) {
		q.holding.Add(1)
		w.state.holding.Add(1)
		d, _, err := c.ch.Get(c.life, q.name, false)
		if d == nil {
			q.holding.Add(-1)
			w.state.holding.Add(-1)
		}
		if err != nil {
			w.expected(c, err, "get from "+q.name)
			return list, q, false
		}
		if d == nil {
			break
		}
		if s := w.led.deliver(c.n.id, d); s != nil {
			w.problem("message %s of %s fetched again on %s without the redelivered flag; %v", d.Body, q.name, c.n.id, s)
		}
		list = append(list, d)
	}
	return list, q, true
}

func (w *World) endTx(tx *txRecord, s publishState) {
	for _, p := range tx.publishes {
		w.led.end(p, s)
	}
	tx.state = s
	w.led.mu.Lock()
	defer w.led.mu.Unlock()
	w.led.txs = append(w.led.txs, tx)
}

// checkShown checks that an answered transaction is in all its queues.
func (w *World) checkShown(c *client, tx *txRecord) {
	view := c.n.copy.View()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range tx.publishes {
		if n, exempt := w.oracle.placed(p, view); n != 1 && !exempt {
			w.problem("transaction %s was committed and is %d times in %s", tx.name, n, p.queue)
		}
	}
	for _, a := range tx.acks {
		// What is settled in a queue that is being deleted is left to its deletion.
		if q := w.oracle.queues[a.queue]; q != nil && q.m.Queue().Has(a.id) && !q.ends(view) {
			w.problem("transaction %s was committed, and message %d of %s is still there", tx.name, a.id, q.m.Name())
		}
	}
}

// placed counts how often a message was published into its queue. Exempt are queues of
// one node's memory and those that were deleted.
func (o *oracle) placed(p *publish, view *catalog.View) (n int, exempt bool) {
	if s := o.w.spec(p.queue); s != nil && s.transient {
		return 0, true
	}
	found := false
	for _, q := range o.queues {
		if q.m.Name() == p.queue {
			n += o.published[placed{p.body, q.id}]
			exempt = exempt || q.ends(view)
			found = true
		}
	}
	return n, exempt || !found
}

// ends tells whether the queue is being deleted or is gone.
func (q *oracleQueue) ends(view *catalog.View) bool {
	c := view.QueueByID(q.id)
	return q.m.Closed() || c == nil || c.State != catalog.Running
}

// checkTxs compares what clients were told of transactions with the logs.
func (w *World) checkTxs() {
	view := w.nodes[0].copy.View()
	may := map[message]bool{} // ended by a transaction that may have been carried out
	for _, tx := range w.led.txs {
		for _, a := range tx.acks {
			may[a] = may[a] || tx.state == confirmed || tx.state == unknown
		}
	}
	for _, tx := range w.led.txs {
		none, all := true, true
		for _, p := range tx.publishes {
			n, exempt := w.oracle.placed(p, view)
			none = none && n == 0
			all = all && (n == 1 || exempt && n == 0)
		}
		for _, a := range tx.acks {
			if w.oracle.txSettled[a] && !may[a] {
				w.problem("transaction %s ended as %d, and message %d of queue %d was settled by it", tx.name, tx.state, a.id, a.queue)
			}
		}
		switch {
		case tx.state == confirmed && !all,
			tx.state == unknown && !all && !none,
			(tx.state == refused || tx.state == unrouted) && !none:
			w.problem("transaction %s ended as %d: all %v, none %v of its %d publishes are there", tx.name, tx.state, all, none, len(tx.publishes))
		}
	}
}

// relayed notes a new outbox item that is a part of a transaction.
func (o *oracle) relayed(g *group, q *oracleQueue, it dlx.Item) {
	data := g.log[it.Ref.Index-1].data
	for _, leg := range it.Legs {
		o.legs[legKey{q.id, leg.Target, leg.Seq}] = string(data[it.Ref.Offset : it.Ref.Offset+it.Ref.Length])
	}
}

// explainTx looks for a message among the settlements of a transaction, here or by a part,
// and for the client that made it.
func (o *oracle) explainTx(q *oracleQueue, ops []fsm.Op, id queue.MessageID, body string) bool {
	s, r, ok := settlesInTx(ops, id)
	if !ok {
		return false
	}
	if s.Kind == fsm.Ack {
		q.acked[body]++
	}
	o.txSettled[message{q.id, id}] = true
	if !o.w.led.settledByAny(q.id, id, r.Attempt, s.Kind) {
		o.problem(q, "message %d (%s) attempt %d settled (%d) by a transaction that no client made", id, body, r.Attempt, s.Kind)
	}
	return true
}

// settlesInTx finds the settlement of a message.
func settlesInTx(ops []fsm.Op, id queue.MessageID) (s fsm.Settle, r fsm.Run, ok bool) {
	for _, op := range ops {
		if s, isSettle := op.(fsm.Settle); isSettle {
			for _, r := range s.Runs {
				if inRun(r, id) {
					return s, r, true
				}
			}
		}
	}
	return fsm.Settle{}, fsm.Run{}, false
}
