package policy

import (
	"fmt"
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
)

// TestSetModel holds the set of a vhost against a map that is searched in full: the
// match is the policy with the highest priority, the first by name among equals.
func TestSetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set *Set
		model := [2]map[string]*Policy{{}, {}}
		kind := map[bool]int{false: 0, true: 1}
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			operator := rapid.Bool().Draw(t, "operator")
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				set = set.Without(operator, name, uint64(i))
				delete(model[kind[operator]], name)
			} else {
				p, err := New(Spec{
					Name: name, Operator: operator,
					Pattern:    rapid.SampledFrom([]string{"", "^q", "1", "2$", "nothing"}).Draw(t, "pattern"),
					ApplyTo:    ApplyTo(rapid.IntRange(1, 6).Draw(t, "apply")),
					Priority:   int64(rapid.IntRange(-2, 2).Draw(t, "priority")),
					Definition: amqp.Table{{Name: rapid.SampledFrom([]string{"message-ttl", "delivery-limit", "queue-version"}).Draw(t, "key"), Value: int64(1)}},
				})
				if err != nil {
					t.Fatal(err)
				}
				set = set.With(p, uint64(i))
				model[kind[operator]][name] = p
			}
			if set.Revision != uint64(i) {
				t.Fatalf("revision %d after change %d", set.Revision, i)
			}
			for target := range Target(4) {
				for _, object := range []string{"q1", "q2", "x1", ""} {
					p, o := set.Match(target, object)
					for operator, got := range map[bool]*Policy{false: p, true: o} {
						if want := search(model[kind[operator]], target, object); got != want {
							t.Fatalf("%v of %q: %v, want %v", target, object, got, want)
						}
					}
				}
			}
			for operator, k := range kind {
				if len(set.List(operator)) != len(model[k]) || set.Find(operator, name) != model[k][name] {
					t.Fatal("the list is not the model")
				}
			}
		}
	})
}

func search(all map[string]*Policy, target Target, object string) (best *Policy) {
	for _, p := range all {
		applies := map[ApplyTo][]Target{
			All: {0, 1, 2, 3}, Exchanges: {0}, Queues: {1, 2, 3}, ClassicQueues: {1}, QuorumQueues: {2}, Streams: {3},
		}[p.ApplyTo]
		covered := false
		for _, t := range applies {
			covered = covered || t == target
		}
		switch p.Definition[0].Name {
		case "delivery-limit":
			covered = covered && target != Stream
		case "queue-version":
			covered = covered && target != Stream && target != QuorumQueue
		}
		if !covered || !regexp.MustCompile(p.Pattern).MatchString(object) {
			continue
		}
		if best == nil || p.Priority > best.Priority || p.Priority == best.Priority && p.Name < best.Name {
			best = p
		}
	}
	return best
}

// TestCapModel: whatever a policy and an argument say, an operator's times and lengths are never
// exceeded, and nothing is above what any of the three says.
func TestCapModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"message-ttl", "expires", "max-length", "max-length-bytes"}).Draw(t, "key")
		least := int64(-1)
		draw := func(what string) (n int64, given bool) {
			if given = rapid.Bool().Draw(t, what+" given"); given {
				n = rapid.Int64Range(1, 20).Draw(t, what)
				if least < 0 || n < least {
					least = n
				}
			}
			return n, given
		}
		var args amqp.Table
		if n, ok := draw("argument"); ok {
			args = amqp.Table{{Name: "x-" + key, Value: int32(n)}}
		}
		policyWith := func(operator bool, n int64, given bool) *Policy {
			if !given {
				return nil
			}
			p, err := New(Spec{Name: "p", Operator: operator, ApplyTo: All, Definition: amqp.Table{{Name: key, Value: n}}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		n, ok := draw("policy")
		p := policyWith(false, n, ok)
		n, ok = draw("operator")
		o := policyWith(true, n, ok)
		got := int64(-1)
		if v, ok := Arguments(args, rapid.Bool().Draw(t, "quorum"), Merge(p, o)).Get("x-" + key); ok {
			got, _ = amqp.AsInt64(v)
		}
		if got != least {
			t.Fatalf("%s is %d, want %d", key, got, least)
		}
	})
}

// FuzzDefinition: whatever comes, there is a policy or a refusal.
func FuzzDefinition(f *testing.F) {
	f.Add(`{"max-length":3}`, ".*")
	f.Add(`{"a":[1,{"b":null}]}`, "^(?!a)b")
	f.Fuzz(func(t *testing.T, raw, text string) {
		d, err := ParseDefinition([]byte(raw))
		if err != nil {
			return
		}
		p, err := New(Spec{Name: "p", ApplyTo: All, Pattern: text, Definition: d})
		if err != nil {
			return
		}
		p.Matches(QuorumQueue, fmt.Sprint(raw))
		Arguments(nil, true, Merge(p, nil))
	})
}
