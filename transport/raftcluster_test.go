package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// tape is a state machine that keeps what it applied.
type tape struct {
	mu      sync.Mutex
	applied []string
}

func (f *tape) Apply(l *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = append(f.applied, string(l.Data))
	return nil
}

func (f *tape) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.applied...)
}

func (f *tape) Snapshot() (raft.FSMSnapshot, error) { return tapeSnapshot(f.all()), nil }

func (f *tape) Restore(r io.ReadCloser) error {
	defer r.Close()
	var all []string
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = all
	return nil
}

type tapeSnapshot []string

func (s tapeSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode([]string(s)); err != nil {
		sink.Cancel()
		return err
	}
	return sink.Close()
}
func (tapeSnapshot) Release() {}

// replica is one raft instance of a group on a node.
type replica struct {
	*raft.Raft
	rt    *RaftTransport
	fsm   *tape
	store *raft.InmemStore
	snaps *raft.InmemSnapshotStore
}

func quickRaft(id NodeID) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.HeartbeatTimeout, c.ElectionTimeout = 300*time.Millisecond, 300*time.Millisecond
	c.LeaderLeaseTimeout, c.CommitTimeout = 150*time.Millisecond, 10*time.Millisecond
	c.Logger = hclog.NewNullLogger()
	c.NoLegacyTelemetry = true
	return c
}

// startReplica starts group g on m with the given members.
func startReplica(t testing.TB, m *Mesh, g GroupID, change func(*raft.Config), members ...NodeID) *replica {
	t.Helper()
	r := &replica{fsm: &tape{}, store: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore()}
	var conf raft.Configuration
	for _, id := range members {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	rc := quickRaft(m.cfg.Local)
	if change != nil {
		change(rc)
	}
	r.rt = m.Raft(g, 0)
	if len(members) > 0 {
		if err := raft.BootstrapCluster(rc, r.store, r.store, r.snaps, r.rt, conf); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if r.Raft, err = raft.NewRaft(rc, r.fsm, r.store, r.store, r.snaps, r.rt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	return r
}

// stop follows the order that package documentation asks for.
func (r *replica) stop() {
	r.rt.Close()
	r.Shutdown().Error()
}

// trio starts three nodes that reach each other through proxies.
type trio struct {
	dir    *directory
	ids    []NodeID
	meshes []*Mesh
	// proxies[i][j] leads from node i to node j.
	proxies [3][3]*proxy
}

func startTrio(t testing.TB, change func(*Config)) *trio {
	t.Helper()
	c := &trio{dir: &directory{}, ids: []NodeID{"n1/u1", "n2/u2", "n3/u3"}}
	for _, id := range c.ids {
		c.meshes = append(c.meshes, startMesh(t, c.dir, id, change))
	}
	for i, from := range c.ids {
		for j, to := range c.ids {
			if i != j {
				c.proxies[i][j] = startProxy(t, c.meshes[j].cfg.Listener.Addr().String())
				c.dir.set(from, to, c.proxies[i][j].addr())
			}
		}
	}
	for i, m := range c.meshes {
		m.SetPeers(c.ids)
		for j, id := range c.ids {
			if i != j {
				untilUp(t, m, id)
			}
		}
	}
	return c
}

// isolate cuts a node off, or lets it back in.
func (c *trio) isolate(n int, off bool) {
	for i := range c.ids {
		if i == n {
			continue
		}
		for _, p := range []*proxy{c.proxies[i][n], c.proxies[n][i]} {
			if off {
				p.cut(true)
			} else {
				p.open()
			}
		}
	}
}

// leader waits for a leader among replicas and returns its place.
func leader(t testing.TB, replicas []*replica) int {
	t.Helper()
	found := -1
	until(t, "there is a leader", func() bool {
		for i, r := range replicas {
			if r != nil && r.State() == raft.Leader {
				found = i
				return true
			}
		}
		return false
	})
	return found
}

// apply proposes until it succeeds under some leader.
func apply(t testing.TB, replicas []*replica, data string) {
	t.Helper()
	until(t, "apply "+data, func() bool {
		for _, r := range replicas {
			if r != nil && r.State() == raft.Leader && r.Apply([]byte(data), time.Second).Error() == nil {
				return true
			}
		}
		return false
	})
}

// sameTape waits until all replicas have applied the same, and n commands in it: apply may say one twice when it does
// not hear what became of the first.
func sameTape(t testing.TB, replicas []*replica, n int) {
	t.Helper()
	until(t, "replicas agree", func() bool {
		first := replicas[0].fsm.all()
		kinds := map[string]bool{}
		for _, e := range first {
			kinds[e] = true
		}
		for _, r := range replicas {
			if !slices.Equal(r.fsm.all(), first) {
				return false
			}
		}
		return len(kinds) == n
	})
}

func (c *trio) startGroup(t testing.TB, g GroupID, change func(*raft.Config)) []*replica {
	t.Helper()
	var rs []*replica
	for _, m := range c.meshes {
		rs = append(rs, startReplica(t, m, g, change, c.ids...))
	}
	return rs
}

// A voter that does not know yet that another replica has become one votes for it all the same: these two may be the majority that is
// left (ADR 48).
func TestVoterThatMissedAPromotion(t *testing.T) {
	c := startTrio(t, nil)
	patient := func(c *raft.Config) {
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 5*time.Second, 5*time.Second, 5*time.Second
	}
	rs := []*replica{
		startReplica(t, c.meshes[0], 2, patient, c.ids[:2]...), startReplica(t, c.meshes[1], 2, patient, c.ids[:2]...), startReplica(t, c.meshes[2], 2, patient),
	}
	until(t, "injection", func() bool { return rs[0].rt.InjectTimeoutNow() == nil })
	until(t, "a leader", func() bool { return rs[0].State() == raft.Leader })
	third := raft.ServerID(c.ids[2])
	if err := rs[0].AddNonvoter(third, raft.ServerAddress(third), 0, time.Minute).Error(); err != nil {
		t.Fatal(err)
	}
	apply(t, rs[:1], "e1")
	sameTape(t, rs, 1)
	c.isolate(1, true)
	if err := rs[0].AddVoter(third, raft.ServerAddress(third), 0, time.Minute).Error(); err != nil {
		t.Fatal(err)
	}
	rs[0].stop()
	c.isolate(1, false)
	until(t, "the promoted replica leads", func() bool {
		if rs[2].State() == raft.Follower {
			_ = rs[2].rt.InjectTimeoutNow() // tried again
		}
		return rs[2].State() == raft.Leader
	})
	apply(t, rs[1:], "e2")
	sameTape(t, rs[1:], 2)
}

func TestThreeNodesElectReplicateAndSurviveLostLinks(t *testing.T) {
	c := startTrio(t, nil)
	rs := c.startGroup(t, 2, nil)
	n := 0
	more := func(k int) {
		for range k {
			n++
			apply(t, rs, fmt.Sprint("e", n))
		}
	}
	leader(t, rs)
	more(20)
	sameTape(t, rs, n)
	for range 3 {
		l := leader(t, rs)
		for j := range c.ids {
			if j != l {
				c.proxies[l][j].cut(false)
			}
		}
		more(5)
	}
	old := leader(t, rs)
	c.isolate(old, true)
	rest := append([]*replica{}, rs...)
	rest[old] = nil
	leader(t, rest)
	n++
	apply(t, rest, fmt.Sprint("e", n))
	c.isolate(old, false)
	more(5)
	sameTape(t, rs, n)
}

func TestLaggingFollowerGetsASnapshot(t *testing.T) {
	c := startTrio(t, nil)
	rs := c.startGroup(t, 2, func(rc *raft.Config) { rc.TrailingLogs = 2; rc.SnapshotThreshold = 1 << 40 })
	l := leader(t, rs)
	lag := (l + 1) % 3
	c.isolate(lag, true)
	rest := append([]*replica{}, rs...)
	rest[lag] = nil
	n := 50
	for i := range n {
		apply(t, rest, fmt.Sprintf("%d-%01000d", i, i))
	}
	for i, r := range rs {
		if i != lag {
			if err := r.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.isolate(lag, false)
	apply(t, rs, "after")
	sameTape(t, rs, n+1)
	if got := c.meshes[lag].Stats().SnapshotsReceived; got == 0 {
		t.Fatal("no snapshot was received")
	}
}

func TestManyGroupsShareOneLink(t *testing.T) {
	// On a starved machine a link may be silent for long, and is not to be made again.
	c := startTrio(t, func(cfg *Config) { cfg.SilenceMax = time.Minute })
	const groups = 200
	slow := func(rc *raft.Config) {
		rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = 20*time.Second, 20*time.Second, 10*time.Second
		rc.CommitTimeout = 5 * time.Second
	}
	all := make([][]*replica, groups)
	for g := range all {
		all[g] = c.startGroup(t, GroupID(g+2), slow)
	}
	// Nobody waits for timers: elections are injected.
	for g, rs := range all {
		until(t, "injection", func() bool { return rs[g%3].rt.InjectTimeoutNow() == nil })
	}
	for g, rs := range all {
		until(t, "injected leader", func() bool { return rs[g%3].State() == raft.Leader })
	}
	var wg sync.WaitGroup
	for g, rs := range all {
		wg.Go(func() {
			for i := range 20 {
				if err := rs[g%3].Apply(fmt.Appendf(nil, "g%d-%d", g, i), 5*time.Second).Error(); err != nil {
					t.Errorf("group %d: %v", g, err)
				}
			}
		})
	}
	wg.Wait()
	for _, rs := range all {
		rs[0].Barrier(0)
		rs[1].Barrier(0)
		rs[2].Barrier(0)
		sameTape(t, rs, 20)
	}
	for _, m := range c.meshes {
		if s := m.Stats(); s.LinksMade != 2 || s.RaftBusy != 0 || s.Groups != groups {
			t.Errorf("%s: %+v", m.cfg.Local, s)
		}
	}
}

func TestInjectAtMovesTheLeader(t *testing.T) {
	c := startTrio(t, nil)
	rs := c.startGroup(t, 2, func(rc *raft.Config) {
		patient(rc)
		rc.CommitTimeout = 10 * time.Millisecond // followers learn of a commit by what comes after it
	})
	until(t, "injection", func() bool { return rs[0].rt.InjectTimeoutNow() == nil })
	l := leader(t, rs)
	apply(t, rs, "x")
	sameTape(t, rs, 1)
	to := (l + 1) % 3
	if err := c.meshes[l].InjectAt(withTimeout(t, 30*time.Second), ReplicaID(c.ids[to]), 2); err != nil {
		t.Fatal(err)
	}
	until(t, "the leader moved", func() bool { return rs[to].State() == raft.Leader })
	err := c.meshes[l].InjectAt(withTimeout(t, 30*time.Second), ReplicaID(c.ids[to]), 77)
	if !errors.Is(err, ErrUnknownGroup) {
		t.Fatalf("InjectAt an unknown group = %v", err)
	}
	if err := c.meshes[l].InjectAt(withTimeout(t, 30*time.Second), ReplicaID(c.ids[l]), 77); !errors.Is(err, ErrUnknownGroup) {
		t.Fatalf("local InjectAt an unknown group = %v", err)
	}
}
