package exchange

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/warrenmq/warren/amqp"
)

// Destination is where a binding leads: a queue, or an exchange if ToExchange.
type Destination struct {
	Name       string
	ToExchange bool
}

func compareDestinations(a, b Destination) int {
	if a.ToExchange != b.ToExchange {
		if a.ToExchange {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.Name, b.Name)
}

// Binding is what a table knows of a binding. Two bindings are the same if all
// three fields are equal.
type Binding struct {
	Destination
	Key       string
	Arguments amqp.Table // read only
}

// Table is the immutable routing table of one exchange.
type Table struct {
	typ Type
	m   matcher
}

// Message is what routing looks at.
type Message struct {
	Keys    []string // the routing key first, then those of CC and BCC
	Headers amqp.Table
	// Properties are asked by an x-consistent-hash exchange with a hash-property.
	Properties amqp.RawProperties
	// Random decides what is left to chance. Each use moves it on.
	Random uint64
	// Local tells whether a destination is led on the publisher's node; nil: none is.
	Local func(Destination) bool
}

// key is the routing key of a message.
func (m *Message) key() string {
	if len(m.Keys) == 0 {
		return ""
	}
	return m.Keys[0]
}

// matcher is what the types differ in. Implementations are immutable.
type matcher interface {
	add(b Binding) matcher
	remove(b Binding) matcher
	// match appends destinations, repeating some at will; groups is how many
	// disjoint lists it appended.
	match(dst []Destination, key string, headers amqp.Table) (out []Destination, groups int)
}

// New returns the empty table of an exchange of type t that was declared with the
// given arguments, which [Validate] has accepted. It panics if t is not valid.
func New(t Type, args amqp.Table) *Table {
	tab := &Table{typ: t}
	if t == Delayed {
		t = inner(args)
	}
	switch t {
	case Direct:
		tab.m = directTable{iradix.New[group]()}
	case Fanout:
		tab.m = newFanout(iradix.New[fanoutEntry]())
	case Topic:
		tab.m = topicTable{&topicNode{}}
	case Headers:
		tab.m = newHeaders(iradix.New[*headersBinding]())
	case ConsistentHash:
		tab.m = newHashTable(args)
	case ModulusHash:
		tab.m = modulusTable{newFanout(iradix.New[fanoutEntry]())}
	case Random:
		tab.m = randomTable{newFanout(iradix.New[fanoutEntry]()), false}
	case LocalRandom:
		tab.m = randomTable{newFanout(iradix.New[fanoutEntry]()), true}
	default:
		panic(fmt.Sprintf("exchange: no table for type %d", t))
	}
	return tab
}

// Type returns the type the table was made for.
func (t *Table) Type() Type { return t.typ }

// Add returns the table with b added. The caller sees to it that the table does
// not have b and that [ValidateBinding] accepted it.
func (t *Table) Add(b Binding) *Table { return &Table{typ: t.typ, m: t.m.add(b)} }

// Remove returns the table without b, which the table must have.
func (t *Table) Remove(b Binding) *Table { return &Table{typ: t.typ, m: t.m.remove(b)} }

// Match appends the destinations of a message with the given routing key and
// headers to dst, each once, in no particular order. Of a table that chooses, these
// are all it may choose from.
func (t *Table) Match(dst []Destination, key string, headers amqp.Table) []Destination {
	start := len(dst)
	dst, groups := t.m.match(dst, key, headers)
	if groups > 1 {
		dst = dedupe(dst, start)
	}
	return dst
}

// picker is a matcher that chooses one destination for a message, whatever the
// number of its keys.
type picker interface {
	pick(dst []Destination, m *Message) []Destination
}

// Route appends the destinations of a message to dst. One that several of its keys
// lead to is there several times.
func (t *Table) Route(dst []Destination, m *Message) []Destination {
	if p, ok := t.m.(picker); ok {
		return p.pick(dst, m)
	}
	for _, k := range m.Keys {
		dst = t.Match(dst, k, m.Headers)
	}
	return dst
}

// dedupeLinearMax is the length up to which comparing each with each beats
// sorting.
const dedupeLinearMax = 16

// dedupe removes repetitions from dst[start:].
func dedupe(dst []Destination, start int) []Destination {
	part := dst[start:]
	if len(part) > dedupeLinearMax {
		slices.SortFunc(part, compareDestinations)
		return dst[:start+len(slices.Compact(part))]
	}
	n := 0
	for _, d := range part {
		if !slices.Contains(part[:n], d) {
			part[n] = d
			n++
		}
	}
	return dst[:start+n]
}

// directTable maps a routing key to the destinations bound with it.
type directTable struct{ keys *iradix.Tree[group] }

func (t directTable) add(b Binding) matcher {
	g, _ := t.keys.Get([]byte(b.Key))
	keys, _, _ := t.keys.Insert([]byte(b.Key), g.with(b.Destination))
	return directTable{keys}
}

func (t directTable) remove(b Binding) matcher {
	g, _ := t.keys.Get([]byte(b.Key))
	g = g.without(b.Destination)
	if g.empty() {
		keys, _, _ := t.keys.Delete([]byte(b.Key))
		return directTable{keys}
	}
	keys, _, _ := t.keys.Insert([]byte(b.Key), g)
	return directTable{keys}
}

func (t directTable) match(dst []Destination, key string, _ amqp.Table) ([]Destination, int) {
	g, _ := t.keys.Get([]byte(key))
	return append(dst, g.all()...), 1
}

// fanoutTable leads everything everywhere. The tree keeps the number of bindings to each
// destination; the list of destinations is made at the first match, so that a run of
// bindings without traffic in between does not copy it each time.
type fanoutTable struct {
	counts *iradix.Tree[fanoutEntry]
	once   *sync.Once
	list   *[]Destination
}

type fanoutEntry struct {
	Destination
	count int32 // >= 1
}

func newFanout(counts *iradix.Tree[fanoutEntry]) fanoutTable {
	return fanoutTable{counts, new(sync.Once), new([]Destination)}
}

func fanoutKey(d Destination) []byte {
	if d.ToExchange {
		return []byte("e" + d.Name)
	}
	return []byte("q" + d.Name)
}

func (t fanoutTable) add(b Binding) matcher    { return t.with(b.Destination) }
func (t fanoutTable) remove(b Binding) matcher { return t.without(b.Destination) }

func (t fanoutTable) with(d Destination) fanoutTable {
	k := fanoutKey(d)
	e, _ := t.counts.Get(k)
	counts, _, _ := t.counts.Insert(k, fanoutEntry{d, e.count + 1})
	return newFanout(counts)
}

func (t fanoutTable) without(d Destination) fanoutTable {
	k := fanoutKey(d)
	e, found := t.counts.Get(k)
	switch {
	case !found:
		panic(fmt.Sprintf("exchange: no binding to %+v to remove", d))
	case e.count == 1:
		counts, _, _ := t.counts.Delete(k)
		return newFanout(counts)
	}
	counts, _, _ := t.counts.Insert(k, fanoutEntry{d, e.count - 1})
	return newFanout(counts)
}

// all lists the destinations in the order of their keys. It is shared.
func (t fanoutTable) all() []Destination {
	t.once.Do(func() {
		all := make([]Destination, 0, t.counts.Len())
		t.counts.Root().Walk(func(_ []byte, e fanoutEntry) bool {
			all = append(all, e.Destination)
			return false
		})
		*t.list = all
	})
	return *t.list
}

func (t fanoutTable) match(dst []Destination, _ string, _ amqp.Table) ([]Destination, int) {
	return append(dst, t.all()...), 1
}
