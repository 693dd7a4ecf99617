package group

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// wire is a replica's transport with the eyes of the host: it notices replication
// streams that broke, because raft sends again only when something triggers it.
type wire struct {
	RaftTransport
	g *Group
}

// SetHeartbeatHandler ignores the handler. Heartbeats that bypass raft's main
// goroutine make replicas diverge (hashicorp/raft#695).
func (w *wire) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries implements raft.Transport.
func (w *wire) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := w.RaftTransport.AppendEntries(id, target, args, resp)
	if err != nil {
		w.g.host.watch.stalled(w.g)
	}
	return err
}

// AppendEntriesPipeline implements raft.Transport.
func (w *wire) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := w.RaftTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return &pipeline{AppendPipeline: p, g: w.g}, nil
}

// InstallSnapshot implements raft.Transport. A follower may hold a newer snapshot than
// the leader sends: one that the leader's predecessor, deposed in between, has still
// delivered. It must refuse the older one, and raft would offer it again for ever, so the
// leader takes a newer one.
func (w *wire) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := w.RaftTransport.InstallSnapshot(id, target, args, resp, data)
	if err != nil && refusedByRaft(err) {
		w.g.host.watch.outdated(w.g, args.LastLogIndex)
	}
	return err
}

// refusedByRaft tells whether an error came from the other replica rather than from the
// way to it.
func refusedByRaft(err error) bool {
	if re, ok := errors.AsType[*transport.RemoteError](err); ok {
		return re.Code == transport.CodeRaft
	}
	for _, e := range []error{transport.ErrPeerDown, transport.ErrTimeout, transport.ErrClosed, transport.ErrBacklog} {
		if errors.Is(err, e) {
			return false
		}
	}
	return true
}

// pipeline notices its end: raft closes it when an answer is missing or negative, and
// what was in flight in it waits for the next trigger.
type pipeline struct {
	raft.AppendPipeline
	g *Group
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.g.host.watch.stalled(p.g)
	return p.AppendPipeline.Close()
}
