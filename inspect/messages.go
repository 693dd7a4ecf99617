package inspect

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Message is a live message, or a dead one in the outbox.
type Message struct {
	ID        uint64     `json:"id"`    // of the message, or of the item of the outbox
	Entry     uint64     `json:"entry"` // of the log, where its bytes are
	Bytes     uint32     `json:"bytes"` // of the body
	Priority  uint8      `json:"priority"`
	Attempts  uint32     `json:"attempts"` // deliveries that came back
	Failed    uint32     `json:"failed"`   // of these, what counts for the delivery limit
	Expires   *time.Time `json:"expires,omitempty"`
	Exchange  string     `json:"exchange"`
	Keys      []string   `json:"routing_keys"`
	MessageID string     `json:"message_id,omitempty"`
	Deaths    []Death    `json:"deaths,omitempty"` // newest first
	// The body, as text or as base64.
	Payload         string `json:"payload"`
	PayloadEncoding string `json:"payload_encoding"`
	Problem         string `json:"problem,omitempty"`

	*Leaving
}

// Leaving is what is known of an item of the outbox.
type Leaving struct {
	State  string    `json:"state"`
	Reason string    `json:"reason"`
	Died   time.Time `json:"died"`
	// Legs are the targets that have not taken it, with its number for each.
	Legs []Leg `json:"legs"`
}

// Leg is an item's way to one target.
type Leg struct {
	Queue  uint64 `json:"queue"`
	Number uint64 `json:"number"`
}

// Death is a line of a message's history.
type Death struct {
	Queue    string    `json:"queue"`
	Reason   string    `json:"reason"`
	Count    uint64    `json:"count"`
	Exchange string    `json:"exchange"`
	Keys     []string  `json:"routing_keys"`
	Last     time.Time `json:"last"`
	Detail   string    `json:"detail,omitempty"` // what the client said that rejected it last
}

// LiveMessages lists live messages with ids above after, limit at most; 0 is no limit.
func (s *State) LiveMessages(after uint64, limit int) (list []Message) {
	for id := queue.MessageID(after); limit <= 0 || len(list) < limit; {
		m, ok := s.machine.Queue().NextLive(id)
		if !ok {
			break
		}
		id = m.ID
		x := Message{ID: uint64(m.ID), Bytes: m.BodyBytes, Priority: m.Priority, Attempts: m.Attempt, Failed: m.Failed}
		if m.ExpiresAt != 0 {
			t := instant(m.ExpiresAt)
			x.Expires = &t
		}
		s.read(&x, m.Ref)
		list = append(list, x)
	}
	return list
}

// OutboxItems lists the items of the outbox with ids above after, limit at most; 0 is no limit.
func (s *State) OutboxItems(after uint64, limit int) (list []Message) {
	for id := dlx.ItemID(after); limit <= 0 || len(list) < limit; {
		it, ok := s.machine.Outbox().Next(id)
		if !ok {
			break
		}
		id = it.ID
		x := Message{ID: uint64(it.ID), Bytes: it.BodyBytes, Leaving: &Leaving{State: it.State.String(), Reason: it.Reason.String(), Died: instant(it.TimeMillis)}}
		for _, l := range it.Legs {
			x.Legs = append(x.Legs, Leg{l.Target, l.Seq})
		}
		if it.Reason == dlx.Transaction {
			x.Entry = it.Ref.Index // operations for another queue, not a message
		} else {
			s.read(&x, it.Ref)
		}
		list = append(list, x)
	}
	return list
}

func instant(millis int64) time.Time { return time.UnixMilli(millis).UTC() }

// read fills in what lies in the log.
func (s *State) read(x *Message, ref queue.Ref) {
	x.Entry = ref.Index
	m, err := s.message(ref)
	if err != nil {
		x.Problem = err.Error()
		return
	}
	x.Exchange, x.Keys = m.Exchange, m.RoutingKeys
	x.MessageID, _ = amqp.RawProperties(m.Properties).MessageID()
	for _, d := range m.Deaths {
		x.Deaths = append(x.Deaths, Death{d.Queue, d.Reason.String(), d.Count, d.Exchange, d.RoutingKeys, instant(d.LastMillis), d.Detail})
	}
	if x.Payload, x.PayloadEncoding = string(m.Body), "string"; !utf8.Valid(m.Body) {
		x.Payload, x.PayloadEncoding = base64.StdEncoding.EncodeToString(m.Body), "base64"
	}
}

func (s *State) message(ref queue.Ref) (m fsm.Message, err error) {
	if s.entry.Index != ref.Index {
		if s.entry, err = s.group.Entry(ref.Index); err != nil {
			return m, fmt.Errorf("entry %d: %w", ref.Index, err)
		}
	}
	return fsm.MessageIn(s.entry.Data, ref)
}
