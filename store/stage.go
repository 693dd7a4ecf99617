package store

import (
	"slices"

	"github.com/hashicorp/raft"
)

const (
	// stageBytesMax is how much of all groups may be staged: above it Stage waits, as StoreLogs does.
	stageBytesMax = 4 << 20
	// stageMarksMax is the same for one group, in calls.
	stageMarksMax = 64
)

// stageMark says that the entries of one call, first to last, are durable with a ticket.
type stageMark struct {
	first, last uint64
	t           *ticket
}

// Stage is StoreLogs without the wait for the disk: when it returns, the entries have their place in the log and can be read. The node's log is
// one stream: whatever this group, or any other, makes durable later is durable only together with them. Until Durable says so, a
// crash may take them away, always a suffix of the group's log, so that nobody may be promised anything by them.
//
// It waits all the same if much is staged already, or if the entries do not continue the log.
func (g *Group) Stage(logs []*raft.Log) error { return g.StageBodies(logs, nil) }

// StageBodies is Stage with the data of the entries in bodies, as StoreBodies has it.
func (g *Group) StageBodies(logs []*raft.Log, bodies []Body) error {
	if len(logs) == 0 {
		return nil
	}
	recs, err := g.entryRecords(logs, bodies)
	if err != nil {
		return err
	}
	g.wmu.Lock()
	defer g.wmu.Unlock()
	if err := g.admits(logs); err != nil {
		return err
	}
	if !g.continues(logs) {
		// The place of what is replaced may be used again as soon as it is forgotten.
		return g.storeRecords(recs)
	}
	locs := make([]loc, len(recs))
	t, err := g.place(recs, locs)
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.putEntries(recs, locs)
	g.dropMarks()
	g.marks = append(g.marks, stageMark{logs[0].Index, logs[len(logs)-1].Index, t})
	many := len(g.marks) > stageMarksMax
	g.mu.Unlock()
	if many || g.s.wal.staged() > stageBytesMax {
		return t.wait()
	}
	return nil
}

// continues reports whether entries follow one another, behind all that are there.
func (g *Group) continues(logs []*raft.Log) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	last, _ := g.entries.max()
	for _, l := range logs {
		if l.Index <= last {
			return false
		}
		last = l.Index
	}
	return true
}

// dropMarks forgets writes that are durable. Called with mu held.
func (g *Group) dropMarks() {
	n := 0
	for n < len(g.marks) && g.marks[n].t.succeeded() {
		n++
	}
	g.marks = slices.Delete(g.marks, 0, n)
}

// succeeded reports whether the ticket's records are durable.
func (t *ticket) succeeded() bool {
	select {
	case <-t.done:
		return t.err == nil
	default:
		return false
	}
}

// Durable tells whether all entries of the log up to index are durable. If they are not yet, then, which may be nil, is called once
// when they are, or with the error for which they never will be; on a goroutine of the store, so that it must neither wait nor call the
// store. It is not called if the answer is yes or an error.
func (g *Group) Durable(index uint64, then func(error)) (bool, error) {
	g.mu.RLock()
	i, _ := slices.BinarySearchFunc(g.marks, index, func(m stageMark, index uint64) int {
		if m.last < index {
			return -1
		}
		return 1
	})
	var t *ticket
	if i < len(g.marks) && g.marks[i].first <= index { // what has no mark has become durable
		t = g.marks[i].t
	}
	g.mu.RUnlock()
	if t == nil {
		return true, nil
	}
	return g.s.wal.await(t, then)
}
