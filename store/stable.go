package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The two keys of raft's vote. It writes the term first and the candidate second; a crash between them would leave a voter that
// has voted in the new term for the candidate of the old one. They are one record here.
const (
	keyVoteTerm = "LastVoteTerm"
	keyVoteCand = "LastVoteCand"
)

// keyCurrentTerm is where raft keeps its term.
const keyCurrentTerm = "CurrentTerm"

// Set implements raft.StableStore; it returns when the value is durable. Writing the value a key has costs nothing.
func (g *Group) Set(key, val []byte) error {
	g.wmu.Lock()
	defer g.wmu.Unlock()
	if string(key) == keyVoteCand {
		return g.vote(val)
	}
	return g.set(string(key), val)
}

// SetUint64 implements raft.StableStore. The term of a vote is only kept until its candidate
// is set; it is neither durable nor readable before.
func (g *Group) SetUint64(key []byte, val uint64) error {
	g.wmu.Lock()
	defer g.wmu.Unlock()
	if string(key) == keyVoteTerm {
		if err := g.Err(); err != nil {
			return err
		}
		g.staged = &val
		return nil
	}
	return g.set(string(key), binary.LittleEndian.AppendUint64(nil, val))
}

// Get implements raft.StableStore; ErrNotFound if the key was never set.
func (g *Group) Get(key []byte) ([]byte, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.usable(); err != nil {
		return nil, err
	}
	switch string(key) {
	case keyVoteCand:
		if g.meta.voteCand != nil {
			return bytes.Clone(g.meta.voteCand), nil
		}
	case keyVoteTerm:
		if g.meta.voteCand != nil {
			return binary.LittleEndian.AppendUint64(nil, g.meta.voteTerm), nil
		}
	default:
		if v, ok := g.meta.keys[string(key)]; ok {
			return bytes.Clone(v), nil
		}
	}
	return nil, ErrNotFound
}

// GetUint64 implements raft.StableStore; 0 and ErrNotFound if the key was never set.
func (g *Group) GetUint64(key []byte) (uint64, error) {
	v, err := g.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("key %q of group %d holds %d bytes, not a number", key, g.id, len(v))
	}
	return binary.LittleEndian.Uint64(v), nil
}

// set writes one key. Called with wmu held.
func (g *Group) set(key string, val []byte) error {
	g.mu.RLock()
	old, ok := g.meta.keys[key]
	err := g.usable()
	g.mu.RUnlock()
	if err != nil || ok && bytes.Equal(old, val) {
		return err
	}
	if len(key)+len(val)+4 > stableBytesMax {
		return fmt.Errorf("key of %d bytes with %d: %w", len(key), len(val), ErrTooLarge)
	}
	recs := []record{stableRecord(g.id, key, val)}
	var locs [1]loc
	if err := g.commit(recs, locs[:]); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.meta.keys[key] = bytes.Clone(val)
	return nil
}

// stableRecord is the record of one key.
func stableRecord(id GroupID, key string, val []byte) record {
	data := binary.LittleEndian.AppendUint32(nil, uint32(len(key)))
	data = append(append(data, key...), val...)
	r := record{header: header{kind: kindStable, group: id}, data: data}
	r.seal()
	return r
}

// stableBytesMax bounds one key with its value: state records repeat them.
const stableBytesMax = 64 << 10

// decodeStable is the inverse of set's record.
func decodeStable(data []byte) (key string, val []byte, ok bool) {
	c := cursor{b: data}
	k := c.str()
	return string(k), append([]byte{}, c.b...), !c.bad
}

// vote writes the staged term and the candidate as one record. Called with wmu held.
func (g *Group) vote(candidate []byte) error {
	g.mu.RLock()
	term, old := g.meta.voteTerm, g.meta.voteCand
	err := g.usable()
	g.mu.RUnlock()
	if g.staged != nil {
		term = *g.staged
	}
	if err != nil {
		return err
	}
	if old != nil && term == g.meta.voteTerm && bytes.Equal(old, candidate) {
		g.staged = nil
		return nil
	}
	recs := []record{{header: header{kind: kindVote, group: g.id, term: term}, data: candidate}}
	recs[0].seal()
	var locs [1]loc
	if err := g.commit(recs, locs[:]); err != nil {
		return err
	}
	g.staged = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	g.meta.voteTerm, g.meta.voteCand = term, append([]byte{}, candidate...)
	return nil
}
