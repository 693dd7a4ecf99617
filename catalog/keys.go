package catalog

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/warrenmq/warren/amqp"
)

// index is a persistent ordered map. put and del replace the tree inside, so a copy
// of the struct taken before keeps the old content.
type index[T any] struct {
	tree *iradix.Tree[T]
	// bulk is set while many values are put at once; the tree is as it was before.
	bulk *iradix.Txn[T]
}

func newIndex[T any]() index[T] { return index[T]{tree: iradix.New[T]()} }

func (x *index[T]) get(key []byte) (T, bool) {
	if x.bulk != nil {
		return x.bulk.Get(key)
	}
	return x.tree.Get(key)
}

func (x *index[T]) len() int { return x.tree.Len() }

func (x *index[T]) put(key []byte, v T) {
	if x.bulk != nil {
		x.bulk.Insert(key, v)
		return
	}
	x.tree, _, _ = x.tree.Insert(key, v)
}

func (x *index[T]) del(key []byte) {
	if x.bulk != nil {
		x.bulk.Delete(key)
		return
	}
	x.tree, _, _ = x.tree.Delete(key)
}

// begin makes put and del cheap until commit. In between only these and get may be used, and
// no copy of the index.
func (x *index[T]) begin()  { x.bulk = x.tree.Txn() }
func (x *index[T]) commit() { x.tree, x.bulk = x.bulk.Commit(), nil }

// prefix walks the values whose keys begin with p, in the order of their keys. The
// index may be changed meanwhile; the walk sees what was there at its start.
func (x *index[T]) prefix(p []byte) iter.Seq[T] {
	return func(yield func(T) bool) {
		x.tree.Root().WalkPrefix(p, func(_ []byte, v T) bool { return !yield(v) })
	}
}

func (x *index[T]) all() iter.Seq[T] { return x.prefix(nil) }

// appendKey appends the parts of a key such that keys sort like their parts and no
// key is a prefix of another with as many parts: a zero byte ends each part, and one
// inside a part is followed by 0xff.
func appendKey(dst []byte, parts ...string) []byte {
	for _, s := range parts {
		if strings.IndexByte(s, 0) < 0 {
			dst = append(dst, s...)
		} else {
			dst = append(dst, bytes.ReplaceAll([]byte(s), []byte{0}, []byte{0, 0xff})...)
		}
		dst = append(dst, 0, 1)
	}
	return dst
}

func key(parts ...string) []byte { return appendKey(nil, parts...) }

func numberKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func destinationKind(toExchange bool) string {
	if toExchange {
		return "e"
	}
	return "q"
}

// sortedArguments is the encoding of the arguments that decides whether two
// bindings are the same.
func sortedArguments(t amqp.Table) string {
	if len(t) == 0 {
		return ""
	}
	t = slices.Clone(t)
	slices.SortStableFunc(t, func(a, b amqp.Field) int { return strings.Compare(a.Name, b.Name) })
	return string(amqp.AppendTable(nil, t))
}

func (b *Binding) sourceKey() []byte {
	return key(b.Vhost, b.Source, destinationKind(b.ToExchange), b.Destination, b.Key, sortedArguments(b.Arguments))
}

func (b *Binding) destinationKey() []byte {
	return key(b.Vhost, destinationKind(b.ToExchange), b.Destination, b.Source, b.Key, sortedArguments(b.Arguments))
}
