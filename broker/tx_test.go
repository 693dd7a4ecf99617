package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/queue/wire"
)

func (c *client) wantQueue(name string, ready, unacked uint64) {
	c.t.Helper()
	q := c.conn.b.cat.View().Queue("/", name)
	s, err := c.conn.b.status(c.t.Context(), q, false)
	if err != nil {
		c.t.Fatal(err)
	}
	if s.Ready != ready || s.Unacked != unacked {
		c.t.Fatalf("queue %s: %d ready, %d unacked, want %d, %d", name, s.Ready, s.Unacked, ready, unacked)
	}
}

func (c *client) send(queue, body string) {
	c.t.Helper()
	if _, routed, err := c.publish("", queue, body, nil); err != nil || !routed {
		c.t.Fatalf("publish: routed %v, %v", routed, err)
	}
}

func (c *client) commit(kind fsm.SettleKind, ds ...*Delivery) error {
	var list []TxSettlement
	for _, d := range ds {
		list = append(list, TxSettlement{kind, d})
	}
	lost, err := c.ch.TxCommit(c.t.Context(), list)
	if len(lost) > 0 {
		c.t.Errorf("returned: %+v", lost)
	}
	return err
}

// A transaction over durable queues and one in memory: nothing before the commit, all
// of it when the commit is answered.
func TestTxOverQueues(t *testing.T) {
	c := dial(t, newBroker(t))
	for _, q := range []string{"a", "b", "c"} {
		c.declare(q, nil)
	}
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "mem"}); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "x", Type: "fanout"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"a", "b", "c", "mem"} {
		if err := c.conn.Bind(t.Context(), Binding{Source: "x", Destination: q}); err != nil {
			t.Fatal(err)
		}
		c.put(q, "first", nil)
	}
	c.consume("a", 0)
	c.consume("b", 0)
	held := c.take(2)
	c.ch.TxSelect()
	if _, routed, err := c.publish("x", "", "fan", nil); err != nil || !routed {
		t.Fatal(routed, err)
	}
	c.send("c", "last")
	c.wantQueue("c", 1, 0)
	c.wantQueue("mem", 1, 0)
	if err := c.commit(fsm.Ack, held...); err != nil {
		t.Fatal(err)
	}
	if got := c.take(2); string(got[0].Body) != "fan" || string(got[1].Body) != "fan" {
		t.Fatalf("delivered %s and %s", got[0].Body, got[1].Body)
	}
	c.wantQueue("a", 0, 1)
	c.wantQueue("b", 0, 1)
	c.wantQueue("c", 3, 0)
	c.wantQueue("mem", 2, 0)
	c.send("a", "forgotten")
	c.ch.TxRollback(nil)
	if err := c.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	c.wantQueue("a", 0, 1)
	// What a commit has settled is forgotten when its queues' leaders have said so, which may be after the commit was answered.
	c.await("each stream to hold what was delivered last", func() bool {
		return !slices.ContainsFunc(c.conn.b.allStreams(), func(s *stream) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.held) != 1 && (s.name == "a" || s.name == "b")
		})
	})
}

// One queue that has no room is enough: nothing is done anywhere, whichever of them
// coordinates, and what was to be settled is returned by the end of the channel.
func TestTxRefusedByALimit(t *testing.T) {
	for _, big := range []string{"other", "full"} {
		t.Run(big+" coordinates", func(t *testing.T) {
			b := newBroker(t)
			c, other := dial(t, b), dial(t, b)
			c.declare("full", table("x-max-length", int32(1), "x-overflow", "reject-publish"))
			c.declare("other", nil)
			c.put("full", "1", nil)
			c.put("other", "1", nil)
			c.consume("other", 0)
			held := c.take(1)
			c.ch.TxSelect()
			c.send("full", "2")
			c.send("other", "2")
			c.send(big, strings.Repeat("x", 100))
			err := c.commit(fsm.Ack, held...)
			var e *Error
			if !errors.As(err, &e) || e.Kind != PreconditionFailed || e.Text != "transaction refused, nothing was done: queue 'full' in vhost '/' is full" {
				t.Fatalf("commit: %v", err)
			}
			other.wantQueue("full", 1, 0)
			other.wantQueue("other", 0, 1)
			c.ch.Close(t.Context())
			other.eventually("other")
			other.wantQueue("other", 0, 1)
		})
	}
}

// What concerns a queue that was deleted ends with it; the rest is done.
func TestTxWithADeletedQueue(t *testing.T) {
	b := newBroker(t)
	c, other := dial(t, b), dial(t, b)
	c.declare("a", nil)
	c.declare("b", nil)
	c.put("b", "1", nil)
	c.consume("b", 0)
	held := c.take(1)
	c.ch.TxSelect()
	c.send("a", "2")
	c.send("b", strings.Repeat("x", 100)) // would coordinate
	if _, err := other.conn.DeleteQueue(t.Context(), "b", false, false); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(fsm.Ack, held...); err != nil {
		t.Fatal(err)
	}
	other.wantQueue("a", 1, 0)
	c.send("a", "3")
	if _, err := other.conn.DeleteQueue(t.Context(), "a", false, false); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	// Unless another one has its name: whoever commits would take it for the one that has the messages.
	c.declare("a", nil)
	c.declare("b", nil)
	c.send("a", "4")
	c.send("b", "5")
	other.mustDelete("a")
	other.declare("a", nil)
	if err := c.commit(fsm.Ack); err == nil || err.Error() != "transaction refused, nothing was done: queue 'a' in vhost '/' is another one now" {
		t.Fatalf("commit: %v", err)
	}
	other.wantQueue("a", 0, 0)
	other.wantQueue("b", 0, 0)
}

// A mandatory message is not lost silently: if none of its queues is left, the transaction is refused, and nothing of it done.
func TestTxWhoseMandatoryMessageHasNoQueue(t *testing.T) {
	b := newBroker(t)
	c, other := dial(t, b), dial(t, b)
	if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "both", Type: "fanout", Durable: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		c.declare(name, nil)
	}
	for _, name := range []string{"a", "b"} {
		if err := c.conn.Bind(t.Context(), Binding{Source: "both", Destination: name}); err != nil {
			t.Fatal(err)
		}
	}
	c.ch.TxSelect()
	mandatory := func() {
		t.Helper()
		if _, routed, err := c.publishes(&Publish{Exchange: "both", Mandatory: true, Body: []byte("1")}); err != nil || !routed {
			t.Fatalf("publish: routed %v, %v", routed, err)
		}
		c.send("c", "2")
	}
	mandatory()
	other.mustDelete("a")
	if err := c.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	other.wantQueue("b", 1, 0)
	other.wantQueue("c", 1, 0)
	mandatory()
	other.mustDelete("b")
	if err := c.commit(fsm.Ack); err == nil || err.Error() != "transaction refused, nothing was done: no queue of a mandatory message is left: queue 'b' in vhost '/' is deleted" {
		t.Fatalf("commit: %v", err)
	}
	other.wantQueue("c", 1, 0)
	c.send("c", "3")
	if err := c.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	other.wantQueue("c", 2, 0)
}

// A node whose copy of the catalog is old does not commit what is for a queue that is not there any more. The coordinator, another queue,
// would take the transaction, and the message would vanish.
func TestTxByAnOldCopy(t *testing.T) {
	for name, tc := range map[string]struct {
		mandatory, anew, away bool
		refusal               string
	}{
		"deleted":                     {},
		"deleted, mandatory":          {mandatory: true, refusal: "no queue of a mandatory message is left: queue 'q' in vhost '/' is deleted"},
		"declared anew":               {anew: true, refusal: "queue 'q' in vhost '/' is another one now"},
		"the catalog is out of reach": {away: true, refusal: "whether its queues beside 'stays' in vhost '/' are still there is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			late, c, _ := lateRig(t)
			c.declare("q", nil)
			c.declare("stays", nil)
			old := late.View()
			c.ch.TxSelect()
			if _, routed, err := c.publishes(&Publish{Key: "q", Body: []byte("m"), Mandatory: tc.mandatory}); err != nil || !routed {
				t.Fatalf("publish: routed %v, %v", routed, err)
			}
			c.send("stays", strings.Repeat("x", 100)) // coordinates
			late.hold(old)
			cmds := []catalog.Command{&catalog.DeleteQueue{Vhost: "/", Name: "q"}}
			if tc.anew {
				cmds = append(cmds, &catalog.DeclareQueue{Queue: *old.Queue("/", "q")})
			}
			for _, cmd := range cmds {
				if _, err := late.Catalog.Propose(t.Context(), cmd); err != nil {
					t.Fatal(err)
				}
			}
			late.away = tc.away
			err := c.commit(fsm.Ack)
			late.hold(nil)
			if tc.refusal == "" {
				if err != nil {
					t.Fatal(err)
				}
				c.wantQueue("stays", 1, 0)
				return
			}
			if err == nil || err.Error() != "transaction refused, nothing was done: "+tc.refusal {
				t.Errorf("commit: %v", err)
			}
			c.wantQueue("stays", 0, 0)
		})
	}
}

// A queue that is deleted while a transaction is being carried out may take a part of it with it: a mandatory message that no queue has then is
// returned, and the rest is done.
func TestTxWhoseQueueGoes(t *testing.T) {
	late, c, _ := lateRig(t)
	for _, q := range []string{"q", "stays"} {
		c.declare(q, nil)
	}
	for _, q := range []string{"q", "stays"} {
		c.bind(Binding{Source: "amq.fanout", Destination: q})
	}
	c.ch.TxSelect()
	for _, p := range []Publish{
		{Key: "q", Mandatory: true, Body: []byte("lost")}, {Key: "q", Body: []byte("nobody asks")}, {Exchange: "amq.fanout", Mandatory: true, Body: []byte("kept")},
	} {
		if _, routed, err := c.publishes(&p); err != nil || !routed {
			t.Fatalf("publish: routed %v, %v", routed, err)
		}
	}
	c.send("stays", strings.Repeat("x", 100)) // coordinates
	old := late.View()
	late.read = func() {
		late.hold(old)
		late.b.queues.dismiss(late.b.queues.get(old.Queue("/", "q").ID)) // its leader, elsewhere, knows first
		if _, err := late.Catalog.Propose(t.Context(), &catalog.DeleteQueue{Vhost: "/", Name: "q"}); err != nil {
			t.Error(err)
		}
		time.AfterFunc(100*time.Millisecond, func() {
			late.hold(nil)
			late.b.queues.changed()
		})
	}
	lost, err := c.ch.TxCommit(t.Context(), nil)
	if err != nil || len(lost) != 1 || string(lost[0].Body) != "lost" || lost[0].Exchange != "" || lost[0].Key != "q" {
		t.Errorf("returned %+v, %v", lost, err)
	}
	c.wantQueue("stays", 2, 0)
}

// The same if a part for another queue takes longer than the commit waits: the catalog knows that the queue is gone.
func TestTxWhoseQueueGoesWhileAnotherHasNoLeader(t *testing.T) {
	late, c, _ := lateRig(t)
	for _, q := range []string{"q", "stays", "slow"} {
		c.declare(q, nil)
	}
	c.ch.TxSelect()
	for _, p := range []Publish{{Key: "q", Mandatory: true, Body: []byte("lost")}, {Key: "slow", Mandatory: true, Body: []byte("late")}} {
		if _, routed, err := c.publishes(&p); err != nil || !routed {
			t.Fatalf("publish: routed %v, %v", routed, err)
		}
	}
	c.send("stays", strings.Repeat("x", 100)) // coordinates
	view := late.View()
	late.read = func() {
		late.hold(view)
		for _, q := range []string{"q", "slow"} {
			late.b.queues.dismiss(late.b.queues.get(view.Queue("/", q).ID))
		}
		if _, err := late.Catalog.Propose(t.Context(), &catalog.DeleteQueue{Vhost: "/", Name: "q"}); err != nil {
			t.Error(err)
		}
		time.AfterFunc(txTakenWait/2, func() { late.hold(nil) })
	}
	begun := time.Now()
	lost, err := c.ch.TxCommit(t.Context(), nil)
	if took := time.Since(begun); err != nil || len(lost) != 1 || string(lost[0].Body) != "lost" || took < txTakenWait || took > 2*txTakenWait {
		t.Errorf("after %v: returned %+v, %v", took, lost, err)
	}
}

// What a transaction makes of its coordinator's log has to be small enough to be sent to followers.
func TestTxEntryIsBounded(t *testing.T) {
	c := dial(t, newBroker(t))
	for _, q := range []string{"a", "b"} {
		c.declare(q, nil)
		c.bind(Binding{Source: "amq.fanout", Destination: q})
	}
	c.ch.TxSelect()
	body := make([]byte, leader.EntryBytesMax/2)
	if _, _, err := c.publishes(&Publish{Exchange: "amq.fanout", Body: body}); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(fsm.Ack); err == nil || !strings.HasPrefix(err.Error(), "transaction refused, nothing was done: it takes 1509") {
		t.Errorf("twice: %v", err)
	}
	if _, _, err := c.publishes(&Publish{Key: "a", Body: body}); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(fsm.Ack); err != nil {
		t.Errorf("once: %v", err)
	}
	c.wantQueue("a", 1, 0)
	c.wantQueue("b", 0, 0)
}

func TestTxIsBounded(t *testing.T) {
	c := dial(t, newBroker(t))
	c.declare("a", nil)
	c.ch.TxSelect()
	half := strings.Repeat("x", txBytesMax/2)
	c.send("a", half)
	_, _, err := c.publish("", "a", half, nil)
	if err == nil || err.Error() != "transaction exceeds 16384 messages, 65536 copies of messages or 8388608 bytes" {
		t.Fatalf("%v", err)
	}
	c.ch.TxRollback(nil)
	for range txPublishesMax {
		c.send("a", "")
	}
	if _, _, err = c.publish("", "a", "", nil); err == nil {
		t.Fatal("no bound on the number")
	}
	if err := c.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	c.wantQueue("a", txPublishesMax, 0)
}

// TestTxsOfANodeAreBounded: open transactions are bounded together, too; a commit, a rollback and the end of a channel make room.
func TestTxsOfANodeAreBounded(t *testing.T) {
	b := newBroker(t)
	b.cfg.TxBytesMax = 1 << 20
	one, two := dial(t, b), dial(t, b)
	one.declare("a", nil)
	one.ch.TxSelect()
	two.ch.TxSelect()
	body := strings.Repeat("x", 600<<10)
	full := func(c *client) {
		t.Helper()
		if _, _, err := c.publish("", "a", body, nil); err == nil || err.Error() != "open transactions of the node exceed 1048576 bytes" {
			t.Fatalf("%v", err)
		}
	}
	one.send("a", body)
	full(two)
	if err := one.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	two.send("a", body)
	full(one)
	two.ch.TxRollback(nil)
	one.send("a", body)
	full(two)
	one.ch.Close(t.Context())
	two.send("a", body)
	if err := two.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	// What a commit returns to the publisher counts, too.
	three := dial(t, b)
	three.ch.TxSelect()
	unroutable := func() error {
		routed, err := three.ch.Publish(t.Context(), &Publish{Key: "none", Mandatory: true, Properties: amqp.RawProperties{0, 0}, Body: []byte(body)})
		if routed {
			t.Error("it was routed")
		}
		return err
	}
	if err := unroutable(); err != nil {
		t.Fatal(err)
	}
	full(two)
	if err := unroutable(); err == nil || err.Error() != "open transactions of the node exceed 1048576 bytes" {
		t.Fatalf("%v", err)
	}
	if err := three.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	if n := b.txBytes.Load(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	two.wantQueue("a", 2, 0)
}

// The time to live begins at the commit.
func TestTxTimeToLive(t *testing.T) {
	c := dial(t, newBroker(t))
	c.declare("a", nil)
	c.declare("b", nil)
	c.ch.TxSelect()
	soon := properties(func(p *amqp.Properties) { p.SetExpiration("600") })
	for _, q := range []string{"a", "b"} {
		if _, routed, err := c.publish("", q, "x", soon); err != nil || !routed {
			t.Fatal(routed, err)
		}
	}
	time.Sleep(700 * time.Millisecond)
	began := time.Now()
	if err := c.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for _, q := range []string{"a", "b"} {
		for {
			s, err := c.conn.b.status(t.Context(), c.conn.b.cat.View().Queue("/", q), false)
			if err != nil {
				t.Fatal(err)
			}
			if s.Ready == 0 {
				if took := time.Since(began); took < 590*time.Millisecond {
					t.Errorf("%s: expired after %v", q, took)
				}
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: not expired", q)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// A client that no longer waits is not told that nothing happened when the operation is
// on its way; its deliveries go where the outcome says.
func TestTxAbandoned(t *testing.T) {
	for name, end := range map[string]struct {
		outcomes []fsm.Outcome
		requeued bool
	}{
		"done":    {nil, false},
		"refused": {[]fsm.Outcome{{Seq: 1, Kind: fsm.RefusedFull}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newStreamRig(t)
				b := &Broker{cfg: Config{QueueTimeout: time.Second}, hub: r.s.hub}
				b.ctx, b.cancel = context.WithCancel(t.Context())
				defer b.tasks.wait()
				defer b.cancel()
				ch := &Channel{conn: &Conn{b: b, vhost: "/", traffic: new(traffic)}}
				ch.TxSelect()
				held := &holding{no: 1}
				r.s.holdLocked(5, held)
				r.s.ownLocked(held, ch)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := ch.TxCommit(ctx, []TxSettlement{{fsm.Ack, &Delivery{queue: r.s, id: 5}}})
				var e *Error
				if !errors.As(err, &e) || e.Kind != Internal || !strings.Contains(e.Text, "outcome of the transaction is not known") {
					t.Fatalf("commit: %v", err)
				}
				ch.closed.Store(true)
				r.s.returnAll(ch)
				if n := len(sent[*wire.Batch](r)); n != 1 {
					t.Fatalf("%d batches, want the transaction's", n)
				}
				r.s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 1, Outcomes: end.outcomes})
				synctest.Wait()
				if n := len(sent[*wire.Batch](r)); end.requeued != (n == 1) {
					t.Errorf("%d batches", n)
				}
				if h := r.s.held[5]; end.requeued && (h == nil || h.settled == 0) || !end.requeued && h != nil {
					t.Errorf("delivery %+v", h)
				}
			})
		})
	}
}

// The end of the queue may come before or after the operation was applied.
func TestTxWhoseQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		b := &Broker{cfg: Config{QueueTimeout: time.Second}, hub: r.s.hub}
		b.ctx, b.cancel = context.WithCancel(t.Context())
		defer b.tasks.wait()
		defer b.cancel()
		ch := &Channel{conn: &Conn{b: b, vhost: "/", traffic: new(traffic)}}
		ch.TxSelect()
		go func() {
			synctest.Wait()
			r.s.close()
		}()
		_, err := ch.TxCommit(t.Context(), []TxSettlement{{fsm.Ack, &Delivery{queue: r.s, id: 5}}})
		if err == nil || err.Error() != "the outcome of the transaction is not known: queue 'q' in vhost '/' has ended" {
			t.Fatalf("commit: %v", err)
		}
		// Gone before anything was sent: there is nothing left to do.
		if _, err := ch.TxCommit(t.Context(), []TxSettlement{{fsm.Ack, &Delivery{queue: r.s, id: 6}}}); err != nil {
			t.Fatalf("commit: %v", err)
		}
	})
}
