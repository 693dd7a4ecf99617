package exchange

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/warrenmq/warren/amqp"
)

// Arguments of an x-consistent-hash exchange: what is hashed in place of the
// routing key.
const (
	argHashHeader   = "hash-header"
	argHashProperty = "hash-property"
)

// hashSource says what of a message is hashed; without header and property it is
// the routing key.
type hashSource struct{ header, property string }

func validateHash(args amqp.Table) error {
	header, hasHeader := args.Get(argHashHeader)
	property, hasProperty := args.Get(argHashProperty)
	if hasHeader && hasProperty {
		return refused("hash-header and hash-property are mutually exclusive")
	}
	if _, ok := header.(string); hasHeader && !ok {
		return refused("invalid arg 'hash-header': expected longstr, got %s", amqp.TypeName(header))
	}
	if !hasProperty {
		return nil
	}
	switch s, ok := property.(string); {
	case !ok:
		return refused("invalid arg 'hash-property': expected longstr, got %s", amqp.TypeName(property))
	case s != "message_id" && s != "correlation_id" && s != "timestamp":
		return refused("Unsupported property: %s", s)
	}
	return nil
}

func newHashSource(args amqp.Table) (h hashSource) {
	v, _ := args.Get(argHashHeader)
	h.header, _ = v.(string)
	v, _ = args.Get(argHashProperty)
	h.property, _ = v.(string)
	return h
}

// hash returns the hash of what counts in a message. What is absent hashes like
// the empty string.
func (h hashSource) hash(m *Message) uint64 {
	switch {
	case h.header != "":
		v, _ := m.Headers.Get(h.header)
		return hashValue(v)
	case h.property == "message_id":
		s, _ := m.Properties.MessageID()
		return hashString(s)
	case h.property == "correlation_id":
		s, _ := m.Properties.CorrelationID()
		return hashString(s)
	case h.property == "timestamp":
		t, ok := m.Properties.Timestamp()
		if !ok {
			return hashString("")
		}
		return hashString(strconv.FormatInt(int64(t), 10))
	}
	return hashString(m.key())
}

// hashValue hashes a header's value; integers are equal whatever their width.
func hashValue(v any) uint64 {
	switch x := v.(type) {
	case nil:
		return hashString("")
	case string:
		return hashString(x)
	}
	if n, ok := amqp.AsInt64(v); ok {
		return hashString(strconv.FormatInt(n, 10))
	}
	return hashString(string(amqp.AppendTable(nil, amqp.Table{{Value: v}})))
}

// hashString is 64-bit FNV-1a, mixed. All nodes must agree on it: it never changes.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}

// mix is the finalizer of MurmurHash3: each bit of the input moves each of the output.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// parseWeight reads the binding key of an x-consistent-hash exchange.
func parseWeight(key string) (uint64, error) {
	n, err := strconv.ParseInt(key, 10, 64)
	switch {
	case err != nil:
		return 0, refused("The binding key must be an integer: %s", key)
	case n < 1:
		return 0, refused("The binding key must be greater than 0")
	}
	return uint64(n), nil
}

// hashTable spreads messages by weighted rendezvous hashing: the hash of the message
// names one of many slots, each destination draws a number for the slot, and the one with the
// best number for its weight owns it. So shares follow the weights, nodes with the same
// bindings agree however the bindings came about, and a change moves only what the changed
// destination gains or loses.
//
// Of several bindings to one destination the one with the highest weight counts.
type hashTable struct {
	source hashSource
	// weights maps a destination and a weight to the number of bindings with them.
	weights *iradix.Tree[weighted]
	cache   *hashCache
}

type weighted struct {
	Destination
	weight uint64
	count  int32 // >= 1
}

const (
	slotBits  = 18
	pageBits  = 10
	slotsPage = 1 << pageBits
	pages     = 1 << (slotBits - pageBits)
	// cachedFrom is the number of destinations from which the owners of slots are
	// remembered.
	cachedFrom = 16
)

// hashCache is what a table works out when it is first used.
type hashCache struct {
	once  sync.Once
	dests []Destination
	seeds []uint64
	// groups are the destinations in runs of equal weight.
	groups []weightGroup
	// owners remembers 1 + the owner of slots, by pages that are made when needed.
	owners [pages]atomic.Pointer[slotPage]
}

type weightGroup struct {
	weight    float64
	from, end int
}

type slotPage [slotsPage]atomic.Uint32

func newHashTable(args amqp.Table) hashTable {
	return hashTable{newHashSource(args), iradix.New[weighted](), new(hashCache)}
}

func weightedKey(b Binding) ([]byte, weighted) {
	w, err := parseWeight(b.Key)
	if err != nil {
		panic("exchange: weight " + b.Key + " was not validated")
	}
	// The name's end is marked, so that the weights of one destination stand together.
	key := append(fanoutKey(b.Destination), 0)
	return strconv.AppendUint(key, w, 10), weighted{Destination: b.Destination, weight: w}
}

func (t hashTable) add(b Binding) matcher {
	key, w := weightedKey(b)
	old, _ := t.weights.Get(key)
	w.count = old.count + 1
	weights, _, _ := t.weights.Insert(key, w)
	return hashTable{t.source, weights, new(hashCache)}
}

func (t hashTable) remove(b Binding) matcher {
	key, w := weightedKey(b)
	old, found := t.weights.Get(key)
	if !found {
		panic("exchange: no binding to " + b.Name + " to remove")
	}
	weights := t.weights
	if old.count == 1 {
		weights, _, _ = weights.Delete(key)
	} else {
		w.count = old.count - 1
		weights, _, _ = weights.Insert(key, w)
	}
	return hashTable{t.source, weights, new(hashCache)}
}

// match names all destinations.
func (t hashTable) match(dst []Destination, _ string, _ amqp.Table) ([]Destination, int) {
	return append(dst, t.prepared().dests...), 1
}

func (t hashTable) pick(dst []Destination, m *Message) []Destination {
	c := t.prepared()
	if len(c.dests) == 0 {
		return dst
	}
	return append(dst, c.dests[c.owner(t.source.hash(m)>>(64-slotBits))])
}

func (t hashTable) prepared() *hashCache {
	t.cache.once.Do(func() { t.cache.fill(t.weights) })
	return t.cache
}

func (c *hashCache) fill(weights *iradix.Tree[weighted]) {
	heaviest := make(map[Destination]uint64, weights.Len())
	weights.Root().Walk(func(_ []byte, w weighted) bool {
		heaviest[w.Destination] = max(heaviest[w.Destination], w.weight)
		return false
	})
	list := make([]weighted, 0, len(heaviest))
	for d, w := range heaviest {
		list = append(list, weighted{Destination: d, weight: w})
	}
	slices.SortFunc(list, func(a, b weighted) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), compareDestinations(a.Destination, b.Destination))
	})
	c.dests = make([]Destination, len(list))
	c.seeds = make([]uint64, len(list))
	for i := range list {
		c.dests[i] = list[i].Destination
		c.seeds[i] = hashString(string(fanoutKey(list[i].Destination)))
		if i == 0 || list[i].weight != list[i-1].weight {
			c.groups = append(c.groups, weightGroup{weight: float64(list[i].weight), from: i})
		}
		c.groups[len(c.groups)-1].end = i + 1
	}
}

// owner returns the place of the destination that owns a slot.
func (c *hashCache) owner(slot uint64) int {
	if len(c.dests) < cachedFrom {
		return c.best(slot)
	}
	place := &c.owners[slot>>pageBits]
	page := place.Load()
	if page == nil {
		page = new(slotPage)
		if !place.CompareAndSwap(nil, page) {
			page = place.Load()
		}
	}
	known := &page[slot&(slotsPage-1)]
	if n := known.Load(); n > 0 {
		return int(n - 1)
	}
	best := c.best(slot)
	known.Store(uint32(best) + 1)
	return best
}

// best holds the draw for a slot. Among equal weights the highest number wins; with a
// number u, uniform between 0 and 1, the best of all is the one with the lowest
// -ln(u)/weight.
func (c *hashCache) best(slot uint64) int {
	drawn := mix(slot + 1)
	winner, lowest := 0, math.Inf(1)
	for _, g := range c.groups {
		best, highest := g.from, uint64(0)
		for i := g.from; i < g.end; i++ {
			if n := mix(c.seeds[i] ^ drawn); n > highest {
				best, highest = i, n
			}
		}
		u := (float64(highest>>11) + 0.5) / (1 << 53)
		if s := -math.Log(u) / g.weight; s < lowest {
			winner, lowest = best, s
		}
	}
	return winner
}

// modulusTable picks by the hash of the routing key among the destinations in their
// order.
type modulusTable struct{ fanoutTable }

func (t modulusTable) add(b Binding) matcher    { return modulusTable{t.with(b.Destination)} }
func (t modulusTable) remove(b Binding) matcher { return modulusTable{t.without(b.Destination)} }

func (t modulusTable) pick(dst []Destination, m *Message) []Destination {
	all := t.all()
	if len(all) == 0 {
		return dst
	}
	return append(dst, all[hashString(m.key())%uint64(len(all))])
}
