package catalog

import (
	"cmp"
	"slices"
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// routeScratch is the memory of one routing in progress.
type routeScratch struct {
	found   []exchange.Destination
	visited []*Exchange // each exchange the message reached; also the work list
}

// routePool keeps scratch memory between routings; all views of a machine share one.
type routePool struct{ sync.Pool }

func newRoutePool() *routePool {
	return &routePool{sync.Pool{New: func() any { return new(routeScratch) }}}
}

// scratchMax bounds what a scratch may keep.
const scratchMax = 1024

func (p *routePool) put(s *routeScratch) {
	if cap(s.found) > scratchMax || cap(s.visited) > scratchMax {
		return
	}
	clear(s.found)
	clear(s.visited)
	s.found, s.visited = s.found[:0], s.visited[:0]
	p.Put(s)
}

// Route appends the queues a message published to an exchange reaches to dst,
// each once: over bindings, exchanges bound to exchanges, and alternate exchanges. Each
// exchange is visited once, so loops end. keys are the routing key and those of CC
// and BCC. No queue appended means unroutable. The error is an [*amqp.Error] with code
// 404 if the exchange does not exist; whether it is internal is the caller's to
// check.
//
// An exchange whose own bindings lead nowhere passes the message to its alternate
// exchange; one that does not exist passes it to nobody. A delayed exchange passes a message
// that asks for a delay to its own queue.
func (v *View) Route(vhost, name string, keys []string, headers amqp.Table, dst []*Queue) ([]*Queue, error) {
	return v.RouteMessage(vhost, name, &Message{Message: exchange.Message{Keys: keys, Headers: headers}}, dst)
}

// Message is what routing looks at. Its Local is set by RouteMessage.
type Message struct {
	exchange.Message
	// Leads tells whether a queue is led on this node; nil: none is.
	Leads func(id uint64) bool
}

// RouteMessage is Route for exchanges that look at more than keys and headers.
func (v *View) RouteMessage(vhost, name string, m *Message, dst []*Queue) ([]*Queue, error) {
	start, keys := len(dst), m.Keys
	if name == "" {
		if v.Vhost(vhost) == nil {
			return dst, errNoExchange(vhost, name)
		}
		for _, k := range keys {
			if q := v.Queue(vhost, k); q != nil {
				dst = append(dst, q)
			}
		}
		return dedupe(dst, start, len(keys) > 1), nil
	}
	first := v.Exchange(vhost, name)
	if first == nil {
		return dst, errNoExchange(vhost, name)
	}
	s := v.scratch.Get().(*routeScratch)
	defer v.scratch.put(s)
	s.visited = append(s.visited, first)
	lists := 0
	for i := 0; i < len(s.visited); i++ {
		x := s.visited[i]
		if x.Type == exchange.Delayed && exchange.Delay(m.Headers) > 0 {
			if q := v.QueueByID(x.DelayQueue); q != nil {
				dst = append(dst, q) // that is all until it is due
			}
			continue
		}
		if x.Type == exchange.LocalRandom && m.Leads != nil {
			m.Local = v.leadsHere(vhost, m.Leads)
		}
		s.found = x.table.Route(s.found[:0], &m.Message)
		lists += len(keys)
		if len(s.found) == 0 {
			if ae := x.Alternate(); ae != "" {
				s.visit(v.Exchange(vhost, ae))
			}
			continue
		}
		for j := range s.found {
			d := &s.found[j]
			if d.ToExchange {
				s.visit(v.Exchange(vhost, d.Name))
			} else if q := v.Queue(vhost, d.Name); q != nil {
				dst = append(dst, q)
			}
		}
	}
	return dedupe(dst, start, lists > 1), nil
}

// leadsHere tells of destinations whether they are queues of this node.
func (v *View) leadsHere(vhost string, leads func(uint64) bool) func(exchange.Destination) bool {
	return func(d exchange.Destination) bool {
		if d.ToExchange {
			return false
		}
		q := v.Queue(vhost, d.Name)
		return q != nil && leads(q.ID)
	}
}

func (s *routeScratch) visit(x *Exchange) {
	if x != nil && !slices.Contains(s.visited, x) {
		s.visited = append(s.visited, x)
	}
}

// dedupeLinearMax is the length up to which comparing each with each beats sorting.
const dedupeLinearMax = 16

// dedupe removes repetitions from dst[start:] if there can be any.
func dedupe(dst []*Queue, start int, needed bool) []*Queue {
	part := dst[start:]
	switch {
	case !needed || len(part) < 2:
		return dst
	case len(part) > dedupeLinearMax:
		slices.SortFunc(part, func(a, b *Queue) int { return cmp.Compare(a.ID, b.ID) })
		return dst[:start+len(slices.Compact(part))]
	}
	n := 0
	for _, q := range part {
		if !slices.Contains(part[:n], q) {
			part[n] = q
			n++
		}
	}
	return dst[:start+n]
}

// FixedRoute returns the queues that every message with this routing key reaches, or every
// message at all if anyKey is true, each once, in no particular order. ok is false if that depends
// on more of the message, on chance or on time, and if the exchange does not exist.
func (v *View) FixedRoute(vhost, name, key string, anyKey bool) (list []*Queue, ok bool) {
	if name == "" {
		if q := v.Queue(vhost, key); q != nil && !anyKey {
			return []*Queue{q}, true
		}
		return nil, !anyKey
	}
	m := Message{Message: exchange.Message{Keys: []string{key}}}
	s := v.scratch.Get().(*routeScratch)
	defer v.scratch.put(s)
	if s.visit(v.Exchange(vhost, name)); len(s.visited) == 0 {
		return nil, false
	}
	for i := 0; i < len(s.visited); i++ {
		x := s.visited[i]
		switch {
		case x.Type == exchange.Fanout:
		case !anyKey && (x.Type == exchange.Direct || x.Type == exchange.Topic):
		default:
			return nil, false
		}
		s.found = x.table.Route(s.found[:0], &m.Message)
		for j := range s.found {
			if s.found[j].ToExchange {
				s.visit(v.Exchange(vhost, s.found[j].Name))
			}
		}
		if ae := x.Alternate(); len(s.found) == 0 && ae != "" {
			s.visit(v.Exchange(vhost, ae))
		}
	}
	list, err := v.RouteMessage(vhost, name, &m, nil)
	return list, err == nil
}
