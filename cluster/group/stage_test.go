package group

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// heldDisk is a disk of which syncs of files wait while it is held.
type heldDisk struct {
	store.OSFS
	mu sync.Mutex
}

type heldFile struct {
	store.File
	d *heldDisk
}

func (d *heldDisk) wrap(f store.File, err error) (store.File, error) {
	if err != nil {
		return nil, err
	}
	return heldFile{f, d}, nil
}

func (d *heldDisk) Open(name string) (store.File, error)   { return d.wrap(d.OSFS.Open(name)) }
func (d *heldDisk) Create(name string) (store.File, error) { return d.wrap(d.OSFS.Create(name)) }

func (f heldFile) Fdatasync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.File.Fdatasync()
}

// heldStorage opens segment logs on disks that the test can hold.
func heldStorage(t testing.TB) (opener, map[transport.NodeID]*heldDisk) {
	dir := t.TempDir()
	disks := make(map[transport.NodeID]*heldDisk)
	return func(id transport.NodeID) (Storage, io.Closer) {
		disks[id] = &heldDisk{}
		s, err := store.Open(store.Options{
			Dir: filepath.Join(dir, strings.ReplaceAll(string(id), "/", "-")), FS: disks[id], Logger: testLogger().With("on", id),
			OnFatal: func(err error) { t.Errorf("store of %s: %v", id, err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return OverStore(s), s
	}, disks
}

// confirm is the answer to a proposal.
func confirm(g *Group, text string) <-chan error {
	done := make(chan error, 1)
	g.Propose([]byte(text), func(_ any, err error) { done <- err })
	return done
}

func notYet(t *testing.T, what string, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		t.Fatalf("%s: answered with %v", what, err)
	case <-time.After(100 * time.Millisecond):
	}
}

func confirmed(t *testing.T, what string, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s: no answer", what)
	}
}

// leaderOf returns the leader of a group and the other nodes.
func (c *realCluster) leaderOf(id transport.GroupID) (leader *Group, others []*realNode) {
	c.t.Helper()
	waitFor(c.t, time.Minute, "nobody leads", func() bool {
		leader, others = nil, nil
		for _, n := range c.nodes {
			if g, ok := n.host.Group(id); ok && g.IsLeader() {
				leader = g
			} else {
				others = append(others, n)
			}
		}
		return leader != nil
	})
	return leader, others
}

// has tells whether a node's log holds an entry with a text, durable or not.
func (n *realNode) has(id transport.GroupID, text string) bool {
	g, ok := n.host.Group(id)
	if !ok {
		return false
	}
	last, err := g.log.LastIndex()
	if err != nil {
		return false
	}
	for i := last; i > 0; i-- { // a barrier may follow
		if b, err := g.log.Read(i); err == nil && string(b) == text {
			return true
		}
	}
	return false
}

// Leader and followers sync at the same time; an entry is committed when a quorum has, the leader among it.
func TestCommitWaitsForTheDisksOfAQuorum(t *testing.T) {
	open, disks := heldStorage(t)
	c := newRealCluster(t, open, QueueProfile())
	c.found(1)
	leader, others := c.leaderOf(queueA)
	local := disks[leader.host.cfg.Local]
	for round := range 2 { // the second one with pipelines
		if round == 1 {
			confirmed(t, "before", confirm(leader, strings.Repeat("x", 2*warmBytes)))
		}
		local.mu.Lock()
		text := strings.Repeat("leader", round+1)
		answer := confirm(leader, text)
		for _, n := range others {
			waitFor(t, time.Minute, "it was not sent before the leader's sync", func() bool { return n.has(queueA, text) })
		}
		notYet(t, "not durable at the leader", answer)
		local.mu.Unlock()
		confirmed(t, "durable everywhere", answer)

		for _, n := range others {
			disks[n.id].mu.Lock()
		}
		text = strings.Repeat("followers", round+1)
		answer = confirm(leader, text)
		for _, n := range others {
			waitFor(t, time.Minute, "the followers do not have it", func() bool { return n.has(queueA, text) })
		}
		notYet(t, "durable at the leader alone", answer)
		disks[others[round].id].mu.Unlock()
		confirmed(t, "durable at two of three", answer)
		disks[others[1-round].id].mu.Unlock()
	}
}

// A replica that is the only voter waits for its own disk: there is nobody whose answer could.
func TestOnlyVoterWaitsForItsDisk(t *testing.T) {
	open, disks := heldStorage(t)
	c := newRealCluster(t, open, QueueProfile())
	one := c.nodes[c.ids[0]]
	one.start(t, Spec{ID: queueA, Members: c.ids[:1], Preferred: c.ids[0], Bootstrap: true})
	c.commitAll([]transport.GroupID{queueA}, "first", time.Minute)
	c.found3(queueA + 1)
	for _, id := range []transport.GroupID{queueA, queueA + 1} {
		leader, others := c.leaderOf(id)
		if id == queueA+1 { // the others leave
			for _, n := range others {
				if err := leader.RemoveServer(context.Background(), transport.Replica(n.id, 0), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		disk := disks[leader.host.cfg.Local]
		disk.mu.Lock()
		answer := confirm(leader, "alone")
		notYet(t, "not durable anywhere", answer)
		disk.mu.Unlock()
		confirmed(t, "durable", answer)
	}
	// With a second voter it counts by answers again.
	leader, others := c.leaderOf(queueA + 1)
	if err := leader.AddVoter(context.Background(), transport.Replica(others[0].id, 0), 0); err != nil {
		t.Fatal(err)
	}
	disk := disks[leader.host.cfg.Local]
	disk.mu.Lock()
	answer := confirm(leader, "two")
	waitFor(t, time.Minute, "it was not sent before the leader's sync", func() bool { return others[0].has(queueA+1, "two") })
	notYet(t, "durable at the other alone", answer)
	disk.mu.Unlock()
	confirmed(t, "durable at both", answer)
}

// found3 starts a group on all nodes and waits for a commit.
func (c *realCluster) found3(id transport.GroupID) {
	c.t.Helper()
	for _, n := range c.nodes {
		n.start(c.t, Spec{ID: id, Members: c.ids, Preferred: c.ids[0], Bootstrap: true})
	}
	c.commitAll([]transport.GroupID{id}, "first", 60*time.Second)
}

// apartOnly is a wire that has got one entry, whose data is damaged or not.
type apartOnly struct {
	body transport.Body
	from uint64
}

func (apartOnly) DataApart(transport.Checksum)         {}
func (apartOnly) Arrived([]*raft.Log) []transport.Body { return nil }
func (w apartOnly) ArrivedFrom(i uint64) []transport.Body {
	if i > w.from {
		return nil
	}
	return []transport.Body{w.body}
}

// TestDamageBeforeADeletion: nothing is deleted for an entry that cannot be stored, because raft would go on as if it were there.
func TestDamageBeforeADeletion(t *testing.T) {
	s, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log := s.Group(1)
	for i := uint64(1); i <= 5; i++ {
		if err := log.StoreLog(&raft.Log{Index: i, Term: 1, Data: []byte("old")}); err != nil {
			t.Fatal(err)
		}
	}
	w := apartOnly{body: transport.Body{Pieces: [][]byte{[]byte("ne"), []byte("w")}, Sum: 1, Summed: true}, from: 4}
	l := &stagedLog{LogStore: log, bodies: log, wire: w}
	if err := l.DeleteRange(4, 5); !errors.Is(err, store.ErrDamagedBody) {
		t.Errorf("deleting for a damaged entry: %v", err)
	}
	if last, err := log.LastIndex(); last != 5 || err != nil {
		t.Errorf("the log ends at %d, %v", last, err)
	}
	w.body.Summed = false
	l.wire = w
	if err := l.DeleteRange(4, 5); err != nil {
		t.Errorf("deleting for a sound entry: %v", err)
	}
}

// TestWhatReplacesATailCannotBeStored: a follower has cut off what its leader does not have, and cannot store what came in its place. raft goes on as if nothing were cut off, and
// would refuse every entry from then on.
func TestWhatReplacesATailCannotBeStored(t *testing.T) {
	stores := memStorage(t)
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOver(t, stores, 3, nil)
		defer c.close()
		c.found(Spec{ID: queueA, Preferred: "n0"})
		old := c.waitLeader(queueA, time.Minute)
		want := []string{"before"}
		if _, err := propose(old, want[0]); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, want)
		id := old.host.cfg.Local
		s, _ := stores(id)
		disk := s.Group(queueA).(*memLog)
		c.net.isolate(id, true)
		lost := confirm(old, "lost")
		waitFor(t, time.Minute, "it is in the log of the old leader", func() bool {
			disk.mu.Lock()
			defer disk.mu.Unlock()
			for _, e := range disk.entries {
				if string(e.Data) == "lost" {
					return true
				}
			}
			return false
		})
		next := c.waitLeader(queueA, time.Minute, id)
		want = append(want, "after")
		if _, err := propose(next, "after"); err != nil {
			t.Fatal(err)
		}
		disk.mu.Lock()
		disk.refuse = errors.New("this once")
		disk.mu.Unlock()
		c.net.isolate(id, false)
		<-lost
		c.agree(queueA, want)
		disk.mu.Lock()
		defer disk.mu.Unlock()
		if disk.refuse != nil {
			t.Error("nothing was replaced")
		}
	})
}
