package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
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
