package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// driver does random operations on a store and on the model. pick(n) chooses below n.
type driver struct {
	s    *store.Store
	m    model
	pick func(n int) int
	term uint64
	seq  int

	waits bool // for the disk with all entries
	shift int  // of the groups' numbers, where others work on the store, too
}

func (d *driver) id(i int) store.GroupID { return groupID(i + d.shift) }

// outcome of an operation: the states that a crash in its middle may leave besides the old and the new one, and
// whether the call promised that the new one is durable.
type outcome struct {
	between []model
	durable bool
}

func (d *driver) text(sizeMax int) string {
	d.seq++
	return fmt.Sprintf("%d:%s", d.seq, bytes.Repeat([]byte{byte('a' + d.seq%26)}, d.pick(sizeMax)))
}

// step does one operation.
func (d *driver) step() (outcome, error) {
	i := d.pick(len(d.m))
	g, sg := &d.m[i], d.s.Group(d.id(i))
	switch d.pick(12) {
	case 0:
		return d.vote(g, sg)
	case 1:
		return d.set(g, sg)
	case 2:
		return d.truncate(g, sg)
	case 3, 4:
		return d.snapshot(g, sg)
	case 5:
		return d.install(g, sg)
	case 6:
		if d.pick(4) == 0 {
			written := g.top > 0 || g.voteCand != "" || len(g.keys) > 0 // else there is nothing to delete durably
			*g = modelGroup{}.clone()
			return outcome{durable: written}, d.s.DeleteGroup(d.id(i))
		}
		return d.compact(g, sg)
	case 7:
		return d.compact(g, sg)
	}
	return d.appendLogs(i)
}

func (d *driver) appendLogs(i int) (outcome, error) {
	g, sg := &d.m[i], d.s.Group(d.id(i))
	var logs []*raft.Log
	var out outcome
	if d.pick(5) == 0 {
		d.term++
	}
	for n := d.pick(4) + 1; n > 0; n-- {
		l := &raft.Log{Index: g.next(), Term: d.term, Data: []byte(d.text(9000))}
		logs = append(logs, l)
		g.log[l.Index] = modelEntry{l.Term, string(l.Data)}
		g.top = max(g.top, l.Index)
		out.between = append(out.between, d.m.clone())
	}
	put, stage := sg.StoreLogs, sg.Stage
	if d.pick(2) == 0 { // as what another node sent
		apart, bodies := d.apart(logs)
		if err := d.damaged(sg, apart, bodies); err != nil {
			return out, err
		}
		put = func([]*raft.Log) error { return sg.StoreBodies(apart, bodies) }
		stage = func([]*raft.Log) error { return sg.StageBodies(apart, bodies) }
	}
	if !d.waits && d.pick(2) == 0 { // it counts with what is made durable next, by any group
		return out, stage(logs)
	}
	out.durable = true
	return out, put(logs)
}

// apart takes entries and their data apart, and the data into pieces.
func (d *driver) apart(logs []*raft.Log) ([]*raft.Log, []store.Body) {
	apart, bodies := make([]*raft.Log, len(logs)), make([]store.Body, len(logs))
	for i, l := range logs {
		e := *l
		e.Data = []byte("not this")
		apart[i] = &e
		bodies[i] = store.Body{Sum: crc32.Checksum(l.Data, crc32.MakeTable(crc32.Castagnoli)), Summed: d.pick(4) > 0}
		for data := bytes.Clone(l.Data); len(data) > 0; {
			n := d.pick(len(data)) + 1
			bodies[i].Pieces = append(bodies[i].Pieces, data[:n])
			data = data[n:]
		}
	}
	return apart, bodies
}

// damaged has a byte of the data changed on the way: nothing is stored then.
func (d *driver) damaged(sg *store.Group, logs []*raft.Log, bodies []store.Body) error {
	i := d.pick(len(bodies))
	if !bodies[i].Summed || d.pick(2) == 0 {
		return nil
	}
	piece := bodies[i].Pieces[d.pick(len(bodies[i].Pieces))]
	at := d.pick(len(piece))
	piece[at] ^= 0x10
	err := sg.StoreBodies(logs, bodies)
	if d.pick(2) == 0 {
		err = sg.StageBodies(logs, bodies)
	}
	piece[at] ^= 0x10
	if !errors.Is(err, store.ErrDamagedBody) {
		return fmt.Errorf("a damaged body: %w", err)
	}
	return nil
}

func (d *driver) vote(g *modelGroup, sg *store.Group) (outcome, error) {
	term, cand := d.term+uint64(d.pick(2)), fmt.Sprint("c", d.pick(3))
	same := g.voteTerm == term && g.voteCand == cand
	g.voteTerm, g.voteCand = term, cand
	return outcome{durable: !same}, errors.Join(sg.SetUint64([]byte("LastVoteTerm"), term), sg.Set([]byte("LastVoteCand"), []byte(cand)))
}

func (d *driver) set(g *modelGroup, sg *store.Group) (outcome, error) {
	k, v := modelKeys[d.pick(len(modelKeys))], fmt.Sprint(d.pick(5))
	old, ok := g.keys[k]
	g.keys[k] = v
	return outcome{durable: !ok || old != v}, sg.Set([]byte(k), []byte(v))
}

func (d *driver) truncate(g *modelGroup, sg *store.Group) (outcome, error) {
	low, last := max(g.lowest(), g.snap.index+1), g.last()
	if last == 0 || low > last {
		return outcome{}, nil
	}
	from := low + uint64(d.pick(int(last-low)+1))
	mid := outcome{durable: true}
	if from == low && g.lowest() < low {
		from = low // keep covered entries apart: a truncation never reaches below the snapshot
	}
	for i := from; i <= last; i++ {
		delete(g.log, i)
	}
	return mid, sg.DeleteRange(from, last)
}

// compact is what raft does after a snapshot: it removes a prefix the snapshot covers.
func (d *driver) compact(g *modelGroup, sg *store.Group) (outcome, error) {
	low := g.lowest()
	if low == 0 || low > g.snap.index {
		return outcome{}, nil
	}
	to := low + uint64(d.pick(int(g.snap.index-low)+1))
	g.compactTo(to)
	return outcome{}, sg.DeleteRange(low, to)
}

func (g *modelGroup) compactTo(to uint64) {
	for i := range g.log {
		if i <= to {
			delete(g.log, i)
		}
	}
	g.first = to + 1
	g.marker = modelSnap{}
}

func (d *driver) snapshot(g *modelGroup, sg *store.Group) (outcome, error) {
	index := max(g.last(), g.snap.index)
	if index == 0 {
		return outcome{}, nil
	}
	low := max(g.snap.index, g.lowest(), 1)
	index = low + uint64(d.pick(int(index-low)+1))
	term := max(g.snap.term, g.log[index].term)
	manifest := d.text(200)
	pins := make(map[uint64]string)
	var ranges []store.Range
	for i := uint64(1); i <= index; i++ {
		if data, ok := g.read(i); ok && d.pick(3) == 0 {
			pins[i] = data
			ranges = append(ranges, store.Range{First: i, Last: i})
		}
	}
	k, err := sg.Snapshots().Create(1, index, term, config, 1, nil)
	if err != nil {
		return outcome{}, err
	}
	if err := k.(store.ManifestSink).WriteManifest([]byte(manifest), ranges); err != nil {
		return outcome{}, err
	}
	if d.pick(8) == 0 {
		return outcome{}, k.Cancel()
	}
	g.snap, g.pins = modelSnap{index, term, manifest}, pins
	return outcome{durable: true}, k.Close()
}

// install receives a snapshot of a peer whose log agrees with nothing here.
func (d *driver) install(g *modelGroup, sg *store.Group) (outcome, error) {
	d.term++
	index := max(g.snap.index, 1) + uint64(d.pick(20)) + 1
	manifest := d.text(3000)
	pins := make(map[uint64]string)
	for range d.pick(8) {
		pins[uint64(d.pick(int(index)))+1] = d.text(5000)
	}
	stream, err := peerStream(index, d.term, manifest, pins)
	if err != nil {
		return outcome{}, err
	}
	k, err := sg.Snapshots().Create(1, index, d.term, config, 1, nil)
	if err != nil {
		return outcome{}, err
	}
	part := len(stream)
	if d.pick(4) == 0 {
		part = d.pick(len(stream))
	}
	if _, err := k.Write(stream[:part]); err != nil {
		return outcome{}, err
	}
	if part < len(stream) {
		return outcome{}, k.Cancel()
	}
	g.compactTo(index)
	g.snap, g.pins = modelSnap{index, d.term, manifest}, pins
	g.marker = g.snap
	g.top = max(g.top, index)
	return outcome{durable: true}, k.Close()
}

// peerStream makes the stream of a snapshot in a store of its own.
func peerStream(index, term uint64, manifest string, pins map[uint64]string) (b []byte, err error) {
	s, err := store.Open(store.Options{Dir: "/peer", FS: crashfs.New(), SegmentBytes: 64 << 10, TailCacheBytes: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	g := s.Group(1)
	var ranges []store.Range
	for _, i := range slices.Sorted(maps.Keys(pins)) {
		if err := g.StoreLog(&raft.Log{Index: i, Term: term, Data: []byte(pins[i])}); err != nil {
			return nil, err
		}
		ranges = append(ranges, store.Range{First: i, Last: i})
	}
	k, err := g.Snapshots().Create(1, index, term, config, 1, nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(k.(store.ManifestSink).WriteManifest([]byte(manifest), ranges), k.Close()); err != nil {
		return nil, err
	}
	_, r, err := g.Snapshots().Open(k.ID())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
