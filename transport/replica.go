package transport

import (
	"strconv"
	"strings"
)

// ReplicaID names one replica of a group: it is raft's ServerID, while the NodeID is its
// ServerAddress. A node that hosts a group for the first time since the group was founded has the
// generation 0 and its NodeID as the name, "n1/6f…". One that is given a replica later
// has the generation of that decision, "n1/6f…#812": a replica whose log was removed is never
// born again under its name, so that whatever it answered before can not be taken for
// the word of the new one (ADR 22).
type ReplicaID string

// generationMark stands between node and generation. No NodeID has it.
const generationMark = "#"

// Replica returns the name of a node's replica of a generation.
func Replica(n NodeID, generation uint64) ReplicaID {
	if generation == 0 {
		return ReplicaID(n)
	}
	return ReplicaID(string(n) + generationMark + strconv.FormatUint(generation, 10))
}

// Node returns where the replica is.
func (r ReplicaID) Node() NodeID {
	node, _, _ := strings.Cut(string(r), generationMark)
	return NodeID(node)
}

// Generation returns the replica's generation, 0 for a founder; ok is false for a name that
// Replica does not make.
func (r ReplicaID) Generation() (g uint64, ok bool) {
	_, text, marked := strings.Cut(string(r), generationMark)
	if !marked {
		return 0, true
	}
	g, err := strconv.ParseUint(text, 10, 64)
	return g, err == nil && Replica(r.Node(), g) == r
}
