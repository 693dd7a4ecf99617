package group

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// A commit needs a quorum, so of three replicas the leader and one follower; the other one is
// spare. What a spare follower gets may wait a little and come together: then entries that
// arrive one by one cost it one frame, one sync and one answer for several. Nothing else
// changes: it holds and answers what every follower does, and counts for the quorum when it
// has synced. It is behind by spareLooks times spareGap more at most, and only if entries are small and few.
//
// Which followers are spare is the leader's choice, another one for each group. If those it
// relies on turn out to be slow, they become spare themselves.
const (
	// spareGap is the least time between two frames to a spare follower. If what was appended before has been committed by then, without
	// it, entries may go on gathering until the next look, spareLooks times in all.
	spareGap   = 3 * time.Millisecond
	spareLooks = 3
	// Frames of more are followed by the next at once: there is little to gain, and the follower
	// had better keep up, or catch up.
	spareBytesMax, spareEntriesMax = 16 << 10, 16
	// spareStrikes is how often in succession nothing newer than what a spare follower was sent
	// has been committed, when the roles change.
	spareStrikes = 3
)

// spares is a leader's choice of spare followers.
type spares struct {
	turn atomic.Uint32 // moves the choice on
}

// pipeline notices its end: raft closes it when an answer is missing or negative, and
// what was in flight in it waits for the next trigger. It also holds back what a
// spare follower gets. Raft uses it from one goroutine, but for Consumer and Close.
type pipeline struct {
	raft.AppendPipeline
	g       *Group
	to      transport.NodeID
	strikes int
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.g.host.watch.stalled(p.g)
	return p.AppendPipeline.Close()
}

// AppendEntries implements raft.AppendPipeline. One without entries comes when none has been due for
// the commit timeout.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if len(args.Entries) == 0 && p.g.apply.heat.Load() < warmBytes {
		return nil, errRests
	}
	if p.g.endsForLacking(p.to) {
		return nil, errRests
	}
	f, err := p.AppendPipeline.AppendEntries(args, resp)
	if err == nil && p.mayWait(args) {
		p.wait(args.Entries[len(args.Entries)-1].Index)
	}
	return f, err
}

// mayWait tells whether the frame after args may wait.
func (p *pipeline) mayWait(args *raft.AppendEntriesRequest) bool {
	if len(args.Entries) == 0 || len(args.Entries) > spareEntriesMax {
		return false
	}
	bytes := 0
	for _, e := range args.Entries {
		bytes += len(e.Data)
	}
	return bytes < spareBytesMax && p.g.isSpare(p.to)
}

// wait lets entries gather behind the one at sent, as long as the followers that are not spare commit them meanwhile.
func (p *pipeline) wait(sent uint64) {
	timer := time.NewTimer(spareGap)
	defer timer.Stop()
	for look, due := 1, sent; ; look++ {
		select {
		case <-timer.C:
		case <-p.g.stopped:
			return
		}
		in := p.g.running.Load()
		if in == nil {
			return
		}
		last, committed := in.raft.LastIndex(), in.raft.CommitIndex()
		if p.late(sent, last, committed) || committed < due || last == sent || last-sent >= spareEntriesMax || look == spareLooks {
			return
		}
		due = last
		timer.Reset(spareGap)
	}
}

// late tells whether those that are not spare have committed nothing behind sent although there was something. A few times in succession, and the choice moves on.
func (p *pipeline) late(sent, last, committed uint64) bool {
	if last <= sent+1 || committed > sent {
		p.strikes = 0
		return false
	}
	if p.strikes++; p.strikes >= spareStrikes {
		p.strikes = 0
		p.g.spares.turn.Add(1)
	}
	return true
}

// isSpare tells whether enough other followers have a link for a commit without n.
func (g *Group) isSpare(n transport.NodeID) bool {
	voters := g.voters()
	followers := make([]transport.NodeID, 0, len(voters))
	for _, v := range voters {
		if v != g.host.cfg.Local {
			followers = append(followers, v)
		}
	}
	if len(followers) < 2 || len(followers) == len(voters) {
		return false
	}
	needed := len(voters) / 2
	first := int((uint64(g.spec.ID) + uint64(g.spares.turn.Load())) % uint64(len(followers)))
	for i := range followers {
		f := followers[(first+i)%len(followers)]
		if f == n || needed == 0 {
			return needed == 0
		}
		if g.host.cfg.Mesh.Peer(f).Up {
			needed--
		}
	}
	return false
}
