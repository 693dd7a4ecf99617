package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/leader"
)

const (
	opRedriveStart  = "redrive"
	opRedriveStop   = "redrive-stop"
	opRedriveStatus = "redrive-status"
	opRedriveDryRun = "redrive-dry-run"
)

// The ways of a redrive, in the words of clients.
var redriveWays = map[string]dlx.RedriveTo{
	"last": dlx.ToLastQueue, "first": dlx.ToFirstQueue, "exchange": dlx.ToExchange, "queue": dlx.ToNamedQueue,
}

// Redrive asks for messages of a queue to be sent back where they came from, or to be
// removed.
type Redrive struct {
	// To is last or first (the queue in which a message died last or first; "" is last),
	// exchange (the exchange and keys it was published with) or queue (the one named by Queue).
	To    string `json:"to,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Discard removes the messages for good.
	Discard bool   `json:"discard,omitempty"`
	Filter  Filter `json:"filter"`
	Rate    uint32 `json:"rate,omitempty"` // messages a second at most, 0: no limit
}

// RedriveStatus describes the newest redrive of a queue.
type RedriveStatus struct {
	Number uint64 `json:"number"` // 0: there was none
	// State is running, stopping (stopped, with one batch of messages under way of which it is not
	// known yet where they are), stopped or done.
	State     string `json:"state"`
	StartedAt int64  `json:"started_at"` // ms
	EndedAt   int64  `json:"ended_at,omitempty"`
	// Position is how far the search has come, of the Tail that the queue had at the start.
	Position uint64 `json:"position"`
	Tail     uint64 `json:"tail"`
	Discard  bool   `json:"discard"`
	To       string `json:"to"`
	Queue    string `json:"queue,omitempty"`
	Rate     uint32 `json:"rate,omitempty"`

	// Moved have been taken by their targets, or removed. UnderWay are sent and not taken yet.
	Moved    uint64 `json:"moved"`
	UnderWay int    `json:"under_way"`
	// WaitsFor says where these go: a redrive that is stopped, too, ends when each has taken its
	// messages or let them go. A message for several queues is in each.
	WaitsFor []RedriveTarget `json:"waits_for,omitempty"`
	// The others stay where they are: Returned came back because the target had gone, or was full
	// when the redrive was stopped,
	// Missing have no such queue or route, NoOrigin no death that says where from, Busy were
	// with a consumer.
	Returned uint64 `json:"returned"`
	Missing  uint64 `json:"missing"`
	NoOrigin uint64 `json:"no_origin"`
	Busy     uint64 `json:"busy"`
}

// RedrivePlan is what a redrive would do with the messages that are there now. Those that a
// consumer holds are among them.
type RedrivePlan struct {
	// Destinations counts messages by queue; a message for several is in each.
	Destinations map[string]uint64 `json:"destinations"`
	Missing      map[string]uint64 `json:"missing"` // by the queue or exchange that does not take them
	NoOrigin     uint64            `json:"no_origin"`
	Messages     uint64            `json:"messages"` // that the filter takes
	Looked       uint64            `json:"looked"`   // at so many
	// Next is where the look would go on; 0: it is complete.
	Next uint64 `json:"next,omitempty"`
}

// redriveQuestion is the body of the inquiries.
type redriveQuestion struct {
	Redrive Redrive         `json:"redrive"`
	Token   uint64          `json:"token,omitempty"`
	After   queue.MessageID `json:"after,omitempty"`
}

// spec checks the request and gives it the form that the log has.
func (r *Redrive) spec(now int64) (s dlx.RedriveSpec, err error) {
	way, ok := redriveWays[cmp.Or(r.To, "last")]
	switch {
	case !ok:
		return s, Errorf(PreconditionFailed, "'%s' is none of the ways last, first, exchange, queue", r.To)
	case (way == dlx.ToNamedQueue) != (r.Queue != ""):
		return s, Errorf(PreconditionFailed, "a queue is named if and only if the way is 'queue'")
	case len(r.Queue) > nameBytesMax:
		return s, Errorf(PreconditionFailed, "queue name is longer than %d bytes", nameBytesMax)
	case r.Discard && (r.To != "" || r.Rate > 0):
		return s, Errorf(PreconditionFailed, "what is removed has no way and no rate")
	}
	s = dlx.RedriveSpec{Discard: r.Discard, To: way, Queue: r.Queue, Rate: r.Rate}
	s.Filter, err = r.Filter.resolve(now)
	return s, err
}

// Validate says what is wrong with the request by itself. The error is an *Error.
func (r *Redrive) Validate() error {
	_, err := r.spec(0)
	return err
}

// StartRedrive begins a redrive for a user, who may read the queue and, if the messages are to
// go into queues, write to the default exchange. One at a time; the error is an *Error.
func (b *Broker) StartRedrive(ctx context.Context, u User, vhost, name string, r Redrive) (st RedriveStatus, err error) {
	q := redriveQuestion{Redrive: r, Token: rand.Uint64() | 1}
	return st, b.askRedrive(ctx, u, vhost, name, opRedriveStart, &q, &st)
}

// StopRedrive ends the search of the newest redrive and waits for nothing else. What is under way
// arrives, or comes back if its target has no room for it; it is known of a target that does not answer
// when it does again, or is deleted. WaitsFor names it.
func (b *Broker) StopRedrive(ctx context.Context, u User, vhost, name string) (st RedriveStatus, err error) {
	return st, b.askRedrive(ctx, u, vhost, name, opRedriveStop, &redriveQuestion{}, &st)
}

// RedriveStatus tells of the newest redrive of a queue.
func (b *Broker) RedriveStatus(ctx context.Context, u User, vhost, name string) (st RedriveStatus, err error) {
	return st, b.askRedrive(ctx, u, vhost, name, opRedriveStatus, &redriveQuestion{}, &st)
}

// dryRunTime bounds a dry run.
const dryRunTime = 20 * time.Second

// PlanRedrive counts what a redrive would do now. With Next not 0 it came not to the end.
func (b *Broker) PlanRedrive(ctx context.Context, u User, vhost, name string, r Redrive) (RedrivePlan, error) {
	all := RedrivePlan{Destinations: map[string]uint64{}, Missing: map[string]uint64{}}
	q := redriveQuestion{Redrive: r}
	for until := time.Now().Add(dryRunTime); ; {
		var part RedrivePlan
		if err := b.askRedrive(ctx, u, vhost, name, opRedriveDryRun, &q, &part); err != nil {
			return all, err
		}
		for k, n := range part.Destinations {
			all.Destinations[k] += n
		}
		for k, n := range part.Missing {
			all.Missing[k] += n
		}
		all.NoOrigin, all.Messages, all.Looked = all.NoOrigin+part.NoOrigin, all.Messages+part.Messages, all.Looked+part.Looked
		all.Next = part.Next
		if q.After = queue.MessageID(part.Next); part.Next == 0 || time.Now().After(until) || ctx.Err() != nil {
			return all, nil
		}
	}
}

func (b *Broker) askRedrive(ctx context.Context, u User, vhost, name, op string, body *redriveQuestion, to any) error {
	q, err := b.queueFor(ctx, u, vhost, name, auth.Read)
	if err != nil {
		return err
	}
	if op == opRedriveStart || op == opRedriveDryRun {
		r := &body.Redrive
		if err := cmp.Or(r.Validate(), b.usable(&r.Filter)); err != nil {
			return err
		}
		if !r.Discard && r.To != "exchange" {
			if err := b.allows(ctx, u, vhost, auth.Write, exchangeResource("")); err != nil {
				return err
			}
		}
		if r.Queue == name {
			return Errorf(PreconditionFailed, "queue '%s' in vhost '%s' is where the messages are", name, vhost)
		}
	}
	return b.inquireNamed(ctx, q, op, body, to)
}

// redriveLeader reads a question and finds the leader.
func redriveLeader(h *hosted, body []byte) (q redriveQuestion, l *leader.Leader, err error) {
	if err := json.Unmarshal(body, &q); err != nil {
		return q, nil, Errorf(PreconditionFailed, "redrive: %v", err)
	}
	if l = h.replica.Leader(); l == nil {
		return q, nil, errNotHere
	}
	return q, l, nil
}

func answerRedriveStart(ctx context.Context, b *Broker, h *hosted, body []byte) (any, error) {
	q, l, err := redriveLeader(h, body)
	if err != nil {
		return nil, err
	}
	spec, err := q.Redrive.spec(b.cfg.Now())
	if err != nil {
		return nil, err
	}
	spec.Token = q.Token
	// An answer may have been lost: the redrive with this token has begun then.
	if h.redriving().Spec.Token != q.Token {
		if err := proposeAndWait(ctx, l, fsm.StartRedrive{Spec: spec}); err != nil {
			return nil, err
		}
	}
	switch {
	case h.redriving().Spec.Token == q.Token:
		return h.redriveStatus(), nil
	case h.over():
		return nil, errNotHere
	}
	return nil, Errorf(PreconditionFailed, "a redrive of queue '%s' is under way", h.name())
}

func answerRedriveStop(ctx context.Context, _ *Broker, h *hosted, body []byte) (any, error) {
	_, l, err := redriveLeader(h, body)
	if err != nil {
		return nil, err
	}
	if r := h.redriving(); r.Number > 0 && r.EndedMillis == 0 && !r.Stopped {
		if err := proposeAndWait(ctx, l, fsm.StopRedrive{Number: r.Number}); err != nil {
			return nil, err
		}
	}
	return h.redriveStatus(), nil
}

func answerRedriveStatus(_ context.Context, _ *Broker, h *hosted, body []byte) (any, error) {
	if _, _, err := redriveLeader(h, body); err != nil {
		return nil, err
	}
	return h.redriveStatus(), nil
}

// proposeAndWait waits until the command is applied.
func proposeAndWait(ctx context.Context, l *leader.Leader, c fsm.Command) error {
	done := make(chan struct{})
	l.Propose(c, false, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-l.Done():
	case <-ctx.Done():
	}
	return errNotHere
}

// dryRunPart is how many messages one answer looks at, and for how long.
const (
	dryRunPart     = 20_000
	dryRunPartTime = time.Second
)

func answerRedriveDryRun(ctx context.Context, b *Broker, h *hosted, body []byte) (any, error) {
	q, _, err := redriveLeader(h, body)
	if err != nil {
		return nil, err
	}
	spec, err := q.Redrive.spec(b.cfg.Now())
	if err != nil {
		return nil, err
	}
	if _, err := b.freshForRoute(ctx); err != nil { // what is missing is missing indeed
		return nil, err
	}
	p := RedrivePlan{Destinations: map[string]uint64{}, Missing: map[string]uint64{}}
	planner := h.planner()
	var vhost, here string
	var list []queue.Message
	h.replica.View(func(m *fsm.Machine) {
		vhost, here = m.VHost(), m.Name()
		list = mover.LiveBehind(m, q.After, dryRunPart)
	})
	until := time.Now().Add(dryRunPartTime)
	for i, m := range list {
		if plan, err := planner.Plan(&spec, vhost, here, m); err == nil {
			p.add(&plan, spec.Discard)
		}
		if i+1 == dryRunPart || time.Now().After(until) {
			p.Next = uint64(m.ID)
			break
		}
	}
	return p, nil
}

func (p *RedrivePlan) add(plan *mover.Plan, discards bool) {
	p.Looked++
	// Names may be parts of entries, each of which would stay in memory as a whole.
	switch {
	case !plan.Takes:
		return
	case plan.NoOrigin:
		p.NoOrigin++
	case !discards && len(plan.Targets) == 0:
		p.Missing[strings.Clone(plan.Way)]++
	}
	p.Messages++
	for _, t := range plan.Targets {
		p.Destinations[strings.Clone(t.Name)]++
	}
}

func (h *hosted) redriving() (r dlx.Redriving) {
	h.replica.View(func(m *fsm.Machine) { r = m.Redriving() })
	return r
}

func (h *hosted) redriveStatus() RedriveStatus {
	var st RedriveStatus
	var legs map[uint64]int
	h.replica.View(func(m *fsm.Machine) {
		r := m.Redriving()
		st = RedriveStatus{
			Number: r.Number, State: "running", StartedAt: r.StartedMillis, EndedAt: r.EndedMillis, Position: uint64(r.Cursor), Tail: uint64(r.Tail),
			Discard: r.Spec.Discard, Queue: r.Spec.Queue, Rate: r.Spec.Rate, Moved: r.Moved, UnderWay: m.LeavingLen(),
			Returned: r.Returned, Missing: r.Missing, NoOrigin: r.NoOrigin, Busy: r.Busy,
		}
		legs = redriveLegs(m)
		for word, way := range redriveWays {
			if way == r.Spec.To {
				st.To = word
			}
		}
		switch {
		case r.Number == 0:
			st.State = "none"
		case r.Stopped && r.EndedMillis == 0:
			st.State = "stopping"
		case r.Stopped:
			st.State = "stopped"
		case r.EndedMillis > 0:
			st.State = "done"
		}
	})
	st.WaitsFor = h.redriveTargets(h.replica.Leader(), legs)
	return st
}

// planner tells where messages of this queue go by the node's copy of the catalog.
func (h *hosted) planner() mover.Planner {
	b := h.qs.b
	return mover.Planner{
		Queue: h.id, Read: h.reader().log.Read, Route: b.routeRedriven,
		Named: func(vhost, name string) (mover.Target, bool) {
			q := b.cat.View().Queue(vhost, name)
			if q == nil {
				return mover.Target{}, false
			}
			return mover.Target{ID: q.ID, Name: q.Name}, true
		},
	}
}

// routeRedriven is routeDead with names for the queues of delayed exchanges, which people see.
func (b *Broker) routeRedriven(vhost, exchange string, l *mover.Letter) ([]mover.Target, bool) {
	targets, found := b.routeDead(vhost, exchange, l)
	view := b.cat.View()
	targets = slices.Clone(targets)
	for i := range targets {
		targets[i].Name = queueName(view, targets[i].ID)
	}
	return targets, found
}

func (h *hosted) startRedriver(l *leader.Leader) leader.Redriver {
	b := h.qs.b
	return mover.StartRedriver(mover.RedriveConfig{
		Planner: h.planner(),
		View:    h.replica.View,
		Fresh: func(ctx context.Context) error {
			_, err := b.freshForRoute(ctx)
			return err
		},
		Propose: l.Propose,
		Logger:  b.cfg.Logger,
	})
}
