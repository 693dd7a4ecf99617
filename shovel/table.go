package shovel

import (
	"encoding/json"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Properties replace those of a message; nil keeps the message's own.
type Properties struct {
	ContentType, ContentEncoding, CorrelationID, ReplyTo, Expiration, MessageID, Type, UserID, AppID *string
	DeliveryMode, Priority                                                                           *uint8
	Timestamp                                                                                        *time.Time
	Headers                                                                                          amqp.Table
}

// depthMax bounds how deep tables may be nested.
const depthMax = 16

// table reads a table of arguments.
func (p *parser) table(key string) amqp.Table {
	v, ok := p.take(key)
	if !ok {
		return nil
	}
	return p.asTable(key, v)
}

func (p *parser) asTable(key string, v any) amqp.Table {
	if empty, ok := v.([]any); ok && len(empty) == 0 {
		return nil // PHP's clients write an empty object so
	}
	object, ok := v.(map[string]any)
	if !ok {
		p.fail("%s should be an object", key)
		return nil
	}
	t, _ := p.field(key, object, depthMax).(amqp.Table)
	return t
}

// field is the AMQP field for a value of JSON: numbers are 64 bits wide.
func (p *parser) field(key string, v any, depth int) any {
	if depth == 0 {
		p.fail("%s is nested too deep", key)
		return nil
	}
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			p.fail("%s: %s is no number of 64 bits", key, v)
		}
		return f
	case map[string]any:
		t := make(amqp.Table, len(v))
		for k, e := range v {
			if len(k) > shortMax {
				p.fail("%s: a key of %d bytes is longer than %d", key, len(k), shortMax)
			}
			t[k] = p.field(key, e, depth-1)
		}
		return t
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = p.field(key, e, depth-1)
		}
		return list
	default: // string, bool, nil
		return v
	}
}

func (p *parser) properties(key string, to *Properties) {
	v, ok := p.take(key)
	if !ok {
		return
	}
	if empty, ok := v.([]any); ok && len(empty) == 0 {
		return
	}
	object, ok := v.(map[string]any)
	if !ok {
		p.fail("%s should be an object", key)
		return
	}
	texts := map[string]**string{
		"content_type": &to.ContentType, "content_encoding": &to.ContentEncoding, "correlation_id": &to.CorrelationID, "reply_to": &to.ReplyTo,
		"expiration": &to.Expiration, "message_id": &to.MessageID, "type": &to.Type, "user_id": &to.UserID, "app_id": &to.AppID,
	}
	sub := &parser{left: object, err: p.err}
	for name, at := range texts {
		if s, ok := sub.text(name, shortMax); ok {
			*at = &s
		}
	}
	sub.byteOf("delivery_mode", 2, &to.DeliveryMode)
	sub.byteOf("priority", 255, &to.Priority)
	if v, ok := sub.take("timestamp"); ok {
		at := time.Unix(int64(sub.number("timestamp", v, 1<<53)), 0)
		to.Timestamp = &at
	}
	to.Headers = sub.table("headers")
	for name := range sub.left {
		sub.fail("%s: there is no property '%s'", key, name)
	}
	p.err = sub.err
}

func (p *parser) byteOf(key string, most int, at **uint8) {
	if v, ok := p.take(key); ok {
		n := uint8(p.number(key, v, most)) //nolint:gosec // at most 255
		*at = &n
	}
}
