package shovel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// AckMode says when a message is acknowledged at the source.
type AckMode string

// The ack modes, by RabbitMQ's names.
const (
	// OnConfirm: when the destination has confirmed the message.
	OnConfirm AckMode = "on-confirm"
	// OnPublish: when the message has been sent to the destination.
	OnPublish AckMode = "on-publish"
	// NoAck: never; the source forgets a message as it sends it.
	NoAck AckMode = "no-ack"
)

// Defaults and bounds of a definition.
const (
	prefetchDefault = 1000
	prefetchMax     = 10_000
	delayDefault    = 5 * time.Second
	delayMax        = 24 * time.Hour
	urisMax         = 64
)

// Definition is what a shovel is to do.
type Definition struct {
	Source      Source
	Destination Destination
	AckMode     AckMode
	// ReconnectDelay is how long the shovel waits after a failure; 0: it does not start again.
	ReconnectDelay time.Duration
}

// Source is where the messages come from: a queue, or an exchange, from which they come through a queue of the shovel's own.
type Source struct {
	URIs          []URI
	Queue         string
	QueueArgs     amqp.Table
	Exchange, Key string
	ConsumerArgs  amqp.Table
	// Predeclared: the queue is there, and is not declared.
	Predeclared bool
	// Prefetch is the most messages under way at once, up to prefetchMax.
	Prefetch int
	// DeleteAfter is after how many messages the shovel is done: a number, Never or QueueLength.
	DeleteAfter int
}

// What [Source.DeleteAfter] may be beside a number.
const (
	// QueueLength stands for the number of messages in the queue when the shovel starts.
	QueueLength = -1
	// Never: the shovel goes on.
	Never = -2
)

// Destination is where they go: a queue, or an exchange. With neither, to the exchange that they were published to at the source.
type Destination struct {
	URIs      []URI
	Queue     string
	QueueArgs amqp.Table
	// Exchange and Key replace the message's own; nil keeps it.
	Exchange, Key  *string
	Predeclared    bool
	Properties     Properties
	ForwardHeaders bool
	TimeHeader     bool
}

// former names of keys, which RabbitMQ still takes.
var former = map[string]string{
	"prefetch-count": "src-prefetch-count", "delete-after": "src-delete-after", "add-forward-headers": "dest-add-forward-headers",
	"add-timestamp-header": "dest-add-timestamp-header", "publish-properties": "dest-publish-properties",
}

// Parse reads a definition. Its errors are for whoever wrote it.
func Parse(value []byte) (*Definition, error) {
	p, err := read(value)
	if err != nil {
		return nil, err
	}
	d := &Definition{AckMode: OnConfirm, ReconnectDelay: delayDefault, Source: Source{Prefetch: prefetchDefault, DeleteAfter: Never}}
	p.protocol("src-protocol")
	p.protocol("dest-protocol")
	p.source(&d.Source)
	p.destination(&d.Destination)
	p.ackMode(&d.AckMode)
	p.seconds("reconnect-delay", &d.ReconnectDelay)
	p.rest()
	if p.err == nil && d.AckMode == NoAck && d.Source.DeleteAfter != Never {
		// RabbitMQ's words.
		p.fail("Cannot specify 'no-ack' and numerical 'delete-after'")
	}
	if p.err != nil {
		return nil, p.err
	}
	return d, nil
}

// parser takes the keys of a definition one by one. The first error stays.
type parser struct {
	left map[string]any
	err  error
}

func read(value []byte) (*parser, error) {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil || object == nil || dec.More() {
		return nil, fmt.Errorf("a shovel is a JSON object")
	}
	for old, now := range former {
		v, ok := object[old]
		if !ok {
			continue
		}
		if _, both := object[now]; both {
			return nil, fmt.Errorf("Cannot specify '%s' and '%s'", now, old) //nolint:staticcheck // in the form of RabbitMQ's refusals
		}
		delete(object, old)
		object[now] = v
	}
	return &parser{left: object}, nil
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// take returns a key's value; ok is false if it is not there.
func (p *parser) take(key string) (v any, ok bool) {
	v, ok = p.left[key]
	delete(p.left, key)
	return v, ok
}

// rest refuses what is not known.
func (p *parser) rest() {
	if len(p.left) > 0 {
		p.fail("Unrecognised terms: %s", strings.Join(slices.Sorted(maps.Keys(p.left)), ", "))
	}
}

func (p *parser) text(key string, max int) (s string, ok bool) {
	v, ok := p.take(key)
	if !ok {
		return "", false
	}
	s, isText := v.(string)
	switch {
	case !isText:
		p.fail("%s should be a string", key)
	case len(s) > max:
		p.fail("%s has %d bytes, the maximum is %d", key, len(s), max)
	}
	return s, true
}

// shortMax bounds names and keys, which are short strings in AMQP.
const shortMax = 255

func (p *parser) flag(key string) (set bool) {
	v, ok := p.take(key)
	if !ok {
		return false
	}
	set, isFlag := v.(bool)
	if !isFlag {
		p.fail("%s should be boolean", key)
	}
	return set
}

// number reads an integer from 0 to most.
func (p *parser) number(key string, v any, most int) int {
	n, ok := v.(json.Number)
	if !ok {
		p.fail("%s should be a number", key)
		return 0
	}
	i, err := n.Int64()
	if err != nil || i < 0 || i > int64(most) {
		p.fail("%s should be an integer from 0 to %d, actually was %s", key, most, n)
		return 0
	}
	return int(i)
}

func (p *parser) seconds(key string, d *time.Duration) {
	if v, ok := p.take(key); ok {
		*d = time.Duration(p.number(key, v, int(delayMax/time.Second))) * time.Second
	}
}

func (p *parser) protocol(key string) {
	if s, ok := p.text(key, shortMax); ok && s != "amqp091" {
		p.fail("%s: '%s' is not there, only amqp091", key, s)
	}
}

func (p *parser) ackMode(m *AckMode) {
	s, ok := p.text("ack-mode", shortMax)
	switch AckMode(s) {
	case OnConfirm, OnPublish, NoAck:
		*m = AckMode(s)
	default:
		if ok {
			p.fail("ack-mode should be one of on-confirm, on-publish and no-ack, actually was '%s'", s)
		}
	}
}

func (p *parser) source(s *Source) {
	s.URIs = p.uris("src-uri")
	var hasQueue, hasExchange bool
	s.Queue, hasQueue = p.text("src-queue", shortMax)
	s.Exchange, hasExchange = p.text("src-exchange", shortMax)
	switch {
	case hasQueue && hasExchange:
		p.fail("Cannot specify 'src-exchange' and 'src-queue'")
	case !hasQueue && !hasExchange:
		p.fail("Must specify 'src-exchange' or 'src-queue'")
	case s.Queue == "" && s.Exchange == "":
		p.fail("the name of the source is empty")
	}
	s.Key, _ = p.text("src-exchange-key", shortMax)
	s.QueueArgs, s.ConsumerArgs = p.table("src-queue-args"), p.table("src-consumer-args")
	s.Predeclared = p.flag("src-predeclared")
	if v, ok := p.take("src-prefetch-count"); ok {
		// 0 has no bound in RabbitMQ.
		if s.Prefetch = min(p.number("src-prefetch-count", v, 65535), prefetchMax); s.Prefetch == 0 {
			s.Prefetch = prefetchMax
		}
	}
	switch v, ok := p.take("src-delete-after"); {
	case !ok || v == "never":
	case v == "queue-length":
		if s.DeleteAfter = QueueLength; hasExchange {
			p.fail("src-delete-after: an exchange has no length")
		}
	default:
		s.DeleteAfter = p.number("src-delete-after", v, 1<<53)
	}
}

func (p *parser) destination(d *Destination) {
	d.URIs = p.uris("dest-uri")
	var hasQueue bool
	d.Queue, hasQueue = p.text("dest-queue", shortMax)
	exchange, hasExchange := p.text("dest-exchange", shortMax)
	switch {
	case hasQueue && hasExchange:
		p.fail("Cannot specify 'dest-exchange' and 'dest-queue'")
	case hasQueue && d.Queue == "":
		p.fail("the name of the destination is empty")
	case hasExchange:
		d.Exchange = &exchange
	}
	if key, ok := p.text("dest-exchange-key", shortMax); ok {
		d.Key = &key
	}
	if hasQueue {
		d.Exchange, d.Key = new(string), &d.Queue
	}
	d.QueueArgs = p.table("dest-queue-args")
	d.Predeclared = p.flag("dest-predeclared")
	d.ForwardHeaders, d.TimeHeader = p.flag("dest-add-forward-headers"), p.flag("dest-add-timestamp-header")
	p.properties("dest-publish-properties", &d.Properties)
}

// uris reads one URI or a list of them.
func (p *parser) uris(key string) (list []URI) {
	v, ok := p.take(key)
	if !ok {
		p.fail("Key %q not found", key)
		return nil
	}
	texts, isList := v.([]any)
	if !isList {
		texts = []any{v}
	}
	if len(texts) == 0 || len(texts) > urisMax {
		p.fail("%s should be one to %d URIs", key, urisMax)
		return nil
	}
	for _, t := range texts {
		s, isText := t.(string)
		if !isText {
			p.fail("%s should be a string, or a list of strings", key)
			return nil
		}
		u, err := ParseURI(s)
		if err != nil {
			p.fail("%s: %v", key, err)
			return nil
		}
		list = append(list, u)
	}
	return list
}
