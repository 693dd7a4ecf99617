package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// modelEntry is what an entry must read as.
type modelEntry struct {
	term uint64
	data string
}

// modelGroup is the naive truth about one group.
type modelGroup struct {
	first    uint64 // log entries have at least this index
	log      map[uint64]modelEntry
	pins     map[uint64]string // of the published snapshot
	snap     modelSnap
	marker   modelSnap // installed snapshot whose term is still answered
	voteTerm uint64
	voteCand string
	keys     map[string]string
	top      uint64 // highest index ever in the log or a snapshot
}

type modelSnap struct {
	index, term uint64
	manifest    string
}

// model is the truth about a store.
type model []modelGroup

func newModel(n int) model {
	m := make(model, n)
	for i := range m {
		m[i] = modelGroup{}.clone()
	}
	return m
}

func (g modelGroup) clone() modelGroup {
	g.log, g.pins, g.keys = copyMap(g.log), copyMap(g.pins), copyMap(g.keys)
	return g
}

func copyMap[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, len(m))
	maps.Copy(out, m)
	return out
}

func (m model) clone() model {
	out := make(model, len(m))
	for i := range m {
		out[i] = m[i].clone()
	}
	return out
}

func (g *modelGroup) last() uint64 {
	last := uint64(0)
	for i := range g.log {
		last = max(last, i)
	}
	return last
}

func (g *modelGroup) lowest() uint64 {
	low := uint64(0)
	for i := range g.log {
		if low == 0 || i < low {
			low = i
		}
	}
	return low
}

// next is where the next entry goes.
func (g *modelGroup) next() uint64 { return max(g.last(), g.snap.index) + 1 }

// read is what Read must answer.
func (g *modelGroup) read(i uint64) (string, bool) {
	if e, ok := g.log[i]; ok {
		return e.data, true
	}
	d, ok := g.pins[i]
	return d, ok
}

// groupID spreads the ids.
func groupID(i int) store.GroupID { return store.GroupID(i*1000 + 1) }

// verify compares a store with one state of the model.
func (m model) verify(s *store.Store) error {
	for i := range m {
		if err := m[i].verify(s.Group(groupID(i))); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
	}
	return nil
}

func (g *modelGroup) verify(sg *store.Group) error {
	first, err1 := sg.FirstIndex()
	last, err2 := sg.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if first != g.lowest() || last != g.last() {
		return fmt.Errorf("log %d..%d, want %d..%d", first, last, g.lowest(), g.last())
	}
	for i := uint64(0); i <= g.top+2; i++ {
		if err := g.verifyIndex(sg, i); err != nil {
			return err
		}
	}
	term, err := sg.GetUint64([]byte("LastVoteTerm"))
	cand, err2 := sg.Get([]byte("LastVoteCand"))
	if term != g.voteTerm || string(cand) != g.voteCand || (err == nil) != (g.voteCand != "") || (err2 == nil) != (err == nil) {
		return fmt.Errorf("vote %d %q (%v, %v), want %d %q", term, cand, err, err2, g.voteTerm, g.voteCand)
	}
	for _, k := range modelKeys {
		v, err := sg.Get([]byte(k))
		if want, ok := g.keys[k]; string(v) != want || (err == nil) != ok {
			return fmt.Errorf("key %s is %q (%v), want %q", k, v, err, want)
		}
	}
	return g.verifySnapshot(sg)
}

func (g *modelGroup) verifyIndex(sg *store.Group, i uint64) error {
	var l raft.Log
	err := sg.GetLog(i, &l)
	e, ok := g.log[i]
	switch {
	case ok && (err != nil || l.Term != e.term || string(l.Data) != e.data || l.Index != i):
		return fmt.Errorf("entry %d is term %d with %d bytes (%v), want term %d with %d", i, l.Term, len(l.Data), err, e.term, len(e.data))
	case !ok && i != 0 && i == g.marker.index && i > 1:
		if err != nil || l.Term != g.marker.term || l.Index != i {
			return fmt.Errorf("marker %d is %+v (%v), want term %d", i, l, err, g.marker.term)
		}
	case !ok && err != raft.ErrLogNotFound:
		return fmt.Errorf("entry %d is there (%v)", i, err)
	}
	want, ok := g.read(i)
	got, err := sg.Read(i)
	if ok && (err != nil || string(got) != want) {
		return fmt.Errorf("read %d: %d bytes, %v, want %d", i, len(got), err, len(want))
	}
	if !ok && err != raft.ErrLogNotFound {
		return fmt.Errorf("read %d: %d bytes, %v, want none", i, len(got), err)
	}
	return nil
}

func (g *modelGroup) verifySnapshot(sg *store.Group) error {
	metas, err := sg.Snapshots().List()
	if err != nil {
		return err
	}
	if g.snap.index == 0 {
		if len(metas) != 0 {
			return fmt.Errorf("snapshot %+v, want none", metas[0])
		}
		return nil
	}
	if len(metas) != 1 || metas[0].Index != g.snap.index || metas[0].Term != g.snap.term {
		return fmt.Errorf("snapshots %+v, want %+v", metas, g.snap)
	}
	m, r, err := sg.Snapshots().Open(metas[0].ID)
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != m.Size {
		return fmt.Errorf("stream of %d bytes, %v, want %d", len(b), err, m.Size)
	}
	if got, err := store.ReadManifest(bytes.NewReader(b)); err != nil || string(got) != g.snap.manifest {
		return fmt.Errorf("manifest of %d bytes, %v, want %d", len(got), err, len(g.snap.manifest))
	}
	return nil
}

var (
	modelKeys = []string{"CurrentTerm", "x"}
	config    = raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}}}
)

// driver does random operations on a store and on the model. pick(n) chooses below n.
type driver struct {
	s    *store.Store
	m    model
	pick func(n int) int
	term uint64
	seq  int
}

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
	g, sg := &d.m[i], d.s.Group(groupID(i))
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
			*g = modelGroup{}.clone()
			return outcome{durable: true}, d.s.DeleteGroup(groupID(i))
		}
		return d.compact(g, sg)
	case 7:
		return d.compact(g, sg)
	}
	return d.appendLogs(i)
}

func (d *driver) appendLogs(i int) (outcome, error) {
	g, sg := &d.m[i], d.s.Group(groupID(i))
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
	out.durable = true
	return out, sg.StoreLogs(logs)
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

// TestModel compares a store with the model after every operation and restart.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := crashfs.New()
		o := store.Options{Dir: "/s", FS: fs, SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10,
			OnFatal: func(err error) { panic(err) }}
		s, err := store.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		d := &driver{s: s, m: newModel(2), term: 1, pick: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }}
		defer func() { _ = d.s.Close() }()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if d.pick(15) == 0 {
				if err := d.s.Close(); err != nil {
					t.Fatal(err)
				}
				if d.s, err = store.Open(o); err != nil {
					t.Fatal(err)
				}
			} else if _, err := d.step(); err != nil {
				t.Fatal(err)
			}
			if err := d.m.verify(d.s); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// crashRun is one chain of crashes from a seed.
type crashRun struct {
	t    *testing.T
	r    *rand.Rand
	d    driver
	fs   *crashfs.FS
	o    store.Options
	seed uint64

	freed, copied uint64
}

// mark is a state of the model and the journal's length when it was reached.
type mark struct {
	after   int
	state   model
	between []model // before this state
	durable bool
}

func (c *crashRun) open(fs *crashfs.FS) (*store.Store, error) {
	o := c.o
	o.FS = fs
	return store.Open(o)
}

// candidates lists the states that a disk may have after a crash right before journal step n.
func candidates(marks []mark, n int) (out []model) {
	k := 0
	for k+1 < len(marks) && marks[k+1].after <= n {
		k++
	}
	j := k
	for j > 0 && !marks[j].durable {
		j--
	}
	for i := j; i <= k; i++ {
		out = append(out, marks[i].state)
	}
	for i := j + 1; i <= k+1 && i < len(marks); i++ {
		out = append(append(out, marks[i].between...), marks[i].state)
	}
	return out
}

// match opens an image and finds the state it holds.
func (c *crashRun) match(fs *crashfs.FS, n int, marks []mark) (*store.Store, model) {
	c.t.Helper()
	s, err := c.open(fs)
	if err != nil {
		c.t.Fatalf("seed %d: open after crash at %d: %v", c.seed, n, err)
	}
	var errs []error
	for _, m := range candidates(marks, n) {
		err := m.verify(s)
		if err == nil {
			return s, m.clone()
		}
		errs = append(errs, err)
	}
	c.t.Fatalf("seed %d: crash at %d of %d: no possible state: %v", c.seed, n, marks[len(marks)-1].after, errors.Join(errs...))
	return nil, nil
}

// generation works on the store, crashes at random places, and goes on from one of the images.
func (c *crashRun) generation(steps, images int) {
	c.t.Helper()
	marks := []mark{{state: c.d.m.clone(), durable: true}}
	for range steps {
		out, err := c.d.step()
		if err != nil {
			c.t.Fatalf("seed %d: %v", c.seed, err)
		}
		marks = append(marks, mark{after: c.fs.Len(), state: c.d.m.clone(), between: out.between, durable: out.durable})
	}
	old := c.fs
	st := c.d.s.Stats()
	c.freed, c.copied = c.freed+st.FreedSegments, c.copied+st.CopiedBytes
	if err := c.d.s.Close(); err != nil {
		c.t.Fatal(err)
	}
	for i := range images {
		n := c.r.IntN(old.Len() + 1)
		fs := old.Image(n, c.r)
		s, m := c.match(fs, n, marks)
		if i == images-1 {
			c.d.s, c.d.m, c.fs = s, m, fs
			return
		}
		if err := s.Close(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestCrash builds disk images as crashes may leave them, also crashes during recovery, and checks that each holds every
// acknowledged operation, the one under way in part or not at all, and nothing else.
func TestCrash(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			c := &crashRun{t: t, r: r, fs: crashfs.New(), seed: seed}
			c.o = store.Options{Dir: "/s", SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(err error) { panic(err) }}
			s, err := c.open(c.fs)
			if err != nil {
				t.Fatal(err)
			}
			c.d = driver{s: s, m: newModel(3), term: 1, pick: r.IntN}
			for range 8 {
				c.generation(50, 12)
			}
			if err := c.d.s.Close(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d segments freed, %d bytes copied", c.freed, c.copied)
		})
	}
}
