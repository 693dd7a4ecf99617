package exchange

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"github.com/warrenmq/warren/amqp"
)

// mode is the value of x-match.
type mode struct {
	any   bool // one field is enough
	withX bool // fields whose names begin with x- count
}

func parseMode(s string) (m mode, ok bool) {
	switch s {
	case "all":
		return mode{}, true
	case "any":
		return mode{any: true}, true
	case "all-with-x":
		return mode{withX: true}, true
	case "any-with-x":
		return mode{any: true, withX: true}, true
	}
	return mode{}, false
}

// headersTable holds all bindings; what finds those of a message is made when it is needed, like a fanout's list.
type headersTable struct {
	bindings *iradix.Tree[*headersBinding]
	finder   *headersFinder
}

// headersFinder finds the bindings of a message: one by one at first, because the next change may come before an index has paid.
type headersFinder struct {
	list    sync.Once
	all     headersIndex
	matched atomic.Int32
	index   sync.Once
	indexed headersIndex
}

// indexAfter is how many messages are looked up one by one.
const indexAfter = 8

type headersBinding struct {
	Binding
	mode   mode
	fields amqp.Table // those of Arguments that count
}

func newHeaders(bindings *iradix.Tree[*headersBinding]) headersTable {
	return headersTable{bindings, new(headersFinder)}
}

// headersKey is the same for bindings that are the same.
func headersKey(b Binding) []byte {
	d := fanoutKey(b.Destination)
	k := append(binary.AppendUvarint(nil, uint64(len(d))), d...)
	k = append(binary.AppendUvarint(k, uint64(len(b.Key))), b.Key...)
	return amqp.AppendTable(k, b.Arguments)
}

func (t headersTable) add(b Binding) matcher {
	h := &headersBinding{Binding: b}
	if v, ok := b.Arguments.Get("x-match"); ok {
		s, _ := v.(string)
		if h.mode, ok = parseMode(s); !ok {
			panic(fmt.Sprintf("exchange: x-match %v was not validated", v))
		}
	}
	for _, f := range b.Arguments {
		if f.Name == "x-match" || strings.HasPrefix(f.Name, "x-") && !h.mode.withX {
			continue
		}
		h.fields = append(h.fields, f)
	}
	bindings, _, _ := t.bindings.Insert(headersKey(b), h)
	return newHeaders(bindings)
}

func (t headersTable) remove(b Binding) matcher {
	bindings, _, found := t.bindings.Delete(headersKey(b))
	if !found {
		panic(fmt.Sprintf("exchange: no binding %+v to remove", b))
	}
	return newHeaders(bindings)
}

func (t headersTable) match(dst []Destination, _ string, headers amqp.Table) ([]Destination, int) {
	before := len(dst)
	dst = t.finder.of(t.bindings).match(dst, headers)
	return dst, len(dst) - before
}

func (f *headersFinder) of(bindings *iradix.Tree[*headersBinding]) *headersIndex {
	f.list.Do(func() {
		f.all.rest = make([]*headersBinding, 0, bindings.Len())
		bindings.Root().Walk(func(_ []byte, h *headersBinding) bool {
			f.all.rest = append(f.all.rest, h)
			return false
		})
	})
	if len(f.all.rest) < indexFrom || f.matched.Load() < indexAfter && f.matched.Add(1) < indexAfter {
		return &f.all
	}
	f.index.Do(func() { f.indexed = indexHeaders(f.all.rest) })
	return &f.indexed
}

func (h *headersBinding) matches(headers amqp.Table) bool {
	for i := range h.fields {
		v, present := headers.Get(h.fields[i].Name)
		if (present && sameValue(h.fields[i].Value, v)) == h.mode.any {
			return h.mode.any
		}
	}
	return !h.mode.any
}

// sameValue compares the value in a binding with the one in a message. A void in
// the binding asks for presence only. As in RabbitMQ the type on the wire does not matter: whole numbers and timestamps are equal
// whatever their width, numbers with a fraction too, and a string is equal to the bytes of it.
func sameValue(want, have any) bool {
	if want == nil {
		return true
	}
	if n, ok := whole(want); ok {
		m, ok := whole(have)
		return ok && n == m
	}
	if s, ok := text(want); ok {
		r, ok := text(have)
		return ok && s == r
	}
	if x, ok := fraction(want); ok {
		y, ok := fraction(have)
		return ok && x == y
	}
	return amqp.EqualValues(want, have)
}

func whole(v any) (n int64, ok bool) {
	if t, ok := v.(amqp.Timestamp); ok {
		return int64(t), t <= math.MaxInt64
	}
	return amqp.AsInt64(v)
}

func text(v any) (s string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

func fraction(v any) (x float64, ok bool) {
	switch v := v.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
