package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// refs is a machine like a queue's: it refers to the newest entries by index and lets
// the older ones go. Bodies stay in the log.
type refs struct {
	keep int

	mu       sync.Mutex
	live     []uint64
	bytes    int64 // applied since the last snapshot
	restored int
}

func (m *refs) Apply(e Entry) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = append(m.live, e.Index)
	if len(m.live) > m.keep {
		m.live = m.live[1:]
	}
	m.bytes += int64(len(e.Data))
	return nil
}

func (m *refs) Snapshot() (func() ([]byte, []store.Range), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes = 0
	live := slices.Clone(m.live)
	return func() ([]byte, []store.Range) {
		var b []byte
		var pins []store.Range
		for _, i := range live {
			b = binary.AppendUvarint(b, i)
			if n := len(pins); n > 0 && pins[n-1].Last+1 == i {
				pins[n-1].Last = i
				continue
			}
			pins = append(pins, store.Range{First: i, Last: i})
		}
		return b, pins
	}, nil
}

func (m *refs) Restore(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live, m.bytes = nil, 0
	m.restored++
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return errors.New("malformed manifest")
		}
		m.live = append(m.live, v)
		b = b[n:]
	}
	return nil
}

func (m *refs) Reclaimable() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

func (m *refs) state() (live []uint64, restored int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.live), m.restored
}

// bodies reads every live entry back.
func bodies(g *Group, m *refs) ([]string, error) {
	live, _ := m.state()
	var all []string
	for _, i := range live {
		b, err := g.Read(i)
		if err != nil {
			return nil, err
		}
		all = append(all, string(b))
	}
	return all, nil
}

// A follower that slept through a compaction gets manifest and bodies from the leader,
// and has both after its own restart.
func TestBodiesReachALaggingFollower(t *testing.T) {
	p := eager()
	c := newRealCluster(t, diskStorage(t), p)
	spec := Spec{ID: queueA, Members: c.ids, Preferred: c.ids[0], Bootstrap: true}
	machines := make(map[transport.NodeID]*refs)
	begin := func(id transport.NodeID) *Group {
		machines[id] = &refs{keep: 40}
		g, err := c.nodes[id].host.Start(spec, machines[id], nil)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	lead := begin(c.ids[0])
	lead.host.cfg.TrailingBytes = 1 // compact everything behind a snapshot
	begin(c.ids[1])
	begin(c.ids[2])
	waitFor(t, 30*time.Second, "no leader", lead.IsLeader)
	write := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := propose(lead, fmt.Sprintf("body %d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 20)
	late := c.ids[2]
	n := c.nodes[late]
	delete(c.nodes, late)
	n.close(t)
	write(20, 100)
	if err := lead.Snapshot(); err != nil {
		t.Fatal(err)
	}
	write(100, 110)
	var l raft.Log
	if err := lead.log.GetLog(50, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatalf("entry 50 is still in the log: %v", err)
	}
	var want []string
	for i := 70; i < 110; i++ {
		want = append(want, fmt.Sprintf("body %d", i))
	}
	for round := range 2 {
		c.boot(late)
		g := begin(late)
		waitFor(t, time.Minute, "the follower does not catch up", func() bool {
			all, err := bodies(g, machines[late])
			return err == nil && slices.Equal(all, want)
		})
		if _, restored := machines[late].state(); restored == 0 {
			t.Errorf("round %d: the follower was not given a snapshot", round)
		}
		n := c.nodes[late]
		delete(c.nodes, late)
		n.close(t)
	}
	if all, err := bodies(lead, machines[c.ids[0]]); err != nil || !slices.Equal(all, want) {
		t.Errorf("the leader reads %d bodies, %v", len(all), err)
	}
}

// A crash between raft's two writes of a vote must not leave a vote for the candidate of
// the term before: raft would grant it again without comparing logs.
func TestHalfWrittenVote(t *testing.T) {
	open := diskStorage(t)
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOver(t, open, 3, nil)
		defer c.close()
		spec := Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true}
		c.found(spec)
		g := c.waitLeader(queueA, time.Second)
		for range 5 {
			if _, err := propose(g, "x"); err != nil {
				t.Fatal(err)
			}
		}
		_, term, _ := g.Leader() // n1 has voted for n0 in it, or nobody needed it to
		c.kill("n0")
		c.kill("n1")
		disk, closer := open("n1")
		log := disk.Group(queueA)
		if err := log.Set([]byte("LastVoteCand"), []byte("n0")); err != nil {
			t.Fatal(err)
		}
		if err := log.SetUint64([]byte("LastVoteTerm"), term+100); err != nil {
			t.Fatal(err)
		}
		// Here the process dies: the candidate of the new term was never written.
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
		n := c.boot("n1")
		n.start(t, spec)
		answer := make(chan raft.RPCResponse, 1)
		n.link.wire(queueA).inbox <- raft.RPC{RespChan: answer, Command: &raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n0"), Addr: []byte("n0")},
			Term:      term + 100, LastLogIndex: 1, LastLogTerm: 1, LeadershipTransfer: true,
		}}
		a := <-answer
		if v := a.Response.(*raft.RequestVoteResponse); a.Error != nil || v.Granted {
			t.Errorf("a candidate without the log is granted %v, error %v", v.Granted, a.Error)
		}
	})
}
