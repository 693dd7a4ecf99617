package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
)

// MethodInquire is the mesh's method by which a node asks the one that leads a queue
// (docs/formats/inquiries.md).
const MethodInquire uint8 = 0x48

// inquiryVersion is that of questions and answers.
const inquiryVersion = 1

// inquiry is a question to the node that leads a queue.
type inquiry struct {
	Version int             `json:"version"`
	Queue   uint64          `json:"queue"`
	Op      string          `json:"op"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// inquiryAnswer answers it. NotLeader: another node leads, or nobody can tell yet.
type inquiryAnswer struct {
	Version   int             `json:"version"`
	NotLeader bool            `json:"not_leader,omitempty"`
	Refused   bool            `json:"refused,omitempty"`
	Kind      Kind            `json:"kind,omitempty"`
	Text      string          `json:"text,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
}

// inquirers are the operations that a queue's leader answers. The error is errNotHere
// or an *Error.
var inquirers = map[string]func(ctx context.Context, b *Broker, h *hosted, body []byte) (any, error){
	opPeek:    answerPeek,
	opRelease: answerRelease,

	opDeadLetters: answerDeadLetters,

	opRedriveStart: answerRedriveStart, opRedriveStop: answerRedriveStop, opRedriveStatus: answerRedriveStatus,
	opRedriveDryRun: answerRedriveDryRun,

	opSettled: answerSettled,
}

var errNotHere = errors.New("broker: the queue is not led here, or not yet")

// inquireAgain is the wait before another node is asked.
const inquireAgain = 30 * time.Millisecond

// inquire asks the leader of a queue, wherever it is, until it answers or ctx ends. A
// question may be asked more than once.
func (b *Broker) inquire(ctx context.Context, q *catalog.Queue, op string, body, to any) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := json.Marshal(inquiry{Version: inquiryVersion, Queue: q.ID, Op: op, Body: raw})
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		var a inquiryAnswer
		if node := b.locate(q.ID, attempt); node != "" {
			a, err = b.askNode(ctx, node, req)
			switch {
			case err != nil:
				b.cfg.Logger.Debug("inquiry not answered", "queue", q.ID, "node", node, "op", op, "err", err)
			case a.Refused:
				return Errorf(a.Kind, "%s", a.Text)
			case !a.NotLeader:
				return json.Unmarshal(a.Body, to)
			}
		}
		if v := b.cat.View(); v.Revision() >= q.ID && leaves(v.QueueByID(q.ID)) {
			return Errorf(NotFound, "no queue '%s' in vhost '%s'", q.Name, q.Vhost)
		}
		select {
		case <-ctx.Done():
			return Errorf(Unavailable, "queue '%s' in vhost '%s' has no leader that answers", q.Name, q.Vhost)
		case <-time.After(inquireAgain):
		}
	}
}

// inquireNamed is inquire for who asks by a name. If the queue has ended, or goes on in another life, the one that has its name now is asked: this copy may have
// been older than the caller's word.
func (b *Broker) inquireNamed(ctx context.Context, q *catalog.Queue, op string, body, to any) error {
	for try := 1; ; try++ {
		err := b.inquire(ctx, q, op, body, to)
		if !isNotFound(err) || try == livesTried {
			return err
		}
		view, stale := b.fresh(ctx)
		if stale != nil {
			return stale
		}
		now := view.Queue(q.Vhost, q.Name)
		if now == nil || now.ID == q.ID {
			return err
		}
		q = now
	}
}

// askTimeout bounds one node's answer: another one may lead by now.
const askTimeout = 3 * time.Second

func (b *Broker) askNode(ctx context.Context, node string, req []byte) (a inquiryAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var resp []byte
	switch {
	case node == b.cfg.Node:
		resp, err = b.AnswerInquiry(ctx, req)
	case b.cfg.Call == nil:
		err = errNotHere
	default:
		resp, err = b.cfg.Call(ctx, node, MethodInquire, req)
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(resp, &a); err != nil {
		return a, fmt.Errorf("answer of %s: %w", node, err)
	}
	if a.Version != inquiryVersion {
		return a, fmt.Errorf("answer of %s: version %d, this is %d", node, a.Version, inquiryVersion)
	}
	return a, nil
}

// leaves tells whether a queue is being deleted, or is no more: another one may have its name.
func leaves(q *catalog.Queue) bool { return q == nil || q.State == catalog.Closing }

// over tells whether the end of the queue is in its log.
func (h *hosted) over() (over bool) {
	h.replica.View(func(m *fsm.Machine) { over = m.Closed() })
	return over
}

// AnswerInquiry answers another node's question about a queue; it is the mesh's handler.
func (b *Broker) AnswerInquiry(ctx context.Context, raw []byte) ([]byte, error) {
	var q inquiry
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Errorf("inquiry: %w", err)
	}
	f := inquirers[q.Op]
	if q.Version != inquiryVersion || f == nil {
		return nil, fmt.Errorf("inquiry %q of version %d is not known", q.Op, q.Version)
	}
	a := inquiryAnswer{Version: inquiryVersion, NotLeader: true}
	if h := b.queues.get(q.Queue); h != nil && h.replica.Leader() != nil && !h.over() { // a queue that is over has nothing, and takes nothing up
		body, err := f(ctx, b, h, q.Body)
		var refused *Error
		switch {
		case errors.As(err, &refused):
			a = inquiryAnswer{Version: inquiryVersion, Refused: true, Kind: refused.Kind, Text: refused.Text}
		case errors.Is(err, errNotHere):
		case err != nil:
			return nil, err
		default:
			a.NotLeader = false
			if a.Body, err = json.Marshal(body); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(a)
}

// queueFor finds a queue on which a user may do something. The error is an *Error.
func (b *Broker) queueFor(ctx context.Context, u User, vhost, name string, need ...auth.Action) (*catalog.Queue, error) {
	for _, a := range need {
		if err := b.allows(ctx, u, vhost, a, queueResource(name)); err != nil {
			return nil, err
		}
	}
	if q := b.cat.View().Queue(vhost, name); q != nil {
		return q, nil
	}
	view, err := b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	if q := view.Queue(vhost, name); q != nil {
		return q, nil
	}
	return nil, Errorf(NotFound, "no queue '%s' in vhost '%s'", name, vhost)
}
