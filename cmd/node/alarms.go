package main

import (
	"context"
	"iter"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/cluster/alarm"
	"github.com/warrenmq/warren/transport"
)

// Bounds of alarms.
const (
	alarmPeriod = 500 * time.Millisecond // between two looks at disk and memory
	// collectEvery is how often garbage is collected by force while memory seems low:
	// what is garbage is not low memory.
	collectEvery = 5 * time.Second
	// memoryLimitMin is the least the Go runtime is told to stay below: with less it
	// would do nothing but collect garbage.
	memoryLimitMin = 128 << 20
)

// alarms watches this node's resources and keeps publishers away while any node
// is short of one.
type alarms struct {
	n     *running
	board *alarm.Board
	// others are the nodes that are told, and send tells one of them. Only one goroutine at a time tells, so that nobody hears an old word last.
	others    func() iter.Seq[transport.NodeID]
	send      func(to transport.NodeID, s alarm.Set)
	diskLow   atomic.Bool // the store has just touched its reserve
	peers     sync.Map    // of transport.NodeID: those that are linked, which the catalog may not have yet
	heard     sync.Map    // of transport.NodeID: those that have said what they are short of, if of anything
	linked    atomic.Bool // a link is up again: what was sent before may be lost, the end of an alarm too
	memory    alarm.Memory
	gauge     alarm.Gauge
	collected time.Time
	trim      trimmer
	told      time.Time // when the others were told last
	reason    string
	wake      chan struct{}
}

// listenForAlarms is done before other nodes can link with this one: they say at that moment what they are short of, and again every two seconds only.
func (n *running) listenForAlarms() {
	n.alarms = &alarms{
		n: n, board: alarm.NewBoard(time.Now), memory: alarm.Memory{Root: os.DirFS("/")}, wake: make(chan struct{}, 1),
		trim: trimmer{shed: n.store.Shed, fixed: os.Getenv("GOGC") != ""},
	}
}

// hear takes what another node says.
func (a *alarms) hear(from transport.NodeID, payload []byte) {
	s, err := alarm.Decode(payload)
	if err != nil {
		a.n.log.Error("undecodable alarm from peer", "node", from, "err", err)
		return
	}
	a.board.Heard(string(from), s)
	a.heard.Store(from, nil)
	a.poke()
}

// openAlarms gets ready to tell the others, and reads what this node has.
func (n *running) openAlarms() {
	a := n.alarms
	a.others = func() iter.Seq[transport.NodeID] {
		return a.linkedOr(func(yield func(transport.NodeID) bool) {
			for node := range n.catalog.Load().View().Nodes() {
				if !node.Superseded && node.ID != n.identity.NodeID() && !yield(node.ID) {
					return
				}
			}
		})
	}
	a.send = func(to transport.NodeID, s alarm.Set) {
		_ = n.mesh.Send(to, alarm.MessageKind, alarm.Encode(s)) // said again when the link is up
	}
	n.store.OnLow(func() {
		a.diskLow.Store(true)
		a.poke()
	})
	total, ok := a.memory.Total()
	if !ok {
		total = math.MaxUint64
		n.log.Warn("the system does not tell how much memory there is: only a size can be a memory watermark")
	}
	a.gauge.Watermark = n.cfg.MemoryHighWatermark.Of(total)
	a.trim.watermark = a.gauge.Watermark
	if os.Getenv("GOMEMLIMIT") == "" && a.gauge.Watermark < math.MaxInt64 {
		debug.SetMemoryLimit(int64(max(a.gauge.Watermark, memoryLimitMin)))
	}
	n.log.Info("memory watermark", "bytes", a.gauge.Watermark, "of", total)
	n.mesh.OnPeerChange(a.peerChanged)
}

// linkedOr are the nodes of the catalog, and those that are linked besides: one that joins the cluster.
func (a *alarms) linkedOr(catalog iter.Seq[transport.NodeID]) iter.Seq[transport.NodeID] {
	return func(yield func(transport.NodeID) bool) {
		known := map[transport.NodeID]bool{}
		for node := range catalog {
			if known[node] = true; !yield(node) {
				return
			}
		}
		a.peers.Range(func(node, _ any) bool {
			id := node.(transport.NodeID) //nolint:forcetypeassert // nothing else is stored
			return known[id] || yield(id)
		})
	}
}

// peerChanged has the alarms told again to a node that was out of reach.
func (a *alarms) peerChanged(p transport.PeerStatus) {
	if !p.Up {
		a.peers.Delete(p.Node)
		return
	}
	a.peers.Store(p.Node, nil)
	a.linked.Store(true)
	a.poke()
}

// born is told of each replica that begins.
func (a *alarms) born() {
	if a.trim.born() {
		a.poke()
	}
}

func (a *alarms) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// nodeDead drops the alarms of a node.
func (a *alarms) nodeDead(node string) {
	a.board.Forget(node)
	a.poke()
}

// watchResources looks after the alarms until the node closes.
func (n *running) watchResources() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { n.alarms.run(ctx) })
	n.onClose("alarms", func() error {
		cancel()
		wg.Wait()
		return nil
	})
}

func (a *alarms) run(ctx context.Context) {
	t := time.NewTicker(alarmPeriod)
	defer t.Stop()
	defer a.trim.end()
	a.look()
	for {
		a.tell(a.linked.Swap(false))
		a.apply()
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
			if a.diskLow.Swap(false) {
				a.set(alarm.DiskLow, a.n.store.DiskAlarm())
			}
		case <-t.C:
			a.look()
			a.trim.freed(time.Now(), a.n.host.Dozed())
		}
		a.trim.look(time.Now())
	}
}

// look reads disk and memory.
func (a *alarms) look() {
	a.set(alarm.DiskLow, a.n.store.DiskAlarm())
	used := a.memory.Used()
	low := a.gauge.Read(used)
	if low && time.Since(a.collected) > collectEvery {
		runtime.GC()
		a.collected = time.Now()
		used = a.memory.Used()
		low = a.gauge.Read(used)
	}
	if a.set(alarm.MemoryLow, low) {
		a.n.log.Warn("memory", "used_bytes", used, "watermark_bytes", a.gauge.Watermark)
	}
}

// set notes a resource of this node; the others learn of a change at once.
func (a *alarms) set(s alarm.Set, on bool) (changed bool) {
	if changed = a.board.SetLocal(s, on); changed {
		a.n.log.Warn("alarm", "reason", s.Reason(), "set", on)
		a.tell(true)
	}
	return changed
}

// tell sends this node's alarms to the others when they are due, or now. It runs on the goroutine of run.
func (a *alarms) tell(now bool) {
	local := a.board.Local()
	if !now && (local == 0 || time.Since(a.told) < alarm.Repeat) {
		return
	}
	a.told = time.Now()
	for node := range a.others() {
		a.send(node, local)
	}
}

// apply blocks or frees publishers.
func (a *alarms) apply() {
	all := a.board.All()
	if reason := all.Reason(); reason != a.reason {
		a.n.log.Warn("publishers", "blocked", reason != "", "reason", reason)
		a.reason = reason
		a.n.amqp.SetBlocked(reason)
		a.n.grpc.SetBlocked(reason, all == alarm.MemoryLow)
	}
}
