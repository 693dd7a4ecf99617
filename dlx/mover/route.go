package mover

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// messageSlack is room for what an encoded message has besides properties and
// body; more makes the buffer grow.
const messageSlack = 512

const (
	// slabBytes is memory for some messages; what waits for an entry pins all of it.
	slabBytes = 32 << 10
	// propsKept is how large a buffer for properties may be that is used again.
	propsKept = 16 << 10
)

// deadSettings are what dying in this queue means.
type deadSettings struct {
	name, vhost string
	set         queue.Settings
	revision    uint64 // of the settings
	// keep: letters without a route wait for one, stop: expired ones that could only go round do
	// not go. Nobody could release them once the queue is deleted.
	keep, stop bool
	// redrive is the one whose messages are in the outbox too.
	redrive dlx.RedriveSpec
}

func settingsOf(m *fsm.Machine) deadSettings {
	set := m.OutboxSettings()
	open := !m.Closed()
	return deadSettings{m.Name(), m.VHost(), set, m.SettingsRevision(), set.AtLeastOnce && open, set.StopTTL && open, m.Redriving().Spec}
}

// Bounds of deciding again on an item whose targets the log did not take.
const (
	routeAgainMin = 20 * time.Millisecond
	routeAgainMax = time.Second
)

// route names the targets of items that have none yet. A decision holds only
// once it is applied.
func (m *Mover) route() {
	if m.busy() {
		return
	}
	var items []candidate
	var s deadSettings
	parked, last := false, dlx.ItemID(0)
	m.cfg.View(func(f *fsm.Machine) {
		s = settingsOf(f)
		size := 0
		for _, it := range f.Outbox().Unrouted(routeMax) {
			if size >= lookBytes {
				break
			}
			size += int(it.Ref.Length)
			items = append(items, candidate{it, f.MayStay(it.ID)})
		}
		parked, last = f.Outbox().Parked(fsm.ParkUnrouted) > 0, f.Outbox().Last()
	})
	if len(items) == 0 {
		m.decided.first, m.decided.last = 0, 0 // all were taken
		return
	}
	if m.holds() || !m.mayRoute(items[0].ID) {
		return
	}
	r, parks, routes, revision := m.decideAll(items, s)
	for try := 1; try < decideTries && parks && routes && m.cfg.Revision() != revision; try++ {
		// The way came between two of them: the later ones must not overtake the others.
		r, parks, routes, revision = m.decideAll(items, s)
	}
	if len(r.Items) == 0 {
		return
	}
	waits := func(d fsm.Routed) bool { return len(d.Targets) > 0 && d.Item > m.releasedTo }
	if parked && revision != m.releasedAt && slices.ContainsFunc(r.Items, waits) {
		// There is a way again. What was parked for want of one goes first.
		m.releasedAt, m.releasedTo = revision, last
		m.decided.first, m.decided.last = 0, 0
		m.command(fsm.Release{Kind: fsm.ParkUnrouted}, nil)
		return
	}
	m.decided.first, m.decided.last = r.Items[0].Item, r.Items[len(r.Items)-1].Item
	failpoint.Pass(failpoint.MoveUnrouted, m.cfg.Queue)
	m.command(r, func() {
		if parks && m.cfg.Revision() != revision {
			m.cfg.LookAgain()
		}
	})
}

// candidate is an item to decide on.
type candidate struct {
	dlx.Item
	mayStay bool // expired, and still at its place in the queue
}

// decideTries bounds how often items are decided on before a Route command, while the catalog
// changes.
const decideTries = 3

// decideAll decides on items until one cannot be decided on now. parks tells of one that is to be
// parked for want of a way, routes of one with targets; revision is that of the catalog before it began.
func (m *Mover) decideAll(items []candidate, s deadSettings) (r fsm.Route, parks, routes bool, revision uint64) {
	r.Settings, revision = s.revision, m.cfg.Revision()
	refs := make([]queue.Ref, len(items))
	for i := range items {
		refs[i] = items[i].Ref
	}
	m.gather(refs, keptMax)
	for _, it := range items {
		d, ok := m.decide(it, s)
		if !ok {
			break
		}
		if len(d.Targets) == 0 {
			m.gathered.drop(it.Ref)
		}
		r.Items = append(r.Items, d)
		parks = parks || d.NoRoute == fsm.ParkUnrouted
		routes = routes || len(d.Targets) > 0
	}
	return r, parks, routes, revision
}

// mayRoute lets some time pass before an item is decided on again, and brings the
// catalog up to date: it named a target that is closed.
func (m *Mover) mayRoute(first dlx.ItemID) bool {
	if first < m.decided.first || first > m.decided.last {
		m.backoff, m.routeAt = 0, time.Time{}
		return true
	}
	if m.routeAt.IsZero() {
		m.backoff = min(max(routeAgainMin, 2*m.backoff), routeAgainMax)
		m.routeAt = time.Now().Add(m.backoff)
	}
	if time.Now().Before(m.routeAt) {
		m.again(m.routeAt)
		return false
	}
	if !m.fresh() {
		m.againIn(routeAgainMax)
		return false
	}
	m.routeAt = time.Time{}
	return true
}

// decide resolves the targets of one item. An absence counts only in a fresh
// catalog; ok is false if that cannot be had now.
func (m *Mover) decide(it candidate, s deadSettings) (d fsm.Routed, ok bool) {
	d = fsm.Routed{Item: it.ID}
	if !s.set.DeadLetter {
		d.NoRoute = fsm.DropDisabled
		return d, true
	}
	dead, err := m.dead(it.Ref, dlx.Dying{Queue: s.name, Reason: it.Reason, TimeMillis: it.TimeMillis, Detail: it.Detail}, s)
	if err != nil {
		m.cfg.Logger.Error("dead letter cannot be read", "queue", m.cfg.Queue, "item", it.ID, "err", err)
		m.failed(fmt.Sprintf("a dead letter cannot be read: %v", err))
		m.againIn(readRetry)
		return d, false
	}
	if hops := s.set.MaxHops; hops > 0 && it.mayStay && dlx.Hops(dead.Deaths)-1 >= uint64(hops) { // this death is in it
		d.NoRoute = fsm.Stay
		return d, true
	}
	targets, cycles, found := m.lookUp(s, &it.Item, &dead)
	if len(targets) == 0 {
		if !m.fresh() {
			m.againIn(backoffMax)
			return d, false
		}
		targets, cycles, found = m.lookUp(s, &it.Item, &dead)
	}
	for _, t := range targets {
		if !m.tookBefore(&it.Item, t.ID) {
			d.Targets = append(d.Targets, t.ID)
		}
	}
	slices.Sort(d.Targets)
	if len(d.Targets) == 0 && len(targets) > 0 {
		d.NoRoute = fsm.DropUnrouted // it is in all its targets: that is its end
		return d, true
	}
	if len(d.Targets) == 0 {
		if d.NoRoute = noRoute(found, cycles > 0, s.keep); cycles > 0 && s.stop && it.Reason == dlx.Expired {
			d.NoRoute = fsm.Stay
		}
		if d.NoRoute != fsm.Stay || !it.mayStay {
			m.nowhere(d.NoRoute, found, s)
		}
	}
	return d, true
}

// noRoute says what becomes of a message that has nowhere to go.
func noRoute(found, cycle, keep bool) fsm.NoRoute {
	switch {
	case cycle && keep:
		return fsm.ParkCycle
	case cycle:
		return fsm.DropCycle
	case keep:
		return fsm.ParkUnrouted
	case !found:
		return fsm.DropDisabled
	}
	return fsm.DropUnrouted
}

// lookUp asks the catalog for the targets and takes out those that would close a
// cycle.
func (m *Mover) lookUp(s deadSettings, it *dlx.Item, dead *fsm.Message) (targets []Target, cycles int, found bool) {
	headers, _, err := amqp.RawProperties(dead.Properties).Headers()
	if err != nil {
		headers = nil
	}
	letter := Letter{dead.RoutingKeys, headers, dead.Properties, chance(m.cfg.Queue, uint64(it.ID))}
	if s.set.Delayed {
		// The message goes on where it was held up. It has not died, so it cannot go round.
		targets, found = m.cfg.Route(s.vhost, s.set.DeadLetterExchange, &letter)
		return targets, 0, found
	}
	targets, found = m.cfg.Route(s.vhost, dead.Exchange, &letter)
	targets, cycles = dlx.WithoutCycles(dead.Deaths, it.Reason, targets, func(t Target) string { return t.Name })
	return targets, cycles, found
}

// chance is a number that looks drawn at random, always the same for what a queue sends under one id.
func chance(queue, id uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, queue), id)) // it never fails
	return h.Sum64()
}

// dead reads a message and makes the dead letter of it. Its properties are good until the next one is made.
func (m *Mover) dead(ref queue.Ref, d dlx.Dying, s deadSettings) (fsm.Message, error) {
	msg, err := m.message(ref)
	if err != nil {
		return fsm.Message{}, err
	}
	if s.set.Delayed {
		return m.released(msg), nil
	}
	dead, err := msg.DeadIn(m.props[:0], d, &s.set)
	if cap(dead.Properties) <= propsKept {
		m.props = dead.Properties
	}
	if err != nil {
		// The properties do not decode; the letter goes with the death headers
		// alone rather than not at all.
		m.cfg.Logger.Warn("properties of a dead letter replaced", "queue", m.cfg.Queue, "err", err)
	}
	return dead, nil
}

// released is a message whose delay has passed: all but the delay as it was
// published.
func (m *Mover) released(msg fsm.Message) fsm.Message {
	raw, err := amqp.Rewrite(msg.Properties, func(p *amqp.Properties) {
		if headers, ok := p.Headers(); ok {
			p.SetHeaders(exchange.Released(headers))
		}
	})
	if err != nil {
		m.cfg.Logger.Warn("properties of a delayed message left as they are", "queue", m.cfg.Queue, "err", err)
		return msg
	}
	msg.Properties = raw
	return msg
}

// leaving is the message that an item sends.
func (m *Mover) leaving(p dlx.Pending, s deadSettings) (fsm.Message, error) {
	if p.Reason != dlx.Redrive {
		return m.dead(p.Ref, dlx.Dying{Queue: s.name, Reason: p.Reason, TimeMillis: p.TimeMillis, Detail: p.Detail}, s)
	}
	msg, err := m.message(p.Ref)
	if err != nil {
		return fsm.Message{}, err
	}
	return msg.Redriven(s.redrive.Source(msg.Deaths, s.name)), nil
}

// build makes the transfer of the first item of rest, or withdraws it.
func (m *Mover) build(rest []dlx.Pending, s deadSettings, back bool) (fsm.Transfer, error) {
	p := rest[0]
	m.traced.ok = false
	if p.Reason == dlx.Transaction {
		data, err := m.read(p.Ref.Index)
		if err != nil {
			return fsm.Transfer{}, err
		}
		part, err := fsm.Part(data, p)
		return fsm.Transfer{Part: part}, err
	}
	if back {
		return fsm.Transfer{Withdrawn: true}, nil
	}
	dead, err := m.leaving(p, s)
	if err != nil {
		return fsm.Transfer{}, err
	}
	t := fsm.Transfer{BodyBytes: uint32(len(dead.Body)), Dead: p.Reason != dlx.Redrive}
	if s.set.Delayed {
		// Published only now, unless it is a dead letter that took this way.
		t.Dead = len(dead.Deaths) > 0 && !dead.Deaths[0].Redriven
	}
	props := amqp.RawProperties(dead.Properties)
	t.Priority, t.HasPriority = props.Priority()
	if v, ok := rawHeader(props, exchange.HeaderDelay); ok {
		t.DelayMillis = exchange.Delay(amqp.Table{{Name: exchange.HeaderDelay, Value: v}})
	}
	if text, ok := props.Expiration(); ok && (s.set.Delayed || p.Reason == dlx.Redrive) {
		// Checked when it was published. A dead letter has none.
		n, err := strconv.ParseInt(text, 10, 64)
		t.TTLMillis, t.HasTTL = n, err == nil && n >= 0
	}
	if s.set.Delayed && len(dead.Deaths) == 0 {
		if v, ok := props.Header(exchange.HeaderDedup); ok {
			// It is published only now, and no dead letter on its way, sent back or not: that one's queue may know its id from
			// before it died. What is no id does no harm.
			t.Dedup, _ = exchange.DedupID(amqp.Table{{Name: exchange.HeaderDedup, Value: v}})
		}
	}
	if m.cfg.Trace != nil {
		m.parentOf(&dead, &s)
	}
	t.Message = m.encode(&dead, rest)
	return t, nil
}

// rawHeader is props.Header for a header that hardly any message has: the search for its name is much cheaper than
// stepping over the long headers of a letter.
func rawHeader(props amqp.RawProperties, name string) (v any, ok bool) {
	if !bytes.Contains(props, []byte(name)) {
		return nil, false
	}
	return props.Header(name)
}

// encode encodes a message into memory that some messages of a batch share; rest are those that come, this one
// included.
func (m *Mover) encode(msg *fsm.Message, rest []dlx.Pending) []byte {
	if n := len(msg.Properties) + len(msg.Body) + messageSlack; cap(m.slab)-len(m.slab) < n {
		want := n
		for i := 1; i < len(rest) && want < slabBytes; i++ {
			want += int(rest[i].Ref.Length) + messageSlack
		}
		m.slab = make([]byte, 0, max(n, min(want, slabBytes)))
	}
	at := len(m.slab)
	m.slab = fsm.EncodeMessage(m.slab, msg)
	return m.slab[at:len(m.slab):len(m.slab)]
}
