package exchange

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
)

func q(name string) Destination { return Destination{Name: name} }

func sorted(d []Destination) []Destination {
	d = slices.Clone(d)
	slices.SortFunc(d, compareDestinations)
	return d
}

func TestTopic(t *testing.T) {
	for _, c := range []struct{ pattern, matches, not string }{
		{"a.b", "a.b", "a|a.b.c|.a.b|a.b.|A.b"},
		{"*", "a|abc", "|a.b|.|a."}, // an empty key has no word
		{"#", "|a|a.b|.|...", ""},
		{"a.*.c", "a.b.c|a..c", "a.c|a.b.b.c"},
		{"a.#", "a|a.|a.b|a.b.c", "|b|b.a|ab"},
		{"#.b.#", "b|a.b|b.a|a.b.c|b.b", "|a|ab"},
		{"#.a", "a|.a|b.a|a.a", "|a.b|a."},
		{"*.#", "a|a.b|.", "|"},
		{"#.*", "a|a.b|.", "|"},
		{"#.*.#", "a|a.b|.", "|"},
		{"#.", ".|a.|a.b.", "|a"},
		{".#", ".|.a|.a.b", "|a"},
		{"*.*", ".|a.b|a.", "|a|a.b.c"},
		{"#.#", "|a|a.b.c", ""},
		{"", "", "a|."},
		{"a.", "a.", "a|a.b"},
		{"..", "..", ".|..."},
		{"a.#.b.*", "a.b.c|a.x.b.c|a.x.y.b.b|a.b.b.b", "a.b|a.b.c.d|b.b.c"},
		{"*a", "*a", "a|xa"},
	} {
		tab := New(Topic, nil).Add(Binding{Destination: q("q"), Key: c.pattern})
		check := func(keys string, want bool) {
			for key := range strings.SplitSeq(keys, "|") {
				if got := len(tab.Match(nil, key, nil)) == 1; got != want {
					t.Errorf("pattern %q, key %q: matched %v, want %v", c.pattern, key, got, want)
				}
			}
		}
		check(c.matches, true)
		if c.not != "" {
			check(c.not, false)
		}
	}
}

func TestHeaders(t *testing.T) {
	f := func(name string, v any) amqp.Field { return amqp.Field{Name: name, Value: v} }
	for name, c := range map[string]struct {
		args, headers amqp.Table
		want          bool
	}{
		"all, absent x-match":      {amqp.Table{f("a", "1"), f("b", "2")}, amqp.Table{f("b", "2"), f("a", "1"), f("c", nil)}, true},
		"all, one missing":         {amqp.Table{f("x-match", "all"), f("a", "1"), f("b", "2")}, amqp.Table{f("a", "1")}, false},
		"all without fields":       {amqp.Table{f("x-match", "all")}, nil, true},
		"no arguments":             {nil, amqp.Table{f("a", "1")}, true},
		"any":                      {amqp.Table{f("x-match", "any"), f("a", "1"), f("b", "2")}, amqp.Table{f("b", "2")}, true},
		"any, none":                {amqp.Table{f("x-match", "any"), f("a", "1")}, amqp.Table{f("a", "2")}, false},
		"any without fields":       {amqp.Table{f("x-match", "any")}, amqp.Table{f("a", "1")}, false},
		"x- ignored by all":        {amqp.Table{f("x-a", "1")}, nil, true},
		"x- ignored by any":        {amqp.Table{f("x-match", "any"), f("x-a", "1")}, amqp.Table{f("x-a", "1")}, false},
		"x- counts in all-with-x":  {amqp.Table{f("x-match", "all-with-x"), f("x-a", "1")}, nil, false},
		"x- counts in any-with-x":  {amqp.Table{f("x-match", "any-with-x"), f("x-a", "1")}, amqp.Table{f("x-a", "1")}, true},
		"x-match itself never":     {amqp.Table{f("x-match", "all-with-x")}, nil, true},
		"void: present":            {amqp.Table{f("a", nil)}, amqp.Table{f("a", int8(3))}, true},
		"void: absent":             {amqp.Table{f("a", nil)}, nil, false},
		"void in the message only": {amqp.Table{f("a", "1")}, amqp.Table{f("a", nil)}, false},
		"integer widths":           {amqp.Table{f("a", int64(1))}, amqp.Table{f("a", int16(1))}, true},
		"unsigned":                 {amqp.Table{f("a", uint8(200))}, amqp.Table{f("a", int32(200))}, true},
		"string is no integer":     {amqp.Table{f("a", "1")}, amqp.Table{f("a", int32(1))}, false},
		"integer and timestamp":    {amqp.Table{f("a", int64(7))}, amqp.Table{f("a", amqp.Timestamp(7))}, true},
		"timestamp beyond":         {amqp.Table{f("a", int64(-1))}, amqp.Table{f("a", amqp.Timestamp(math.MaxUint64))}, false},
		"widths of fractions":      {amqp.Table{f("a", 1.5)}, amqp.Table{f("a", float32(1.5))}, true},
		"bytes":                    {amqp.Table{f("a", "v")}, amqp.Table{f("a", []byte("v"))}, true},
		"other bytes":              {amqp.Table{f("a", []byte("v"))}, amqp.Table{f("a", "w")}, false},
		"nested":                   {amqp.Table{f("a", amqp.Array{"x"})}, amqp.Table{f("a", amqp.Array{"x"})}, true},
		"bool":                     {amqp.Table{f("a", true)}, amqp.Table{f("a", false)}, false},
	} {
		if err := ValidateBinding(Headers, nil, "", c.args); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tab := New(Headers, nil).Add(Binding{Destination: q("q"), Arguments: c.args})
		if got := len(tab.Match(nil, "", c.headers)) == 1; got != c.want {
			t.Errorf("%s: matched %v, want %v", name, got, c.want)
		}
	}
}

func TestRefusedBindings(t *testing.T) {
	match := func(v any) amqp.Table { return amqp.Table{{Name: "x-match", Value: v}} }
	for _, c := range []struct {
		typ  Type
		key  string
		args amqp.Table
		want string // "" is accepted
	}{
		{Headers, "", match("most"), "PRECONDITION_FAILED - Invalid x-match field value <<\"most\">>; expected all, any, all-with-x, or any-with-x"},
		{Headers, "", match(int32(1)), "PRECONDITION_FAILED - Invalid x-match field type signedint (value 1); expected longstr"},
		{Topic, "#.a.#", nil, ""},
		{Topic, "#.#.#", nil, "PRECONDITION_FAILED - Topic binding key '#.#.#' uses 3 '#' wildcards, at most 2 are allowed"},
		{Topic, "a##.###", match("most"), ""},
		{Direct, "#.#.#", match(int32(1)), ""},
	} {
		err := ValidateBinding(c.typ, nil, c.key, c.args)
		text := ""
		if err != nil {
			text = err.(*amqp.Error).ReplyText()
		}
		if text != c.want {
			t.Errorf("%v %q %v: %q, want %q", c.typ, c.key, c.args, text, c.want)
		}
	}
	if err := ValidateBinding(Headers, nil, "", match(strings.Repeat("x", 1<<17))); len(err.Error()) > 1000 {
		t.Errorf("a refusal has %d bytes", len(err.Error()))
	}
	if _, err := ParseType(strings.Repeat("x", 1<<17)); len(err.Error()) > 1000 {
		t.Errorf("a refusal has %d bytes", len(err.Error()))
	}
	if _, err := ParseType("x-unheard-of"); err == nil || err.(*amqp.Error).ReplyText() != "PRECONDITION_FAILED - unknown exchange type 'x-unheard-of'" {
		t.Errorf("unknown type: %v", err)
	}
	for typ := Direct; typ <= Headers; typ++ {
		if got, err := ParseType(typ.String()); got != typ || err != nil {
			t.Errorf("%v parses to %v, %v", typ, got, err)
		}
	}
}

// naiveTopic matches word lists the slow and obvious way.
func naiveTopic(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return naiveTopic(pattern[1:], words) || len(words) > 0 && naiveTopic(pattern, words[1:])
	case len(words) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == words[0]) && naiveTopic(pattern[1:], words[1:])
}

// topicWords are the words of a key, none if it is empty.
func topicWords(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

func naiveMatch(typ Type, b Binding, key string, headers amqp.Table) bool {
	switch typ {
	case Direct:
		return b.Key == key
	case Fanout:
		return true
	case Topic:
		return naiveTopic(topicWords(b.Key), topicWords(key))
	}
	mode, _ := b.Arguments.Get("x-match")
	n, hits := 0, 0
	for _, f := range b.Arguments {
		if f.Name != "x-match" {
			n++
			if v, ok := headers.Get(f.Name); ok && amqp.EqualValues(v, f.Value) {
				hits++
			}
		}
	}
	if mode == "any" {
		return hits > 0
	}
	return hits == n
}

// TestTablesAgainstModel adds and removes bindings at random and compares every table, old
// versions too, with the naive rules.
func TestTablesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom([]Type{Direct, Fanout, Topic, Headers}).Draw(t, "type")
		word := rapid.SampledFrom([]string{"a", "b", "", "c"})
		pattern := rapid.SampledFrom([]string{"a", "b", "", "*", "#"})
		header := rapid.Custom(func(t *rapid.T) amqp.Table {
			var out amqp.Table
			for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"h1", "h2", "h3"}), 0, 3, rapid.ID).Draw(t, "headers") {
				out.Set(n, rapid.SampledFrom([]any{"x", "y", true}).Draw(t, "value"))
			}
			return out
		})
		binding := rapid.Custom(func(t *rapid.T) Binding {
			b := Binding{Destination: Destination{Name: rapid.SampledFrom([]string{"q1", "q2", "q3"}).Draw(t, "name"), ToExchange: rapid.Bool().Draw(t, "e2e")}}
			b.Key = strings.Join(rapid.SliceOfN(pattern, 1, 5).Draw(t, "pattern"), ".")
			if ValidateBinding(Topic, nil, b.Key, nil) != nil {
				b.Key = "#"
			}
			if typ == Headers {
				b.Arguments = header.Draw(t, "arguments")
				if rapid.Bool().Draw(t, "any") {
					b.Arguments.Set("x-match", "any")
				}
			}
			return b
		})
		same := func(a Binding) func(Binding) bool {
			return func(b Binding) bool {
				return a.Destination == b.Destination && a.Key == b.Key && a.Arguments.Equal(b.Arguments)
			}
		}
		type version struct {
			tab   *Table
			model []Binding
		}
		versions := []version{{tab: New(typ, nil)}}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			v := versions[len(versions)-1]
			b := binding.Draw(t, "binding")
			if i := slices.IndexFunc(v.model, same(b)); i >= 0 {
				versions = append(versions, version{v.tab.Remove(b), slices.Concat(v.model[:i], v.model[i+1:])})
			} else {
				versions = append(versions, version{v.tab.Add(b), append(slices.Clip(v.model), b)})
			}
		}
		key := strings.Join(rapid.SliceOfN(word, 1, 6).Draw(t, "key"), ".")
		headers := header.Draw(t, "message")
		for i, v := range versions {
			var want []Destination
			for _, b := range v.model {
				if naiveMatch(typ, b, key, headers) {
					want = append(want, b.Destination)
				}
			}
			want = slices.Compact(sorted(want))
			got := sorted(v.tab.Match(nil, key, headers))
			if !slices.Equal(got, want) {
				t.Fatalf("%v version %d, key %q, headers %v: got %v, want %v, bindings %+v", typ, i, key, headers, got, want, v.model)
			}
		}
		last := versions[len(versions)-1]
		for _, b := range last.model {
			last.tab = last.tab.Remove(b)
		}
		if got := last.tab.Match(nil, key, headers); len(got) != 0 {
			t.Fatalf("empty table matches %v", got)
		}
	})
}

// TestHostileTopics bounds the work of bad patterns and keys: each must end well within the
// test's time.
func TestHostileTopics(t *testing.T) {
	tab := New(Topic, nil)
	for i := range 300 {
		tab = tab.Add(Binding{Destination: q(fmt.Sprint("q", i)), Key: fmt.Sprintf("#.a.%s#", strings.Repeat("*.", i%20))})
		tab = tab.Add(Binding{Destination: q(fmt.Sprint("q", i)), Key: fmt.Sprintf("#.x%d.#", i)})
	}
	key := strings.Repeat("a.", 127) + "a"
	if n := len(tab.Match(nil, key, nil)); n != 300 {
		t.Fatalf("matched %d of 300", n)
	}
}

// A `#` behind another one is walked once, not once for each word at which it is reached.
func TestHostileTopicsWithTwoHashes(t *testing.T) {
	tab := topicTable{&topicNode{}}
	const bits, each = 9, 127
	for i := range 1 << bits {
		words := []string{"#"}
		for b := range bits {
			words = append(words, []string{"a", "*"}[i>>b&1])
		}
		b := Binding{Destination: q(fmt.Sprint("q", i)), Key: strings.Join(append(words, "#", "z"), ".")}
		tab = tab.add(b).(topicTable)
	}
	nodes := 2<<bits + 2<<bits // the words between, and behind them `#` and z
	for word, want := range map[string]int{"z": 1 << bits, "b": 0} {
		key := strings.Repeat("a.", each-1) + word
		var found topicMatches
		found.walk(tab.root, key, false, false)
		if len(found.nodes) != want {
			t.Errorf("%d bindings match a key that ends with %s, want %d", len(found.nodes), word, want)
		}
		if most := nodes * (each + 1); found.steps > most {
			t.Errorf("a key that ends with %s takes %d steps, more than %d", word, found.steps, most)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	const n = 10_000
	for _, c := range []struct {
		name string
		typ  Type
		key  func(i int) string
		msg  string
		want int
	}{
		{"direct", Direct, func(i int) string { return fmt.Sprintf("key.%d", i) }, "key.7777", 1},
		{"topic-literal", Topic, func(i int) string { return fmt.Sprintf("site.%d.temperature", i) }, "site.7777.temperature", 1},
		{"topic-hash", Topic, func(i int) string { return fmt.Sprintf("#.site%d.#", i) }, "a.site7777.b", 1},
		{"topic-star", Topic, func(i int) string { return fmt.Sprintf("*.%d.*", i) }, "a.7777.b", 1},
		{"fanout", Fanout, func(int) string { return "" }, "", n},
	} {
		b.Run(c.name, func(b *testing.B) {
			tab := New(c.typ, nil)
			for i := range n {
				tab = tab.Add(Binding{Destination: q(fmt.Sprintf("queue-%d", i)), Key: c.key(i)})
			}
			var dst []Destination
			b.ReportAllocs()
			for b.Loop() {
				dst = tab.Match(dst[:0], c.msg, nil)
			}
			if len(dst) != c.want {
				b.Fatalf("matched %d, want %d", len(dst), c.want)
			}
		})
	}
	b.Run("headers-1000", func(b *testing.B) {
		tab := New(Headers, nil)
		for i := range 1000 {
			tab = tab.Add(Binding{Destination: q(fmt.Sprintf("queue-%d", i)), Arguments: amqp.Table{{Name: "site", Value: int64(i)}}})
		}
		var dst []Destination
		headers := amqp.Table{{Name: "trace", Value: "x"}, {Name: "site", Value: int32(777)}}
		b.ReportAllocs()
		for b.Loop() {
			dst = tab.Match(dst[:0], "", headers)
		}
		if len(dst) != 1 {
			b.Fatal(dst)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	tab := New(Direct, nil)
	for i := range 10_000 {
		tab = tab.Add(Binding{Destination: q(fmt.Sprintf("queue-%d", i)), Key: fmt.Sprintf("key.%d", i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		tab.Add(Binding{Destination: q("one-more"), Key: "key.one-more"})
	}
}
