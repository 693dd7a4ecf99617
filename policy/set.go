package policy

import (
	"cmp"
	"slices"
	"strings"
)

// PoliciesMax bounds how many policies a vhost may have, and how many operator policies:
// each name is matched with all of them.
const PoliciesMax = 1000

// Set is the policies of one vhost. It is immutable; nil is the empty one.
type Set struct {
	// Revision is the catalog revision of the newest change.
	Revision  uint64
	policies  []*Policy
	operators []*Policy
}

// order is that in which policies are tried: highest priority first, and among equals by
// name. RabbitMQ leaves the order of equals open.
func order(a, b *Policy) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
}

// List returns the policies, or the operator policies, in the order in which they are
// tried. It is shared: read only.
func (s *Set) List(operator bool) []*Policy {
	switch {
	case s == nil:
		return nil
	case operator:
		return s.operators
	}
	return s.policies
}

// Find returns a policy by name, nil if there is none.
func (s *Set) Find(operator bool, name string) *Policy {
	for _, p := range s.List(operator) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// With returns the set with p in place of the policy of its name.
func (s *Set) With(p *Policy, revision uint64) *Set {
	list := s.rest(p.Operator, p.Name)
	i, _ := slices.BinarySearchFunc(list, p, order)
	return s.replaced(p.Operator, slices.Insert(list, i, p), revision)
}

// Without returns the set without a policy.
func (s *Set) Without(operator bool, name string, revision uint64) *Set {
	return s.replaced(operator, s.rest(operator, name), revision)
}

// rest is a copy of a list without the policy of that name.
func (s *Set) rest(operator bool, name string) []*Policy {
	list := make([]*Policy, 0, len(s.List(operator))+1)
	for _, p := range s.List(operator) {
		if p.Name != name {
			list = append(list, p)
		}
	}
	return list
}

func (s *Set) replaced(operator bool, list []*Policy, revision uint64) *Set {
	n := &Set{Revision: revision, policies: s.List(false), operators: s.List(true)}
	if operator {
		n.operators = list
	} else {
		n.policies = list
	}
	return n
}

// Match returns the policy and the operator policy that apply to an object; each may be
// nil. No two of a kind apply at once: the first in order counts alone.
func (s *Set) Match(t Target, name string) (p, operator *Policy) {
	return first(s.List(false), t, name), first(s.List(true), t, name)
}

func first(list []*Policy, t Target, name string) *Policy {
	for _, p := range list {
		if p.Matches(t, name) {
			return p
		}
	}
	return nil
}
