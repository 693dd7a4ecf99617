package group

import (
	"github.com/hashicorp/raft"
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
