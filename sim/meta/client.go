package meta

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
)

const (
	clients   = 6
	registers = 5
	// clientPause is the most between two operations of a client.
	clientPause = 300 * time.Millisecond
)

// client works at any node until stop is closed.
func (w *world) client(number int, r *rand.Rand, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1 + r.Int64N(int64(clientPause)))):
		}
		ids := w.present()
		l := w.node(ids[r.IntN(len(ids))]).running()
		if l == nil {
			continue
		}
		if r.IntN(3) == 0 {
			l = w.leading(l) // where there is most to go wrong
		}
		limit := time.Duration(r.Int64N(int64(4 * time.Second)))
		ctx, cancel := context.WithTimeout(l.ctx, limit)
		switch r.IntN(12) {
		case 0, 1, 2, 3:
			w.write(ctx, l, number, r)
		case 4, 5:
			w.race(ctx, l, r)
		case 6:
			w.queues(ctx, l, number, r)
		case 7:
			w.oracle.saw(l, l.cat.View(), w.key(r), 0)
		default:
			w.look(ctx, l, w.key(r))
		}
		cancel()
	}
}

// key draws one that clients read.
func (w *world) key(r *rand.Rand) string {
	newest := int(w.races.Load())
	switch n := r.IntN(8); n {
	case 6:
		return fmt.Sprintf("once-%d", max(0, newest-r.IntN(4)))
	case 7:
		return fmt.Sprintf("exchange-%d", max(0, newest-r.IntN(4)))
	default:
		return fmt.Sprintf("register-%d", n%registers)
	}
}

// look reads a key as the newest.
func (w *world) look(ctx context.Context, l *life, key string) {
	since := w.oracle.floor()
	if err := l.cat.ReadIndex(ctx); err == nil {
		w.oracle.saw(l, l.cat.View(), key, since)
	}
}

// write gives a register a value.
func (w *world) write(ctx context.Context, l *life, number int, r *rand.Rand) {
	p := w.oracle.start(put, fmt.Sprintf("register-%d", r.IntN(registers)), fmt.Sprintf("client %d", number))
	w.do(ctx, l, p, putUser(p))
}

func putUser(p *op) catalog.Command { return &catalog.PutUser{User: userOf(p)} }

func userOf(p *op) auth.User {
	return auth.User{Name: p.key, PasswordHash: hash, Tags: []string{mark(p.id)}}
}

var hash = auth.HashPassword("a password")

// race makes what others make, too.
func (w *world) race(ctx context.Context, l *life, r *rand.Rand) {
	n := w.races.Load()
	if r.IntN(4) == 0 {
		n = w.races.Add(1)
	}
	if r.IntN(2) == 0 {
		p := w.oracle.start(once, fmt.Sprintf("once-%d", n), "those who race")
		w.do(ctx, l, p, &catalog.ChangeUser{User: userOf(p), What: catalog.AddUser})
		return
	}
	p := w.oracle.start(declare, fmt.Sprintf("exchange-%d", n), "those who race")
	w.do(ctx, l, p, &catalog.DeclareExchange{Exchange: catalog.Exchange{
		Vhost: "/", Name: p.key, Type: exchange.Topic, Durable: true, Arguments: amqp.Table{{Name: "op", Value: mark(p.id)}},
	}})
}

// queues makes or deletes one.
func (w *world) queues(ctx context.Context, l *life, number int, r *rand.Rand) {
	name := fmt.Sprintf("queue-%d", r.IntN(6))
	if r.IntN(2) == 0 {
		_, _ = l.cat.Propose(ctx, &catalog.DeleteQueue{Vhost: "/", Name: name}) // an entry that nobody can tell from another one's
		return
	}
	p := w.oracle.start(other, name, fmt.Sprintf("client %d", number))
	w.do(ctx, l, p, &catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: "/", Name: name, Durable: true, Kind: catalog.Replicated, Members: w.present()[:1], Preferred: w.present()[0],
		Arguments: amqp.Table{{Name: "op", Value: mark(p.id)}},
	}})
}

func (w *world) do(ctx context.Context, l *life, p *op, cmd catalog.Command) {
	if w.cfg.Lie == LieAnswer {
		w.oracle.answered(l, p, catalog.Result{Index: l.cat.View().Revision() + 1, Changed: true}, nil)
	}
	r, err := l.cat.Propose(ctx, cmd)
	w.oracle.answered(l, p, r, err)
}

// leading is a process that believes to lead, or the given one.
func (w *world) leading(l *life) *life {
	for _, id := range w.present() {
		if o := w.node(id).running(); o != nil && o.cat.Leading() {
			return o
		}
	}
	return l
}
