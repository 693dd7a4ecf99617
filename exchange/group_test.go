package exchange

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// A set of destinations grows and shrinks past the size at which it takes another form, and old versions stay as
// they were.
func TestGroupGrowsAndShrinks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var g group
	counts := map[Destination]int32{}
	check := func(g group, want []Destination) {
		t.Helper()
		if got := sorted(g.all()); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if g.empty() != (len(want) == 0) {
			t.Fatalf("empty: %v with %d", g.empty(), len(want))
		}
	}
	list := func() (all []Destination) {
		for d := range counts {
			all = append(all, d)
		}
		return sorted(all)
	}
	type version struct {
		g    group
		want []Destination
	}
	var versions []version
	large, forms := false, 0
	for step := range 8000 {
		d := Destination{Name: fmt.Sprint(rng.IntN(3 * groupListMax)), ToExchange: rng.IntN(4) == 0}
		if more := step/1000%2 == 0; more && rng.IntN(8) > 0 || len(counts) == 0 {
			g = g.with(d)
			counts[d]++
		} else {
			if counts[d] == 0 {
				for d = range counts {
					break
				}
			}
			g = g.without(d)
			if counts[d]--; counts[d] == 0 {
				delete(counts, d)
			}
		}
		if large != (g.large != nil) {
			large = !large
			forms++
		}
		if step%50 == 0 {
			versions = append(versions, version{g, list()})
		}
	}
	if forms < 4 {
		t.Errorf("the form changed %d times", forms)
	}
	for _, v := range versions {
		check(v.g, v.want)
	}
	for len(counts) > 0 {
		d := list()[0]
		for range counts[d] {
			g = g.without(d)
		}
		delete(counts, d)
	}
	check(g, nil)
}

// A change costs about the same whatever the number of bindings, also when all have one key.
func TestBindingBesideManyOfTheSameKey(t *testing.T) {
	const few, many = 500, 10_000
	for _, typ := range []Type{Direct, Fanout, Topic, Headers} {
		t.Run(typ.String(), func(t *testing.T) {
			cost := func(n int) time.Duration {
				tab := New(typ, nil)
				binding := func(i int) Binding {
					return Binding{Destination: q(fmt.Sprint("queue-", i)), Key: "a.b", Arguments: amqp.Table{{Name: "h", Value: int64(i)}}}
				}
				for i := range n {
					tab = tab.Add(binding(i))
				}
				best := time.Hour
				for range 20 {
					began := time.Now()
					for i := range 20 {
						tab = tab.Remove(binding(i * n / 20))
						tab = tab.Add(binding(i * n / 20))
					}
					best = min(best, time.Since(began)/20)
				}
				return best
			}
			least, most := cost(few), cost(many)
			t.Logf("%v beside %d, %v beside %d", least, few, most, many)
			if most > 10*least {
				t.Errorf("%v beside %d bindings, %v beside %d", least, few, most, many)
			}
		})
	}
}
