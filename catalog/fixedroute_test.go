package catalog

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// A way is fixed only if nothing but the key, or not even that, decides.
func TestFixedRoute(t *testing.T) {
	s := newScript(t)
	for _, q := range []string{"a", "b", "c"} {
		s.ok(declare(q))
	}
	s.ok(declareX("fan", exchange.Fanout))
	s.ok(declareX("fan2", exchange.Fanout))
	s.ok(declareX("dir", exchange.Direct))
	s.ok(declareX("top", exchange.Topic))
	s.ok(declareX("empty", exchange.Direct, amqp.Field{Name: "alternate-exchange", Value: "fan"}))
	s.ok(declareX("lost", exchange.Fanout, amqp.Field{Name: "alternate-exchange", Value: "nobody"}))
	s.ok(declareX("hash", exchange.ConsistentHash))
	s.ok(declareX("mod", exchange.ModulusHash))
	s.ok(declareX("rnd", exchange.Random))
	s.ok(declareX("local", exchange.LocalRandom))
	s.ok(delayed("late", "fanout"))
	for _, b := range []*Bind{
		bind("fan", "a", ""), bind("fan", "b", "x"), bind("dir", "a", "k"), bind("dir", "c", "k2"), bind("top", "b", "*"), bind("top", "c", "#"), bind("top", "c", "k"),
		bind("hash", "a", "1"), bind("mod", "a", ""), bind("rnd", "a", ""), bind("local", "a", ""), bind("late", "a", ""), bind("amq.headers", "a", ""),
		chain("fan2", "fan"), chain("fan2", "dir"),
	} {
		s.ok(b)
	}
	route := func(name, key string, any bool) (names []string, ok bool) {
		list, ok := s.view().FixedRoute("/", name, key, any)
		for _, q := range list {
			names = append(names, q.Name)
		}
		slices.Sort(names)
		return names, ok
	}
	for _, c := range []struct {
		exchange, key string
		any, ok       bool
		want          []string
	}{
		{"", "a", false, true, []string{"a"}},
		{"", "nobody", false, true, nil},
		{"", "a", true, false, nil},
		{"fan", "k", false, true, []string{"a", "b"}},
		{"fan", "", true, true, []string{"a", "b"}},
		{"dir", "k", false, true, []string{"a"}},
		{"dir", "k", true, false, nil},
		{"top", "k", false, true, []string{"b", "c"}},
		{"top", "k", true, false, nil},
		{"fan2", "k2", false, true, []string{"a", "b", "c"}},
		{"fan2", "", true, false, nil}, // one of them looks at the key
		{"empty", "k", false, true, []string{"a", "b"}},
		{"empty", "k", true, false, nil},
		{"lost", "", true, true, nil},
		{"hash", "k", false, false, nil},
		{"mod", "k", false, false, nil},
		{"rnd", "k", false, false, nil},
		{"local", "k", false, false, nil},
		{"late", "k", false, false, nil},
		{"amq.headers", "k", false, false, nil},
		{"nobody", "k", false, false, nil},
	} {
		if names, ok := route(c.exchange, c.key, c.any); ok != c.ok || !slices.Equal(names, c.want) {
			t.Errorf("%q with %q, any %v: %v %v, want %v %v", c.exchange, c.key, c.any, names, ok, c.want, c.ok)
		}
	}
	// Behind an exchange that looks at headers nothing is fixed, wherever it stands.
	s.ok(chain("fan", "amq.headers"))
	for _, name := range []string{"fan", "fan2", "empty"} {
		if names, ok := route(name, "k", false); ok {
			t.Errorf("%s: %v", name, names)
		}
	}
}
