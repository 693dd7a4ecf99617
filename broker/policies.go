package broker

import (
	"context"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
	"github.com/warrenmq/warren/queue"
)

// effect is what is in effect on a queue: its arguments, and the policies of its vhost.
// It is immutable.
type effect struct {
	policy, operator *policy.Policy // nil: none applies
	// merged is what both say together, arguments those of the queue with it.
	merged, arguments amqp.Table
	// revision is a catalog revision at which nothing of this was different.
	revision uint64
}

func effectOf(q *catalog.Queue, set *policy.Set) *effect {
	e := &effect{arguments: q.Arguments, revision: max(q.Settings, q.PausedAt)}
	if q.DelayOf != "" || set == nil {
		return e
	}
	e.revision = max(e.revision, set.Revision)
	e.policy, e.operator = set.Match(targetOf(q.Arguments), q.Name)
	e.merged = policy.Merge(e.policy, e.operator)
	e.arguments = policy.Arguments(q.Arguments, isQuorum(q.Arguments), e.merged)
	return e
}

func targetOf(args amqp.Table) policy.Target {
	if isQuorum(args) {
		return policy.QuorumQueue
	}
	return policy.ClassicQueue
}

// inEffect is what is in effect on a queue by the node's copy of the catalog.
func (b *Broker) inEffect(q *catalog.Queue) *effect {
	return effectOf(q, b.cat.View().Policies(q.Vhost))
}

// lacksExchange names a dead-letter setting that does nothing without an exchange, "" if
// there is none. It happens by policy only: an argument is refused.
func (e *effect) lacksExchange() string {
	if _, dlx := e.arguments.Get("x-dead-letter-exchange"); dlx {
		return ""
	}
	for _, arg := range []string{"x-dead-letter-routing-key", "x-dead-letter-strategy"} {
		if _, ok := e.arguments.Get(arg); ok {
			return arg[2:]
		}
	}
	return ""
}

func (h *hosted) warnDeadLetter() {
	if key := h.effect.lacksExchange(); key != "" {
		h.qs.b.cfg.Logger.Warn("dead lettering is disabled: there is a "+key+" and no dead-letter-exchange", "queue", h.q.Name, "vhost", h.q.Vhost)
	}
}

// policiesChanged gives queues of vhosts with other policies than before what is in effect
// now: to their leaders here, and to their clients here.
func (qs *queues) policiesChanged(view *catalog.View) {
	if qs.view == nil {
		return
	}
	changed := map[string]*policy.Set{}
	for v := range view.Vhosts() {
		if set := view.Policies(v.Name); set != qs.view.Policies(v.Name) {
			changed[v.Name] = set
		}
	}
	if len(changed) == 0 {
		return
	}
	for _, h := range qs.all() {
		h.mu.Lock()
		set, ok := changed[h.q.Vhost]
		var l leaderHandle
		if ok {
			h.setEffect(effectOf(h.q, set))
			l = h.leads
		}
		h.mu.Unlock()
		if l != nil {
			l.CatalogChanged()
		}
	}
	for _, s := range qs.b.allStreams() {
		if q := view.QueueByID(s.id); q != nil {
			if set, ok := changed[q.Vhost]; ok {
				qs.b.refit(s, effectOf(q, set))
			}
		}
	}
}

// refit gives a stream what is in effect on its queue.
func (b *Broker) refit(s *stream, e *effect) {
	s.counts.Store(showsCounts(e.arguments))
	s.dedups.Store(dedupOf(e.arguments).WindowMillis > 0)
	s.retime(consumerTimeout(amqp.Table{}, e.arguments, b.cfg.ConsumerTimeout))
}

// setEffect takes over what is in effect; h.mu is held.
func (h *hosted) setEffect(e *effect) {
	old := h.effect
	h.effect = e
	if h.leads != nil && (old == nil || old.lacksExchange() != e.lacksExchange()) {
		h.warnDeadLetter()
	}
}

// PutPolicy makes or replaces a policy, or an operator policy, and waits until the living
// nodes know it. The error is a [*policy.Invalid] or an *Error.
func (b *Broker) PutPolicy(ctx context.Context, s policy.Spec) (created bool, err error) {
	p, err := policy.New(s)
	if err != nil {
		return false, err
	}
	for _, f := range p.Definition {
		if policy.Idle(f.Name) {
			b.cfg.Logger.Warn("a policy has a key without effect", "policy", p.Name, "vhost", p.VHost, "key", f.Name)
		}
	}
	res, err := b.administer(ctx, &catalog.PutPolicy{Policy: p.Spec})
	return res.Changed, err
}

// DeletePolicy deletes a policy, or an operator policy, and waits like PutPolicy. The error is
// an *Error, NotFound if there is none.
func (b *Broker) DeletePolicy(ctx context.Context, vhost, name string, operator bool) error {
	res, err := b.administer(ctx, &catalog.DeletePolicy{Vhost: vhost, Name: name, Operator: operator})
	if err == nil && !res.Changed {
		return Errorf(NotFound, "no policy '%s' in vhost '%s'", name, vhost)
	}
	return err
}

// Revision is that of the node's copy of the catalog.
func (b *Broker) Revision() uint64 { return b.cat.View().Revision() }

// settlePoll is the pause between two looks at what is not in effect yet.
const settlePoll = 2 * time.Millisecond

// SettlePolicies waits until the policies of a vhost at a catalog revision are in effect on
// the queues that this node leads, or ctx ends.
func (b *Broker) SettlePolicies(ctx context.Context, vhost string, revision uint64) error {
	for !b.queues.followed(revision) {
		if err := sleep(ctx, settlePoll); err != nil {
			return err
		}
	}
	for _, h := range b.queues.all() {
		for h.unsettled(vhost) {
			if err := sleep(ctx, settlePoll); err != nil {
				return err
			}
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// followed tells whether the hosted queues are in line with that revision.
func (qs *queues) followed(revision uint64) bool {
	qs.mu.RLock()
	defer qs.mu.RUnlock()
	return qs.view != nil && qs.view.Revision() >= revision
}

// unsettled tells whether a leader here has not applied the settings in effect.
func (h *hosted) unsettled(vhost string) bool {
	h.mu.Lock()
	l := h.leads
	mine := h.q.Vhost == vhost
	h.mu.Unlock()
	return mine && l != nil && l.SettingsPending()
}

// administer proposes a catalog command, and waits a moment for the other living nodes.
func (b *Broker) administer(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	res, err := b.cat.Propose(ctx, cmd)
	if err != nil {
		return res, asError(err)
	}
	// A node that is slow finds out by itself.
	_ = b.cat.WaitEveryone(ctx, res.Index)
	return res, nil
}

// Policies returns the policies, or the operator policies, of a vhost in the order in which
// they are tried.
func (b *Broker) Policies(vhost string, operator bool) []*policy.Policy {
	return b.cat.View().Policies(vhost).List(operator)
}

// Vhosts lists the names of the virtual hosts.
func (b *Broker) Vhosts() (names []string) {
	for h := range b.cat.View().Vhosts() {
		names = append(names, h.Name)
	}
	return names
}

// settings are those of the queue for its machine.
func (h *hosted) settings() (s queue.Settings, revision uint64, vhost, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return settingsOf(h.q, h.effect.arguments), h.effect.revision, h.q.Vhost, h.q.Name
}
