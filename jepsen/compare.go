package jepsen

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/history"
)

const (
	// compareLook is between two looks at what the replicas hold, compareMax bounds how long they may take
	// to be at the same entry.
	compareLook = 200 * time.Millisecond
	compareMax  = 30 * time.Second
)

// compare records what the replicas of all nodes hold, when all of one log have
// applied the same entries, or after compareMax.
func (r *run) compare(ctx context.Context) error {
	for begun := time.Now(); ; {
		byNode := map[string][]db.State{}
		var failed error
		for _, n := range r.db.Nodes() {
			states, err := r.db.States(ctx, n)
			if errors.Is(err, db.ErrUnsupported) {
				return nil
			}
			failed = errors.Join(failed, err)
			byNode[n] = states
		}
		late := time.Since(begun) > compareMax
		if failed != nil && (late || ctx.Err() != nil) {
			return failed
		}
		if failed == nil && (late || level(byNode)) {
			r.recordStates(byNode)
			return nil
		}
		pause(ctx, compareLook)
	}
}

// level tells whether all replicas of each log are at the same entry.
func level(byNode map[string][]db.State) bool {
	at := map[string]uint64{}
	for _, states := range byNode {
		for _, s := range states {
			if applied, known := at[s.Of]; known && applied != s.Applied {
				return false
			}
			at[s.Of] = s.Applied
		}
	}
	return true
}

func (r *run) recordStates(byNode map[string][]db.State) {
	for _, n := range r.db.Nodes() {
		for _, s := range byNode[n] {
			r.rec.Record(history.Op{
				Process: history.Final, Type: history.OK, F: history.State, Node: n, Queue: s.Of, Value: s.Digest,
				Extra: map[string]string{"applied": strconv.FormatUint(s.Applied, 10)},
			})
		}
	}
}
