package exchange

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

func hashed(typ Type, args amqp.Table, weights map[string]string) *Table {
	tab := New(typ, args)
	for name, w := range weights { // in any order
		tab = tab.Add(Binding{Destination: q(name), Key: w})
	}
	return tab
}

func route(t *testing.T, tab *Table, m *Message) string {
	t.Helper()
	got := tab.Route(nil, m)
	if len(got) != 1 {
		t.Fatalf("routed to %v", got)
	}
	return got[0].Name
}

func count(t *testing.T, tab *Table, keys int) map[string]int {
	t.Helper()
	n := map[string]int{}
	for i := range keys {
		n[route(t, tab, &Message{Keys: []string{fmt.Sprintf("key-%d", i)}})]++
	}
	return n
}

// X10: weights 1, 1, 2 over 100,000 keys.
func TestConsistentHashShares(t *testing.T) {
	const keys = 100_000
	for name, c := range map[string]map[string]string{
		"1 1 2":        {"a": "1", "b": "1", "c": "2"},
		"one":          {"a": "7"},
		"large":        {"a": "1000000000", "b": "1000000000", "c": "2000000000"},
		"many, cached": many(20, "3"),
	} {
		t.Run(name, func(t *testing.T) {
			var total float64
			for _, w := range c {
				n, _ := parseWeight(w)
				total += float64(n)
			}
			got := count(t, hashed(ConsistentHash, nil, c), keys)
			for q, w := range c {
				n, _ := parseWeight(w)
				want := float64(n) / total * keys
				if math.Abs(float64(got[q])-want) > 0.01*keys {
					t.Errorf("%s got %d, want about %.0f", q, got[q], want)
				}
			}
		})
	}
}

func many(n int, weight string) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("q%03d", i)] = weight
	}
	return m
}

// A destination that comes takes its share from the others and nothing moves between
// those; one that goes gives its share back.
func TestConsistentHashMovesLittle(t *testing.T) {
	for _, n := range []int{3, cachedFrom - 1, 40} {
		before := hashed(ConsistentHash, nil, many(n, "2"))
		extra := Binding{Destination: q("new"), Key: "2"}
		after := before.Add(extra)
		back := after.Remove(extra)
		moved := 0
		for i := range 20_000 {
			m := &Message{Keys: []string{fmt.Sprint(i)}}
			x, y := route(t, before, m), route(t, after, m)
			if x != y {
				moved++
				if y != "new" {
					t.Fatalf("key %d moved from %s to %s", i, x, y)
				}
			}
			if z := route(t, back, m); z != x {
				t.Fatalf("key %d is at %s after all, was at %s", i, z, x)
			}
		}
		if want := 20_000 / (n + 1); moved < want*8/10 || moved > want*12/10 {
			t.Errorf("%d of 20000 keys moved to one of %d", moved, n+1)
		}
	}
}

// The heaviest binding to a destination counts, whatever the order.
func TestConsistentHashOneBindingCounts(t *testing.T) {
	a, b := hashed(ConsistentHash, nil, map[string]string{"a": "1", "b": "3"}), hashed(ConsistentHash, nil, map[string]string{"a": "1", "b": "1"})
	b = b.Add(Binding{Destination: q("b"), Key: "3"}).Add(Binding{Destination: q("b"), Key: "03"})
	if x, y := count(t, a, 1000), count(t, b, 1000); x["a"] != y["a"] || x["b"] != y["b"] {
		t.Fatalf("%v and %v", x, y)
	}
	b = b.Remove(Binding{Destination: q("b"), Key: "3"}).Remove(Binding{Destination: q("b"), Key: "03"})
	b = b.Remove(Binding{Destination: q("b"), Key: "1"})
	if x := count(t, b, 100); x["a"] != 100 {
		t.Fatal(x)
	}
	if got := b.Remove(Binding{Destination: q("a"), Key: "1"}).Route(nil, &Message{Keys: []string{"k"}}); len(got) != 0 {
		t.Fatalf("empty table routes to %v", got)
	}
}

// The owners of some keys, fixed: nodes of all versions must agree.
func TestConsistentHashNeverChanges(t *testing.T) {
	tab := hashed(ConsistentHash, nil, map[string]string{"a": "1", "b": "1", "c": "2"})
	var got strings.Builder
	for i := range 24 {
		got.WriteString(route(t, tab, &Message{Keys: []string{fmt.Sprint("order-", i)}}))
	}
	if want := "bcbcacaacbacaccbbcbccabc"; got.String() != want {
		t.Fatalf("got %s, want %s", got.String(), want)
	}
}

func TestHashSources(t *testing.T) {
	props := func(set func(*amqp.Properties)) amqp.RawProperties {
		raw, err := amqp.Rewrite(nil, set)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, c := range map[string]struct {
		args     amqp.Table
		m, other Message // the same hash; another
	}{
		"header": {
			amqp.Table{{Name: "hash-header", Value: "h"}},
			Message{Keys: []string{"x"}, Headers: amqp.Table{{Name: "h", Value: int8(5)}}},
			Message{Keys: []string{"y"}, Headers: amqp.Table{{Name: "h", Value: int64(5)}}},
		},
		"absent header": {amqp.Table{{Name: "hash-header", Value: "h"}}, Message{Keys: []string{"x"}}, Message{Keys: []string{"y"}}},
		"message_id": {
			amqp.Table{{Name: "hash-property", Value: "message_id"}},
			Message{Keys: []string{"x"}, Properties: props(func(p *amqp.Properties) { p.SetMessageID("m") })},
			Message{Keys: []string{"y"}, Properties: props(func(p *amqp.Properties) { p.SetMessageID("m") })},
		},
		"correlation_id": {
			amqp.Table{{Name: "hash-property", Value: "correlation_id"}},
			Message{Keys: []string{"x"}, Properties: props(func(p *amqp.Properties) { p.SetCorrelationID("m") })},
			Message{Keys: []string{"y"}, Properties: props(func(p *amqp.Properties) { p.SetCorrelationID("m") })},
		},
		"timestamp": {
			amqp.Table{{Name: "hash-property", Value: "timestamp"}},
			Message{Keys: []string{"x"}, Properties: props(func(p *amqp.Properties) { p.SetTimestamp(17) })},
			Message{Keys: []string{"y"}, Properties: props(func(p *amqp.Properties) { p.SetTimestamp(17) })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Validate(ConsistentHash, c.args); err != nil {
				t.Fatal(err)
			}
			h := newHashSource(c.args)
			if h.hash(&c.m) != h.hash(&c.other) {
				t.Error("the routing key counts")
			}
			if name != "absent header" && h.hash(&c.m) == h.hash(&Message{}) {
				t.Error("the value does not count")
			}
		})
	}
	h := newHashSource(amqp.Table{{Name: "hash-header", Value: "h"}})
	values := []any{nil, "a", int32(4), true, 4.5, amqp.Array{"a"}, amqp.Table{{Name: "a", Value: "b"}}}
	for i, v := range values {
		for _, w := range values[:i] {
			if h.hash(&Message{Headers: amqp.Table{{Name: "h", Value: v}}}) == h.hash(&Message{Headers: amqp.Table{{Name: "h", Value: w}}}) {
				t.Errorf("%v and %v hash the same", v, w)
			}
		}
	}
}

func TestValidateArguments(t *testing.T) {
	field := func(name string, v any) amqp.Field { return amqp.Field{Name: name, Value: v} }
	for _, c := range []struct {
		typ  Type
		args amqp.Table
		want string // "" is fine
	}{
		{ConsistentHash, nil, ""},
		{ConsistentHash, amqp.Table{field("hash-header", "a"), field("hash-property", "timestamp")}, "mutually exclusive"},
		{ConsistentHash, amqp.Table{field("hash-property", "app_id")}, "Unsupported property: app_id"},
		{ConsistentHash, amqp.Table{field("hash-property", int32(1))}, "expected longstr, got signedint"},
		{ConsistentHash, amqp.Table{field("hash-header", true)}, "expected longstr"},
		{Random, amqp.Table{field("hash-header", true)}, ""},
		{Delayed, nil, "'x-delayed-type' must be an existing exchange type"},
		{Delayed, amqp.Table{field("x-delayed-type", int32(1))}, "'x-delayed-type' must be an existing exchange type"},
		{Delayed, amqp.Table{field("x-delayed-type", "x-delayed-message")}, "'x-delayed-type' must be an existing exchange type"},
		{Delayed, amqp.Table{field("x-delayed-type", "strange")}, "unknown exchange type 'strange'"},
		{Delayed, amqp.Table{field("x-delayed-type", "topic")}, ""},
		{Delayed, amqp.Table{field("x-delayed-type", "x-consistent-hash"), field("hash-property", "x")}, "Unsupported property"},
	} {
		err := Validate(c.typ, c.args)
		switch {
		case c.want == "" && err != nil, c.want != "" && err == nil:
			t.Errorf("%v %v: %v", c.typ, c.args, err)
		case err != nil && (!strings.Contains(err.Error(), c.want) || err.(*amqp.Error).Code != amqp.PreconditionFailed):
			t.Errorf("%v %v: %v, want %s", c.typ, c.args, err, c.want)
		}
	}
	for key, ok := range map[string]bool{
		"1": true, "+5": true, "9223372036854775807": true,
		"": false, "0": false, "-1": false, "1.5": false, "a": false, " 1": false, "1_0": false, "9223372036854775808": false,
	} {
		err := ValidateBinding(ConsistentHash, nil, key, nil)
		if (err == nil) != ok {
			t.Errorf("weight %q: %v", key, err)
		}
		if err == nil { // and can be bound
			tab := New(ConsistentHash, nil).Add(Binding{Destination: q("a"), Key: key})
			route(t, tab, &Message{})
		}
	}
	if err := ValidateBinding(Delayed, amqp.Table{field("x-delayed-type", "topic")}, "#.#.#", nil); err == nil {
		t.Error("a delayed exchange does not check like its inner type")
	}
}

func TestModulusHash(t *testing.T) {
	tab := hashed(ModulusHash, nil, many(5, "any key"))
	for name, n := range count(t, tab, 10_000) {
		if n < 1800 || n > 2200 {
			t.Errorf("%s got %d of 10000", name, n)
		}
	}
	m := &Message{Keys: []string{"k"}}
	if route(t, tab, m) != route(t, hashed(ModulusHash, nil, many(5, "")), m) {
		t.Error("the binding keys count")
	}
}

func TestRandom(t *testing.T) {
	tab := hashed(Random, nil, many(4, ""))
	n := map[string]int{}
	for range 10_000 {
		n[route(t, tab, &Message{Keys: []string{"k", "cc"}, Random: rand.Uint64()})]++
	}
	for name, n := range n {
		if n < 2300 || n > 2700 {
			t.Errorf("%s got %d of 10000", name, n)
		}
	}
	if got := tab.Match(nil, "", nil); len(got) != 4 {
		t.Errorf("may choose from %v", got)
	}
}

func TestLocalRandom(t *testing.T) {
	tab := hashed(LocalRandom, nil, many(4, ""))
	seen := func(local ...string) []string {
		n := map[string]bool{}
		for range 200 {
			m := &Message{Random: rand.Uint64(), Local: func(d Destination) bool { return slices.Contains(local, d.Name) }}
			if local == nil {
				m.Local = nil
			}
			n[route(t, tab, m)] = true
		}
		var list []string
		for name := range n {
			list = append(list, name)
		}
		slices.Sort(list)
		return list
	}
	for _, c := range []struct{ local, want []string }{
		{[]string{"q002"}, []string{"q002"}},
		{[]string{"q001", "q003"}, []string{"q001", "q003"}},
		{[]string{"elsewhere"}, []string{"q000", "q001", "q002", "q003"}},
		{nil, []string{"q000", "q001", "q002", "q003"}},
	} {
		if got := seen(c.local...); !slices.Equal(got, c.want) {
			t.Errorf("local %v: %v", c.local, got)
		}
	}
}

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		v        any
		want     int64
		released any
	}{
		{int8(100), 100, int32(-100)},
		{uint8(200), 200, int32(-200)},
		{int16(300), 300, int32(-300)},
		{uint16(40000), 40000, int32(-40000)},
		{int32(5), 5, int32(-5)},
		{uint32(4294967295), 4294967295, int64(-4294967295)},
		{int64(7), 7, int32(-7)},
		{int64(4294967296), 0, nil},
		{int32(0), 0, nil},
		{int32(-5), 0, nil},
		{int64(math.MinInt64), 0, nil},
		{"12", 12, int32(-12)},
		{"soon", 0, nil},
		{2.9, 2, int32(-2)},
		{float32(3), 3, int32(-3)},
		{math.Inf(1), 0, nil},
		{math.NaN(), 0, nil},
		{true, 0, nil},
		{nil, 0, nil},
		{amqp.Array{int32(5)}, 0, nil},
	} {
		headers := amqp.Table{{Name: "a", Value: "b"}, {Name: "x-delay", Value: c.v}}
		if got := Delay(headers); got != c.want {
			t.Errorf("%T %v: %d, want %d", c.v, c.v, got, c.want)
		}
		if c.want == 0 {
			continue
		}
		after := Released(headers)
		if v, _ := after.Get("x-delay"); v != c.released || Delay(after) != 0 {
			t.Errorf("%T %v: released with %T %v", c.v, c.v, v, v)
		}
		if v, _ := headers.Get("x-delay"); v != c.v {
			t.Errorf("the headers changed: %v", v)
		}
	}
	if Delay(nil) != 0 {
		t.Error("no header")
	}
}

// The first message for a slot after a change of the bindings.
func BenchmarkConsistentHashCold(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := New(ConsistentHash, nil)
			for name := range many(n, "1") {
				tab = tab.Add(Binding{Destination: q(name), Key: "1"})
			}
			c := tab.m.(hashTable).prepared()
			for i := range b.N {
				c.best(uint64(i))
			}
		})
	}
}

func BenchmarkConsistentHash(b *testing.B) {
	for _, n := range []int{3, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := New(ConsistentHash, nil)
			for name := range many(n, "1") {
				tab = tab.Add(Binding{Destination: q(name), Key: "1"})
			}
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprint("key-", i)
			}
			var dst []Destination
			m := &Message{Keys: make([]string, 1)}
			b.ReportAllocs()
			for i := range b.N {
				m.Keys[0] = keys[i%len(keys)]
				dst = tab.Route(dst[:0], m)
			}
		})
	}
}
