package broker

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
)

// Bounds of direct replies. They never pass through a log, and nobody waits for
// a requester that is slow to read: what exceeds a bound is dropped, and counted.
const (
	replyMessagesMax   = 16384     // replies waiting to be written to one requester
	replyBytesMax      = 16 << 20  // and their bytes, exceeded by one message at most
	replyBytesNodeMax  = 256 << 20 // bytes waiting on one node, for all of its requesters
	replyOverheadBytes = 256       // what a waiting reply takes beside its bytes, about
	replyTimeout       = 5 * time.Second
)

// ReplyLink carries direct replies to other nodes.
type ReplyLink interface {
	// Send passes a reply on without an answer. It never blocks; an error means
	// that it was not taken.
	Send(node string, payload []byte) error
	// Ask passes a reply or a probe on and waits for the answer of ReceiveReply.
	Ask(ctx context.Context, node string, payload []byte) ([]byte, error)
}

// replies are the requesters of a node.
type replies struct {
	mu      sync.Mutex
	boxes   map[uint64]*replyBox
	waiting atomic.Int64 // bytes, of all boxes
	dropped atomic.Uint64
}

// replyBox is where the replies to one channel's requests arrive.
type replyBox struct {
	b        *Broker
	token    replyToken
	name     string
	vhost    string
	consumer *Consumer

	mu       sync.Mutex
	closed   bool
	messages int
	bytes    int
	dropped  uint64
}

// consumeReplies makes the channel a requester.
func (ch *Channel) consumeReplies(spec Consume) (*Consumer, error) {
	switch {
	case !spec.NoAck:
		return nil, Errorf(PreconditionFailed, "reply consumer cannot acknowledge")
	case ch.replies != nil:
		return nil, Errorf(PreconditionFailed, "reply consumer already set")
	}
	b := ch.conn.b
	box := &replyBox{b: b, vhost: ch.conn.vhost, token: replyToken{origin: b.origin(), number: b.numbers.Add(1)}}
	_, _ = rand.Read(box.token.secret[:]) // never fails
	box.name = box.token.name()
	box.consumer = &Consumer{ch: ch, spec: spec, reply: box}
	b.replies.mu.Lock()
	b.replies.boxes[box.token.number] = box
	b.replies.mu.Unlock()
	ch.replies = box
	ch.consumers[spec.Tag] = box.consumer
	return box.consumer, nil
}

// close ends the requester; later replies find nobody.
func (x *replyBox) close() {
	x.b.replies.mu.Lock()
	delete(x.b.replies.boxes, x.token.number)
	x.b.replies.mu.Unlock()
	if ch := x.consumer.ch; ch.replies == x {
		ch.replies = nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.closed = true
		x.b.replies.waiting.Add(-int64(x.bytes))
	}
}

// written takes what has left for the client from what waits.
func (x *replyBox) written(messages, bytes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.messages -= messages
	x.bytes -= bytes
	x.b.replies.waiting.Add(-int64(bytes))
}

// take delivers a reply, which it keeps. false: the requester ended, or reads too
// slowly.
func (x *replyBox) take(m *directReply) bool {
	size := len(m.properties) + len(m.body) + replyOverheadBytes
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return false
	}
	if x.messages >= replyMessagesMax || x.bytes >= replyBytesMax || x.b.replies.waiting.Load() >= replyBytesNodeMax {
		x.b.replies.dropped.Add(1)
		if x.dropped++; x.dropped == 1 {
			x.b.cfg.Logger.Warn("dropping direct replies: the requester does not read them", "vhost", x.vhost, "waiting", x.messages, "bytes", x.bytes)
		}
		return false
	}
	x.messages++
	x.bytes += size
	x.b.replies.waiting.Add(int64(size))
	x.consumer.ch.sink.Deliver(&Delivery{
		Consumer: x.consumer, Key: x.name, Properties: m.properties, Body: m.body, WindowBytes: size,
	})
	return true
}

// toRequesters hands a message to the requesters among its keys. done tells that
// one of them took it and no queue is to: the publish is confirmed. A mandatory
// message counts as taken only when the requester's node has said so; any other
// once it has left for that node.
func (ch *Channel) toRequesters(ctx context.Context, p *Publish, m *fsm.Message) (done bool) {
	taken := false
	for i, key := range m.RoutingKeys {
		if !strings.HasPrefix(key, replyPrefix) || slices.Contains(m.RoutingKeys[:i], key) {
			continue
		}
		r := &directReply{vhost: ch.conn.vhost, name: key, properties: m.Properties, body: m.Body}
		if ch.tx != nil {
			taken = ch.collectReply(ctx, r, p.Mandatory) || taken
			continue
		}
		if ch.conn.b.directReply(ctx, r, p.Mandatory) {
			taken = true
		}
	}
	done = taken && len(ch.targets) == 0
	if done && p.Tag != 0 {
		ch.confirm([]Confirm{{Tag: p.Tag}})
	}
	return done
}

// directReply passes r, whose bytes it does not keep, to its requester's node.
func (b *Broker) directReply(ctx context.Context, r *directReply, wait bool) bool {
	token, ok := parseReplyName(r.name)
	if !ok {
		return false
	}
	n := b.cat.View().NodeByNumber(token.origin.Node)
	if n == nil || n.Incarnation > token.origin.Incarnation {
		return false // that process is gone, and its requesters with it
	}
	node := string(n.ID)
	if node == b.cfg.Node {
		if !r.probe {
			r.properties, r.body = bytes.Clone(r.properties), bytes.Clone(r.body)
		}
		return b.takeReply(r)
	}
	if b.cfg.Replies == nil {
		return false
	}
	if !wait {
		if b.cfg.Replies.Send(node, r.encode()) != nil {
			b.replies.dropped.Add(1)
			return false
		}
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	answer, err := b.cfg.Replies.Ask(ctx, node, r.encode())
	return err == nil && len(answer) == 1 && answer[0] == 1
}

// takeReply gives r, which it keeps, to a requester of this node.
func (b *Broker) takeReply(r *directReply) bool {
	token, ok := parseReplyName(r.name)
	if !ok || token.origin != b.origin() {
		return false
	}
	b.replies.mu.Lock()
	box := b.replies.boxes[token.number]
	b.replies.mu.Unlock()
	switch {
	case box == nil || box.vhost != r.vhost || subtle.ConstantTimeCompare(box.token.secret[:], token.secret[:]) != 1:
		return false
	case r.probe:
		return true
	}
	return box.take(r)
}

// ReceiveReply takes a direct reply or a probe from another node, for both
// ReplyKind and MethodReply; the payload is the broker's. It does not block. The
// answer is one byte: 1 when the requester is there and took it.
func (b *Broker) ReceiveReply(from string, payload []byte) ([]byte, error) {
	r, err := decodeDirectReply(payload)
	if err != nil {
		b.cfg.Logger.Error("undecodable direct reply from peer", "node", from, "err", err)
		return nil, err
	}
	if b.takeReply(r) {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}

// RepliesDropped counts the direct replies that reached this node's bounds.
func (b *Broker) RepliesDropped() uint64 { return b.replies.dropped.Load() }

// declareReplies answers a declaration of the pseudo queue or of a requester,
// which is always a passive one: a requester that is there has one consumer.
func (c *Conn) declareReplies(ctx context.Context, name string) (QueueOK, error) {
	if name == ReplyQueue || c.b.directReply(ctx, &directReply{probe: true, vhost: c.vhost, name: name}, true) {
		return QueueOK{Name: name, Consumers: 1}, nil
	}
	return QueueOK{}, Errorf(NotFound, "no queue '%s' in vhost '%s'", name, c.vhost)
}

// withReplyTo puts the requester's name in the place of the pseudo queue's.
func (ch *Channel) withReplyTo(props amqp.RawProperties) (amqp.RawProperties, error) {
	to, ok := props.ReplyTo()
	if !ok || to != ReplyQueue {
		return props, nil
	}
	if ch.replies == nil {
		return nil, Errorf(PreconditionFailed, "fast reply consumer does not exist")
	}
	return amqp.Rewrite(props, func(p *amqp.Properties) { p.SetReplyTo(ch.replies.name) })
}
