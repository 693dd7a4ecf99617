package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// wanderer is a client whose consumers come and go.
type wanderer struct {
	*goings
	r      *rand.Rand
	name   string
	conn   *amqp.Connection
	socket net.Conn
	ch     *wanderChannel
	number int
}

// wanderChannel is one channel of a wanderer.
type wanderChannel struct {
	ch        *amqp.Channel
	name      string
	in        chan amqp.Delivery
	quit      chan struct{}
	limit     int // channel-wide, 0: none
	lowered   bool
	recovered bool           // credit cannot be counted any more
	prefetch  map[string]int // by consumer
	queues    map[string]int // of the consumers that go on
	held      []amqp.Delivery
	log       []amqp.Delivery
	acked     []string // since the last answer
}

func (w *wanderer) run() {
	for {
		select {
		case <-w.ending:
			w.settleDown()
			return
		default:
		}
		if w.ch == nil && !w.begin() {
			w.end()
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if !w.step() {
			w.end()
		}
	}
}

func (w *wanderer) begin() bool {
	if w.conn == nil || w.conn.IsClosed() {
		conn, err := w.dial(w.r, &w.socket)
		if err != nil {
			return false
		}
		w.conn = conn
	}
	ch, err := w.conn.Channel()
	if err != nil {
		return false
	}
	w.number++
	w.ch = &wanderChannel{
		ch: ch, name: fmt.Sprintf("%s.%d", w.name, w.number), in: make(chan amqp.Delivery, 4096), quit: make(chan struct{}),
		prefetch: map[string]int{}, queues: map[string]int{},
	}
	if w.r.IntN(2) == 0 {
		return w.limitTo(1 + w.r.IntN(8))
	}
	return true
}

func (w *wanderer) limitTo(n int) bool {
	c := w.ch
	if c.ch.Qos(n, 0, true) != nil {
		return false
	}
	c.lowered = c.lowered || n < c.limit || c.limit == 0 && len(c.prefetch) > 0
	c.limit = n
	w.answered()
	return true
}

// answered: what was acked before is gone, unless a node dies.
func (w *wanderer) answered() {
	c := w.ch
	if !w.kills {
		w.mu.Lock()
		for _, b := range c.acked {
			w.of(b).gone = true
		}
		w.mu.Unlock()
	}
	c.acked = nil
}

// end checks what the channel got and forgets it. Nothing is read from it any more.
func (w *wanderer) end() {
	if c := w.ch; c != nil {
		close(c.quit)
		w.ordered(c)
		w.ch = nil
	}
	if w.conn != nil && (w.conn.IsClosed() || w.r.IntN(3) == 0) {
		if w.r.IntN(2) == 0 {
			w.socket.Close()
		}
		w.conn.Close()
		w.conn = nil
	}
}

// ordered checks guarantee 4 on one channel.
func (w *wanderer) ordered(c *wanderChannel) {
	slices.SortFunc(c.log, func(a, b amqp.Delivery) int { return int(a.DeliveryTag) - int(b.DeliveryTag) })
	last := map[string]int{}
	for _, d := range c.log {
		from, n := parted(string(d.Body))
		if l, ok := last[from]; ok && n < l && !d.Redelivered {
			w.Errorf("channel %s got %s as number %d without the flag, after number %d of the same channel", c.name, d.Body, d.DeliveryTag, l)
		}
		last[from] = max(last[from], n)
	}
}

// parted splits a body into its queue and channel, and its number.
func parted(body string) (from string, n int) {
	i := strings.LastIndexByte(body, '/')
	n, _ = strconv.Atoi(body[i+1:])
	return body[:i], n
}

// step does one thing by chance; false ends the channel.
func (w *wanderer) step() bool {
	c := w.ch
	if len(c.queues) == 0 && w.r.IntN(4) > 0 {
		return w.consume()
	}
	switch w.r.IntN(24) {
	case 0, 1:
		return w.consume()
	case 2, 3:
		return w.cancel()
	case 4:
		if c.limit > 0 {
			return w.limitTo(1 + w.r.IntN(8))
		}
	case 5:
		return w.get()
	case 6:
		//nolint:staticcheck // deprecated by the client, still a method of the protocol
		if c.ch.Recover(true) != nil {
			return false
		}
		c.held, c.recovered = nil, true // what was not read yet is returned, too
	case 7:
		if w.r.IntN(2) == 0 {
			c.ch.Close()
			return false
		}
	case 8:
		if w.r.IntN(3) == 0 {
			w.socket.Close()
			w.conn.Close()
			return false
		}
	case 9, 10, 11, 12:
		return w.settle()
	default:
		w.receive(time.Duration(1+w.r.IntN(15)) * time.Millisecond)
	}
	return !c.ch.IsClosed()
}

func (w *wanderer) consume() bool {
	c := w.ch
	if len(c.queues) >= 3 {
		return true
	}
	w.number++
	tag := fmt.Sprintf("%s.%d", w.name, w.number)
	q, prefetch, args := w.r.IntN(len(w.queues)), 1+w.r.IntN(6), amqp.Table{}
	if w.r.IntN(3) == 0 {
		args["x-priority"] = w.r.IntN(3)
	}
	if c.ch.Qos(prefetch, 0, false) != nil {
		return false
	}
	ds, err := c.ch.Consume(w.queues[q], tag, false, false, false, false, args)
	if err != nil {
		return false
	}
	c.prefetch[tag], c.queues[tag] = prefetch, q
	go func() {
		for d := range ds {
			select {
			case c.in <- d:
			case <-c.quit:
				return
			}
		}
	}()
	return true
}

func (w *wanderer) cancel() bool {
	c := w.ch
	for tag := range c.queues {
		if c.ch.Cancel(tag, false) != nil {
			return false
		}
		delete(c.queues, tag)
		w.answered()
		break
	}
	return true
}

func (w *wanderer) get() bool {
	c := w.ch
	d, ok, err := c.ch.Get(w.queues[w.r.IntN(2)], false)
	if err != nil {
		return false
	}
	w.answered()
	if ok {
		w.took(d)
	}
	return true
}

func (w *wanderer) took(d amqp.Delivery) {
	c := w.ch
	who := c.name
	if c.recovered {
		who = "" // it may have been returned, and acked by others, before it was read
	}
	w.saw(who, string(d.Body), d.Redelivered)
	c.held, c.log = append(c.held, d), append(c.log, d)
	if d.ConsumerTag == "" || c.recovered {
		return
	}
	own, all := 0, 0
	for _, h := range c.held {
		if h.ConsumerTag == d.ConsumerTag {
			own++
		}
		if h.ConsumerTag != "" {
			all++
		}
	}
	if own > c.prefetch[d.ConsumerTag] {
		w.Errorf("consumer %s has %d messages, its prefetch is %d", d.ConsumerTag, own, c.prefetch[d.ConsumerTag])
	}
	if c.limit > 0 && !c.lowered && all > c.limit {
		w.Errorf("channel %s has %d messages, its limit is %d", c.name, all, c.limit)
	}
}

// receive takes what comes in some time.
func (w *wanderer) receive(d time.Duration) {
	after := time.After(d)
	for {
		select {
		case d := <-w.ch.in:
			if w.ch.ch.IsClosed() {
				return
			}
			w.took(d)
		case <-after:
			return
		}
	}
}

// settle ends some of what the channel has.
func (w *wanderer) settle() bool {
	c := w.ch
	if len(c.held) == 0 {
		return true
	}
	slices.SortFunc(c.held, func(a, b amqp.Delivery) int { return int(a.DeliveryTag) - int(b.DeliveryTag) })
	i := w.r.IntN(len(c.held))
	d, multiple := c.held[i], w.r.IntN(3) == 0
	var ended []amqp.Delivery
	if multiple {
		ended, c.held = slices.Clone(c.held[:i+1]), slices.Clone(c.held[i+1:])
	} else {
		ended, c.held = []amqp.Delivery{d}, slices.Delete(c.held, i, i+1)
	}
	if multiple && !w.readTo(d.DeliveryTag) {
		c.held = append(c.held, ended...) // some that it would settle are not read yet
		return true
	}
	if w.r.IntN(4) == 0 {
		return c.ch.Nack(d.DeliveryTag, multiple, true) == nil
	}
	for _, e := range ended {
		if !c.recovered { // else it may have been returned before
			c.acked = append(c.acked, string(e.Body))
		}
		w.acks(string(e.Body))
	}
	return c.ch.Ack(d.DeliveryTag, multiple) == nil
}

// readTo tells whether every delivery up to a tag was read.
func (w *wanderer) readTo(tag uint64) bool {
	n := 0
	for _, d := range w.ch.log {
		if d.DeliveryTag <= tag {
			n++
		}
	}
	return uint64(n) == tag
}

// opens counts the consumers of a channel as open, or as closed with -1.
func (w *wanderer) opens(c *wanderChannel, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range c.queues {
		w.open[w.queues[q]] += n
	}
}

// settleDown acks all that comes and begins nothing.
func (w *wanderer) settleDown() {
	if w.ch == nil {
		return
	}
	c := w.ch
	w.opens(c, 1)
	defer w.opens(c, -1) // a node may close it: what was not read at a recover is returned, and acked all the same
	for !c.ch.IsClosed() {
		for _, d := range c.held {
			w.acks(string(d.Body))
			_ = d.Ack(false)
		}
		c.held = nil
		select {
		case d := <-c.in:
			w.took(d)
		case <-w.over:
			w.end()
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
