package catalog

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/policy"
)

// PutPolicy makes or replaces a policy, or an operator policy. It takes effect on what is there
// already: exchanges know their alternate from then on, and whoever leads a queue of the
// vhost finds what is in effect by [View.Policies].
type PutPolicy struct{ Policy policy.Spec }

// DeletePolicy deletes a policy or an operator policy.
type DeletePolicy struct {
	Vhost, Name string
	Operator    bool
}

func (*PutPolicy) kind() commandKind    { return kindPutPolicy }
func (*DeletePolicy) kind() commandKind { return kindDeletePolicy }

func policyFields(f *fields, p *policy.Spec) {
	str(f, &p.VHost)
	str(f, &p.Name)
	f.bool(&p.Operator)
	str(f, &p.Pattern)
	enum(f, &p.ApplyTo, policy.Streams)
	f.i64(&p.Priority)
	f.table(&p.Definition)
}

func (c *PutPolicy) fields(f *fields) { policyFields(f, &c.Policy) }

func (c *DeletePolicy) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.Name)
	f.bool(&c.Operator)
}

func (c *PutPolicy) validate() error {
	if _, err := policy.New(c.Policy); err != nil {
		return refused("%v", err)
	}
	return firstError(checkName("vhost name", c.Policy.VHost))
}

func (c *DeletePolicy) validate() error {
	return firstError(checkName("vhost name", c.Vhost), checkName("policy name", c.Name))
}

func (c *PutPolicy) apply(tx *txn) (Result, *amqp.Error) {
	h := tx.Vhost(c.Policy.VHost)
	if h == nil {
		return Result{}, errNoVhost(c.Policy.VHost)
	}
	p, err := policy.New(c.Policy)
	if err != nil {
		// As with permissions: refused by newer code than the proposer's, or older.
		return Result{}, refused("%v", err)
	}
	old := h.policies.Find(p.Operator, p.Name)
	switch {
	case old != nil && old.Equal(p):
		return Result{}, nil
	case old == nil && len(h.policies.List(p.Operator)) >= policy.PoliciesMax:
		return Result{}, refused("vhost '%s' has %d policies of that kind, the maximum", h.Name, policy.PoliciesMax)
	}
	tx.putPolicies(h, h.policies.With(p, tx.index))
	return Result{Changed: old == nil}, nil
}

func (c *DeletePolicy) apply(tx *txn) (Result, *amqp.Error) {
	h := tx.Vhost(c.Vhost)
	if h == nil || h.policies.Find(c.Operator, c.Name) == nil {
		return Result{}, nil
	}
	tx.putPolicies(h, h.policies.Without(c.Operator, c.Name, tx.index))
	return Result{Changed: true}, nil
}

// putPolicies gives a vhost its policies and brings its exchanges up to date.
func (tx *txn) putPolicies(h *Vhost, set *policy.Set) {
	changed := *h
	changed.policies = set
	tx.vhosts.put(key(h.Name), &changed)
	for old := range tx.Exchanges(h.Name) {
		x := *old
		if x.alternate = tx.alternate(&x); x.alternate != old.alternate {
			tx.putExchange(&x)
		}
	}
}

// alternate is the name of an exchange's alternate, by argument or else by policy.
func (v *View) alternate(x *Exchange) string {
	alternate, ok := x.Arguments.Get(argAlternate)
	if !ok {
		alternate, _ = policy.Merge(v.Policies(x.Vhost).Match(policy.Exchange, x.Name)).Get("alternate-exchange")
	}
	s, _ := alternate.(string)
	return s
}

// Policies are those of a vhost, nil if it has none or does not exist.
func (v *View) Policies(vhost string) *policy.Set {
	if h := v.Vhost(vhost); h != nil {
		return h.policies
	}
	return nil
}

// policiesRecord is the head of a vhost's policies in a snapshot.
type policiesRecord struct {
	vhost    string
	revision uint64
}

func (r *policiesRecord) fields(f *fields) {
	str(f, &r.vhost)
	f.u64(&r.revision)
}

func (s *snapshot) writePolicies(r *recordWriter) {
	for h := range s.view.vhosts.all() {
		if h.policies == nil {
			continue
		}
		r.record(recordPolicies, (&policiesRecord{h.Name, h.policies.Revision}).fields)
		for _, operator := range []bool{false, true} {
			for _, p := range h.policies.List(operator) {
				r.record(recordPolicy, func(f *fields) { policyFields(f, &p.Spec) })
			}
		}
	}
}

// restorePolicies takes the head of a vhost's policies from a snapshot. The view is nobody's
// yet, so the vhost is changed in place.
func (tx *txn) restorePolicies(f *fields) error {
	var r policiesRecord
	r.fields(f)
	if h := tx.Vhost(r.vhost); h != nil && f.err == nil {
		h.policies = &policy.Set{Revision: r.revision}
	}
	return f.err
}

func (tx *txn) restorePolicy(f *fields) error {
	var spec policy.Spec
	policyFields(f, &spec)
	if f.err != nil {
		return f.err
	}
	p, err := policy.New(spec)
	if err != nil {
		return err
	}
	if h := tx.Vhost(spec.VHost); h != nil && h.policies != nil {
		h.policies = h.policies.With(p, h.policies.Revision)
	}
	return nil
}
