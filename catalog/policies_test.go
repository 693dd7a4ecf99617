package catalog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/policy"
)

func putPolicy(name, pattern string, priority int64, definition ...amqp.Field) *PutPolicy {
	return &PutPolicy{policy.Spec{VHost: "/", Name: name, Pattern: pattern, ApplyTo: policy.All, Priority: priority, Definition: definition}}
}

func TestPolicies(t *testing.T) {
	s := newScript(t)
	names := func() (list []string) {
		for _, p := range s.view().Policies("/").List(false) {
			list = append(list, p.Name)
		}
		return list
	}
	ttl := amqp.Field{Name: "message-ttl", Value: int64(5)}
	if !s.ok(putPolicy("low", ".*", 0, ttl)).Changed || !s.ok(putPolicy("high", "^q", 9, ttl)).Changed {
		t.Error("a new policy is no change")
	}
	if got := names(); !slices.Equal(got, []string{"high", "low"}) {
		t.Errorf("the order is %q", got)
	}
	before := s.view()
	if s.ok(putPolicy("low", ".*", 0, ttl)).Changed || s.view().Policies("/") != before.Policies("/") {
		t.Error("the same policy again is a change")
	}
	if s.ok(putPolicy("low", ".*", 10, ttl)).Changed {
		t.Error("a replaced policy is created")
	}
	if got := names(); !slices.Equal(got, []string{"low", "high"}) || len(before.Policies("/").List(false)) != 2 || before.Policies("/").List(false)[0].Name != "high" {
		t.Errorf("the order is %q", got)
	}
	s.ok(&PutVhost{Vhost: Vhost{Name: "/", Description: "settings do not touch policies"}})
	v, _, err := readSnapshot(bytes.NewReader(snapshotBytes(t, s.m)))
	if err != nil || v.Policies("/").Revision != s.view().Policies("/").Revision || len(v.Policies("/").List(false)) != 2 {
		t.Errorf("a snapshot gives %+v, %v", v, err)
	}
	if s.ok(&DeletePolicy{Vhost: "/", Name: "low", Operator: true}).Changed || s.ok(&DeletePolicy{Vhost: "w", Name: "low"}).Changed {
		t.Error("a policy that is not there was deleted")
	}
	if !s.ok(&DeletePolicy{Vhost: "/", Name: "low"}).Changed || !slices.Equal(names(), []string{"high"}) {
		t.Errorf("%q is left", names())
	}
	s.refused(&PutPolicy{policy.Spec{VHost: "gone", Name: "p", ApplyTo: policy.All, Definition: amqp.Table{ttl}}}, errNoVhost("gone").ReplyText())
}

func TestBadPolicies(t *testing.T) {
	for want, c := range map[string]Command{
		"not recognised policy settings": putPolicy("p", "", 0, amqp.Field{Name: "max-priority", Value: int64(5)}),
		"is not a valid message TTL":     putPolicy("p", "", 0, amqp.Field{Name: "message-ttl", Value: "5"}),
		"no policy provided":             putPolicy("p", "", 0),
		"regular expression":             putPolicy("p", "(", 0, amqp.Field{Name: "message-ttl", Value: int64(5)}),
		"vhost name has 300 bytes":       &PutPolicy{policy.Spec{VHost: strings.Repeat("v", 300), Name: "p", ApplyTo: policy.All, Definition: amqp.Table{{Name: "expires", Value: int64(5)}}}},
		"policy name has 300 bytes":      &DeletePolicy{Vhost: "/", Name: strings.Repeat("p", 300)},
	} {
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if p, ok := c.(*PutPolicy); ok && len(p.Policy.VHost) == 1 {
			s := newScript(t)
			if o := s.m.apply(99, encodeEntry(requestID{1: 9}, c)).outcome; o.code == 0 {
				t.Errorf("apply takes what validate refuses: %s", want)
			}
		}
	}
}

func TestPolicyBound(t *testing.T) {
	s := newScript(t)
	ttl := amqp.Field{Name: "message-ttl", Value: int64(5)}
	for i := range policy.PoliciesMax {
		s.ok(putPolicy(fmt.Sprint(i), "", 0, ttl))
	}
	s.refused(putPolicy("more", "", 0, ttl), "PRECONDITION_FAILED - vhost '/' has 1000 policies of that kind, the maximum")
	s.ok(putPolicy("7", "", 5, ttl))
	op := putPolicy("more", "", 0, ttl)
	op.Policy.Operator = true
	s.ok(op)
}

// TestAlternateByPolicy: a policy gives exchanges an alternate at once, an argument wins over it,
// and it goes with the policy.
func TestAlternateByPolicy(t *testing.T) {
	s := newScript(t)
	s.ok(declareX("ae", exchange.Fanout))
	s.ok(declareX("x", exchange.Direct))
	s.ok(declareX("own", exchange.Direct, amqp.Field{Name: argAlternate, Value: "elsewhere"}))
	s.ok(declare("q"))
	s.ok(&Bind{Binding{Vhost: "/", Source: "ae", Destination: "q"}})
	reaches := func(x string) bool {
		list, err := s.view().Route("/", x, []string{"nobody"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == 1
	}
	if reaches("x") {
		t.Error("there is a way before the policy")
	}
	p := putPolicy("ae", "^(x|own|later)$", 0, amqp.Field{Name: argAlternate, Value: "ae"})
	s.ok(p)
	s.ok(declareX("later", exchange.Direct))
	if !reaches("x") || !reaches("later") || reaches("own") || reaches("amq.direct") {
		t.Errorf("ways: %v %v %v %v", reaches("x"), reaches("later"), reaches("own"), reaches("amq.direct"))
	}
	v, _, err := readSnapshot(bytes.NewReader(snapshotBytes(t, s.m)))
	if err != nil || v.Exchange("/", "x").Alternate() != "ae" || v.Exchange("/", "own").Alternate() != "elsewhere" {
		t.Errorf("a snapshot gives %v", err)
	}
	queues := *p
	queues.Policy.ApplyTo = policy.Queues
	s.ok(&queues)
	if reaches("x") || reaches("later") {
		t.Error("a policy for queues applies to an exchange")
	}
	s.ok(p)
	s.ok(&DeletePolicy{Vhost: "/", Name: "ae"})
	if reaches("x") || reaches("later") {
		t.Error("a policy that is gone applies to an exchange")
	}
}
