package exchange

import (
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/warrenmq/warren/amqp"
)

// topicTable is a trie over the words of binding keys.
type topicTable struct{ root *topicNode }

// topicNode is an immutable node of the trie: the binding keys that begin with the
// words on the way to it.
type topicNode struct {
	words *iradix.Tree[*topicNode] // by literal word; nil if none
	star  *topicNode               // `*`: one word
	hash  *topicNode               // `#`: zero or more words
	here  group                    // bindings whose key ends here
}

func (n *topicNode) bare() bool { return n.words == nil && n.star == nil && n.hash == nil }

func (n *topicNode) child(word string) *topicNode {
	switch word {
	case "*":
		return n.star
	case "#":
		return n.hash
	}
	return n.literal(word)
}

func (n *topicNode) literal(word string) *topicNode {
	if n.words == nil {
		return nil
	}
	c, _ := n.words.Get([]byte(word))
	return c
}

// withChild returns n with the child of word replaced by c, removed if c is nil.
func (n *topicNode) withChild(word string, c *topicNode) *topicNode {
	out := *n
	switch {
	case word == "*":
		out.star = c
	case word == "#":
		out.hash = c
	case c == nil:
		out.words, _, _ = n.words.Delete([]byte(word))
		if out.words.Len() == 0 {
			out.words = nil
		}
	default:
		if out.words == nil {
			out.words = iradix.New[*topicNode]()
		}
		out.words, _, _ = out.words.Insert([]byte(word), c)
	}
	return &out
}

// change returns n with the group at the end of words replaced by f's result. It
// returns nil when nothing is left below n.
func (n *topicNode) change(words []string, f func(group) group) *topicNode {
	if n == nil {
		n = &topicNode{}
	}
	var out *topicNode
	if len(words) == 0 {
		c := *n
		c.here = f(n.here)
		out = &c
	} else {
		out = n.withChild(words[0], n.child(words[0]).change(words[1:], f))
	}
	if out.bare() && out.here.empty() {
		return nil
	}
	return out
}

func (t topicTable) change(b Binding, f func(group) group) topicTable {
	var words []string // of an empty key: none
	if b.Key != "" {
		words = strings.Split(b.Key, ".")
	}
	root := t.root.change(words, f)
	if root == nil {
		root = &topicNode{}
	}
	return topicTable{root}
}

func (t topicTable) add(b Binding) matcher {
	return t.change(b, func(g group) group { return g.with(b.Destination) })
}

func (t topicTable) remove(b Binding) matcher {
	return t.change(b, func(g group) group { return g.without(b.Destination) })
}

func (t topicTable) match(dst []Destination, key string, _ amqp.Table) ([]Destination, int) {
	var found topicMatches
	found.walk(t.root, key, key == "", false)
	for _, n := range found.nodes {
		dst = append(dst, n.here.all()...)
	}
	return dst, len(found.nodes)
}

// topicMatches collects the nodes at which a routing key ends, each once, however many
// ways lead there.
type topicMatches struct {
	nodes []*topicNode
	seen  map[*topicNode]struct{} // used beyond seenLinearMax nodes
	// walked has, of each `#` behind another, the most of the routing key that it was walked with.
	walked map[*topicNode]int
	steps  int // nodes that were looked at, each as often as it was
}

const seenLinearMax = 32

func (m *topicMatches) add(n *topicNode) {
	if n.here.empty() {
		return
	}
	if len(m.nodes) < seenLinearMax {
		if !slices.Contains(m.nodes, n) {
			m.nodes = append(m.nodes, n)
		}
		return
	}
	if m.seen == nil {
		m.seen = make(map[*topicNode]struct{}, 2*seenLinearMax)
		for _, n := range m.nodes {
			m.seen[n] = struct{}{}
		}
	}
	if _, ok := m.seen[n]; !ok {
		m.seen[n] = struct{}{}
		m.nodes = append(m.nodes, n)
	}
}

// again tells whether the `#` n was walked before with all of rest: what it matches of less of the
// key is among that. Otherwise it notes that it is now.
func (m *topicMatches) again(n *topicNode, rest string) bool {
	if most, ok := m.walked[n]; ok && most >= len(rest) {
		return true
	}
	if m.walked == nil {
		m.walked = map[*topicNode]int{}
	}
	m.walked[n] = len(rest)
	return false
}

// walk follows the words of rest from n; done says that no word is left, which an empty rest does not: it is one empty
// word, but for a key that is empty as a whole. below says that a `#` is above n: the next one is reached once for each
// word then, and walked from the first of them only. So with at most two `#` in a binding key no node is visited more
// often than the routing key has words and one.
func (m *topicMatches) walk(n *topicNode, rest string, done, below bool) {
	m.steps++
	if done {
		m.add(n)
		if n.hash != nil {
			m.walk(n.hash, "", true, true)
		}
		return
	}
	word, after, found := strings.Cut(rest, ".")
	if c := n.literal(word); c != nil {
		m.walk(c, after, !found, below)
	}
	if n.star != nil {
		m.walk(n.star, after, !found, below)
	}
	if n.hash == nil {
		return
	}
	if n.hash.bare() {
		m.add(n.hash)
		return
	}
	if below && m.again(n.hash, rest) {
		return
	}
	for {
		m.walk(n.hash, rest, done, true)
		if done {
			return
		}
		_, rest, found = strings.Cut(rest, ".")
		done = !found
	}
}
