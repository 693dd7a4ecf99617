package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// runs numbers the runs of this process: names are not used twice.
var runs atomic.Int64

// world is one broker during one run.
type world struct {
	mix    *mix
	urls   []string
	http   string
	client *http.Client
	prefix string // of all names
	conns  [conns]*amqp.Connection
	chans  [channels]*channel
	// probe belongs to a connection of its own, by which the queues' counts are read.
	ctl   *amqp.Connection
	probe *amqp.Channel

	listeners sync.WaitGroup
	mu        sync.Mutex // guards the rest
	events    []event
}

// channel is a channel with what it has been delivered and not settled, guarded by the world's mutex.
type channel struct {
	*amqp.Channel
	confirms bool
	held     []held
}

// held is a delivery under a label that is the same in both worlds; its tag may not be.
type held struct {
	tag      uint64
	consumer string
	label    string
}

// event is what came of itself.
type event struct {
	ch       int
	consumer string // of a delivery
	tag      uint64 // of a delivery
	text     string
}

// open connects to a broker. What it returns is to be closed, with an error too.
func open(b *broker, m *mix, prefix string) (*world, error) {
	w := &world{mix: m, urls: b.urls, http: b.http, client: b.client, prefix: prefix}
	var err error
	if w.ctl, err = w.connect(0); err != nil {
		return w, err
	}
	if w.probe, err = w.ctl.Channel(); err != nil {
		return w, err
	}
	return w, w.mend()
}

func (w *world) connect(node int) (*amqp.Connection, error) {
	return amqp.DialConfig(w.urls[node%len(w.urls)], amqp.Config{Heartbeat: 30 * time.Second})
}

// mend opens what is closed.
func (w *world) mend() (err error) {
	for i, c := range w.conns {
		if c == nil || c.IsClosed() {
			if w.conns[i], err = w.connect(i + 1); err != nil {
				return err
			}
		}
	}
	for n, c := range w.chans {
		if c == nil || c.IsClosed() {
			if err := w.channel(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// channel opens a channel and listens to what it tells.
func (w *world) channel(n int) error {
	ch, err := w.conns[n%conns].Channel()
	if err != nil {
		return err
	}
	w.chans[n] = &channel{Channel: ch}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	returns := ch.NotifyReturn(make(chan amqp.Return, 256))
	cancels := ch.NotifyCancel(make(chan string, 64))
	listen(w, closes, func(e *amqp.Error) { w.note(event{ch: n, text: fmt.Sprintf("closed %d %s", e.Code, e.Reason)}) })
	listen(w, returns, func(r amqp.Return) {
		p := amqp.Publishing{
			Headers: r.Headers, Priority: r.Priority, Expiration: r.Expiration, DeliveryMode: r.DeliveryMode,
			Type: r.Type, MessageId: r.MessageId, CorrelationId: r.CorrelationId, ContentType: r.ContentType, AppId: r.AppId, UserId: r.UserId,
		}
		w.note(event{ch: n, text: fmt.Sprintf("returned %d %s, exchange %q, key %q, %s%s", r.ReplyCode, r.ReplyText, r.Exchange, r.RoutingKey, r.Body, properties(&p))})
	})
	listen(w, cancels, func(tag string) { w.note(event{ch: n, text: "cancelled " + tag}) })
	return nil
}

// listen ends when the library closes the channel, at the latest in close.
func listen[T any](w *world, from <-chan T, f func(T)) {
	w.listeners.Go(func() {
		for v := range from {
			f(v)
		}
	})
}

func (w *world) note(e event) {
	e.text = w.plain(e.text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// plain is a text without the run's prefix of names.
func (w *world) plain(text string) string { return strings.ReplaceAll(text, w.prefix, "") }

// close takes away all that the run has made.
func (w *world) close() {
	for _, c := range w.conns {
		if c != nil {
			_ = c.Close()
		}
	}
	w.listeners.Wait()
	if w.ctl == nil {
		return
	}
	for q := range queues {
		w.last(func(ch *amqp.Channel) { _, _ = ch.QueueDelete(w.queueName(q), false, false, false) })
	}
	for n := range policyNames {
		_ = policy(w, nil, &op{kind: clearPolicy, n: n}) // it may not be there
		_ = policy(w, nil, &op{kind: clearOperator, n: n})
	}
	for x := range exchanges {
		w.last(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(w.exchangeName(x), false, false) })
	}
	_ = w.ctl.Close()
}

// last does something in a channel of its own, which a refusal closes.
func (w *world) last(f func(*amqp.Channel)) {
	if ch, err := w.ctl.Channel(); err == nil {
		f(ch)
		_ = ch.Close()
	}
}

// queueName is "" for the queue that was declared last on the channel.
func (w *world) queueName(i int) string {
	if i == lastQueue {
		return ""
	}
	return fmt.Sprint(w.prefix, "q", i)
}

func (w *world) exchangeName(i int) string {
	switch {
	case i == toQueue:
		return ""
	case i < exchanges:
		return fmt.Sprint(w.prefix, "x", i)
	}
	return others[i-exchanges]
}

// named puts the run's names in the place of "q0", "x1" and so on.
func (w *world) named(t amqp.Table) amqp.Table {
	if t == nil {
		return nil
	}
	out := amqp.Table{}
	for k, v := range t {
		if list, ok := v.([]any); ok {
			v = slices.Clone(list)
			for i := range list {
				v.([]any)[i] = w.name(list[i])
			}
		}
		out[k] = w.name(v)
	}
	return out
}

func (w *world) name(v any) any {
	if s, ok := v.(string); ok && len(s) == 2 && (s[0] == 'q' || s[0] == 'x') {
		return w.prefix + s
	}
	return v
}

// fault is an error as it is compared.
func (w *world) fault(err error) string {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return w.plain(fmt.Sprintf("%d %s", e.Code, e.Reason))
	}
	if err != nil {
		return "error " + err.Error()
	}
	return "ok"
}

// state is what the queues hold.
func (w *world) state() string {
	list := make([]string, queues)
	for q := range list {
		m, err := w.probe.QueueDeclarePassive(w.queueName(q), false, false, false, false, nil)
		if err == nil {
			list[q] = fmt.Sprintf("q%d: %d ready%s", q, m.Messages, w.consumers(&m))
			continue
		}
		list[q] = fmt.Sprintf("q%d: %.3s", q, w.fault(err))
		if w.probe, err = w.ctl.Channel(); err != nil {
			return "not known: " + err.Error()
		}
	}
	return strings.Join(list, "; ")
}

// consumers is how many a queue has. For quorum queues RabbitMQ counts channels that hold what they have got, too, and none that wait to
// become active.
func (w *world) consumers(q *amqp.Queue) string {
	if w.mix.replicated() {
		return ""
	}
	return fmt.Sprintf(", %d consumers", q.Consumers)
}

// seen returns what came of itself since forget, by channels. What a channel is told of different consumers may come
// in any order, as may what is no delivery.
func (w *world) seen() []string {
	w.mu.Lock()
	list := slices.Clone(w.events)
	w.mu.Unlock()
	slices.SortStableFunc(list, func(a, b event) int { return a.compare(&b) })
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = fmt.Sprintf("channel %d: %s", e.ch, e.text)
	}
	return texts
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
}
