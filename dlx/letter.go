package dlx

import (
	"fmt"
	"slices"

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
	death := Death{
		Queue:       d.Queue,
		Reason:      d.Reason,
		LastMillis:  d.TimeMillis,
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
	raw, err := Headers(m.Properties, out.Deaths, s.DeathTotal)
	out.Properties = raw
	return out, err
}

// Names of the headers that tell of deaths.
const (
	headerDeaths     = "x-death"
	headerFirstDeath = "x-first-death-"
	headerLastDeath  = "x-last-death-"
	headerDeathTotal = "x-death-total"
)

// What rendering adds: headers, and about how many bytes for each death, the first and the last
// one once more.
const (
	headersAdded = 8
	deathRoom    = 192
)

// Headers renders a message's history, which must not be empty, into its
// properties: x-death, x-first-death-* and x-last-death-*, with the expiration
// removed; with total also x-death-total, the sum of the counts. A client's own headers of these names give way. On an error, about raw
// properties that do not decode, the result carries the death headers alone.
func Headers(raw amqp.RawProperties, deaths []Death, total bool) (amqp.RawProperties, error) {
	edit := func(p *amqp.Properties) {
		headers, _ := p.Headers()
		headers = slices.Grow(headers, headersAdded)
		headers.Set(headerDeaths, renderDeaths(deaths))
		// The history begins with this death, or the first one's headers are
		// already there: they came with the properties from the queue before.
		if _, ok := headers.Get(headerFirstDeath + "reason"); !ok || len(deaths) == 1 && deaths[0].Count == 1 {
			setDeath(&headers, headerFirstDeath, oldest(deaths))
		}
		setDeath(&headers, headerLastDeath, &deaths[0])
		if total {
			headers.Set(headerDeathTotal, deathTotal(deaths))
		}
		p.SetHeaders(headers)
		p.Remove(amqp.PropExpiration)
	}
	out, err := amqp.RewriteMore(raw, (2+len(deaths))*deathRoom, edit)
	if err != nil {
		fresh, _ := amqp.Rewrite(nil, edit)
		return fresh, fmt.Errorf("render deaths: %w", err)
	}
	return out, nil
}

func deathTotal(deaths []Death) (n int64) {
	for i := range deaths {
		n += int64(deaths[i].Count)
	}
	return n
}

func setDeath(headers *amqp.Table, prefix string, d *Death) {
	headers.Set(prefix+"queue", d.Queue)
	headers.Set(prefix+"reason", d.Reason.String())
	headers.Set(prefix+"exchange", d.Exchange)
}

// oldest returns the record that was created first.
func oldest(deaths []Death) *Death {
	first := &deaths[len(deaths)-1]
	for i := len(deaths) - 2; i >= 0; i-- {
		if deaths[i].FirstMillis < first.FirstMillis {
			first = &deaths[i]
		}
	}
	return first
}

func renderDeaths(deaths []Death) amqp.Array {
	list := make(amqp.Array, len(deaths))
	for i := range deaths {
		d := &deaths[i]
		t := make(amqp.Table, 0, 7)
		if d.HasExpiration {
			t = append(t, amqp.Field{Name: "original-expiration", Value: d.OriginalExpiration})
		}
		keys := make(amqp.Array, len(d.RoutingKeys))
		for k, key := range d.RoutingKeys {
			keys[k] = key
		}
		list[i] = append(t,
			amqp.Field{Name: "count", Value: int64(d.Count)},
			amqp.Field{Name: "reason", Value: d.Reason.String()},
			amqp.Field{Name: "queue", Value: d.Queue},
			amqp.Field{Name: "time", Value: amqp.Timestamp(max(d.FirstMillis, 0) / 1000)},
			amqp.Field{Name: "exchange", Value: d.Exchange},
			amqp.Field{Name: "routing-keys", Value: keys},
		)
	}
	return list
}
