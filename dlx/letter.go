package dlx

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// Letter is what dead lettering changes of a message; the body stays as it is.
// The fields mean what they mean in fsm.Message.
type Letter struct {
	Exchange    string
	RoutingKeys []string
	BCC         int
	Properties  []byte
	Deaths      []Death
}

// Dying says how a message died.
type Dying struct {
	Queue      string // name of the queue in which it died
	Reason     Reason
	TimeMillis int64 // machine time
	Detail     string
}

// Dead returns the letter to send through the dead-letter exchange of the
// settings: the death recorded, the exchange and, with a configured key, the
// routing key replaced, the death headers rendered and the expiration removed.
// Without a configured key the letter goes by every key it came with, BCC keys
// included. The given letter is not changed; the result shares its strings.
//
// The error says that the properties do not decode. They are then replaced by
// ones that carry the death headers alone, and the result may still be sent.
func Dead(m Letter, d Dying, s *queue.Settings) (Letter, error) {
	return DeadIn(nil, m, d, s)
}

// DeadIn is [Dead] with the result's properties appended to room.
func DeadIn(room []byte, m Letter, d Dying, s *queue.Settings) (Letter, error) {
	death := Death{
		Queue:       d.Queue,
		Reason:      d.Reason,
		LastMillis:  d.TimeMillis,
		Detail:      d.Detail,
		Exchange:    m.Exchange,
		RoutingKeys: m.RoutingKeys[:len(m.RoutingKeys)-m.BCC],
	}
	death.OriginalExpiration, death.HasExpiration = amqp.RawProperties(m.Properties).Expiration()
	before := m.Deaths
	continued := s.ContinueHistory && len(before) == 0
	if continued {
		before = clientHistory(m.Properties)
	}
	out := Letter{Exchange: s.DeadLetterExchange, RoutingKeys: m.RoutingKeys, BCC: m.BCC, Deaths: Record(before, death)}
	if continued && death.HasExpiration {
		// A retry that multiplies the expiration it finds in the history needs the newest.
		out.Deaths[0].OriginalExpiration, out.Deaths[0].HasExpiration = death.OriginalExpiration, true
	}
	if s.DeadLetterKeySet {
		out.RoutingKeys, out.BCC = []string{s.DeadLetterRoutingKey}, 0
	}
	raw, err := AppendHeaders(room, m.Properties, out.Deaths, m.Exchange, s.DeathTotal)
	out.Properties = raw[len(room):len(raw):len(raw)]
	return out, err
}
