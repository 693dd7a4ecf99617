package catalog

import "slices"

// extraFields is what a node has since level 2, as a snapshot's record behind the nodes.
func (n *Node) extraFields(f *fields) {
	str(f, &n.ID)
	enum(f, &n.State, NodeLeaving)
	str(f, &n.Zone)
	str(f, &n.Version)
	level := uint64(n.Level)
	f.u64(&level)
	if f.reading {
		if level > levelMax {
			f.fail("level %d", level)
		}
		n.Level = int(level)
	}
	list(f, &n.Listeners)
	f.i64(&n.Down)
}

func (n *Node) hasExtra() bool {
	return n.State != NodeRegular || n.Zone != "" || n.Version != "" || n.Level != 0 || len(n.Listeners) > 0 || n.Down != 0
}

// extraFields is what a queue has since level 2, as a snapshot's record behind the queues.
func (q *Queue) extraFields(f *fields) {
	f.u64(&q.ID)
	list(f, &q.Wanted)
	str(f, &q.WantedPreferred)
	f.u64s(&q.Generations)
	// What follows came later, and is not written if it is empty.
	more := q.Settled != 0 || q.Size != 0
	if len(q.Founders) > 0 || more || f.reading && len(f.buf) > 0 {
		list(f, &q.Founders)
	}
	if more || f.reading && len(f.buf) > 0 {
		f.u64(&q.Settled)
		f.u64(&q.Stood)
		f.u64(&q.Size)
	}
}

func (q *Queue) hasExtra() bool {
	return q.Wanted != nil || q.Generations != nil || q.Founders != nil || q.Size != 0
}

// checkExtra reports why a queue's record cannot be one that was written.
func (q *Queue) checkExtra() string {
	switch {
	case len(q.Generations) != 0 && len(q.Generations) != len(q.Members):
		return "as many generations as members are wanted"
	case (len(q.Wanted) == 0) != (q.WantedPreferred == ""), len(q.Wanted) > 0 && !slices.Contains(q.Wanted, q.WantedPreferred):
		return "the preferred leader is not wanted"
	case slices.ContainsFunc(q.Wanted, func(n NodeID) bool { return !slices.Contains(q.Members, n) }):
		return "a wanted node is no member"
	case len(q.Founders) > membersMax:
		return "too many founders"
	case (q.Settled == 0) != (q.Stood == 0), q.Settled != 0 && len(q.Wanted) == 0, q.Stood > uint64(len(q.Members)):
		return "a plan is not under way, or began with more members than there are"
	case q.Size != 0 && (q.Size > membersMax || sizeAbove(q.Size, q.Target()) == 0):
		return "it misses no members"
	}
	return ""
}

// restoreExtra adds a record of level 2 to what it extends.
func (tx *txn) restoreExtra(kind byte, f *fields) (problem string) {
	switch kind {
	case recordTombstone:
		t := new(tombstone)
		if t.fields(f); f.err == nil {
			tx.forgotten.put(key(string(t.ID)), t)
		}
	case recordNodeExtra:
		var extra Node
		if extra.extraFields(f); f.err != nil {
			return ""
		}
		old := tx.Node(extra.ID)
		if old == nil {
			return "no such node"
		}
		n := *old
		n.State, n.Zone, n.Version, n.Level, n.Listeners, n.Down = extra.State, extra.Zone, extra.Version, extra.Level, extra.Listeners, extra.Down
		tx.putNode(&n)
	case recordQueueExtra:
		var extra Queue
		if extra.extraFields(f); f.err != nil {
			return ""
		}
		old := tx.QueueByID(extra.ID)
		if old == nil {
			return "no such queue"
		}
		q := *old
		q.Wanted, q.WantedPreferred, q.Generations, q.Founders = extra.Wanted, extra.WantedPreferred, extra.Generations, extra.Founders
		q.Settled, q.Stood, q.Size = extra.Settled, extra.Stood, extra.Size
		if problem := q.checkExtra(); problem != "" {
			return problem
		}
		tx.putQueue(&q)
	}
	return ""
}
