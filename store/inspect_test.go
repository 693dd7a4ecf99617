package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// looked is what an inspection showed of one group.
type looked struct {
	first, last uint64
	entries     map[uint64]raft.Log
	voteTerm    uint64
	voteCand    string
	keys        map[string][]byte
	snapshot    *store.InspectedSnapshot
}

// look reads everything that an inspection of o.Dir shows.
func look(o store.Options) (map[store.GroupID]looked, error) {
	in, err := store.Inspect(o)
	if err != nil {
		return nil, err
	}
	out := make(map[store.GroupID]looked)
	for _, id := range in.Groups() {
		g, ok := in.Group(id)
		if !ok || g.Damage() != nil {
			return nil, fmt.Errorf("group %d: there %v, damage %w", id, ok, g.Damage())
		}
		l := looked{entries: map[uint64]raft.Log{}, keys: g.Keys()}
		l.first, l.last = g.Log()
		l.voteTerm, l.voteCand = g.Vote()
		for _, i := range g.Indexes(0, ^uint64(0)) {
			if l.entries[i], err = g.Entry(i); err != nil {
				return nil, fmt.Errorf("group %d: %w", id, err)
			}
		}
		if l.snapshot, err = g.Snapshot(); err != nil {
			return nil, fmt.Errorf("group %d: %w", id, err)
		}
		if g.Bytes() <= 0 && len(l.entries) > 0 {
			return nil, fmt.Errorf("group %d: %d entries in no bytes", id, len(l.entries))
		}
		out[id] = l
	}
	return out, in.Close()
}

// agrees compares what was looked at with the store that was opened behind it.
func agrees(s *store.Store, seen map[store.GroupID]looked) error {
	if got := len(s.Groups()); got != len(seen) {
		return fmt.Errorf("%d groups, the inspection had %d", got, len(seen))
	}
	for id, l := range seen {
		if err := l.compare(s.Group(id)); err != nil {
			return fmt.Errorf("group %d: %w", id, err)
		}
	}
	return nil
}

func (l *looked) compare(g *store.Group) error {
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	if first != l.first || last != l.last {
		return fmt.Errorf("log %d to %d, the inspection had %d to %d", first, last, l.first, l.last)
	}
	for i, e := range l.entries {
		data, err := g.Read(i)
		if err != nil || !bytes.Equal(data, e.Data) {
			return fmt.Errorf("entry %d is %q, %v, the inspection had %q", i, data, err, e.Data)
		}
		var log raft.Log
		if i >= first && first > 0 && (g.GetLog(i, &log) != nil || log.Term != e.Term || log.Type != e.Type) {
			return fmt.Errorf("entry %d has term %d, the inspection had %d", i, log.Term, e.Term)
		}
	}
	for k, v := range l.keys {
		if got, err := g.Get([]byte(k)); err != nil || !bytes.Equal(got, v) {
			return fmt.Errorf("key %s is %q, %v, the inspection had %q", k, got, err, v)
		}
	}
	if cand, _ := g.Get([]byte("LastVoteCand")); string(cand) != l.voteCand {
		return fmt.Errorf("vote for %q, the inspection had %q", cand, l.voteCand)
	}
	return l.compareSnapshot(g)
}

func (l *looked) compareSnapshot(g *store.Group) error {
	list, err := g.Snapshots().List()
	if err != nil || len(list) == 0 != (l.snapshot == nil) {
		return fmt.Errorf("%d snapshots, %v, the inspection had %v", len(list), err, l.snapshot)
	}
	if len(list) == 0 {
		return nil
	}
	meta, r, err := g.Snapshots().Open(list[0].ID)
	if err != nil {
		return err
	}
	manifest, err := store.ReadManifest(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if meta.ID != l.snapshot.ID || meta.Size != l.snapshot.Size || !bytes.Equal(manifest, l.snapshot.Manifest) {
		return fmt.Errorf("snapshot %s, the inspection had %s", meta.ID, l.snapshot.ID)
	}
	return nil
}

// TestInspectWhileInUse looks at a store that a process has open, and again when it is closed, and changes nothing there.
func TestInspectWhileInUse(t *testing.T) {
	fs := crashfs.New()
	s := openOn(t, fs)
	for i := uint64(1); i <= 40; i++ {
		must(t, s.Group(1).StoreLogs(logs(i, 8<<10)))
	}
	must(t, s.Group(2).StoreLogs(logs(1, 100)))
	must(t, s.Group(2).SetUint64([]byte("CurrentTerm"), 7))
	must(t, s.Group(2).SetUint64([]byte("LastVoteTerm"), 7))
	must(t, s.Group(2).Set([]byte("LastVoteCand"), []byte("somebody")))
	must(t, s.Group(3).StoreLogs(logs(1, 100)))
	must(t, s.DeleteGroup(3))
	seen, err := look(store.Options{Dir: "/s", FS: fs})
	must(t, err)
	must(t, agrees(s, seen))
	if l := seen[2]; l.voteTerm != 7 || l.voteCand != "somebody" || len(l.keys["CurrentTerm"]) != 8 {
		t.Errorf("group 2 is %+v", l)
	}
	must(t, s.Close())
	before := fs.Len()
	seen, err = look(store.Options{Dir: "/s", FS: fs})
	must(t, err)
	if n := fs.Len(); n != before {
		t.Errorf("looking did %d things to the disk", n-before)
	}
	s = openOn(t, fs)
	must(t, agrees(s, seen))
	must(t, s.Close())
}

// TestInspectRefuses names what is no store, and marks what is damaged.
func TestInspectRefuses(t *testing.T) {
	if _, err := store.Inspect(store.Options{Dir: t.TempDir()}); err == nil {
		t.Error("an empty directory was inspected")
	}
	fs := crashfs.New()
	fillSegments(t, fs)
	must(t, fs.Corrupt(segmentOne, firstRecord+200, 1))
	in, err := store.Inspect(store.Options{Dir: "/s", FS: fs})
	must(t, err)
	defer func() { must(t, in.Close()) }()
	var found error
	for _, id := range in.Groups() {
		g, _ := in.Group(id)
		found = errors.Join(found, g.Damage())
		for _, i := range g.Indexes(0, ^uint64(0)) {
			_, err := g.Entry(i)
			found = errors.Join(found, err)
		}
	}
	if _, ok := errors.AsType[*store.CorruptError](found); !ok {
		t.Errorf("a flipped byte was not found: %v", found)
	}
}
