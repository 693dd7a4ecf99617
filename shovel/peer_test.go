package shovel

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/amqp"
)

// peer is the server's end of one connection of a shovel: it answers what every broker answers, and leaves the rest to its role. Its methods are
// called by the goroutine that reads, or with the world's mutex held.
type peer struct {
	w    *world
	role string
	conn net.Conn
	in   *amqp.FrameReader
	out  chan []byte

	// As the source.
	consumers map[string]*consumer
	order     []string // of consumers
	unacked   map[uint64]unacked
	tag       uint64
	acks      int

	// As the destination.
	published uint64
	open      []outcome // not confirmed yet
	closed    bool      // its channel
}

type consumer struct {
	prefetch, held int
}

type unacked struct {
	id       string
	consumer *consumer
}

type outcome struct {
	seq  uint64
	id   string
	nack bool
	back bool // returned
}

// world is a source with a queue and a destination that is moody, in one process.
type world struct {
	mu        sync.Mutex
	rnd       *rand.Rand
	ready     []string
	arrived   map[string]bool // confirmed, and routed
	gone      map[string]bool // acknowledged
	problems  []string
	prefetch  int
	total     int
	heartbeat uint16        // in seconds
	source    *peer         // the last one
	done      chan struct{} // when all are gone
	serving   sync.WaitGroup

	nacks, returns, breaks, cancels, closes int // in a hundred

	poison map[string]bool // for these a destination closes its channel
	copies map[string]int  // how often each came to the destination
	dials  int             // of the destination

	// script, if there is one, is what a destination does with what is published.
	script func(p *peer, seq uint64, m *amqp.BasicPublish, raw amqp.RawProperties, body []byte)
}

func newWorld(seed uint64, messages int) *world {
	w := &world{rnd: rand.New(rand.NewPCG(seed, 1)), arrived: map[string]bool{}, gone: map[string]bool{}, poison: map[string]bool{}, copies: map[string]int{}, total: messages, heartbeat: 10, done: make(chan struct{})}
	for i := range messages {
		w.ready = append(w.ready, string(rune('a'+i%26))+"-"+itoa(i))
	}
	return w
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// start begins a shovel between the world's two ends.
func (w *world) start(t *testing.T, definition string) *Worker {
	t.Helper()
	d, err := Parse([]byte(definition))
	if err != nil {
		t.Fatal(err)
	}
	return Start(w.config(), Job{VHost: "/", Name: "s", User: "u", Since: 1, Definition: d})
}

func (w *world) config() Config {
	return Config{
		Local: w.dial, Cluster: func() string { return "test" }, MessageMax: 1 << 20, Budget: 1 << 20, Logger: slog.New(slog.DiscardHandler),
		Finished: func(context.Context, Job) error { return nil },
	}
}

func (w *world) dial(_ context.Context, user string) (net.Conn, []client.Authentication, error) {
	ours, theirs := net.Pipe()
	p := &peer{
		w: w, role: user, conn: theirs, in: amqp.NewFrameReader(theirs), out: make(chan []byte, 1<<14),
		consumers: map[string]*consumer{}, unacked: map[uint64]unacked{},
	}
	if user == "src" {
		w.mu.Lock()
		w.source = p
		w.mu.Unlock()
	} else {
		w.mu.Lock()
		w.dials++
		w.mu.Unlock()
	}
	w.serving.Go(p.serve)
	return ours, []client.Authentication{&client.PlainAuth{Username: user}}, nil
}

func (p *peer) serve() {
	written, out := make(chan struct{}), p.out
	go func() {
		defer close(written)
		for b := range out {
			if _, err := p.conn.Write(b); err != nil {
				break
			}
		}
		for range out { // to its end
		}
	}()
	_ = p.talk() // its end is the connection's
	p.w.mu.Lock()
	p.requeue()
	close(p.out)
	p.out = nil
	p.w.mu.Unlock()
	_ = p.conn.Close()
	<-written
}

// requeue gives back what was not acknowledged, to the head of the queue.
func (p *peer) requeue() {
	var back []string
	for tag := uint64(1); tag <= p.tag; tag++ {
		if u, ok := p.unacked[tag]; ok {
			back = append(back, u.id)
		}
	}
	p.w.ready = append(back, p.w.ready...)
	p.consumers, p.unacked = nil, nil
}

// send is called with mu held.
func (p *peer) send(channel uint16, methods ...amqp.Method) {
	var b []byte
	for _, m := range methods {
		b = amqp.AppendMethodFrame(b, channel, m)
	}
	p.write(b)
}

func (p *peer) write(b []byte) {
	if p.out != nil {
		p.out <- b
	}
}

// talk reads until the connection ends.
func (p *peer) talk() error {
	if _, err := p.in.Header(); err != nil {
		return err
	}
	p.w.mu.Lock()
	p.send(0, &amqp.ConnectionStart{VersionMinor: 9, Mechanisms: "PLAIN", Locales: "en_US"})
	p.w.mu.Unlock()
	for {
		f, err := p.in.Next()
		if err != nil {
			return err
		}
		if f.Type != amqp.FrameMethod {
			continue
		}
		m, err := amqp.Decode(f.Payload)
		if err != nil {
			return err
		}
		var raw amqp.RawProperties
		var body []byte
		if _, ok := m.(*amqp.BasicPublish); ok {
			if raw, body, err = p.content(); err != nil {
				return err
			}
		}
		p.w.mu.Lock()
		p.answer(f.Channel, m, raw, body)
		p.w.mu.Unlock()
	}
}

func (p *peer) content() (amqp.RawProperties, []byte, error) {
	f, err := p.in.Next()
	if err != nil {
		return nil, nil, err
	}
	h, err := amqp.ParseContentHeader(f.Payload)
	if err != nil {
		return nil, nil, err
	}
	raw, body := h.Properties.Clone(), []byte(nil)
	for uint64(len(body)) < h.BodySize {
		if f, err = p.in.Next(); err != nil {
			return nil, nil, err
		}
		body = append(body, f.Payload...)
	}
	return raw, body, nil
}

// answer does what a method asks for.
func (p *peer) answer(channel uint16, m amqp.Method, raw amqp.RawProperties, body []byte) {
	switch m := m.(type) {
	case *amqp.ConnectionStartOk:
		p.send(0, &amqp.ConnectionTune{ChannelMax: 8, FrameMax: 128 << 10, Heartbeat: p.w.heartbeat})
	case *amqp.ConnectionTuneOk:
		p.in.SetMax(m.FrameMax)
	case *amqp.ConnectionOpen:
		p.send(0, &amqp.ConnectionOpenOk{})
	case *amqp.ConnectionClose:
		p.send(0, &amqp.ConnectionCloseOk{})
	case *amqp.ChannelOpen:
		p.send(channel, &amqp.ChannelOpenOk{})
	case *amqp.ChannelClose:
		p.send(channel, &amqp.ChannelCloseOk{})
	case *amqp.QueueDeclare:
		p.send(channel, &amqp.QueueDeclareOk{Queue: m.Queue, MessageCount: uint32(len(p.w.ready))})
	case *amqp.ConfirmSelect:
		p.send(channel, &amqp.ConfirmSelectOk{})
	case *amqp.BasicQos:
		p.w.prefetch = int(m.PrefetchCount)
		p.send(channel, &amqp.BasicQosOk{})
	case *amqp.BasicConsume:
		p.consumers[m.ConsumerTag] = &consumer{prefetch: p.w.prefetch}
		p.order = append(p.order, m.ConsumerTag)
		p.send(channel, &amqp.BasicConsumeOk{ConsumerTag: m.ConsumerTag})
		p.deliver()
	case *amqp.BasicCancel:
		delete(p.consumers, m.ConsumerTag)
		p.send(channel, &amqp.BasicCancelOk{ConsumerTag: m.ConsumerTag})
	case *amqp.BasicAck:
		p.acked(m)
	case *amqp.BasicPublish:
		if p.closed {
			return
		}
		p.published++
		if p.w.script != nil {
			p.w.script(p, p.published, m, raw, body)
			return
		}
		p.take(m, raw, body)
	}
}
