package network

import (
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// waitingMax is how many packets wait on a slow link; more are dropped, as a router does.
const waitingMax = 1024

// link carries packets in one direction, in order.
type link struct {
	to    io.Writer
	lan   *Lan
	state atomic.Pointer[Link]

	// waiting are packets that are due later. pending counts them until they are written:
	// while there are any, all others must queue behind them.
	waiting chan packet
	pending atomic.Int64
	// free is when the last packet has passed at the link's rate. It belongs to the sender.
	free time.Time
	done chan struct{}
	once sync.Once
}

type packet struct {
	data []byte
	due  time.Time
}

func newLink(to io.Writer, lan *Lan) *link {
	k := &link{to: to, lan: lan, waiting: make(chan packet, waitingMax), done: make(chan struct{})}
	k.state.Store(&Link{})
	lan.work.Go(k.run)
	return k
}

// send is called by one goroutine only, and does not keep data.
func (k *link) send(data []byte) {
	state := k.state.Load()
	if state.Cut || state.Loss > 0 && rand.Float64() < state.Loss {
		k.lan.dropped.Add(1)
		return
	}
	if state.sound() && k.pending.Load() == 0 {
		k.write(data)
		return
	}
	now := time.Now()
	due := now.Add(state.Delay)
	if state.Jitter > 0 {
		due = due.Add(rand.N(state.Jitter))
	}
	if state.BytesPerSecond > 0 {
		if k.free.Before(now) {
			k.free = now
		}
		k.free = k.free.Add(time.Duration(len(data)) * time.Second / time.Duration(state.BytesPerSecond))
		due = due.Add(k.free.Sub(now))
	}
	k.pending.Add(1)
	select {
	case k.waiting <- packet{data: append([]byte(nil), data...), due: due}:
	default:
		k.pending.Add(-1)
		k.lan.dropped.Add(1)
	}
}

// run writes what waits, each packet when it is due.
func (k *link) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case p := <-k.waiting:
			timer.Reset(time.Until(p.due))
			select {
			case <-timer.C:
			case <-k.done:
				return
			}
			if k.state.Load().Cut {
				k.lan.dropped.Add(1)
			} else {
				k.write(p.data)
			}
			k.pending.Add(-1)
		case <-k.done:
			return
		}
	}
}

// write passes a packet on. An error is that the host is closing, or is overrun: the
// packet is lost, as it may be.
func (k *link) write(data []byte) {
	if _, err := k.to.Write(data); err != nil {
		k.lan.dropped.Add(1)
		return
	}
	k.lan.carried.Add(1)
}

func (k *link) close() { k.once.Do(func() { close(k.done) }) }
