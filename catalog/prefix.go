package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

// A snapshot that a leader sends takes the place of all that the log has up to its end. raft leaves that there, as the trailing entries that a snapshot
// of its own has. But such a log is of nobody's history: it may end with what a dead leader never got committed, and it has a hole behind its end. As a
// leader this replica would send that to others, who would apply it; as a follower it would compare it with what its leader has, for ever. So it is deleted.

// cuttingSnapshots deletes what a snapshot has taken the place of, before raft goes on with it.
type cuttingSnapshots struct {
	raft.SnapshotStore
	store  *guardedStore
	logs   raft.LogStore // the cache above the store
	folder string
}

// Create implements raft.SnapshotStore.
func (s *cuttingSnapshots) Create(version raft.SnapshotVersion, index, term uint64, config raft.Configuration, configIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, config, configIndex, trans)
	if err != nil {
		return nil, err
	}
	return &cuttingSink{sink, s, index, term}, nil
}

type cuttingSink struct {
	raft.SnapshotSink
	s           *cuttingSnapshots
	index, term uint64
}

// Close implements raft.SnapshotSink. The snapshot is durable when the entries go.
func (k *cuttingSink) Close() error {
	if err := k.remove(k.SnapshotSink.Close()); err != nil {
		return err
	}
	return k.s.store.cutReplaced(k.s.logs, k.index, k.term)
}

// Cancel implements raft.SnapshotSink.
func (k *cuttingSink) Cancel() error { return k.remove(k.SnapshotSink.Cancel()) }

// remove removes a snapshot that could not be ended because of err, and returns that. raft leaves it there: on a disk that is full each attempt, twice a minute, would
// keep what had become free.
func (k *cuttingSink) remove(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(k.s.folder, k.ID()+unfinished)))
}

// unfinished ends the name of a snapshot that is being written.
const unfinished = ".tmp"

// removeUnfinished removes the snapshots at which former processes were when they ended.
func removeUnfinished(folder string) error {
	all, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, f := range all {
		if strings.HasSuffix(f.Name(), unfinished) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, f.Name())))
		}
	}
	return err
}

// cutReplaced deletes the entries up to a snapshot's end from logs, which is this store or what is above it, unless the log leads to that end. It does to
// the end of a snapshot that this replica takes itself.
func (s *guardedStore) cutReplaced(logs raft.LogStore, index, term uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if last == 0 || first > index {
		return nil
	}
	var l raft.Log
	switch err := s.durable.GetLog(index, &l); {
	case err == nil && l.Term == term:
		return nil
	case err == nil && last == index:
		s.tail.Store(&replacedTail{index, term, l.Term})
	case err != nil && !errors.Is(err, raft.ErrLogNotFound):
		return s.mustRead("a log entry", err)
	}
	if err := logs.DeleteRange(first, min(last, index)); err != nil {
		return fmt.Errorf("delete what a snapshot has taken the place of: %w", err)
	}
	return nil
}

// cutAtStart does so for a snapshot behind which a crash came, or an older program, which left what there was. hole is the last entry that the log lacks
// between its first one and the newest snapshot's end, 0 if it lacks none.
func (s *guardedStore) cutAtStart(dir string, hole uint64) error {
	if err := syncDir(filepath.Join(dir, snapshotsDir)); err != nil {
		return err // a snapshot that was published just before a process was killed need not be there for good yet
	}
	if hole > 0 {
		first, err := s.FirstIndex()
		if err != nil {
			return err
		}
		if err := s.DeleteRange(first, hole); err != nil {
			return err
		}
	}
	newest, _, err := newestWhole(s.snapshots)
	if err != nil || newest == nil {
		return err
	}
	defer s.tail.Store(nil) // raft has not read the log yet
	return s.cutReplaced(s, newest.Index, newest.Term)
}

// replacedTail is the last entry of a log where a snapshot that was installed ends, too, with an entry of another term. raft has read when it began, and noted
// since, which entry is the log's last, and takes that and not the snapshot for what it ends with, if their indexes are equal: it would refuse what its leader has
// for it behind the snapshot, and so be sent the snapshot again, without a pause, until there is a newer one.
type replacedTail struct {
	index, term uint64 // of the snapshot
	known       uint64 // the term that raft goes by
}

// amend has raft find what an append follows, if that is the snapshot.
func (s *guardedStore) amend(a *raft.AppendEntriesRequest) {
	if t := s.tail.Load(); t != nil && a.PrevLogEntry == t.index && a.PrevLogTerm == t.term {
		a.PrevLogTerm = t.known
	}
}

// syncDir makes durable what a folder lists.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
