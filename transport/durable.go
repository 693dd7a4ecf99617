package transport

import (
	"github.com/hashicorp/raft"
)

// Durable tells whether everything that the replica's log had taken up to index is durable. If it is not yet, then is
// called once when it is, or with the error for which it never will be, from any goroutine; it does not wait. then is not called
// if the answer is yes or an error.
type Durable func(index uint64, then func(error)) (bool, error)

// HoldAnswers says that the replica's log takes entries before they are durable, and how to know when they are. From then on
// two kinds of answers are held until the entries of the append that they answer are durable here: those of this replica
// to its leader, which count it for the quorum, and those of followers on their way to this replica's Raft, which has counted
// itself already. So nothing is committed that is not durable on a quorum. A replica that is the only voter gets
// no answers: its log must wait by itself. HoldAnswers is called before Raft starts.
func (rt *RaftTransport) HoldAnswers(d Durable) { rt.durable.Store(&d) }

// lastIndex is the index of a request's last entry, 0 if it has none.
func lastIndex(a *raft.AppendEntriesRequest) uint64 {
	if n := len(a.Entries); n > 0 {
		return a.Entries[n-1].Index
	}
	return 0
}

// holds reports whether the answer to a request is given later. An answer without success, or to a request without entries,
// acknowledges none.
func (rt *RaftTransport) holds(r *inboundRPC, resp raft.RPCResponse) bool {
	a, ok := resp.Response.(*raft.AppendEntriesResponse)
	durable := rt.durable.Load()
	if durable == nil || r.last == 0 || resp.Error != nil || !ok || !a.Success {
		return false
	}
	answer := func(err error) {
		if err != nil {
			err = &RemoteError{Code: CodeClosed, Text: err.Error()}
			r.in.answer(r.call, nil, err)
			return
		}
		rt.respond(r, resp)
	}
	now, err := (*durable)(r.last, answer)
	if err != nil {
		answer(err)
	}
	return err != nil || !now
}

// awaitDurable waits until the entries of a request that a follower has taken are durable here too.
func (rt *RaftTransport) awaitDurable(args *raft.AppendEntriesRequest) error {
	durable, last := rt.durable.Load(), lastIndex(args)
	if durable == nil || last == 0 {
		return nil
	}
	over := make(chan error, 1)
	if now, err := (*durable)(last, func(err error) { over <- err }); now || err != nil {
		return err
	}
	select {
	case err := <-over:
		return err
	case <-rt.done:
		return ErrClosed
	}
}

// clear reports whether a future whose answers are here may be handed to Raft. If not, it is handed over later; so
// are those behind it. p.mu is held.
func (p *appendPipeline) clear(f *appendFuture) bool {
	durable, last := p.rt.durable.Load(), lastIndex(f.args)
	if durable == nil || last == 0 || f.err != nil || f.refused || f.durable {
		return true
	}
	if f.held {
		return false
	}
	f.held = true
	now, err := (*durable)(last, func(err error) { p.cleared(f, err) })
	if err != nil {
		p.broken(f, err)
	}
	f.durable = now
	return now || err != nil
}

// broken notes that a future's entries will never be durable here. p.mu is held.
func (p *appendPipeline) broken(f *appendFuture, err error) {
	f.err = err
	if p.failed == nil {
		p.failed = err
	}
}

// cleared hands over a future whose entries are durable here, or never will be.
func (p *appendPipeline) cleared(f *appendFuture, err error) {
	p.mu.Lock()
	f.durable = err == nil
	if err != nil {
		p.broken(f, err)
		p.signal()
	}
	finished := p.handOver()
	p.mu.Unlock()
	p.report(finished)
}
