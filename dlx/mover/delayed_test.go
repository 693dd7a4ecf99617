package mover

import (
	"testing"
	"testing/synctest"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

func properties(t *testing.T, edit func(*amqp.Properties)) amqp.RawProperties {
	t.Helper()
	raw, err := amqp.Rewrite([]byte{0, 0}, edit)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// sentMessage returns the only message on its way.
func (r *rig) sentMessage() (fsm.Transfer, fsm.Message) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sent) != 1 || len(r.sent[0].In.Items) != 1 {
		r.t.Fatalf("sent %+v", r.sent)
	}
	it := r.sent[0].In.Items[0]
	m, err := fsm.DecodeMessage(it.Message)
	if err != nil {
		r.t.Fatal(err)
	}
	r.sent = nil
	return it, m
}

// enter puts one message into the queue.
func (r *rig) enter(p fsm.Publish, m fsm.Message) {
	p.Message, p.BodyBytes = fsm.EncodeMessage(nil, &m), uint32(len(m.Body))
	r.seq++
	r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq, Ops: []fsm.Op{p}})
}

// What comes due in the queue of a delayed exchange goes on as it was published, but for the
// negated delay; no death is recorded, and a death in the target before is no cycle.
func TestDelayedMessageGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{5, "work"})
		defer r.m.Stop()
		r.propose(fsm.SetSettings{Revision: 2, Name: "dx", VHost: "/", Settings: queue.Settings{
			MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1,
			DeadLetter: true, DeadLetterExchange: "dx", Delayed: true,
		}})
		props := properties(t, func(p *amqp.Properties) {
			p.SetHeaders(amqp.Table{{Name: "x-delay", Value: uint16(700)}, {Name: "a", Value: "b"}})
			p.SetExpiration("4000")
			p.SetPriority(6)
		})
		r.enter(fsm.Publish{TTLMillis: 0}, fsm.Message{Exchange: "front", RoutingKeys: []string{"k", "cc", "bcc"}, BCC: 1, Properties: props, Body: []byte("job")})
		r.now = 1
		r.propose(fsm.Expire{IDs: []queue.IDRange{{First: 1, Last: 1}}})
		r.m.Wake()
		it, m := r.sentMessage()
		if !it.HasTTL || it.TTLMillis != 4000 || it.DelayMillis != 0 || !it.HasPriority || it.Priority != 6 {
			t.Errorf("transferred as %+v", it)
		}
		headers, _, _ := amqp.RawProperties(m.Properties).Headers()
		delay, _ := headers.Get("x-delay")
		_, died := headers.Get("x-death")
		expiration, _ := amqp.RawProperties(m.Properties).Expiration()
		if m.Exchange != "front" || len(m.RoutingKeys) != 3 || m.BCC != 1 || len(m.Deaths) != 0 || string(m.Body) != "job" ||
			delay != int32(-700) || died || expiration != "4000" {
			t.Errorf("goes on as %+v with %v", m, headers)
		}
		if r.routed != "dx" || len(r.routedAs.Keys) != 3 {
			t.Errorf("routed from %q by %+v", r.routed, r.routedAs)
		}
	})
}

// The id for deduplication counts in the queue to which a delayed exchange sends what was published to it. A dead letter that takes
// this way, or one that a redrive sends back, is no publish: its queue may have taken the id when it came first, and would drop it.
func TestDelayedLetterIsNoCopy(t *testing.T) {
	for name, deaths := range map[string][]dlx.Death{
		"published":   nil,
		"dead letter": {{Queue: "work", Reason: dlx.Rejected, Count: 1}},
		"sent back":   {{Queue: "work", Reason: dlx.Rejected, Count: 1, Redriven: true, Before: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, false, Target{5, "work"})
				defer r.m.Stop()
				r.propose(fsm.SetSettings{Revision: 2, Name: "dx", VHost: "/", Settings: queue.Settings{
					MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1,
					DeadLetter: true, DeadLetterExchange: "dx", Delayed: true,
				}})
				props := properties(t, func(p *amqp.Properties) { p.SetHeaders(amqp.Table{{Name: "x-deduplication-header", Value: "id"}}) })
				r.enter(fsm.Publish{TTLMillis: 0}, fsm.Message{RoutingKeys: []string{"k"}, Properties: props, Deaths: deaths, Body: []byte("job")})
				r.now = 1
				r.propose(fsm.Expire{IDs: []queue.IDRange{{First: 1, Last: 1}}})
				r.m.Wake()
				if it, _ := r.sentMessage(); (it.Dedup != queue.DedupID{}) != (deaths == nil) {
					t.Errorf("transferred as %+v", it)
				}
			})
		})
	}
}

// A dead letter that asks for a delay says so to its target, which may be the queue of a
// delayed exchange.
func TestDeadLetterAsksForDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{5, ""})
		defer r.m.Stop()
		props := properties(t, func(p *amqp.Properties) {
			p.SetHeaders(amqp.Table{{Name: "x-delay", Value: int64(900)}})
			p.SetExpiration("10")
		})
		r.enter(fsm.Publish{TTLMillis: 10}, fsm.Message{RoutingKeys: []string{"k"}, Properties: props, Body: []byte("job")})
		r.seq++
		r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq, Ops: []fsm.Op{fsm.Settle{Kind: fsm.Discard, Runs: []fsm.Run{{First: 1, Count: 1}}}}})
		r.m.Wake()
		it, m := r.sentMessage()
		headers, _, _ := amqp.RawProperties(m.Properties).Headers()
		if v, _ := headers.Get("x-delay"); it.DelayMillis != 900 || it.HasTTL || v != int64(900) || len(m.Deaths) != 1 {
			t.Errorf("transferred as %+v with %v", it, headers)
		}
	})
}

// What was published with an expiration and has not died lives no longer in the queue to which
// it is moved than if it was published there.
func TestRedriveKeepsExpiration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{5, "work"})
		defer r.m.Stop()
		props := properties(t, func(p *amqp.Properties) { p.SetExpiration("4000") })
		r.enter(fsm.Publish{TTLMillis: 4000}, fsm.Message{RoutingKeys: []string{"k"}, Properties: props, Body: []byte("job")})
		r.propose(fsm.StartRedrive{Spec: dlx.RedriveSpec{Token: 1, To: dlx.ToNamedQueue, Queue: "work"}})
		r.propose(fsm.TakeRedrive{Number: 1, Through: 1, Items: []fsm.RedriveItem{{ID: 1, Targets: []uint64{5}}}})
		r.m.Wake()
		if it, _ := r.sentMessage(); !it.HasTTL || it.TTLMillis != 4000 {
			t.Errorf("transferred as %+v", it)
		}
	})
}
