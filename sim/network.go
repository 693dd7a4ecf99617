package sim

import (
	"bytes"
	"errors"
	"sync"
	"time"
)

var errLinkDown = errors.New("sim: link is down")

// network is the links between nodes: one for each direction, as the mesh has
// them. A link delivers in order and at most once; when it breaks, what is on its way
// is lost, and its sender is told when it is up again.
type network struct {
	w     *World
	mu    sync.Mutex
	links map[[2]string]*link
	ids   []string
}

type link struct {
	w        *World
	from, to string

	mu   sync.Mutex
	up   bool
	cut  int // reasons to be down
	gen  int
	last time.Time // arrival of the newest message
	q    []packet
	wake chan struct{}
	down time.Time // since when
}

type packet struct {
	at      time.Time
	gen     int
	payload []byte
	peerUp  bool // not a message: tell the sender that the link is up
}

func newNetwork(w *World) *network { return &network{w: w, links: map[[2]string]*link{}} }

func (n *network) addNode(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.ids {
		for _, pair := range [][2]string{{id, other}, {other, id}} {
			l := &link{w: n.w, from: pair[0], to: pair[1], cut: 2, wake: make(chan struct{}, 1)}
			n.links[pair] = l
			n.w.work.Go(l.run)
		}
	}
	n.ids = append(n.ids, id)
}

func (n *network) link(from, to string) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[[2]string{from, to}]
}

func (n *network) each(f func(*link)) {
	n.mu.Lock()
	list := make([]*link, 0, len(n.links))
	for _, a := range n.ids {
		for _, b := range n.ids {
			if l := n.links[[2]string{a, b}]; l != nil {
				list = append(list, l)
			}
		}
	}
	n.mu.Unlock()
	for _, l := range list {
		f(l)
	}
}

func (n *network) send(from, to string, payload []byte) error {
	l := n.link(from, to)
	if l == nil {
		return errLinkDown
	}
	return l.send(payload)
}

func (n *network) nodeDown(id string) {
	n.each(func(l *link) {
		if l.from == id || l.to == id {
			l.cutOff()
		}
	})
}

func (n *network) nodeUp(id string) {
	n.each(func(l *link) {
		if l.from == id || l.to == id {
			l.mend()
		}
	})
}

// connected tells whether messages get through both ways.
func (n *network) connected(a, b string) bool {
	return a == b || n.link(a, b).isUp() && n.link(b, a).isUp()
}

func (l *link) isUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

func (l *link) send(payload []byte) error {
	d := l.w.between(50*time.Microsecond, 2*time.Millisecond)
	if l.w.fails(50) {
		d += l.w.between(0, 40*time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up {
		return errLinkDown
	}
	l.put(packet{at: time.Now().Add(d), gen: l.gen, payload: bytes.Clone(payload)})
	return nil
}

// put is called with mu held.
func (l *link) put(p packet) {
	if p.at.Before(l.last) {
		p.at = l.last
	}
	l.last = p.at
	l.q = append(l.q, p)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// cutOff adds a reason to be down; everything on the way is lost.
func (l *link) cutOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut++
	if l.up {
		l.up = false
		l.gen++
		l.q = nil
		l.down = time.Now()
	}
}

// mend takes a reason away. The sender hears of it when the last one is gone.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut--
	if l.cut > 0 {
		return
	}
	l.up = true
	l.put(packet{at: time.Now(), gen: l.gen, peerUp: true})
}

func (l *link) run() {
	for {
		l.mu.Lock()
		var p packet
		have := len(l.q) > 0
		if have {
			p = l.q[0]
		}
		l.mu.Unlock()
		if !have {
			select {
			case <-l.wake:
				continue
			case <-l.w.ctx.Done():
				return
			}
		}
		if d := time.Until(p.at); d > 0 {
			if !l.w.sleep(d) {
				return
			}
		}
		l.mu.Lock()
		ok := l.up && p.gen == l.gen && len(l.q) > 0
		if ok {
			l.q = l.q[1:]
		}
		l.mu.Unlock()
		if !ok {
			continue
		}
		l.deliver(p)
	}
}

func (l *link) deliver(p packet) {
	if p.peerUp {
		n := l.w.node(l.from)
		n.judge(l.to, false)
		if b := n.broker(); b != nil {
			b.PeerUp(l.to)
		}
		return
	}
	if b := l.w.node(l.to).broker(); b != nil {
		b.Receive(l.from, p.payload)
	}
}
