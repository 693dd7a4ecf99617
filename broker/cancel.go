package broker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// A message that one delayed exchange keeps back can be taken back, by a handle: the queue in which the exchange keeps it, and its number there. Whether it
// was taken back or has gone on is decided by the order of that queue's log, so that exactly one is true whoever leads it.

// levelCancel is the level of the cluster from which on delayed messages can be taken back.
const levelCancel = 2

// handleVersion is the first byte of a handle.
const handleVersion = 1

// handleBytes: version, queue, message, check.
const handleBytes = 1 + 8 + 8 + 8

// handleOf names a message of a cluster. The check finds errors of typing and handles of other clusters, such as the one that a backup was taken of, whose
// queues and messages have the same numbers. It is no secret: who may publish to the exchange may take its messages back.
func handleOf(cluster string, q uint64, id queue.MessageID) []byte {
	b := binary.BigEndian.AppendUint64([]byte{handleVersion}, q)
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	sum := sha256.Sum256(append([]byte("delayed message of "+cluster+":"), b...))
	return append(b, sum[:8]...)
}

// readHandle is the reverse of handleOf; ok is false for what is none of this cluster.
func readHandle(cluster string, handle []byte) (q uint64, id queue.MessageID, ok bool) {
	if len(handle) != handleBytes || handle[0] != handleVersion {
		return 0, 0, false
	}
	q, id = binary.BigEndian.Uint64(handle[1:]), queue.MessageID(binary.BigEndian.Uint64(handle[9:]))
	return q, id, string(handleOf(cluster, q, id)) == string(handle)
}

// CheckHandle checks a handle by itself.
func (b *Broker) CheckHandle(handle []byte) error {
	if _, _, ok := readHandle(b.cat.View().ClusterID(), handle); !ok {
		return Errorf(PreconditionFailed, "this is no handle of a delayed message of this cluster")
	}
	return nil
}

// PublishCancellable publishes one message that a delayed exchange is to keep back, for a user who has no connection, and returns by what it is taken back
// until it comes due. The message is refused unless it goes to one delayed exchange and nowhere else. refused is as in PublishOnce; so are the errors: with one
// of ctx the message may or may not be stored.
func (b *Broker) PublishCancellable(ctx context.Context, u User, vhost string, p Publish) (handle []byte, refused bool, err error) {
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		ch, err := c.OpenChannel(ctx, &onceSink{confirmed: make(chan Confirm, 1), failed: make(chan *Error, 1)})
		if err != nil {
			return err
		}
		if b.cat.View().Level() < levelCancel {
			return Errorf(PreconditionFailed, "some node of the cluster has a program that cannot take messages back yet")
		}
		s, op, err := ch.holdBack(ctx, &p)
		if err != nil {
			return err
		}
		ch.tally.published(&p, true, 1)
		o, err := s.outcome(ctx, pendingOp{op: op, bytes: len(op.Message) + 48}, p.Exchange)
		switch {
		case err != nil:
			return err
		case o.Kind == fsm.Kept:
			handle = handleOf(b.cat.View().ClusterID(), s.id, queue.MessageID(o.Count))
		case o.Kind == fsm.Gone:
			return Errorf(NotFound, "no exchange '%s' in vhost '%s'", p.Exchange, vhost)
		default:
			refused = true
		}
		return nil
	})
	return handle, refused, err
}

// holdBack makes what is stored of a message that one delayed exchange keeps back, and finds where.
func (ch *Channel) holdBack(ctx context.Context, p *Publish) (*stream, fsm.Publish, error) {
	view, err := ch.checkPublish(ctx, p)
	if err != nil {
		return nil, fsm.Publish{}, err
	}
	m, op, err := ch.message(p)
	if err != nil {
		return nil, op, err
	}
	if err := ch.conn.checkKeys(ch.topics, auth.Write, p.Exchange, m.RoutingKeys...); err != nil {
		return nil, op, err
	}
	targets, err := view.RouteMessage(ch.conn.vhost, p.Exchange, ch.routing(m), nil)
	if err != nil {
		return nil, op, asError(err)
	}
	if len(targets) != 1 || targets[0].DelayOf == "" {
		return nil, op, Errorf(PreconditionFailed, "the message cannot be taken back, as it would not go to one delayed exchange alone and wait there")
	}
	op = ch.opFor(targets[0], op)
	op.Tell, op.Message = true, fsm.EncodeMessage(nil, m)
	return ch.conn.b.stream(targets[0]), op, nil
}

// CancelDelayed takes a delayed message back, for a user who may publish to the exchange that keeps it, and has no connection. cancelled false tells that it has gone
// on. Errors are *Error; with one of ctx it may or may not have been taken back, and asking again tells: of the messages that were taken back last a queue knows so.
func (b *Broker) CancelDelayed(ctx context.Context, u User, vhost string, handle []byte) (cancelled bool, err error) {
	id, msg, ok := readHandle(b.cat.View().ClusterID(), handle)
	if !ok {
		return false, b.CheckHandle(handle)
	}
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		q, err := c.delaysIn(ctx, id)
		if err != nil {
			return err
		}
		if err := c.allowed(ctx, b.cat.View(), auth.Write, exchangeResource(q.DelayOf)); err != nil {
			return err
		}
		o, err := b.stream(q).outcome(ctx, pendingOp{op: fsm.Cancel{ID: msg}, bytes: 64}, "")
		if err == nil && o.Kind == fsm.Gone {
			err = c.noDelays()
		}
		cancelled = o.Kind == fsm.Cancelled
		return err
	})
	return cancelled && err == nil, err
}

// delaysIn finds the queue in which a delayed exchange of the virtual host keeps messages, in its present life.
func (c *Conn) delaysIn(ctx context.Context, id uint64) (*catalog.Queue, error) {
	view := c.b.cat.View()
	for try := range 2 {
		q := view.QueueByID(id)
		if q == nil {
			q, _ = view.Successor(id)
		}
		switch {
		case q != nil && q.State == catalog.Running && q.Vhost == c.vhost && q.DelayOf != "":
			return q, nil
		case try == 0: // this copy may be behind
			var err error
			if view, err = c.b.fresh(ctx); err != nil {
				return nil, err
			}
		}
	}
	return nil, c.noDelays()
}

func (c *Conn) noDelays() error {
	return Errorf(NotFound, "no delayed exchange in vhost '%s' has the message", c.vhost)
}

// outcome appends an operation, waiting for room, and waits for its outcome. exchange is what a publish came by, or "".
func (s *stream) outcome(ctx context.Context, p pendingOp, exchange string) (fsm.Outcome, error) {
	result := make(chan fsm.Outcome, 1)
	p.result = result
	for {
		s.mu.Lock()
		if s.gone {
			moved := s.heir != nil
			s.mu.Unlock()
			if moved {
				return fsm.Outcome{}, Errorf(Unavailable, "the queue of the exchange was being recovered")
			}
			return fsm.Outcome{Kind: fsm.Gone}, nil
		}
		if !s.full() {
			break
		}
		room := s.room
		s.flushLocked()
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return fsm.Outcome{}, Errorf(Unavailable, "the queue of the exchange did not take messages in time")
		}
	}
	s.append(p)
	if exchange != "" {
		s.published(exchange)
	}
	s.flushLocked()
	s.mu.Unlock()
	select {
	case o, known := <-result:
		if !known {
			return o, Errorf(Unavailable, "the queue of the exchange was deleted or recovered meanwhile, and it is not known what became of it")
		}
		return o, nil
	case <-ctx.Done():
		return fsm.Outcome{}, Errorf(Unavailable, "the queue of the exchange did not answer in time")
	}
}
