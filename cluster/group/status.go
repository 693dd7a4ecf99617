package group

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// MethodStatus is the transport method number under which hosts ask each other about
// replicas. See docs/formats/cluster-calls.md.
const MethodStatus uint8 = 0x21

const (
	statusVersion = 1
	// statusGenerations is the version of an answer in which a replica has another generation than 0.
	statusGenerations = 2
	// statusGroupsMax bounds the groups of one question.
	statusGroupsMax = 4096
	leaderBytesMax  = 512

	// askLeaderless marks a question of a node that knows no leader. If the asked
	// replica believes that the asker leads, it learns better.
	askLeaderless = 1
	// askSleeps marks a question of a node that knows what it means that a replica sleeps. For another one it is woken.
	askSleeps = 2

	statusKnown     = 1
	statusLeader    = 2
	statusCandidate = 4
	statusVoter     = 8
	// statusUnwilling: the node is being stopped, or its log does not get on, and wants no leaders.
	statusUnwilling = 16
	// statusSleeps: it has no Raft instance at the moment and is as it was under its leader.
	statusSleeps = 32
	// statusDamaged: it does not run, because its log is damaged. Nodes that do not know the flag ignore it.
	statusDamaged = 64
)

var errStatus = errors.New("malformed status message")

// replicaStatus is what a replica says about itself.
type replicaStatus struct {
	flags     uint8
	term      uint64
	lastTerm  uint64
	lastIndex uint64
	// leader is who it follows; empty if unknown or itself.
	leader     transport.NodeID
	generation uint64
}

func (s replicaStatus) known() bool  { return s.flags&statusKnown != 0 }
func (s replicaStatus) leads() bool  { return s.flags&statusLeader != 0 }
func (s replicaStatus) voter() bool  { return s.flags&statusVoter != 0 }
func (s replicaStatus) sleeps() bool { return s.flags&statusSleeps != 0 }

func encodeStatusRequest(flags uint8, ids []transport.GroupID) []byte {
	b := make([]byte, 0, 8+len(ids)*4)
	b = append(b, statusVersion, flags)
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

// cursor reads a message; after the first fault everything reads as zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) u8() uint8 {
	if len(c.b) == 0 {
		c.bad = true
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) bytes(limit uint64) []byte {
	n := c.uvarint()
	if n > limit || n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

// count reads a number of items of at least one byte each.
func (c *cursor) count() int {
	n := c.uvarint()
	if n > statusGroupsMax || n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return 0
	}
	return int(n)
}

// version reads the version, which is at most newest.
func (c *cursor) version(what string, newest uint8) (uint8, error) {
	v := c.u8()
	if c.bad || v < statusVersion || v > newest {
		return 0, fmt.Errorf("%w: %s version %d", errStatus, what, v)
	}
	return v, nil
}

func decodeStatusRequest(b []byte) (flags uint8, ids []transport.GroupID, err error) {
	c := cursor{b: b}
	if _, err := c.version("question", statusVersion); err != nil {
		return 0, nil, err
	}
	flags = c.u8()
	ids = make([]transport.GroupID, 0, c.count())
	for range cap(ids) {
		ids = append(ids, transport.GroupID(c.uvarint()))
	}
	if c.bad || len(c.b) > 0 {
		return 0, nil, fmt.Errorf("%w: question of %d bytes", errStatus, len(b))
	}
	return flags, ids, nil
}

func encodeStatusResponse(all []replicaStatus) []byte {
	b := make([]byte, 0, 8+len(all)*32)
	// Nodes that know the first version only are in no cluster with a later generation.
	version := uint8(statusVersion)
	if slices.ContainsFunc(all, func(s replicaStatus) bool { return s.generation > 0 }) {
		version = statusGenerations
	}
	b = append(b, version)
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = append(b, s.flags)
		if !s.known() {
			continue
		}
		b = binary.AppendUvarint(b, s.term)
		b = binary.AppendUvarint(b, s.lastTerm)
		b = binary.AppendUvarint(b, s.lastIndex)
		b = binary.AppendUvarint(b, uint64(len(s.leader)))
		b = append(b, s.leader...)
		if version >= statusGenerations {
			b = binary.AppendUvarint(b, s.generation)
		}
	}
	return b
}

func decodeStatusResponse(b []byte) ([]replicaStatus, error) {
	c := cursor{b: b}
	version, err := c.version("answer", statusGenerations)
	if err != nil {
		return nil, err
	}
	all := make([]replicaStatus, 0, c.count())
	for range cap(all) {
		s := replicaStatus{flags: c.u8()}
		if s.known() {
			s.term, s.lastTerm, s.lastIndex = c.uvarint(), c.uvarint(), c.uvarint()
			s.leader = transport.NodeID(c.bytes(leaderBytesMax))
			if version >= statusGenerations {
				s.generation = c.uvarint()
			}
		}
		all = append(all, s)
	}
	if c.bad || len(c.b) > 0 {
		return nil, fmt.Errorf("%w: answer of %d bytes", errStatus, len(b))
	}
	return all, nil
}

// status returns what this replica says about itself.
func (g *Group) status() replicaStatus {
	r := g.replica()
	asleep := g.asleep.Load()
	s := replicaStatus{flags: statusKnown, term: r.CurrentTerm(), generation: g.spec.Generation}
	switch r.State() {
	case raft.Leader:
		s.flags |= statusLeader
	case raft.Candidate:
		s.flags |= statusCandidate
	}
	if at, _ := r.LeaderWithID(); at != raft.ServerAddress(g.host.cfg.Local) {
		s.leader = transport.NodeID(at)
	}
	if asleep {
		s = g.statusAsleep(r)
	}
	if g.isVoter() {
		s.flags |= statusVoter
	}
	if g.host.unwilling() {
		s.flags |= statusUnwilling
	}
	s.lastTerm, s.lastIndex = g.lastEntry()
	return s
}

// lastEntry returns term and index of the newest entry, of the log or the snapshot.
func (g *Group) lastEntry() (term, index uint64) {
	if i, err := g.log.LastIndex(); err == nil && i > 0 {
		var l raft.Log
		if g.log.GetLog(i, &l) == nil {
			return l.Term, i
		}
	}
	if metas, err := g.log.Snapshots().List(); err == nil && len(metas) > 0 {
		return metas[0].Term, metas[0].Index
	}
	return 0, 0
}

// answerStatus serves MethodStatus.
func (h *Host) answerStatus(_ context.Context, from transport.NodeID, request []byte) ([]byte, error) {
	flags, ids, err := decodeStatusRequest(request)
	if err != nil {
		return nil, fmt.Errorf("status asked by %s: %w", from, err)
	}
	all := make([]replicaStatus, len(ids))
	for i, id := range ids {
		g, ok := h.Group(id)
		if !ok {
			if h.isDamaged(id) {
				all[i].flags = statusDamaged
			}
			if flags&askLeaderless != 0 && h.cfg.OnUnknown != nil {
				h.unknownGroup(id, from, 0)
			}
			continue
		}
		if flags&askLeaderless != 0 {
			g.doubt(from)
			if flags&askSleeps == 0 {
				g.rouse(true)
			}
			// A replica that has just started asks; it can be replicated to from now on.
			g.tryAgain()
			g.ignorant(from)
		}
		all[i] = g.status()
		if all[i].sleeps() && flags&(askLeaderless|askSleeps) == askLeaderless {
			// It is about to look for a leader itself.
			all[i].flags &^= statusLeader | statusSleeps
			all[i].leader = ""
		}
	}
	return encodeStatusResponse(all), nil
}

// askStatus asks another node about groups; the answers are in the order of ids.
func (h *Host) askStatus(ctx context.Context, n transport.NodeID, flags uint8, ids []transport.GroupID) ([]replicaStatus, error) {
	b, err := h.cfg.Mesh.Call(ctx, n, MethodStatus, encodeStatusRequest(flags, ids))
	if err != nil {
		return nil, fmt.Errorf("ask %s about %d groups: %w", n, len(ids), err)
	}
	all, err := decodeStatusResponse(b)
	if err != nil {
		return nil, fmt.Errorf("ask %s about %d groups: %w", n, len(ids), err)
	}
	if len(all) != len(ids) {
		return nil, fmt.Errorf("%w: %d answers to %d groups from %s", errStatus, len(all), len(ids), n)
	}
	return all, nil
}

// Positions asks a node, which may be this one, how far its replicas' logs reach, in the order of ids.
func (h *Host) Positions(ctx context.Context, n transport.NodeID, ids []transport.GroupID) ([]Position, error) {
	all := make([]Position, 0, len(ids))
	for part := range slices.Chunk(ids, statusGroupsMax) {
		some, err := h.statusOf(ctx, n, part)
		if err != nil {
			return nil, err
		}
		for _, s := range some {
			p := Position{Known: s.known(), Term: s.term, LastTerm: s.lastTerm, LastIndex: s.lastIndex, Generation: s.generation, Voter: s.voter(), Damaged: s.flags&statusDamaged != 0, Leader: s.leader}
			if s.leads() {
				p.Leader = n
			}
			all = append(all, p)
		}
	}
	return all, nil
}

func (h *Host) statusOf(ctx context.Context, n transport.NodeID, ids []transport.GroupID) ([]replicaStatus, error) {
	if n != h.cfg.Local {
		return h.askStatus(ctx, n, 0, ids)
	}
	all := make([]replicaStatus, len(ids))
	for i, id := range ids {
		if g, ok := h.Group(id); ok {
			all[i] = g.status()
		} else if h.isDamaged(id) {
			all[i].flags = statusDamaged
		}
	}
	return all, nil
}
