package group

import (
	"errors"
	"slices"

	"github.com/hashicorp/raft"
)

// fillBatchMax is about what the transport makes of a request: it sends the first entries and leaves the rest for the next one.
const fillBatchMax = 4 << 20

// errStopping ends an append of a replica that stops.
var errStopping = errors.New("group: the replica stops")

// fills tells whether a replica is being filled: it is in the group and has no vote. What it gets is bounded by HostConfig.Fill.
func (w *wire) fills(id raft.ServerID) bool {
	return w.g.host.cfg.Fill != nil && w.g.learners.Load() && slices.ContainsFunc(w.g.configuration().Servers, func(s raft.Server) bool {
		return s.ID == id && s.Suffrage != raft.Voter
	})
}

// paced waits until a request may be sent; false if the replica stops meanwhile. Raft sends to each follower on a goroutine of its own, so nobody
// else waits.
func (w *wire) paced(id raft.ServerID, args *raft.AppendEntriesRequest) bool {
	if len(args.Entries) == 0 || !w.fills(id) {
		return true
	}
	size := 0
	for _, e := range args.Entries {
		if size += len(e.Data) + len(e.Extensions); size > fillBatchMax {
			size = max(fillBatchMax, len(args.Entries[0].Data))
			break
		}
	}
	return w.g.host.cfg.Fill.Take(size, w.g.stopped)
}
