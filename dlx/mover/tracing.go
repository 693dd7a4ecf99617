package mover

import (
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/trace"
)

// hop is the span of a letter on its way to one target.
type hop struct {
	span *trace.Span
	sent int
}

// parentOf notes where the trace of the letter that is being sent goes on.
func (m *Mover) parentOf(letter *fsm.Message, s *deadSettings) {
	m.traced.parent, m.traced.ok = m.cfg.Trace.OfProperties(amqp.RawProperties(letter.Properties))
	if !m.traced.ok {
		return
	}
	m.traced.hop = trace.Hop{Vhost: s.vhost, Source: s.name, Exchange: letter.Exchange}
	if len(letter.RoutingKeys) > 0 {
		m.traced.hop.Key = letter.RoutingKeys[0]
	}
}

// send notes that a letter is sent, for the first time or again.
func (m *Mover) traceSent(f *flight, target uint64, p *dlx.Pending, delayed bool) {
	h := f.hops[p.Seq]
	if h == nil {
		if !m.traced.ok {
			return
		}
		to := m.traced.hop
		to.Begun, to.Kind = time.UnixMilli(p.TimeMillis), "dead-letter"
		switch {
		case p.Reason == dlx.Redrive:
			to.Kind = "redrive"
		case delayed:
			to.Kind = "forward"
		default:
			to.Reason = p.Reason.String()
		}
		if m.cfg.Name != nil {
			to.Target = m.cfg.Name(target)
		}
		span := m.cfg.Trace.Move(m.traced.parent, &to)
		if span == nil {
			return
		}
		h = &hop{span: span}
		if f.hops == nil {
			f.hops = map[uint64]*hop{}
		}
		f.hops[p.Seq] = h
	}
	h.sent++
}

// traceTaken ends the hops of what a target has taken. Those of letters that were withdrawn from it did not come about.
func (f *flight) traceTaken(upTo uint64, withdrawn []uint64) {
	for seq, h := range f.hops {
		if seq > upTo {
			continue
		}
		outcome := "committed"
		if slices.Contains(withdrawn, seq) {
			outcome = "withdrawn"
		}
		h.span.Sent(h.sent)
		h.span.End(outcome, false)
		delete(f.hops, seq)
	}
}
