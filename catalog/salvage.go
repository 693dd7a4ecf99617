package catalog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
)

// What follows is how a catalog goes on that has lost the majority of its voters for good (docs/adr/0034-lost-cluster.md).

// Salvaged is all that a replica has: its newest snapshot, and every entry above it, also what is not known to be committed.
type Salvaged struct {
	View *View
	// Last and LastTerm are those of the newest entry.
	Last, LastTerm uint64
	// Servers is the newest configuration.
	Servers []raft.Server
}

// salvageTries is how often a replica that runs is read: its log may be compacted meanwhile.
const salvageTries = 3

// Salvage reads this replica's own snapshot and log. It asks nobody. What it returns is final once the replica is frozen.
func (c *Catalog) Salvage() (s *Salvaged, err error) {
	for range salvageTries {
		if s, err = salvage(c.cfg.Dir, diskStore{c.bolt}); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("read this node's copy of the catalog: %w", err)
}

func salvage(dir string, logs raft.LogStore) (*Salvaged, error) {
	m, in := newMachine(func(*applied) {}), &Inspected{}
	if err := in.restore(filepath.Join(dir, "snapshots"), m); err != nil {
		return nil, err
	}
	s := &Salvaged{Last: in.Snapshot, LastTerm: in.SnapshotTerm}
	last, err := logs.LastIndex()
	if err != nil {
		return nil, err
	}
	for i := in.Snapshot + 1; i <= last; i++ {
		var l raft.Log
		if err := logs.GetLog(i, &l); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Term < s.LastTerm {
			break // of a log that an installed snapshot has taken the place of
		}
		if err := in.take(m, &l); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		s.Last, s.LastTerm = i, l.Term
	}
	s.View, s.Servers = m.view.Load(), in.Servers
	return s, nil
}

// Freeze ends this replica's part in the catalog's group: it votes, answers and applies nothing any more. The caller has seen to it, durably,
// that the next start is frozen as well. What can be read stays, proposals find no leader.
func (c *Catalog) Freeze() error {
	c.frozen.Store(true)
	return c.stopRaft()
}

// Frozen tells whether this replica takes no part in the group.
func (c *Catalog) Frozen() bool { return c.frozen.Load() }

// startFrozen makes what can be read of a replica that takes no part in the group: raft is stopped as soon as it has restored the snapshot,
// and nobody could reach it before.
func (c *Catalog) startFrozen(rc *raft.Config, store *guardedStore, snapshots raft.SnapshotStore) (err error) {
	c.frozen.Store(true)
	_, nobody := raft.NewInmemTransport(raft.ServerAddress(c.cfg.Local))
	if c.raft, err = raft.NewRaft(rc, fsm{c.machine}, c.logs, store, snapshots, nobody); err != nil {
		return errors.Join(fmt.Errorf("read the catalog: %w", err), nobody.Close())
	}
	return c.stopRaft()
}

// stopRaft stops the group's transport and raft, once.
func (c *Catalog) stopRaft() error {
	c.stopping.Do(func() {
		// Before Shutdown: calls that wait for a lost peer end at once then.
		if c.transport != nil {
			c.stopErr = c.transport.Close()
		}
		if err := c.raft.Shutdown().Error(); err != nil {
			c.stopErr = errors.Join(c.stopErr, fmt.Errorf("stop the catalog's raft: %w", err))
		}
	})
	return c.stopErr
}

// Life is a life of the cluster that has ended: most voters of its catalog were lost.
type Life struct {
	ClusterID string
	// Last is the newest log index that a survivor had. What lies between it and Begun, where the next life's log begins, was given by the
	// lost nodes alone, if at all, and is never given again.
	Last, Begun uint64
	// Lost are the nodes that did not go on.
	Lost []NodeID
}

func (l *Life) fields(f *fields) {
	str(f, &l.ClusterID)
	f.u64(&l.Last)
	f.u64(&l.Begun)
	list(f, &l.Lost)
}

// livesOfClusterMax bounds how many lives of the cluster the catalog remembers: the oldest goes.
const livesOfClusterMax = 64

// Lives are the lives of the cluster that have ended, the newest last. Read only.
func (v *View) Lives() []Life { return v.lives }

// Unaccounted tells whether an index may have been given by nodes that were lost with a former life of the cluster: nobody knows what for.
func (v *View) Unaccounted(index uint64) bool {
	return slices.ContainsFunc(v.lives, func(l Life) bool { return l.Last < index && index < l.Begun })
}

// Succession says how a catalog goes on in its cluster's next life.
type Succession struct {
	ClusterID string   // of the next life
	Lost      []NodeID // who does not go on
}

// How far the next life goes on above what the survivors know: the lost nodes may have given out indexes and node numbers beyond.
const (
	succeededAhead        = 1 << 32
	succeededNumbersAhead = 1 << 16
)

// Succeed returns what the next life begins with. It depends on its arguments only. The lost nodes are such as will not come back, as if
// others had taken their names; every queue's settings count as changed, since its replicas may know newer ones that are lost.
func (s *Salvaged) Succeed(to Succession) (*View, error) {
	if s.View.clusterID == "" || to.ClusterID == "" || to.ClusterID == s.View.clusterID {
		return nil, errors.New("the catalog is of no cluster, or goes on as what it was")
	}
	tx := begin(s.View, max(s.Last, s.View.revision)+succeededAhead)
	for _, id := range to.Lost {
		n := tx.Node(id)
		if n == nil {
			tx.bury(&tombstone{ID: id, At: tx.index})
			continue
		}
		gone := *n
		gone.Superseded = true
		tx.putNode(&gone)
		if !n.Superseded {
			tx.dropTransient(n.Name)
		}
	}
	for _, q := range slices.Collect(tx.queuesByID.all()) {
		if q.Kind == Replicated {
			changed := *q
			changed.Settings = tx.index
			tx.putQueue(&changed)
		}
	}
	life := Life{ClusterID: tx.clusterID, Last: s.Last, Begun: tx.index, Lost: to.Lost}
	tx.lives = append(slices.Clone(tx.lives), life)
	if extra := len(tx.lives) - livesOfClusterMax; extra > 0 {
		tx.lives = tx.lives[extra:]
	}
	tx.clusterID, tx.level = to.ClusterID, max(tx.level, kindSetNodeState.level())
	tx.nodeNumber += succeededNumbersAhead
	next := tx.View
	return &next, nil
}

// ReadSnapshot reads what View.WriteSnapshot wrote.
func ReadSnapshot(r io.Reader) (*View, error) {
	v, _, err := readSnapshot(r)
	return v, err
}

// MakeSuccessor makes, in an empty dir, the folder of a replica of a cluster that goes on with v among members: all of them have a snapshot of
// the same index, term and configuration. It returns when that is durable. The term is one above that of the former life's newest entry.
func MakeSuccessor(dir string, v *View, members []NodeID, term uint64) error {
	return makeReplica(dir, v, members, term)
}
