package store

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// keeperFSM keeps every third entry alive; its manifest is their list.
type keeperFSM struct {
	mu   sync.Mutex
	live map[uint64]bool
	last uint64
}

func (f *keeperFSM) Apply(l *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = l.Index
	if l.Index%3 == 0 {
		f.live[l.Index] = true
	}
	return nil
}

func (f *keeperFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return listSnapshot(slices.Sorted(maps.Keys(f.live))), nil
}

func (f *keeperFSM) Restore(r io.ReadCloser) error {
	m, err := ReadManifest(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = make(map[uint64]bool)
	for ; len(m) > 0; m = m[8:] {
		f.last = binary.LittleEndian.Uint64(m)
		f.live[f.last] = true
	}
	return nil
}

type listSnapshot []uint64

func (l listSnapshot) Persist(k raft.SnapshotSink) error {
	var m []byte
	var pins []Range
	for _, i := range l {
		m = binary.LittleEndian.AppendUint64(m, i)
		pins = append(pins, Range{i, i})
	}
	return k.(ManifestSink).WriteManifest(m, pins)
}

func (listSnapshot) Release() {}

// trio is a real Raft group of three on three stores.
type trio struct {
	t     *testing.T
	ids   []string
	nodes map[string]*node
}

type node struct {
	store *Store
	group *Group
	fsm   *keeperFSM
	trans *raft.InmemTransport
	raft  *raft.Raft
}

const trioGroup = 42

func newTrio(t *testing.T) *trio {
	c := &trio{t: t, ids: []string{"a", "b", "c"}, nodes: make(map[string]*node)}
	var conf raft.Configuration
	for _, id := range c.ids {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	for _, id := range c.ids {
		n := &node{store: openTest(t, Options{Dir: t.TempDir(), SegmentBytes: segmentBytesMin, TailCacheBytes: 1 << 10})}
		c.nodes[id] = n
		n.group = n.store.Group(trioGroup)
		_, n.trans = raft.NewInmemTransport(raft.ServerAddress(id))
		if err := raft.BootstrapCluster(c.config(id), n.group, n.group, n.group.Snapshots(), n.trans, conf); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range c.ids {
		c.start(id)
	}
	c.heal()
	t.Cleanup(func() {
		for _, id := range c.ids {
			c.stop(id)
		}
	})
	return c
}

func (c *trio) config(id string) *raft.Config {
	cf := raft.DefaultConfig()
	cf.LocalID = raft.ServerID(id)
	// Nobody leads or ceases to because the machine is starved: c.leader asks for elections.
	cf.HeartbeatTimeout, cf.ElectionTimeout = 20*time.Second, 20*time.Second
	cf.LeaderLeaseTimeout, cf.CommitTimeout = 20*time.Second, 5*time.Millisecond
	cf.SnapshotInterval, cf.SnapshotThreshold, cf.TrailingLogs = time.Hour, 1<<40, 0
	cf.NoLegacyTelemetry = true
	cf.Logger = hclog.NewNullLogger()
	return cf
}

// start makes the node's Raft instance on its store as it is.
func (c *trio) start(id string) {
	c.t.Helper()
	n := c.nodes[id]
	n.fsm = &keeperFSM{live: make(map[uint64]bool)}
	r, err := raft.NewRaft(c.config(id), n.fsm, n.group, n.group, n.group.Snapshots(), n.trans)
	if err != nil {
		c.t.Fatal(err)
	}
	n.raft = r
}

func (c *trio) stop(id string) {
	if err := c.nodes[id].raft.Shutdown().Error(); err != nil {
		c.t.Errorf("shutdown %s: %v", id, err)
	}
}

// restart stops a node, reopens its store and starts it again.
func (c *trio) restart(id string) {
	c.t.Helper()
	n := c.nodes[id]
	c.stop(id)
	n.store = reopen(c.t, n.store)
	n.group = n.store.Group(trioGroup)
	c.start(id)
}

func (c *trio) cut(id string) {
	for _, other := range c.ids {
		if other != id {
			c.nodes[id].trans.Disconnect(raft.ServerAddress(other))
			c.nodes[other].trans.Disconnect(raft.ServerAddress(id))
		}
	}
}

func (c *trio) heal() {
	for _, a := range c.ids {
		for _, b := range c.ids {
			if a != b {
				c.nodes[a].trans.Connect(raft.ServerAddress(b), c.nodes[b].trans)
			}
		}
	}
}

// eventually polls an observable condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// leader waits for a leader among ids, and has them elect one.
func (c *trio) leader(ids ...string) (leader string) {
	c.t.Helper()
	var asked time.Time
	next := 0
	eventually(c.t, fmt.Sprint("a leader among ", ids), func() bool {
		for _, id := range ids {
			if c.nodes[id].raft.State() == raft.Leader {
				leader = id
				return c.nodes[id].raft.VerifyLeader().Error() == nil
			}
		}
		if time.Since(asked) > time.Second {
			asked = time.Now()
			from, to := ids[(next+1)%len(ids)], ids[next%len(ids)]
			next++
			// Who cannot be elected does not matter, and neither does who does not answer: the next one is asked.
			_ = c.nodes[from].trans.TimeoutNow(raft.ServerID(to), raft.ServerAddress(to), &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
				ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from), Addr: []byte(from),
			}}, new(raft.TimeoutNowResponse))
		}
		return false
	})
	return leader
}

func (c *trio) apply(id string, n int) {
	c.t.Helper()
	var last raft.ApplyFuture
	for i := range n {
		last = c.nodes[id].raft.Apply(fmt.Appendf(nil, "entry %d with %0*d", i, 500, i), 10*time.Second)
	}
	if err := last.Error(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) snapshot(id string) {
	c.t.Helper()
	if err := c.nodes[id].raft.Snapshot().Error(); err != nil {
		c.t.Fatal(err)
	}
}

// agree waits until the nodes have applied what id has, and compares their states and the bodies of everything alive.
func (c *trio) agree(id string, others ...string) {
	c.t.Helper()
	n := c.nodes[id]
	want := n.raft.AppliedIndex()
	for _, o := range others {
		m := c.nodes[o]
		eventually(c.t, fmt.Sprintf("%s at %d, is at %d", o, want, m.raft.AppliedIndex()), func() bool { return m.raft.AppliedIndex() >= want })
		eventually(c.t, o+" has the same state", func() bool {
			n.fsm.mu.Lock()
			m.fsm.mu.Lock()
			defer n.fsm.mu.Unlock()
			defer m.fsm.mu.Unlock()
			return maps.Equal(n.fsm.live, m.fsm.live)
		})
		for i := range n.fsm.live {
			a, err := n.group.Read(i)
			if err != nil {
				c.t.Fatalf("%s lost %d: %v", id, i, err)
			}
			b, err := m.group.Read(i)
			if err != nil || string(a) != string(b) {
				c.t.Fatalf("%s reads %d as %q, %v; %s has %q", o, i, b, err, id, a)
			}
		}
	}
}

func (c *trio) others(id string) (out []string) {
	for _, o := range c.ids {
		if o != id {
			out = append(out, o)
		}
	}
	return out
}

func TestRaftFeedsLaggingFollowerBySnapshot(t *testing.T) {
	c := newTrio(t)
	l := c.leader(c.ids...)
	rest := c.others(l)
	c.apply(l, 100)
	c.agree(l, rest...)
	c.cut(rest[1])
	c.apply(l, 100)
	c.snapshot(l)
	c.apply(l, 20)
	if f, _ := c.nodes[l].group.FirstIndex(); f < 200 {
		t.Fatalf("log begins at %d after a snapshot", f)
	}
	c.heal()
	l = c.leader(c.ids...)
	c.agree(l, c.others(l)...)
	for _, id := range c.ids {
		c.restart(id)
	}
	c.heal()
	l = c.leader(c.ids...)
	c.apply(l, 10)
	c.snapshot(l)
	c.agree(l, c.others(l)...)
}

// TestRaftDivergentTail is hashicorp/raft#697: a deposed leader with a tail of its own gets a snapshot, leads again, and
// feeds a follower that knows nothing of it. The tail ends before, at, or beyond the snapshot's index; at it, the Raft
// instance has to be made anew.
func TestRaftDivergentTail(t *testing.T) {
	for name, tail := range map[string]int{"shorter": 10, "equal": 60, "longer": 300} {
		t.Run(name, func(t *testing.T) {
			c := newTrio(t)
			old := c.leader(c.ids...)
			rest := c.others(old)
			c.apply(old, 20)
			c.agree(old, rest...)
			c.cut(old)
			for i := range tail {
				c.nodes[old].raft.Apply(fmt.Appendf(nil, "lost %d", i), time.Second)
			}
			eventually(t, "the tail is written", func() bool {
				last, err := c.nodes[old].group.LastIndex()
				return err == nil && (last >= 20+uint64(tail) || c.nodes[old].raft.State() != raft.Leader)
			})
			l := c.leader(rest...)
			lagging := rest[0]
			if lagging == l {
				lagging = rest[1]
			}
			c.apply(l, 20)
			oldLast, err := c.nodes[old].group.LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			if want := c.nodes[l].raft.LastIndex(); name == "equal" && want < oldLast {
				c.apply(l, int(oldLast-want))
			} else {
				c.apply(l, 80)
			}
			c.agree(l, lagging)
			c.snapshot(l)
			c.apply(l, 5)
			c.heal()
			if name == "equal" {
				eventually(t, "the tail is stale", c.nodes[old].group.TakeStaleTail)
				c.stop(old) // also closes its connections
				c.start(old)
				c.heal()
			}
			c.agree(l, old)
			if c.nodes[old].group.TakeStaleTail() {
				t.Error("the tail is stale")
			}

			// The healed one leads and serves a follower whose log ends before the snapshot.
			l = c.leader(c.ids...)
			for l != old {
				_ = c.nodes[l].raft.LeadershipTransferToServer(raft.ServerID(old), raft.ServerAddress(old)).Error()
				l = c.leader(c.ids...)
			}
			c.cut(lagging)
			c.stop(lagging)
			n := c.nodes[lagging]
			if err := n.store.DeleteGroup(trioGroup); err != nil {
				t.Fatal(err)
			}
			n.group = n.store.Group(trioGroup)
			c.start(lagging)
			c.apply(old, 5)
			c.heal()
			c.agree(old, lagging)
			c.apply(old, 5)
			c.agree(old, c.others(old)...)
		})
	}
}
