package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/leader"
)

// Bounds of a look into a queue.
const (
	PeekCountMax    = 1000
	PeekTruncateMax = 256 << 10
	// PeekOffsetMax is more than any queue has. Leaders of older programs add to an offset what makes a larger one negative, and end by it.
	PeekOffsetMax = 1 << 40
	// peekBytesMax is about what one answer holds of messages; a message that is larger
	// comes alone.
	peekBytesMax = 512 << 10
	// peekScanMax bounds the messages that one question looks at, and peekTimeMax the time.
	peekScanMax = 200_000
	peekTimeMax = 2 * time.Second
	peekChunk   = 256
)

const opPeek = "peek"

// Standings are the words for where a message stands.
var standings = map[string]leader.Standing{
	"ready": leader.Ready, "delayed": leader.Delayed, "unacked": leader.Unacked, "outbox": leader.Outgoing, "parked": leader.Parked,
}

// Peek asks for messages of a queue without taking them.
type Peek struct {
	// State is where they stand: ready, delayed (came back and waits out a retry delay), unacked, outbox (dead, its
	// targets named or about to be) or parked (dead, without a target).
	State string `json:"state"`
	// Offset messages that the filter takes are passed over, PeekOffsetMax at most; Count is how many are wanted, 1 to PeekCountMax.
	Offset int `json:"offset"`
	Count  int `json:"count"`
	// After is the Next of an earlier answer: the look goes on there.
	After  string `json:"after,omitempty"`
	Filter Filter `json:"filter"`
	// Truncate is how many bytes of a body are wanted, at most PeekTruncateMax.
	Truncate int `json:"truncate"`
}

// Peeked is what a look found, in the order in which the messages would be delivered or leave.
type Peeked struct {
	Messages []PeekedMessage `json:"messages"`
	// Next is where to go on; "" if nothing is behind. Passed is how many messages of the
	// offset were passed over.
	Next   string `json:"next,omitempty"`
	Passed int    `json:"passed"`
}

// PeekedMessage is a message as it lies in its queue.
type PeekedMessage struct {
	// ID numbers the messages of a queue in the order of their coming. Of outbox and parked it is
	// the number in the outbox.
	ID          uint64             `json:"id"`
	Exchange    string             `json:"exchange"`
	RoutingKeys []string           `json:"routing_keys"` // as published: key, then CC
	Properties  amqp.RawProperties `json:"properties"`
	Body        []byte             `json:"body"` // truncated
	BodyBytes   int                `json:"body_bytes"`
	Deaths      []Death            `json:"deaths,omitempty"` // newest first

	// Of live messages.
	Redelivered   bool   `json:"redelivered,omitempty"`
	Priority      uint8  `json:"priority,omitempty"`
	AcquiredCount uint32 `json:"acquired_count,omitempty"`
	DeliveryCount uint32 `json:"delivery_count,omitempty"`
	ExpiresAt     int64  `json:"expires_at,omitempty"` // ms, 0: never
	Node          string `json:"node,omitempty"`       // whose client has it, of unacked

	// Of dead ones.
	Reason string   `json:"reason,omitempty"`
	DiedAt int64    `json:"died_at,omitempty"` // ms
	Detail string   `json:"detail,omitempty"`  // what the client said that rejected it
	Stage  string   `json:"stage,omitempty"`   // unrouted, routed, parked-unrouted, parked-cycle
	To     []string `json:"to,omitempty"`      // targets that have not taken it yet
}

// Retried reports whether somebody has sent the message back after a death, and how often it has died since, with the
// death by which it is on its way out.
func (m *PeekedMessage) Retried() (retried bool, deathsSince uint64) {
	if !dlx.Retried(m.Deaths) {
		return false, 0
	}
	deathsSince = dlx.SinceRetry(m.Deaths)
	if m.Reason != "" && m.Reason != dlx.Redrive.String() {
		deathsSince++
	}
	return true, deathsSince
}

// Peek looks into a queue for a user, who needs to be allowed to read it. Nothing changes: no order,
// count or flag. A message that moves meanwhile may be missed. Of a long queue in which the filter takes nothing it asks again and again, until
// the end or that of ctx, which is the client's patience: each question is bounded, and the leader does other things between two parts of one. The error is an *Error.
func (b *Broker) Peek(ctx context.Context, u User, vhost, name string, p Peek) (Peeked, error) {
	q, err := b.queueFor(ctx, u, vhost, name, auth.Read)
	if err != nil {
		return Peeked{}, err
	}
	if err := cmp.Or(p.Validate(), b.usable(&p.Filter)); err != nil {
		return Peeked{}, err
	}
	got := Peeked{Messages: []PeekedMessage{}}
	for {
		var page Peeked
		if err := b.inquireNamed(ctx, q, opPeek, p, &page); err != nil {
			return Peeked{}, err
		}
		got.Messages = append(got.Messages, page.Messages...)
		got.Passed += page.Passed
		got.Next = page.Next
		// A page that found nothing looked at as much as it might.
		if len(got.Messages) > 0 || page.Next == "" || ctx.Err() != nil {
			return got, nil
		}
		p.After, p.Offset = page.Next, p.Offset-page.Passed
	}
}

// Validate says what is wrong with the request by itself. The error is an *Error.
func (p *Peek) Validate() error {
	if _, ok := standings[p.State]; !ok {
		return Errorf(PreconditionFailed, "state '%s' is none of ready, delayed, unacked, outbox, parked", p.State)
	}
	if p.Count < 1 || p.Count > PeekCountMax || p.Offset < 0 || p.Offset > PeekOffsetMax || p.Truncate < 0 || p.Truncate > PeekTruncateMax {
		return Errorf(PreconditionFailed, "count has to be 1 to %d, offset 0 to %d, truncate 0 to %d", PeekCountMax, int64(PeekOffsetMax), PeekTruncateMax)
	}
	if _, err := parsePlace(p.After); err != nil {
		return err
	}
	_, err := p.Filter.resolve(0)
	return err
}

// answerPeek is the leader's side.
func answerPeek(ctx context.Context, b *Broker, h *hosted, body []byte) (any, error) {
	var p Peek
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, Errorf(PreconditionFailed, "peek: %v", err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	place, err := parsePlace(p.After)
	if err != nil {
		return nil, err
	}
	l := h.replica.Leader()
	if l == nil {
		return nil, errNotHere
	}
	look := peeking{b: b, h: h, want: p, reader: h.reader()}
	if look.filter, err = p.Filter.resolve(b.cfg.Now()); err != nil {
		return nil, err
	}
	err = look.from(ctx, l, place)
	return look.got, err
}

// from looks at what stands behind a place until the answer has as much as it may, or nothing more is there.
func (k *peeking) from(ctx context.Context, l *leader.Leader, place leader.Place) error {
	until := time.Now().Add(peekTimeMax)
	for looked := 0; looked < peekScanMax && time.Now().Before(until); looked++ {
		limit := peekChunk
		if k.filter.Any() {
			limit = k.want.Offset - k.got.Passed + k.want.Count - len(k.got.Messages) + 1 // one more tells whether there is more
		}
		page, err := l.List(ctx, standings[k.want.State], place, limit)
		if err != nil {
			return errNotHere
		}
		for i := range page.Messages {
			looked++
			if k.take(&page.Messages[i]) {
				k.got.Next = formatPlace(place)
				return nil
			}
			place = page.Messages[i].Place
			if time.Now().After(until) { // each may be of a large entry
				k.got.Next = formatPlace(place)
				return nil
			}
		}
		if place = page.Next; page.Done {
			return nil
		}
	}
	k.got.Next = formatPlace(place)
	return nil
}

// peeking is one look under way.
type peeking struct {
	b      *Broker
	h      *hosted
	want   Peek
	filter dlx.Filter
	reader *entryReader
	got    Peeked
	bytes  int
}

// take looks at one message. full tells that the answer has room for no more: the message
// is not in it.
func (k *peeking) take(x *leader.Listed) (full bool) {
	if len(k.got.Messages) >= k.want.Count {
		return true
	}
	f := &k.filter
	if !f.TakesID(x.Place.ID) {
		return false
	}
	passing := k.got.Passed < k.want.Offset
	if passing && !f.NeedsContent() {
		k.got.Passed++
		return false
	}
	m, ok := k.message(x)
	if !ok || !f.Takes(x.Place.ID, m.deaths, m.Properties) {
		return false
	}
	if passing {
		k.got.Passed++
		return false
	}
	size := len(m.Body) + len(m.Properties)
	if k.bytes > 0 && k.bytes+size > peekBytesMax {
		return true
	}
	k.bytes += size
	k.got.Messages = append(k.got.Messages, k.alone(&m))
	return false
}

// peekedMessage is a message with its history as the filter sees it: the death that it has come into
// the outbox by is not in its own history yet.
type peekedMessage struct {
	PeekedMessage
	deaths []dlx.Death
	stored queue.Ref // zero if nothing was read
}

// alone is a message that shares no memory with its entry. That may be many times as large as what is wanted of it.
func (k *peeking) alone(m *peekedMessage) PeekedMessage {
	if m.stored == (queue.Ref{}) {
		return m.PeekedMessage
	}
	raw := k.reader.data[m.stored.Offset:][:int(m.stored.Length)-m.BodyBytes+len(m.Body)] // the body is at the end
	if msg, err := fsm.DecodeMessage(bytes.Clone(raw)); err == nil {
		m.has(&msg)
	}
	return m.PeekedMessage
}

// has fills in what is stored of a message.
func (m *PeekedMessage) has(msg *fsm.Message) {
	m.Exchange, m.RoutingKeys = msg.Exchange, msg.RoutingKeys[:len(msg.RoutingKeys)-msg.BCC]
	m.Properties, m.Deaths, m.Body = msg.Properties, msg.Deaths, msg.Body
}

func (k *peeking) message(x *leader.Listed) (m peekedMessage, ok bool) {
	ref := x.Message.Ref
	dead := x.Item.ID != 0
	if dead {
		ref = x.Item.Ref
		m.Reason, m.DiedAt, m.Stage = x.Item.Reason.String(), x.Item.TimeMillis, x.Item.State.String()
		m.Detail = x.Item.Detail
		view := k.b.cat.View()
		for _, l := range x.Item.Legs {
			m.To = append(m.To, queueName(view, l.Target))
		}
	}
	m.ID = x.Place.ID
	m.Redelivered, m.Priority = x.Redelivered, x.Message.Priority
	m.AcquiredCount, m.DeliveryCount, m.ExpiresAt = x.Message.Attempt, x.Message.Failed, x.Message.ExpiresAt
	m.Node = nodeName(k.b.cat.View(), x.Node)
	if x.Item.Reason == dlx.Transaction {
		return m, k.filter.Any() // it is what a transaction does elsewhere, and need not be a message
	}
	msg, err := k.reader.message(ref)
	if err != nil {
		return m, false // it has left meanwhile
	}
	m.stored, m.BodyBytes, m.deaths = ref, len(msg.Body), msg.Deaths
	msg.Body = msg.Body[:min(len(msg.Body), k.want.Truncate)]
	m.has(&msg)
	if dead && x.Item.Reason != dlx.Redrive {
		m.deaths = dlx.Record(msg.Deaths, dlx.Death{Queue: k.h.name(), Reason: x.Item.Reason, LastMillis: x.Item.TimeMillis, Detail: x.Item.Detail})
	}
	return m, true
}

// entryReader reads stored messages; those of one entry come together.
type entryReader struct {
	log   leader.Log
	index uint64
	data  []byte
}

func (h *hosted) reader() *entryReader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &entryReader{log: h.log}
}

func (h *hosted) name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.q.Name
}

func (r *entryReader) message(ref queue.Ref) (fsm.Message, error) {
	if r.data == nil || r.index != ref.Index {
		data, err := r.log.Read(ref.Index)
		if err != nil {
			return fsm.Message{}, err
		}
		r.index, r.data = ref.Index, data
	}
	return fsm.MessageIn(r.data, ref)
}

// queueName names a queue for people.
func queueName(view *catalog.View, id uint64) string {
	switch q := view.QueueByID(id); {
	case q == nil:
		return ""
	case q.DelayOf != "":
		return q.DelayOf
	default:
		return q.Name
	}
}

func nodeName(view *catalog.View, number uint32) string {
	if number == 0 {
		return ""
	}
	for n := range view.Nodes() {
		if n.Number == number {
			return shortName(string(n.ID))
		}
	}
	return ""
}
