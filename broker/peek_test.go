package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
)

func (c *client) peek(b *Broker, queue string, p Peek) Peeked {
	c.t.Helper()
	got, err := b.Peek(c.t.Context(), User{Name: "guest"}, "/", queue, p)
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

func peekedBodies(p Peeked) (list []string) {
	for i := range p.Messages {
		list = append(list, string(p.Messages[i].Body))
	}
	return list
}

func TestPeekPages(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-max-priority", int32(5)))
	for i := range 7 {
		c.put("q", fmt.Sprint(i), properties(func(p *amqp.Properties) {
			p.SetMessageID(fmt.Sprint("id", i))
			p.SetHeaders(table("odd", i%2 == 1))
			if i == 4 {
				p.SetPriority(3)
			}
		}))
	}
	inOrder := []string{"4", "0", "1", "2", "3", "5", "6"}
	all := Peek{State: "ready", Count: 100, Truncate: 10}
	if got := c.peek(b, "q", all); !slices.Equal(peekedBodies(got), inOrder) || got.Next != "" {
		t.Fatalf("%v, next %q", peekedBodies(got), got.Next)
	}
	for _, count := range []int{1, 2, 7} {
		var bodies []string
		for p := (Peek{State: "ready", Count: count, Truncate: 10}); ; {
			got := c.peek(b, "q", p)
			bodies = append(bodies, peekedBodies(got)...)
			if p.After = got.Next; got.Next == "" {
				break
			}
		}
		if !slices.Equal(bodies, inOrder) {
			t.Errorf("pages of %d: %v", count, bodies)
		}
	}
	if got := c.peek(b, "q", Peek{State: "ready", Offset: 2, Count: 2, Truncate: 10}); !slices.Equal(peekedBodies(got), []string{"1", "2"}) || got.Next == "" {
		t.Errorf("offset: %v", peekedBodies(got))
	}
	odd := Peek{State: "ready", Offset: 1, Count: 5, Filter: Filter{Header: "odd", HeaderValue: "true"}}
	if got := c.peek(b, "q", odd); len(got.Messages) != 2 || got.Messages[0].ID != 4 || got.Messages[0].BodyBytes != 1 || len(got.Messages[0].Body) != 0 {
		t.Errorf("filter: %+v", got)
	}
	// Nothing of it can be told by a consumer.
	c.consume("q", 10)
	for i, d := range c.take(7) {
		if string(d.Body) != inOrder[i] || d.Redelivered || d.Acquired != 0 {
			t.Errorf("delivery %d: %s, redelivered %v", i, d.Body, d.Redelivered)
		}
	}
	if got := c.peek(b, "q", Peek{State: "unacked", Count: 3, Truncate: 10}); !slices.Equal(peekedBodies(got), []string{"0", "1", "2"}) || got.Messages[0].Node != "n1" {
		t.Errorf("unacked: %+v", got)
	}
	if got := c.peek(b, "q", all); len(got.Messages) != 0 {
		t.Errorf("ready: %v", peekedBodies(got))
	}
}

func TestPeekOutbox(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-dead-letter-exchange", "none", "x-dead-letter-strategy", "at-least-once", "x-queue-type", "quorum", "x-overflow", "reject-publish"))
	c.put("q", "dead", properties(func(p *amqp.Properties) { p.SetExpiration("1") }))
	c.put("q", "alive", nil)
	var got Peeked
	c.await("the parked letter", func() bool {
		got = c.peek(b, "q", Peek{State: "parked", Count: 10, Truncate: 100, Filter: Filter{Reasons: []string{"expired"}, From: "q"}})
		return len(got.Messages) > 0
	})
	if len(got.Messages) != 1 || string(got.Messages[0].Body) != "dead" || got.Messages[0].Reason != "expired" || got.Messages[0].Stage != "parked-unrouted" || got.Messages[0].DiedAt == 0 {
		t.Fatalf("%+v", got)
	}
	if got := c.peek(b, "q", Peek{State: "parked", Count: 10, Filter: Filter{Reasons: []string{"maxlen"}}}); len(got.Messages) != 0 {
		t.Errorf("another reason: %+v", got)
	}
	// The queue's own declaration may have it looked at again, for which it leaves the parked ones for a moment.
	c.await("an empty outbox", func() bool { return len(c.peek(b, "q", Peek{State: "outbox", Count: 10}).Messages) == 0 })
	c.settle(fsm.RequeueFailed, c.eventually("q"))
}

func kindOfRefusal(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

func TestPeekRefuses(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", nil)
	for name, p := range map[string]Peek{
		"state": {State: "dead", Count: 1}, "count": {State: "ready"}, "many": {State: "ready", Count: PeekCountMax + 1},
		"offset": {State: "ready", Count: 1, Offset: -1}, "offset of an end": {State: "unacked", Count: 1, Offset: math.MaxInt}, "place": {State: "ready", Count: 1, After: "x"},
		"truncate": {State: "ready", Count: 1, Truncate: PeekTruncateMax + 1}, "filter": {State: "ready", Count: 1, Filter: Filter{Reasons: []string{"transaction"}}},
	} {
		if _, err := b.Peek(t.Context(), User{Name: "guest"}, "/", "q", p); kindOfRefusal(err) != PreconditionFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := Peek{State: "ready", Count: 1}
	if _, err := b.Peek(t.Context(), User{Name: "guest"}, "/", "none", good); kindOfRefusal(err) != NotFound {
		t.Errorf("no queue: %v", err)
	}
	if _, err := b.Peek(t.Context(), User{Name: "nobody"}, "/", "q", good); kindOfRefusal(err) != AccessRefused {
		t.Errorf("no permission: %v", err)
	}
}

// slowLog reads every entry anew, as from a disk, and takes its time.
type slowLog struct {
	leader.Log
	takes time.Duration
}

func (l slowLog) Read(index uint64) ([]byte, error) {
	time.Sleep(l.takes)
	b, err := l.Log.Read(index)
	return bytes.Clone(b), err
}

// withLargeMessages is a queue here with so many messages of a MiB, in a log that takes its time to read.
func withLargeMessages(t *testing.T, n int, takes time.Duration) (b *Broker, h *hosted) {
	b = newBroker(t)
	c := dial(t, b)
	c.declare("q", nil)
	for range n {
		c.put("q", strings.Repeat("x", 1<<20), nil)
	}
	h = b.queues.get(b.cat.View().Queue("/", "q").ID)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = slowLog{h.log, takes}
	return b, h
}

// What is kept of a look is what it tells, not the messages that it has read for that.
func TestPeekKeepsNoEntries(t *testing.T) {
	const n = 32
	b, h := withLargeMessages(t, n, 0)
	raw, err := json.Marshal(Peek{State: "ready", Count: n, Truncate: 5})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	got, err := answerPeek(t.Context(), b, h, raw)
	more := heap() - before
	p, _ := got.(Peeked)
	if err != nil || len(p.Messages) != n || string(p.Messages[1].Body) != "xxxxx" || p.Messages[1].BodyBytes != 1<<20 || p.Messages[1].RoutingKeys[0] != "q" {
		t.Fatalf("%+v, %v", p, err)
	}
	if more > n<<20/4 {
		t.Errorf("%d bytes are kept of messages of %d", more, n<<20)
	}
	runtime.KeepAlive(got)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Messages that take long to read are told as far as the time is enough for, whether the filter takes them or not.
func TestPeekEndsInTime(t *testing.T) {
	b, h := withLargeMessages(t, 2, peekTimeMax*2/3)
	for name, f := range map[string]Filter{"all": {}, "none": {Header: "a", HeaderValue: "b"}} {
		raw, err := json.Marshal(Peek{State: "ready", Count: 10, Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, b)
		c.put("q", "behind", nil)
		got, err := answerPeek(t.Context(), b, h, raw)
		if p, ok := got.(Peeked); err != nil || !ok || p.Next != "0.1" && p.Next != "0.2" {
			t.Errorf("%s: %v, next %q", name, err, p.Next)
		}
	}
}
