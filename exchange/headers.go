package exchange

import (
	"fmt"
	"slices"
	"strings"

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

// headersTable is the list of bindings in the order of binding.
type headersTable []headersBinding

type headersBinding struct {
	Binding
	mode   mode
	fields amqp.Table // those of Arguments that count
}

func (t headersTable) add(b Binding) matcher {
	h := headersBinding{Binding: b}
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
	return append(slices.Clip(t), h)
}

func (t headersTable) remove(b Binding) matcher {
	i := slices.IndexFunc(t, func(h headersBinding) bool {
		return h.Destination == b.Destination && h.Key == b.Key && h.Arguments.Equal(b.Arguments)
	})
	if i < 0 {
		panic(fmt.Sprintf("exchange: no binding %+v to remove", b))
	}
	return slices.Concat(t[:i], t[i+1:])
}

func (t headersTable) match(dst []Destination, _ string, headers amqp.Table) ([]Destination, int) {
	n := 0
	for i := range t {
		if t[i].matches(headers) {
			dst = append(dst, t[i].Destination)
			n++
		}
	}
	return dst, n
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
// the binding asks for presence only; integers are equal whatever their
// width.
func sameValue(want, have any) bool {
	if want == nil {
		return true
	}
	if n, ok := amqp.AsInt64(want); ok {
		m, ok := amqp.AsInt64(have)
		return ok && n == m
	}
	return amqp.EqualValues(want, have)
}
