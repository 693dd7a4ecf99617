package exchange

import (
	"github.com/warrenmq/warren/amqp"
)

// headersIndex finds the few of many bindings that a message can match by the values of its headers.
type headersIndex struct {
	// by has a binding for all of its fields under the one of them that the fewest others have, one for any of them under each.
	by map[fieldIs][]*headersBinding
	// rest are those that no header leads to: few, without fields, or with nothing but values that are compared at length.
	rest []*headersBinding
}

// fieldIs is a condition that a field of a binding is for a header: its value, or with anyValue that it is there.
type fieldIs struct {
	name string
	kind fieldKind
	text string
	n    int64
}

type fieldKind uint8

const (
	anyValue fieldKind = iota
	textValue
	intValue
	boolValue
)

// conditionOf returns what a binding's field asks for; false if no header can be looked up for it.
func conditionOf(f *amqp.Field) (is fieldIs, ok bool) {
	if f.Value == nil {
		return fieldIs{name: f.Name}, true
	}
	return valueOf(f)
}

// valueOf returns which value a field has, as sameValue compares them; false if it has one that is compared at length.
func valueOf(f *amqp.Field) (is fieldIs, ok bool) {
	is.name = f.Name
	if is.text, ok = text(f.Value); ok {
		is.kind = textValue
		return is, true
	}
	if v, ok := f.Value.(bool); ok {
		if is.kind = boolValue; v {
			is.n = 1
		}
		return is, true
	}
	is.kind = intValue
	is.n, ok = whole(f.Value)
	return is, ok
}

// indexFrom is the number of bindings from which an index is worth while.
const indexFrom = 16

func indexHeaders(all []*headersBinding) (x headersIndex) {
	shared := make(map[fieldIs]int, len(all))
	for _, h := range all {
		for i := range h.fields {
			if is, ok := conditionOf(&h.fields[i]); ok {
				shared[is]++
			}
		}
	}
	x.by = make(map[fieldIs][]*headersBinding, len(shared))
	for _, h := range all {
		under := h.rarest(shared)
		if h.mode.any {
			under = h.conditions()
		}
		if len(under) == 0 {
			x.rest = append(x.rest, h)
		}
		for _, is := range under {
			x.by[is] = append(x.by[is], h)
		}
	}
	return x
}

// rarest returns the condition that the fewest bindings have, none if there is none to look up.
func (h *headersBinding) rarest(shared map[fieldIs]int) (one []fieldIs) {
	for i := range h.fields {
		is, ok := conditionOf(&h.fields[i])
		if ok && (one == nil || shared[is] < shared[one[0]]) {
			one = []fieldIs{is}
		}
	}
	return one
}

// conditions returns each condition once, none if one of them cannot be looked up.
func (h *headersBinding) conditions() (all []fieldIs) {
	met := make(map[fieldIs]bool, len(h.fields))
	for i := range h.fields {
		is, ok := conditionOf(&h.fields[i])
		if !ok {
			return nil
		}
		if !met[is] {
			met[is] = true
			all = append(all, is)
		}
	}
	return all
}

func (x *headersIndex) match(dst []Destination, headers amqp.Table) []Destination {
	for _, h := range x.rest {
		if h.matches(headers) {
			dst = append(dst, h.Destination)
		}
	}
	if len(x.by) == 0 {
		return dst
	}
	for i := range headers {
		dst = x.matchBy(dst, headers, i, fieldIs{name: headers[i].Name})
		if is, ok := valueOf(&headers[i]); ok {
			dst = x.matchBy(dst, headers, i, is)
		}
	}
	return dst
}

// matchBy adds the bindings that a condition leads to, which the header at i meets.
func (x *headersIndex) matchBy(dst []Destination, headers amqp.Table, i int, is fieldIs) []Destination {
	list := x.by[is]
	if len(list) == 0 || !isFirst(headers, i) {
		return dst
	}
	for _, h := range list {
		if h.mode.any && h.firstMet(headers) == is || !h.mode.any && h.matches(headers) {
			dst = append(dst, h.Destination)
		}
	}
	return dst
}

// isFirst tells whether the header at i is the first of its name: only that one counts.
func isFirst(headers amqp.Table, i int) bool {
	for k := range i {
		if headers[k].Name == headers[i].Name {
			return false
		}
	}
	return true
}

// firstMet is the first of a binding's conditions that a message meets. Under that one it is found, so that it is found once. One is met.
func (h *headersBinding) firstMet(headers amqp.Table) (is fieldIs) {
	for i := range h.fields {
		if v, present := headers.Get(h.fields[i].Name); present && sameValue(h.fields[i].Value, v) {
			is, _ = conditionOf(&h.fields[i])
			break
		}
	}
	return is
}
