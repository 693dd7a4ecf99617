package catalog

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// TestHoleBelowASnapshot: programs before this one, and a crash at the wrong moment, left what a snapshot had taken the place of. It goes at the start;
// what the log has below a snapshot of its own stays.
func TestHoleBelowASnapshot(t *testing.T) {
	for name, test := range map[string]struct {
		log         []raft.Log
		at, term    uint64
		first, last uint64
	}{
		"a snapshot of its own":               {logOf(1, 1, 8), 5, 1, 1, 8},
		"nothing but the snapshot":            {nil, 5, 1, 0, 0},
		"a hole":                              {append(logOf(1, 1, 3), logOf(2, 6, 8)...), 5, 2, 6, 8},
		"a hole, and a snapshot after that":   {append(logOf(1, 1, 3), logOf(2, 6, 8)...), 7, 2, 6, 8},
		"a log that ends below the snapshot":  {logOf(1, 1, 3), 5, 2, 0, 0},
		"a log of another leader at its end":  {logOf(1, 1, 8), 5, 2, 6, 8},
		"a log that begins with its next one": {logOf(2, 6, 8), 5, 1, 6, 8},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			v := emptyView()
			v.revision = test.at
			if err := makeReplica(dir, v, []NodeID{n1}, test.term); err != nil {
				t.Fatal(err)
			}
			bolt, err := openBolt(filepath.Join(dir, logFile))
			if err != nil {
				t.Fatal(err)
			}
			snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, raftLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			s := &guardedStore{durable: bolt, snapshots: snapshots}
			for i := range test.log {
				if err := s.StoreLog(&test.log[i]); err != nil {
					t.Fatal(err)
				}
			}
			hole, err := s.checkHistory(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.cutAtStart(dir, hole); err != nil {
				t.Fatal(err)
			}
			first, errFirst := s.FirstIndex()
			last, errLast := s.LastIndex()
			if err := errors.Join(errFirst, errLast, bolt.Close()); err != nil || first != test.first || last != test.last {
				t.Errorf("the log goes from %d to %d, want %d to %d; %v", first, last, test.first, test.last, err)
			}
		})
	}
}

func logOf(term, first, last uint64) (all []raft.Log) {
	for i := first; i <= last; i++ {
		all = append(all, raft.Log{Index: i, Term: term, Type: raft.LogNoop})
	}
	return all
}
