package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
)

// OutboxStatus describes the dead letters of one queue on their way out, as its leader
// knows them.
type OutboxStatus struct {
	ID    uint64 `json:"id"`
	VHost string `json:"vhost"`
	Queue string `json:"queue"`
	// DelayOf is the delayed exchange whose messages wait here; such a queue has no name.
	DelayOf string `json:"delay_of,omitempty"`
	Leader  string `json:"leader"` // node id without the storage uuid
	// Messages and Bytes are what the outbox holds, parts of transactions for other
	// queues included.
	Messages     int   `json:"messages_dlx"`
	MessageBytes int64 `json:"message_bytes_dlx"`
	// OldestAge is how long, in ms, the oldest item has been waiting; 0 if there is none.
	OldestAge int64        `json:"oldest_age_ms"`
	States    OutboxStates `json:"states"`
	// Targets are those that something is on its way to, by id.
	Targets []OutboxTarget `json:"targets"`
	// LastError is the newest trouble, over or not. It is lost when the leader changes; the next
	// leader meets what is not over within seconds.
	LastError *OutboxError `json:"last_error"`
	// DeadLettered counts deaths by reason, Dropped drops by cause, Confirmed what every
	// target has taken, parts of transactions included: since the queue was created,
	// replicated with it.
	DeadLettered map[string]uint64 `json:"dead_lettered"`
	Confirmed    uint64            `json:"confirmed"`
	Dropped      map[string]uint64 `json:"dropped"`
	// Stayed are expired messages that lost their time to live instead of leaving.
	Stayed uint64 `json:"stayed"`
}

// OutboxStates counts the items of an outbox by what they wait for.
type OutboxStates struct {
	Unrouted       int `json:"unrouted"`        // the leader's word where to
	Routed         int `json:"routed"`          // their targets
	ParkedUnrouted int `json:"parked_unrouted"` // a route
	ParkedCycle    int `json:"parked_cycle"`    // somebody to release them
}

// OutboxTarget is one target of an outbox.
type OutboxTarget struct {
	ID      uint64 `json:"id"`
	VHost   string `json:"vhost,omitempty"` // "" if the catalog does not know it any more
	Queue   string `json:"queue,omitempty"`
	Pending int    `json:"pending"`
	// State is moving, full, unreachable or gone; Since is when that began, in ms since
	// 1970.
	State string `json:"state"`
	Since int64  `json:"since"`
}

// OutboxError is trouble with a move.
type OutboxError struct {
	Text string `json:"text"`
	At   int64  `json:"at"` // ms since 1970
}

// Stuck tells why an outbox's oldest item waits, in words.
func (s *OutboxStatus) Stuck() string {
	for _, t := range s.Targets {
		if t.Pending > 0 && t.State != mover.Moving.String() {
			return fmt.Sprintf("target %s is %s", cmp.Or(t.Queue, fmt.Sprint(t.ID)), t.State)
		}
	}
	switch {
	case s.States.ParkedCycle > 0 && s.States.Routed+s.States.Unrouted == 0:
		return "the only route is a cycle"
	case s.States.ParkedUnrouted > 0 && s.States.Routed+s.States.Unrouted == 0:
		return "no route"
	case s.LastError != nil:
		return s.LastError.Text
	}
	return "moving slowly"
}

// MethodOutboxes is the call by which one node asks another for the outboxes of the queues
// it leads.
const MethodOutboxes uint8 = 0x50

// outboxesVersion is that of the call's messages.
const outboxesVersion = 1

// outboxesQuery is what one node asks another.
type outboxesQuery struct {
	Version int `json:"version"`
	// Queue asks for one queue, empty outbox or not; 0 for all that are not empty.
	Queue uint64 `json:"queue,omitempty"`
	// OlderMillis leaves out what is younger.
	OlderMillis int64 `json:"older_ms,omitempty"`
	// After is the id of the last queue of the page before.
	After uint64 `json:"after,omitempty"`
}

// outboxesPage is the answer, by id. More: there are others behind the last one.
type outboxesPage struct {
	Outboxes []OutboxStatus `json:"outboxes"`
	More     bool           `json:"more"`
}

// Bounds of asking for outboxes.
const (
	outboxesPageMax = 500
	timeoutOutboxes = 3 * time.Second
)

// AnswerOutboxes answers another node's MethodOutboxes.
func (b *Broker) AnswerOutboxes(_ context.Context, raw []byte) ([]byte, error) {
	var q outboxesQuery
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Errorf("query of outboxes: %w", err)
	}
	if q.Version != outboxesVersion {
		return nil, fmt.Errorf("query of outboxes of version %d, this is %d", q.Version, outboxesVersion)
	}
	return json.Marshal(b.localOutboxes(q))
}

// localOutboxes describes the outboxes of the queues that are led here.
func (b *Broker) localOutboxes(q outboxesQuery) (page outboxesPage) {
	page.Outboxes = []OutboxStatus{}
	for _, h := range b.queues.byID(q.Queue, q.After) {
		s, ok := h.outbox()
		if !ok || q.Queue == 0 && (s.Messages == 0 || s.OldestAge < q.OlderMillis) {
			continue
		}
		if len(page.Outboxes) == outboxesPageMax {
			page.More = true
			break
		}
		page.Outboxes = append(page.Outboxes, s)
	}
	return page
}

// byID lists the hosted queues with ids above after, in order, or the one that is asked for.
func (qs *queues) byID(one, after uint64) (list []*hosted) {
	qs.mu.RLock()
	defer qs.mu.RUnlock()
	if one != 0 {
		if h := qs.hosted[one]; h != nil {
			list = append(list, h)
		}
		return list
	}
	for id, h := range qs.hosted {
		if id > after {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(x, y *hosted) int { return cmp.Compare(x.id, y.id) })
	return list
}

// moving is a mover and the leader it belongs to.
type moving struct {
	leader *leader.Leader
	mover  *mover.Mover
}

// outbox describes the queue's outbox; ok is false if this node does not lead it.
func (h *hosted) outbox() (s OutboxStatus, ok bool) {
	l := h.replica.Leader()
	if l == nil {
		return s, false
	}
	b := h.qs.b
	h.mu.Lock()
	q := h.q
	h.mu.Unlock()
	s = OutboxStatus{
		ID: h.id, VHost: q.Vhost, Queue: q.Name, DelayOf: q.DelayOf, Leader: shortName(b.cfg.Node), Targets: []OutboxTarget{},
		DeadLettered: map[string]uint64{}, Dropped: map[string]uint64{},
	}
	if q.DelayOf != "" {
		s.Queue = ""
	}
	var targets []dlx.Target
	h.replica.View(func(m *fsm.Machine) {
		s.read(m, b.cfg.Now())
		s.count(m)
		if s.Messages > 0 {
			targets = m.Outbox().Targets()
		}
	})
	if s.Messages == 0 && h.moving.Load() == nil {
		return s, true
	}
	var st mover.Status
	if m := h.moving.Load(); m != nil && m.leader == l {
		st = m.mover.Status()
	}
	view := b.cat.View()
	for _, t := range targets {
		if t.Pending > 0 {
			s.Targets = append(s.Targets, outboxTarget(view, t, st.Targets[t.Queue]))
		}
	}
	if st.LastError != "" {
		s.LastError = &OutboxError{Text: st.LastError, At: st.At.UnixMilli()}
		if t := view.QueueByID(st.LastTarget); t != nil {
			s.LastError.Text = fmt.Sprintf("queue '%s' in vhost '%s': %s", t.Name, t.Vhost, st.LastError)
		}
	}
	return s, true
}

// troubles counts the targets that do not take what the queue's leader sends.
func (h *hosted) troubles(l *leader.Leader) (full, unreachable int) {
	m := h.moving.Load()
	if m == nil || m.leader != l {
		return 0, 0
	}
	for _, t := range m.mover.Status().Targets {
		switch t.State {
		case mover.Full:
			full++
		case mover.Unreachable:
			unreachable++
		}
	}
	return full, unreachable
}

// read takes what the outbox holds at node time now.
func (s *OutboxStatus) read(m *fsm.Machine, now int64) {
	o := m.Outbox()
	s.Messages, s.MessageBytes = o.Len(), o.Bytes()
	if it, ok := o.Oldest(); ok {
		s.OldestAge = max(0, max(now, m.Time())-it.TimeMillis)
	}
	s.States = OutboxStates{o.Count(dlx.Unrouted), o.Count(dlx.Routed), o.Count(dlx.ParkedUnrouted), o.Count(dlx.ParkedCycle)}
}

// count takes the totals of the machine.
func (s *OutboxStatus) count(m *fsm.Machine) {
	c, set := m.Counters(), m.Settings()
	s.Confirmed, s.Stayed = c.Moved, c.Stayed
	for _, r := range DeadReasons() {
		s.DeadLettered[r.String()] = c.Died[r]
		for cause, n := range c.Dropped[r] {
			if n > 0 {
				s.Dropped[dropCause(fsm.Dropped{Cause: fsm.NoRoute(cause)}, &set).String()] += n
			}
		}
	}
	if c.Closed > 0 {
		s.Dropped[DropQueueDeleted.String()] = c.Closed
	}
}

func outboxTarget(view *catalog.View, t dlx.Target, st mover.TargetStatus) OutboxTarget {
	x := OutboxTarget{ID: t.Queue, Pending: t.Pending, State: st.State.String()}
	if !st.Since.IsZero() {
		x.Since = st.Since.UnixMilli()
	}
	if q := view.QueueByID(t.Queue); q != nil {
		x.VHost, x.Queue = q.Vhost, q.Name
	}
	return x
}

// ErrNoLeader says that no node within reach leads a queue.
var ErrNoLeader = errors.New("no leader of the queue is within reach")

// Outbox describes one queue's outbox, wherever the queue is led. It waits for a leader for as long as it waits for nodes, if there can be one. Errors are an *Error of
// NotFound, ErrNoLeader, or those of nodes that did not answer.
func (b *Broker) Outbox(ctx context.Context, vhost, name string) (OutboxStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOutboxes)
	defer cancel()
	for q := b.cat.View().Queue(vhost, name); ; {
		if q == nil || leaves(b.cat.View().QueueByID(q.ID)) {
			view, err := b.fresh(ctx)
			if err != nil {
				return OutboxStatus{}, err
			}
			if q = view.Queue(vhost, name); q == nil {
				return OutboxStatus{}, Errorf(NotFound, "no queue '%s' in vhost '%s'", name, vhost)
			}
		}
		list, err := b.outboxes(ctx, outboxesQuery{Queue: q.ID})
		if len(list) > 0 {
			return list[0], nil
		}
		if outlineOf(q, b.online).State != "running" || sleep(ctx, inquireAgain) != nil { // without a majority there will be none
			return OutboxStatus{}, errors.Join(ErrNoLeader, err)
		}
	}
}

// Outboxes describes all outboxes of the cluster that are not empty and whose oldest item
// has waited for at least the given time, by id. What the nodes that answered know is
// returned also with an error, which tells of the others.
func (b *Broker) Outboxes(ctx context.Context, older time.Duration) ([]OutboxStatus, error) {
	return b.outboxes(ctx, outboxesQuery{OlderMillis: older.Milliseconds()})
}

// UnknownOutboxes are those, by id, that nobody can tell of because too few members of their queues are online, and that may hold something: the queues
// dead-letter, or keep what a delayed exchange holds. Of each only the queue is said.
func (b *Broker) UnknownOutboxes() []OutboxStatus {
	list := []OutboxStatus{}
	for q := range b.withoutMajority {
		if !settingsOf(q, b.inEffect(q).arguments).DeadLetter {
			continue
		}
		s := OutboxStatus{ID: q.ID, VHost: q.Vhost, Queue: q.Name, DelayOf: q.DelayOf, Targets: []OutboxTarget{}}
		if q.DelayOf != "" {
			s.Queue = ""
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y OutboxStatus) int { return cmp.Compare(x.ID, y.ID) })
	return list
}

func (b *Broker) outboxes(ctx context.Context, q outboxesQuery) ([]OutboxStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOutboxes)
	defer cancel()
	nodes := []string{b.cfg.Node}
	for n := range b.cat.View().Nodes() {
		if id := string(n.ID); id != b.cfg.Node && !n.Superseded && b.cfg.Alive(id) {
			nodes = append(nodes, id)
		}
	}
	found, errs := make([][]OutboxStatus, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() { found[i], errs[i] = b.outboxesOf(ctx, node, q) })
	}
	wg.Wait()
	all := []OutboxStatus{}
	for _, list := range found {
		all = append(all, list...)
	}
	// Two nodes may believe to lead one queue for a moment.
	slices.SortStableFunc(all, func(x, y OutboxStatus) int { return cmp.Compare(x.ID, y.ID) })
	all = slices.CompactFunc(all, func(x, y OutboxStatus) bool { return x.ID == y.ID })
	return all, errors.Join(errs...)
}

func (b *Broker) outboxesOf(ctx context.Context, node string, q outboxesQuery) (list []OutboxStatus, err error) {
	q.Version = outboxesVersion
	for {
		page, err := b.outboxesPage(ctx, node, q)
		list = append(list, page.Outboxes...)
		if err != nil || !page.More || len(page.Outboxes) == 0 {
			return list, err
		}
		q.After = page.Outboxes[len(page.Outboxes)-1].ID
	}
}

func (b *Broker) outboxesPage(ctx context.Context, node string, q outboxesQuery) (page outboxesPage, err error) {
	if node == b.cfg.Node {
		return b.localOutboxes(q), nil
	}
	if b.cfg.Call == nil {
		return page, fmt.Errorf("node %s: not linked", node)
	}
	raw, err := json.Marshal(q)
	if err != nil {
		return page, err
	}
	if raw, err = b.cfg.Call(ctx, node, MethodOutboxes, raw); err == nil {
		err = json.Unmarshal(raw, &page)
	}
	if err != nil {
		return outboxesPage{}, fmt.Errorf("node %s: %w", shortName(node), err)
	}
	return page, nil
}
