package shovel

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Headers that a shovel adds, by RabbitMQ's names.
const (
	headerShovelled = "x-shovelled"
	headerTime      = "x-shovelled-timestamp"
)

// outgoing is what a message is published as.
func (w *Worker) outgoing(d *amqp.Delivery, src, dst *link) (exchange, key string, m amqp.Publishing) {
	to := &w.def.Destination
	exchange, key = d.Exchange, d.RoutingKey
	replace(&exchange, to.Exchange)
	replace(&key, to.Key)
	m = amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type,
		UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}
	if m.UserId != dst.user {
		m.UserId = "" // a broker refuses a message of somebody else (RabbitMQ's validated user-id)
	}
	to.Properties.replace(&m)
	if to.ForwardHeaders || to.TimeHeader {
		m.Headers = copyOf(m.Headers)
	}
	if to.ForwardHeaders {
		before, _ := m.Headers[headerShovelled].([]any)
		m.Headers[headerShovelled] = append([]any{w.passage(src, dst)}, before...)
	}
	if to.TimeHeader {
		m.Headers[headerTime] = time.Now().Unix()
	}
	return exchange, key, m
}

// passage is what x-shovelled says of this shovel.
func (w *Worker) passage(src, dst *link) amqp.Table {
	t := amqp.Table{
		"shovelled-by": w.cfg.Cluster(), "shovel-type": "dynamic", "shovel-name": w.def.Name, "shovel-vhost": w.def.VHost,
		"src-uri": src.uri.String(), "dest-uri": dst.uri.String(),
	}
	from, to := &w.def.Source, &w.def.Destination
	if from.Queue != "" {
		t["src-queue"] = from.Queue
	} else {
		t["src-exchange"], t["src-exchange-key"] = from.Exchange, from.Key
	}
	if to.Queue != "" {
		t["dest-queue"] = to.Queue
		return t
	}
	if to.Exchange != nil {
		t["dest-exchange"] = *to.Exchange
	}
	if to.Key != nil {
		t["dest-exchange-key"] = *to.Key
	}
	return t
}

func replace[T any](at *T, by *T) {
	if by != nil {
		*at = *by
	}
}

func (p *Properties) replace(m *amqp.Publishing) {
	replace(&m.ContentType, p.ContentType)
	replace(&m.ContentEncoding, p.ContentEncoding)
	replace(&m.CorrelationId, p.CorrelationID)
	replace(&m.ReplyTo, p.ReplyTo)
	replace(&m.Expiration, p.Expiration)
	replace(&m.MessageId, p.MessageID)
	replace(&m.Type, p.Type)
	replace(&m.UserId, p.UserID)
	replace(&m.AppId, p.AppID)
	replace(&m.DeliveryMode, p.DeliveryMode)
	replace(&m.Priority, p.Priority)
	replace(&m.Timestamp, p.Timestamp)
	if p.Headers != nil {
		m.Headers = p.Headers
	}
}

func copyOf(t amqp.Table) amqp.Table {
	c := make(amqp.Table, len(t)+2)
	maps.Copy(c, t)
	return c
}

// mark finds the message that the destination has returned among those that were sent. A return does not say which one it is of. If there are several
// that are the same in everything, it does not matter which. If none is, because the destination has changed something, all that it could be
// count as returned: then some may come twice, and none is lost.
func (f *forwarder) mark(r *amqp.Return) error {
	var alike []*letter
	for _, l := range f.sent {
		if l.returned {
			continue
		}
		exchange, key, m := f.w.outgoing(&l.Delivery, f.src, f.dst)
		if exchange != r.Exchange || key != r.RoutingKey || !bytes.Equal(m.Body, r.Body) {
			continue
		}
		if same(&m, r) {
			l.returned = true
			return nil
		}
		alike = append(alike, l)
	}
	if alike == nil {
		return broken(errDestination, errors.New("it returns what was not sent"))
	}
	for _, l := range alike {
		l.returned = true
	}
	return nil
}

// same tells whether a return has the properties of a message, but for the time of its passage.
func same(m *amqp.Publishing, r *amqp.Return) bool {
	return m.ContentType == r.ContentType && m.ContentEncoding == r.ContentEncoding && m.DeliveryMode == r.DeliveryMode && m.Priority == r.Priority &&
		m.CorrelationId == r.CorrelationId && m.ReplyTo == r.ReplyTo && m.Expiration == r.Expiration && m.MessageId == r.MessageId &&
		m.Timestamp.Unix() == r.Timestamp.Unix() && m.Type == r.Type && m.UserId == r.UserId && m.AppId == r.AppId && sameHeaders(m.Headers, r.Headers)
}

func sameHeaders(a, b amqp.Table) bool {
	without := func(t amqp.Table) amqp.Table {
		t = copyOf(t)
		delete(t, headerTime)
		return t
	}
	return reflect.DeepEqual(without(a), without(b))
}

// drainReturns marks what has been returned: returns come before the confirms of their messages.
func (f *forwarder) drainReturns() error {
	for {
		select {
		case r, ok := <-f.returns:
			if !ok {
				return nil
			}
			if err := f.mark(&r); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}
