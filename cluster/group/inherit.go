package group

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// A group that has lost most of its replicas for good is succeeded by another group, which begins from what one of its survivors has: by one
// replica, which is the whole group until others are added to it. The former group's trace is read and not changed, so that there is no
// moment at which a crash leaves neither. Nothing of raft's is bent: the new group has another id, and nobody ever voted in it.

// Heir is a Machine that can go on in another group.
type Heir interface {
	// Succeed is called once the machine has everything that a replica of the former group has, committed or not, before its state becomes
	// the first of this group.
	Succeed()
}

// inheriting is a Storage whose groups can begin from another's entries.
type inheriting interface {
	// Inherit makes a snapshot the first thing that a group has, with entries that are copied from another group; it is durable when this returns.
	Inherit(to, from transport.GroupID, index, term uint64, config raft.Configuration, manifest []byte, pins []store.Range) error
}

var errInherit = errors.New("nothing can be inherited")

// inherit begins the replica from the one that the former group has here, unless that was done before. The former group is stopped, and
// its owner keeps the trace until the new group has its first leader.
func (g *Group) inherit() error {
	fail := func(err error) error {
		return fmt.Errorf("group %d takes over group %d: %w", g.spec.ID, g.spec.From, err)
	}
	done, err := hasTrace(g.log)
	if err != nil || done {
		return err
	}
	to, able := g.host.cfg.Store.(inheriting)
	heir, can := g.apply.machine.(Heir)
	if !able || !can || g.spec.Generation == 0 {
		return fail(errInherit)
	}
	index, term, err := g.replay(g.host.cfg.Store.Group(g.spec.From))
	if err != nil {
		return fail(err)
	}
	heir.Succeed()
	encode, err := g.apply.machine.Snapshot()
	if err != nil {
		return fail(err)
	}
	manifest, pins := encode()
	// Above every term in which the former replica can have heard of a leader's entries, and durable before there is anything to lead.
	if err := g.log.SetUint64([]byte("CurrentTerm"), term+1); err != nil {
		return fail(err)
	}
	only := raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(g.self), Address: raft.ServerAddress(g.host.cfg.Local),
	}}}
	if err := to.Inherit(g.spec.ID, g.spec.From, index, term, only, manifest, pins); err != nil {
		return fail(err)
	}
	g.host.log.Warn("a group goes on from one replica of the one that lost its majority", "group", uint64(g.spec.ID),
		"former", uint64(g.spec.From), "index", index, "term", term)
	return nil
}

// hasTrace tells whether a replica has a log or a snapshot.
func hasTrace(log Log) (bool, error) {
	list, err := log.Snapshots().List()
	if err != nil || len(list) > 0 {
		return len(list) > 0, err
	}
	last, err := log.LastIndex()
	return last > 0, err
}

// replay gives the machine everything that a replica has, also what it does not know to be committed: any of it may have been. It returns
// index and term of the newest entry; a replica that has none, because a crash took its founding, is as old as one that was just founded.
func (g *Group) replay(from Log) (index, term uint64, err error) {
	snapshots := from.Snapshots()
	list, err := snapshots.List()
	if err != nil {
		return 0, 0, err
	}
	if len(list) > 0 {
		meta, r, err := snapshots.Open(list[0].ID)
		if err != nil {
			return 0, 0, err
		}
		manifest, err := g.host.cfg.Store.ReadManifest(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return 0, 0, err
		}
		if err := g.apply.machine.Restore(manifest); err != nil {
			return 0, 0, err
		}
		index, term = meta.Index, meta.Term
	}
	last, err := from.LastIndex()
	if err != nil {
		return 0, 0, err
	}
	for i := index + 1; i <= last; i++ {
		var l raft.Log
		if err := from.GetLog(i, &l); err != nil {
			return 0, 0, fmt.Errorf("read entry %d: %w", i, err)
		}
		if l.Type == raft.LogCommand {
			g.apply.machine.Apply(Entry{Index: l.Index, Term: l.Term, Data: l.Data})
		}
		index, term = l.Index, l.Term
	}
	return max(index, 1), max(term, 1), nil
}

// Beginning returns index and term of the newest snapshot: what a group that took over another one began from, until it takes its first
// snapshot itself.
func (g *Group) Beginning() (index, term uint64) {
	if list, err := g.log.Snapshots().List(); err == nil && len(list) > 0 {
		return list[0].Index, list[0].Term
	}
	return 0, 0
}

// Position says how far a replica's log reaches.
type Position struct {
	Known      bool // the replica runs; everything else is zero if not, except Damaged
	Damaged    bool // it does not run, because its log is damaged
	Term       uint64
	LastTerm   uint64 // of the newest entry
	LastIndex  uint64
	Generation uint64
	Voter      bool
	Leader     transport.NodeID // who it follows or is; empty if nobody
}
