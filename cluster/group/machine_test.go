package group

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
)

// opened is a snapshot of a ledger as a store hands it out, and as raft hands it on.
type opened struct {
	io.Reader
	index uint64
}

func (opened) Close() error                       { return nil }
func (o opened) Index() uint64                    { return o.index }
func (o opened) WrappedReadCloser() io.ReadCloser { return o }

var _ raft.ReadCloserWrapper = opened{}

// TestMachineNeverGoesBack: raft restores a snapshot that is older than what was applied, which one that was under
// way for long may be, and hands over again what follows it.
func TestMachineNeverGoesBack(t *testing.T) {
	snapshot := func(items int) io.ReadCloser {
		b := binary.AppendUvarint(nil, uint64(items))
		for i := range items {
			it := fmt.Sprint("e", i+1)
			b = append(binary.AppendUvarint(b, uint64(len(it))), it...)
		}
		return opened{bytes.NewReader(b), uint64(items)}
	}
	entries := func(from, to uint64) []*raft.Log {
		var all []*raft.Log
		for i := from; i <= to; i++ {
			all = append(all, &raft.Log{Index: i, Term: 1, Data: fmt.Appendf(nil, "e%d", i)})
		}
		return all
	}
	c := newRealCluster(t, memStorage(t), eager())
	c.found(1)
	g, _ := c.nodes[c.ids[0]].host.Group(queueA)
	m := &ledger{}
	a := newApplier(g, m)
	apply := func(from, to uint64) func() error {
		return func() error { a.ApplyBatch(entries(from, to)); return nil }
	}
	restore := func(items int) func() error { return func() error { return a.Restore(snapshot(items)) } }
	for _, step := range []struct {
		name  string
		do    func() error
		items int
	}{
		{"entries", apply(1, 5), 5},
		{"an older snapshot", restore(3), 5},
		{"what follows it, and more", apply(4, 6), 6},
		{"a snapshot of the same index", restore(6), 6},
		{"a newer one", restore(8), 8},
		{"what follows that", apply(9, 9), 9},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		var want []string
		for i := range step.items {
			want = append(want, fmt.Sprint("e", i+1))
		}
		if got, n := m.all(), uint64(step.items); !slices.Equal(got, want) || a.applied.Load() != n || a.index != n {
			t.Errorf("%s: %v, applied %d, index %d", step.name, got, a.applied.Load(), a.index)
		}
	}
	if err := a.Restore(snapshot(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Snapshot(); err == nil {
		t.Error("a capture while raft replays would be labelled with an index that is too low")
	}
}

// TestTrailing: a log of living messages may stay longer behind a snapshot than one of dead ones, for it is on the disk anyway.
func TestTrailing(t *testing.T) {
	g := &Group{host: &Host{cfg: HostConfig{TrailingBytes: 8 << 20}}, apply: &applier{}}
	for _, c := range []struct{ entries, bytes, freeable, keep int64 }{
		{0, 0, 0, trailingEntriesMax},
		{1000, 256 << 20, 256 << 20, 8 << 20 / (256 << 20 / 1000)},
		{1000, 256 << 20, 1 << 30, 8 << 20 / (256 << 20 / 1000)}, // what died was in the log before
		{1000, 256 << 20, 64 << 20, 32 << 20 / (256 << 20 / 1000)},
		{1000, 256 << 20, 0, trailingDeadMin * 8 << 20 / (256 << 20 / 1000)},
		{1 << 20, 256 << 20, 0, trailingEntriesMax},
	} {
		g.apply.entries.Store(c.entries)
		g.apply.logBytes.Store(c.bytes)
		g.apply.freeable.Store(c.freeable)
		if got := g.trailing(); got != uint64(c.keep) {
			t.Errorf("%+v: %d entries stay", c, got)
		}
	}
	// A thousand acks of a thousand messages.
	g.log = usedLog{usage: store.Usage{LogEntries: 2000, LogBytes: 256 << 20}}
	g.apply.entries.Store(1000)
	g.apply.logBytes.Store(100_000)
	g.apply.freeable.Store(256 << 20)
	if got := g.trailing(); got != 8<<20/(256<<20/2000) {
		t.Errorf("behind acks %d entries stay", got)
	}
}

type usedLog struct {
	Log
	usage store.Usage
}

func (l usedLog) Usage() store.Usage { return l.usage }

// dying is a machine in which each entry lets go of many bytes.
type dying struct {
	Machine
	freeable int64
}

func (d *dying) Apply(Entry) any    { d.freeable += 1 << 20; return nil }
func (d *dying) Reclaimable() int64 { return d.freeable }

// TestFreeableFollowsEachEntry: an ack has a few bytes, and may let go of a large message.
func TestFreeableFollowsEachEntry(t *testing.T) {
	c := newRealCluster(t, memStorage(t), eager())
	c.found(1)
	g, _ := c.nodes[c.ids[0]].host.Group(queueA)
	a := newApplier(g, &dying{Machine: &ledger{}})
	a.ApplyBatch([]*raft.Log{{Index: 1, Term: 1, Data: []byte("ack")}})
	if got := a.freeable.Load(); got != 1<<20 {
		t.Errorf("%d bytes can be freed", got)
	}
}
