package catalog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
)

// WriteSnapshot writes the state as a snapshot (docs/formats/catalog.md), without the requests that the machine remembers.
func (v *View) WriteSnapshot(w io.Writer) error {
	return (&snapshot{view: v}).write(w)
}

// Rehoming says how a catalog becomes that of another cluster, which begins with what the first one's had.
type Rehoming struct {
	// ClusterID is the new cluster's.
	ClusterID string
	// Nodes are its nodes, with zones; all others are forgotten.
	Nodes []Rehomed
	// Place says where the replicas of a queue are from now on and who should lead it; no members: the queue is not there any more. It
	// is called once for each replicated queue, by id.
	Place func(q *Queue) (members []NodeID, preferred NodeID)
}

// Rehomed is a node of the new cluster.
type Rehomed struct {
	ID   NodeID
	Zone string
}

// rehomedAhead is how far the new cluster's log begins above the old one's newest command: nothing that any part of a
// backup knows an index of comes again.
const rehomedAhead = 1 << 16

// Rehome reads a snapshot and returns what the new cluster begins with. It depends on its arguments only. Gone are the nodes, the queues
// that lived in their memory, and the exchanges that are not durable, as when all processes have ended; replicas have no generations. The
// former lives of queues stay known, since others may still send to them.
func Rehome(r io.Reader, to Rehoming) (*View, error) {
	v, _, err := readSnapshot(r)
	if err != nil {
		return nil, err
	}
	if v.clusterID == "" || len(to.Nodes) == 0 {
		return nil, errors.New("rehome a catalog: it is of no cluster, or there are no nodes")
	}
	tx := begin(v, v.revision+rehomedAhead)
	tx.clusterID = to.ClusterID
	for _, q := range slices.Collect(tx.queuesByID.all()) {
		now := tx.QueueByID(q.ID) // another that was dropped may have closed it
		if now == nil {
			continue // or taken it along
		}
		if err := tx.rehomeQueue(now, to.Place); err != nil {
			return nil, err
		}
	}
	for _, x := range slices.Collect(tx.fleeting.all()) {
		if x := tx.Exchange(x.Vhost, x.Name); x != nil {
			tx.deleteExchange(x)
		}
	}
	if err := tx.rehomeNodes(to.Nodes); err != nil {
		return nil, err
	}
	next := tx.View
	return &next, nil
}

func (tx *txn) rehomeQueue(old *Queue, place func(q *Queue) ([]NodeID, NodeID)) error {
	if old.Kind != Replicated {
		tx.dropQueue(old)
		return nil
	}
	members, preferred := place(old)
	if len(members) == 0 {
		tx.dropQueue(old)
		return nil
	}
	if err := checkMembers(members, preferred); err != nil {
		return fmt.Errorf("place queue %d: %w", old.ID, err)
	}
	q := *old
	q.Members, q.Preferred, q.FirstLeader, q.Generations, q.Founders, q.Settings = members, preferred, "", nil, nil, tx.index
	q.Wanted, q.WantedPreferred, q.Settled, q.Stood = nil, "", 0, 0
	q.Size = sizeAbove(max(old.Size, uint64(len(old.Target()))), members)
	// What a new life was being begun from stays behind: the backup has the new one's state.
	q.Survivors = nil
	tx.putQueue(&q)
	return nil
}

// dropQueue takes a queue out of the catalog, with what leads to it.
func (tx *txn) dropQueue(q *Queue) {
	if q.State == Running {
		if x := tx.Exchange(q.Vhost, q.DelayOf); q.DelayOf != "" && x != nil && x.DelayQueue == q.ID {
			tx.deleteExchange(x)
		} else {
			tx.closeQueue(q)
			tx.unbindAll(q.Vhost, q.Name, false)
		}
	}
	tx.forgetQueue(q.ID)
}

func (tx *txn) rehomeNodes(nodes []Rehomed) error {
	for _, n := range slices.Collect(tx.nodes.all()) {
		if err := tx.removeNode(n); err != nil {
			return err
		}
		tx.bury(&tombstone{ID: n.ID, At: tx.index})
	}
	for _, n := range nodes {
		if err := checkNodeID(n.ID); err != nil {
			return err
		}
		if tx.Forgotten(n.ID) {
			return fmt.Errorf("node '%s' is one of the cluster that the backup is of", n.ID)
		}
		tx.nodeNumber++
		tx.putNode(&Node{
			ID: n.ID, Name: nameOf(n.ID), Number: tx.nodeNumber, Incarnation: tx.index, Since: tx.index, State: NodeRegular, Zone: n.Zone,
		})
	}
	return nil
}

// MakeRestored makes, in an empty dir, the folder of a replica of a cluster that begins with v: all its nodes have a snapshot of
// the same index and configuration. It returns when that is durable.
func MakeRestored(dir string, v *View) error {
	var members []NodeID
	for n := range v.Nodes() {
		members = append(members, n.ID)
	}
	return makeReplica(dir, v, members, 1)
}

// makeReplica makes the folder of a replica that begins with a snapshot.
func makeReplica(dir string, v *View, members []NodeID, term uint64) error {
	if err := Make(dir); err != nil {
		return err
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return fmt.Errorf("make the catalog's snapshots: %w", err)
	}
	_, trans := raft.NewInmemTransport("")
	defer func() { _ = trans.Close() }() // it never fails
	sink, err := snapshots.Create(raft.SnapshotVersionMax, v.revision, term, raft.Configuration{Servers: foundingServers(members)}, v.revision, trans)
	if err != nil {
		return fmt.Errorf("make the catalog's snapshot: %w", err)
	}
	if err := (&snapshot{view: v}).Persist(sink); err != nil {
		return err
	}
	bolt, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	err = (&guardedStore{durable: bolt}).SetUint64(keyCurrentTerm, term)
	if err = errors.Join(err, bolt.Close()); err != nil {
		return fmt.Errorf("make the catalog's log: %w", err)
	}
	return syncDir(dir)
}
