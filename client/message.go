package client

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// headerDedup is the header that a deduplication id becomes.
const headerDedup = "x-deduplication-header"

// DeliveryMode of a message.
const (
	Transient  uint8 = 1
	Persistent uint8 = 2
)

// Message is a message with AMQP's properties. A property that is empty, or zero, is not there: a consumer cannot tell an empty one from none.
type Message struct {
	// Exchange it is published to. Empty is the default exchange: RoutingKey is then a queue's name.
	Exchange   string
	RoutingKey string
	Body       []byte

	Headers         Table
	ContentType     string
	ContentEncoding string
	// DeliveryMode is Transient or Persistent. A message that is published without is Persistent, other than in most clients of AMQP.
	DeliveryMode  uint8
	Priority      uint8
	CorrelationID string
	ReplyTo       string
	// Expiration is how many milliseconds it may wait in a queue, in decimal digits, see Expire. "0" expires where nobody takes it at once.
	Expiration string
	MessageID  string
	Timestamp  time.Time // in seconds
	Type       string
	// UserID must be the name of the publishing user.
	UserID    string
	AppID     string
	ClusterID string

	// Mandatory: publishing it fails with ErrUnroutable when no queue gets it. Else it is dropped then, without an error.
	Mandatory bool
	// DeduplicationID names it to queues that drop duplicates, of which one copy is there. It becomes the header
	// x-deduplication-header, which is where consumers find it.
	DeduplicationID string
}

// Expire is the Expiration for a time.
func Expire(after time.Duration) string {
	return strconv.FormatInt(max(0, after.Milliseconds()), 10)
}

// Death is what happened to a message in one queue for one reason: an entry of its x-death header.
type Death struct {
	// Queue it died in, Reason (rejected, expired, maxlen, delivery_limit) and how often it did.
	Queue, Reason string
	Count         uint64
	// Exchange and RoutingKeys are where it had been published to.
	Exchange    string
	RoutingKeys []string
	// Time of the first.
	Time time.Time
	// OriginalExpiration is the one that it had; it has none after having died of it.
	OriginalExpiration string
	// Detail is what the client said that rejected it there last, as by [Delivery.RejectWith]; "" if it said nothing.
	Detail string
}

// text is one of the properties that are texts.
type text struct {
	name  string
	here  *string
	there **string
}

func (m *Message) texts(p *warrenv1.Properties) [10]text {
	return [...]text{
		{"content_type", &m.ContentType, &p.ContentType},
		{"content_encoding", &m.ContentEncoding, &p.ContentEncoding},
		{"correlation_id", &m.CorrelationID, &p.CorrelationId},
		{"reply_to", &m.ReplyTo, &p.ReplyTo},
		{"expiration", &m.Expiration, &p.Expiration},
		{"message_id", &m.MessageID, &p.MessageId},
		{"type", &m.Type, &p.Type},
		{"user_id", &m.UserID, &p.UserId},
		{"app_id", &m.AppID, &p.AppId},
		{"cluster_id", &m.ClusterID, &p.ClusterId},
	}
}

// checkBody refuses what is larger than the largest body.
func (c *Client) checkBody(body []byte) error {
	if len(body) > c.cfg.MessageBytesMax {
		return invalid("a body of %d bytes is larger than %d", len(body), c.cfg.MessageBytesMax)
	}
	return nil
}

// publication is the message as nodes take it.
func (m *Message) publication() (*warrenv1.Publication, error) {
	if !utf8.ValidString(m.DeduplicationID) {
		return nil, invalid("the deduplication id is no UTF-8")
	}
	mode := uint32(m.DeliveryMode)
	if mode == 0 {
		mode = uint32(Persistent)
	}
	msg := *m // its address is taken here, and not the caller's
	props := &warrenv1.Properties{DeliveryMode: &mode}
	for _, t := range msg.texts(props) {
		switch {
		case *t.here == "":
		case utf8.ValidString(*t.here):
			*t.there = t.here
		default:
			if props.Binary == nil {
				props.Binary = map[string][]byte{}
			}
			props.Binary[t.name] = []byte(*t.here)
		}
	}
	if m.Priority != 0 {
		priority := uint32(m.Priority)
		props.Priority = &priority
	}
	if !m.Timestamp.IsZero() {
		seconds := uint64(m.Timestamp.Unix())
		props.Timestamp = &seconds
	}
	if m.Headers != nil {
		var err error
		if props.Headers, err = m.Headers.proto(); err != nil {
			return nil, err
		}
	}
	p := &warrenv1.Message{Properties: props, Body: m.Body}
	if p.Exchange = m.Exchange; !utf8.ValidString(m.Exchange) {
		p.Exchange, p.BinaryExchange = "", []byte(m.Exchange)
	}
	if p.RoutingKey = m.RoutingKey; !utf8.ValidString(m.RoutingKey) {
		p.RoutingKey, p.BinaryRoutingKey = "", []byte(m.RoutingKey)
	}
	return &warrenv1.Publication{Message: p, Mandatory: m.Mandatory, DeduplicationId: m.DeduplicationID}, nil
}

// messageOf is a message of a node.
func messageOf(p *warrenv1.Message) Message {
	props := p.GetProperties()
	if props == nil {
		props = &warrenv1.Properties{}
	}
	m := Message{
		Exchange: p.GetExchange(), RoutingKey: p.GetRoutingKey(), Body: p.GetBody(), Headers: tableOf(props.GetHeaders()),
		DeliveryMode: uint8(min(props.GetDeliveryMode(), math.MaxUint8)), Priority: uint8(min(props.GetPriority(), math.MaxUint8)),
	}
	if b := p.GetBinaryExchange(); len(b) > 0 {
		m.Exchange = string(b)
	}
	if b := p.GetBinaryRoutingKey(); len(b) > 0 {
		m.RoutingKey = string(b)
	}
	for _, t := range m.texts(props) {
		if *t.there != nil {
			*t.here = **t.there
		} else if b, ok := props.GetBinary()[t.name]; ok {
			*t.here = string(b)
		}
	}
	if props.Timestamp != nil {
		m.Timestamp = time.Unix(int64(props.GetTimestamp()), 0).UTC()
	}
	return m
}

func deathsOf(list []*warrenv1.Death) []Death {
	var deaths []Death
	for _, d := range list {
		deaths = append(deaths, Death{
			Queue: d.GetQueue(), Reason: d.GetReason(), Count: d.GetCount(), Exchange: d.GetExchange(), RoutingKeys: d.GetRoutingKeys(),
			Time: time.Unix(int64(d.GetTime()), 0).UTC(), OriginalExpiration: d.GetOriginalExpiration(), Detail: d.GetDetail(),
		})
	}
	return deaths
}
