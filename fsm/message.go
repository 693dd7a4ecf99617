package fsm

import (
	"fmt"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// Message is a message as it lies in an entry. Strings and slices may share
// the entry's bytes and must not be modified.
type Message struct {
	Exchange string
	// RoutingKeys are the keys the message was routed with: publish key, CC
	// keys, BCC keys. The first is what consumers see.
	RoutingKeys []string
	BCC         int    // how many keys at the end are BCC's
	Properties  []byte // raw AMQP property flags and values, BCC header removed
	Body        []byte
	Deaths      []dlx.Death // the server's own history, newest first
}

// Dead returns the message that leaves for the dead-letter exchange of the
// settings: see dlx.Dead. It shares m's strings and body.
func (m *Message) Dead(d dlx.Dying, s *queue.Settings) (Message, error) {
	return m.DeadIn(nil, d, s)
}

// DeadIn is Dead with the properties of the result appended to room, which they share.
func (m *Message) DeadIn(room []byte, d dlx.Dying, s *queue.Settings) (Message, error) {
	l, err := dlx.DeadIn(room, dlx.Letter{
		Exchange: m.Exchange, RoutingKeys: m.RoutingKeys, BCC: m.BCC, Properties: m.Properties, Deaths: m.Deaths,
	}, d, s)
	return Message{
		Exchange: l.Exchange, RoutingKeys: l.RoutingKeys, BCC: l.BCC, Properties: l.Properties, Body: m.Body, Deaths: l.Deaths,
	}, err
}

// MessageIn returns the stored message that ref refers to, from the payload of its entry.
// It shares the payload's bytes.
func MessageIn(entry []byte, ref queue.Ref) (Message, error) {
	end := uint64(ref.Offset) + uint64(ref.Length)
	if uint64(len(entry)) < end {
		return Message{}, fmt.Errorf("entry %d has %d bytes, the message ends at %d", ref.Index, len(entry), end)
	}
	return DecodeMessage(entry[ref.Offset:end])
}

// Redriven returns the message as a redrive sends it back: see dlx.Redriven. It shares
// m's strings, properties and body.
func (m *Message) Redriven(from *dlx.Death) Message {
	l := dlx.Redriven(dlx.Letter{
		Exchange: m.Exchange, RoutingKeys: m.RoutingKeys, BCC: m.BCC, Properties: m.Properties, Deaths: m.Deaths,
	}, from)
	return Message{
		Exchange: l.Exchange, RoutingKeys: l.RoutingKeys, BCC: l.BCC, Properties: l.Properties, Body: m.Body, Deaths: l.Deaths,
	}
}
