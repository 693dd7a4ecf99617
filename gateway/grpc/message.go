package grpc

import (
	"math"
	"unicode/utf8"

	wire "github.com/warrenmq/warren/amqp"
	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
)

// shortMax is the longest name, routing key and text property in bytes: a short string of AMQP.
const shortMax = 255

// texts are the properties that are texts: their names in the API and how they are read and set.
var texts = []struct {
	name string
	of   func(*warrenv1.Properties) **string
	get  func(*wire.Properties) (string, bool)
	set  func(*wire.Properties, string)
}{
	{"content_type", func(p *warrenv1.Properties) **string { return &p.ContentType }, (*wire.Properties).ContentType, (*wire.Properties).SetContentType},
	{"content_encoding", func(p *warrenv1.Properties) **string { return &p.ContentEncoding }, (*wire.Properties).ContentEncoding, (*wire.Properties).SetContentEncoding},
	{"correlation_id", func(p *warrenv1.Properties) **string { return &p.CorrelationId }, (*wire.Properties).CorrelationID, (*wire.Properties).SetCorrelationID},
	{"reply_to", func(p *warrenv1.Properties) **string { return &p.ReplyTo }, (*wire.Properties).ReplyTo, (*wire.Properties).SetReplyTo},
	{"expiration", func(p *warrenv1.Properties) **string { return &p.Expiration }, (*wire.Properties).Expiration, (*wire.Properties).SetExpiration},
	{"message_id", func(p *warrenv1.Properties) **string { return &p.MessageId }, (*wire.Properties).MessageID, (*wire.Properties).SetMessageID},
	{"type", func(p *warrenv1.Properties) **string { return &p.Type }, (*wire.Properties).Type, (*wire.Properties).SetType},
	{"user_id", func(p *warrenv1.Properties) **string { return &p.UserId }, (*wire.Properties).UserID, (*wire.Properties).SetUserID},
	{"app_id", func(p *warrenv1.Properties) **string { return &p.AppId }, (*wire.Properties).AppID, (*wire.Properties).SetAppID},
	{"cluster_id", func(p *warrenv1.Properties) **string { return &p.ClusterId }, (*wire.Properties).ClusterID, (*wire.Properties).SetClusterID},
}

// propertiesOf are a client's properties in AMQP's form, behind what dst holds. The error is a *refusal.
func propertiesOf(dst []byte, p *warrenv1.Properties, dedup string) (wire.RawProperties, error) {
	if p == nil && dedup == "" {
		return nil, nil
	}
	var props wire.Properties
	for i := range texts {
		t := &texts[i]
		var text string
		if v := *t.of(orEmpty(p)); v != nil {
			text = *v
		} else if b, ok := p.GetBinary()[t.name]; ok {
			text = string(b)
		} else {
			continue
		}
		if len(text) > shortMax {
			return nil, invalid("%s of %d bytes is longer than %d", t.name, len(text), shortMax)
		}
		t.set(&props, text)
	}
	for name := range p.GetBinary() {
		if !isText(name) {
			return nil, invalid("no property '%s' is a text", name)
		}
	}
	if err := numbersOf(&props, p); err != nil {
		return nil, err
	}
	if p.GetHeaders() != nil || dedup != "" {
		headers, err := tableOf(p.GetHeaders())
		if err != nil {
			return nil, err
		}
		if dedup != "" {
			headers.Set(exchange.HeaderDedup, dedup)
		}
		props.SetHeaders(headers)
	}
	return props.AppendTo(dst), nil
}

func numbersOf(props *wire.Properties, p *warrenv1.Properties) error {
	if p == nil {
		return nil
	}
	if p.DeliveryMode != nil {
		if *p.DeliveryMode > math.MaxUint8 {
			return invalid("delivery_mode %d is larger than 255", *p.DeliveryMode)
		}
		props.SetDeliveryMode(uint8(*p.DeliveryMode))
	}
	if p.Priority != nil {
		if *p.Priority > math.MaxUint8 {
			return invalid("priority %d is larger than 255", *p.Priority)
		}
		props.SetPriority(uint8(*p.Priority))
	}
	if p.Timestamp != nil {
		props.SetTimestamp(wire.Timestamp(*p.Timestamp))
	}
	return nil
}

var noProperties warrenv1.Properties // read only

func orEmpty(p *warrenv1.Properties) *warrenv1.Properties {
	if p == nil {
		return &noProperties
	}
	return p
}

func isText(name string) bool {
	for i := range texts {
		if texts[i].name == name {
			return true
		}
	}
	return false
}

// propertiesFor are AMQP's properties for a client; nil if there are none.
func propertiesFor(raw wire.RawProperties) *warrenv1.Properties {
	if raw.Flags() == 0 {
		return nil
	}
	props, err := wire.DecodeProperties(raw)
	if err != nil {
		return nil // they were validated when they were published
	}
	p := &warrenv1.Properties{}
	for i := range texts {
		t := &texts[i]
		v, ok := t.get(&props)
		switch {
		case !ok:
		case utf8.ValidString(v):
			*t.of(p) = &v
		default:
			if p.Binary == nil {
				p.Binary = map[string][]byte{}
			}
			p.Binary[t.name] = []byte(v)
		}
	}
	if v, ok := props.DeliveryMode(); ok {
		n := uint32(v)
		p.DeliveryMode = &n
	}
	if v, ok := props.Priority(); ok {
		n := uint32(v)
		p.Priority = &n
	}
	if v, ok := props.Timestamp(); ok {
		n := uint64(v)
		p.Timestamp = &n
	}
	if v, ok := props.Headers(); ok {
		p.Headers = tableFor(v)
	}
	return p
}

// nameOf is a name or a key of a client, which is a text or bytes that are none.
func nameOf(what, text string, binary []byte) (string, error) {
	if text == "" {
		text = string(binary)
	}
	return text, checkName(what, text)
}

func checkName(what, name string) error {
	if len(name) > shortMax {
		return invalid("%s of %d bytes is longer than %d", what, len(name), shortMax)
	}
	return nil
}

// publicationOf is a client's message as the broker takes it. The error is a *refusal.
func (s *Server) publicationOf(p *warrenv1.Publication) (broker.Publish, error) {
	m := p.GetMessage()
	if m == nil {
		return broker.Publish{}, invalid("publication without a message")
	}
	if len(m.GetBody()) > s.cfg.MessageBytesMax {
		return broker.Publish{}, invalid("message size %d is larger than configured max size %d", len(m.GetBody()), s.cfg.MessageBytesMax)
	}
	x, err := nameOf("exchange", m.GetExchange(), m.GetBinaryExchange())
	if err != nil {
		return broker.Publish{}, err
	}
	key, err := nameOf("routing_key", m.GetRoutingKey(), m.GetBinaryRoutingKey())
	if err != nil {
		return broker.Publish{}, err
	}
	props, err := propertiesOf(nil, m.GetProperties(), p.GetDeduplicationId())
	if err != nil {
		return broker.Publish{}, err
	}
	if len(props) > wire.PropertiesMax {
		return broker.Publish{}, invalid("headers and properties of %d bytes are more than %d, which is what clients of AMQP take", len(props), wire.PropertiesMax)
	}
	return broker.Publish{Exchange: x, Key: key, Mandatory: p.GetMandatory(), Properties: props, Body: m.GetBody()}, nil
}

// messageFor is a message for a client. The body is shared.
func messageFor(x, key string, props wire.RawProperties, body []byte) *warrenv1.Message {
	m := &warrenv1.Message{Properties: propertiesFor(props), Body: body}
	if utf8.ValidString(x) {
		m.Exchange = x
	} else {
		m.BinaryExchange = []byte(x)
	}
	if utf8.ValidString(key) {
		m.RoutingKey = key
	} else {
		m.BinaryRoutingKey = []byte(key)
	}
	return m
}

// deathsFor is the death history of a message: what its header says.
func deathsFor(m *warrenv1.Message) (deaths []*warrenv1.Death) {
	list := m.GetProperties().GetHeaders().GetFields()["x-death"].GetArrayValue()
	for _, v := range list.GetValues() {
		f := v.GetTableValue().GetFields()
		if f == nil {
			continue // a client's own
		}
		d := &warrenv1.Death{
			Queue: f["queue"].GetStringValue(), Reason: f["reason"].GetStringValue(), Count: uint64(max(0, f["count"].GetInt64Value())),
			Exchange: f["exchange"].GetStringValue(), Time: f["time"].GetTimestampValue(), OriginalExpiration: f["original-expiration"].GetStringValue(),
			Detail: f["detail"].GetStringValue(),
		}
		for _, key := range f["routing-keys"].GetArrayValue().GetValues() {
			d.RoutingKeys = append(d.RoutingKeys, key.GetStringValue())
		}
		deaths = append(deaths, d)
	}
	return deaths
}
