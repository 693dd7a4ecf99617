package scale

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

// sky is a network of real detectors: what each hears of the others, and the questions between them.
type sky struct {
	oneWay time.Duration
	calls  atomic.Int64

	mu    sync.Mutex
	stars map[transport.NodeID]*star
}

type star struct {
	s       *sky
	id      transport.NodeID
	det     *detector.Detector
	handler map[uint8]func(context.Context, transport.NodeID, []byte) ([]byte, error)
	changed func(transport.PeerStatus)
	gone    time.Time // zero while it lives
	killed  bool      // gone, and its port refuses

	dead map[transport.NodeID]time.Time // verdicts
}

// Peer implements detector.Network. Pings are answered at once: what counts is that they are answered.
func (n *star) Peer(id transport.NodeID) transport.PeerStatus {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	o := n.s.stars[id]
	st := transport.PeerStatus{Node: id, Up: true, LastAnswered: time.Now()}
	if !o.gone.IsZero() {
		st.LastAnswered, st.Up, st.Refused = o.gone, !o.killed, o.killed
	}
	return st
}

// OnPeerChange implements detector.Network.
func (n *star) OnPeerChange(f func(transport.PeerStatus)) { n.changed = f }

// HandleCall implements detector.Network.
func (n *star) HandleCall(method uint8, h func(context.Context, transport.NodeID, []byte) ([]byte, error)) {
	n.handler[method] = h
}

// Call implements detector.Network.
func (n *star) Call(ctx context.Context, to transport.NodeID, method uint8, request []byte) ([]byte, error) {
	n.s.calls.Add(1)
	n.s.mu.Lock()
	o := n.s.stars[to]
	gone, killed := !o.gone.IsZero(), o.killed
	n.s.mu.Unlock()
	switch {
	case killed:
		return nil, errors.New("refused")
	case gone:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(2 * n.s.oneWay):
		return o.handler[method](ctx, n.id, request)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// detection is what the detectors of a cluster did about some nodes that failed at once.
type detection struct {
	Nodes, Failed int
	Killed        bool          // rather than silent
	First, Last   time.Duration // until the first and the last survivor's last verdict
	Calls         int64         // questions in the whole cluster
	Wrong         int           // verdicts about nodes that live
	Missing       int           // verdicts that nobody gave
}

// runDetectors lets the last of n nodes fail and waits for the verdicts. It must be called in a bubble.
func runDetectors(n, failed int, killed bool, oneWay time.Duration) (detection, error) {
	s := &sky{oneWay: oneWay, stars: map[transport.NodeID]*star{}}
	var ids []transport.NodeID
	for i := range n {
		ids = append(ids, nodeName(i))
		s.stars[ids[i]] = &star{s: s, id: ids[i], handler: map[uint8]func(context.Context, transport.NodeID, []byte) ([]byte, error){}, dead: map[transport.NodeID]time.Time{}}
	}
	for _, st := range s.stars {
		var err error
		if st.det, err = detector.New(detector.Config{Local: st.id, Net: st, Logger: slog.New(slog.DiscardHandler)}); err != nil {
			return detection{}, err
		}
		defer func() { _ = st.det.Close() }() // nothing fails there
		st.det.Subscribe(func(e detector.Event) {
			if e.State == detector.Dead {
				s.mu.Lock()
				st.dead[e.Node] = e.At
				s.mu.Unlock()
			}
		})
	}
	for _, st := range s.stars {
		st.det.SetPeers(ids)
	}
	time.Sleep(time.Second)
	d := detection{Nodes: n, Failed: failed, Killed: killed}
	began, victims := time.Now(), ids[n-failed:]
	s.fail(victims, killed)
	time.Sleep(8 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	d.Calls = s.calls.Load()
	for _, id := range ids[:n-failed] {
		last := time.Duration(0)
		for node, at := range s.stars[id].dead {
			if !slices.Contains(victims, node) {
				d.Wrong++
			}
			last = max(last, at.Sub(began))
		}
		d.Missing += max(0, failed-len(s.stars[id].dead))
		if d.First == 0 || last < d.First {
			d.First = last
		}
		d.Last = max(d.Last, last)
	}
	return d, nil
}

func (s *sky) fail(victims []transport.NodeID, killed bool) {
	s.mu.Lock()
	var told []func(transport.PeerStatus)
	for _, st := range s.stars {
		if slices.Contains(victims, st.id) {
			st.gone, st.killed = time.Now(), killed
		} else if killed {
			told = append(told, st.changed)
		}
	}
	s.mu.Unlock()
	for _, f := range told {
		for _, v := range victims {
			f(transport.PeerStatus{Node: v, Refused: true})
		}
	}
}
