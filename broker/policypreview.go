package broker

import (
	"cmp"

	"github.com/warrenmq/warren/policy"
)

// previewNamesMax bounds the names that a preview tells of each kind.
const previewNamesMax = 50

// PolicyPreview is what a policy would apply to, if it were made now.
type PolicyPreview struct {
	Queues    PolicyMatches `json:"queues"`
	Exchanges PolicyMatches `json:"exchanges"`
}

// PolicyMatches counts the objects of a kind that a policy matches.
type PolicyMatches struct {
	// Matched are those that the pattern, apply-to and the keys of the definition fit; of these, at Others another policy comes first,
	// by its priority or its name.
	Matched int `json:"matched"`
	Others  int `json:"others"`
	// Names are the first of those that it would apply to.
	Names []string `json:"names"`
}

// PreviewPolicy says what a policy would apply to, by this node's copy of the catalog. Nothing changes. The error is a *policy.Invalid.
func (b *Broker) PreviewPolicy(s policy.Spec) (PolicyPreview, error) {
	s.Name = cmp.Or(s.Name, "preview")
	p, err := policy.New(s)
	if err != nil {
		return PolicyPreview{}, err
	}
	view := b.cat.View()
	set := view.Policies(s.VHost).With(p, view.Revision())
	look := PolicyPreview{Queues: PolicyMatches{Names: []string{}}, Exchanges: PolicyMatches{Names: []string{}}}
	count := func(m *PolicyMatches, t policy.Target, name string) {
		if !p.Matches(t, name) {
			return
		}
		m.Matched++
		first, operator := set.Match(t, name)
		if s.Operator {
			first = operator
		}
		switch {
		case first != p:
			m.Others++
		case len(m.Names) < previewNamesMax:
			m.Names = append(m.Names, name)
		}
	}
	for q := range view.Queues(s.VHost) {
		if q.DelayOf == "" {
			count(&look.Queues, targetOf(q.Arguments), q.Name)
		}
	}
	for x := range view.Exchanges(s.VHost) {
		count(&look.Exchanges, policy.Exchange, x.Name)
	}
	return look, nil
}
