package transport

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pipelineUnread is how many finished futures may wait for Raft to read them, or for this replica's own disk.
const pipelineUnread = 64

// appendPipeline keeps a few append frames of one group to one follower in flight
// on one stream. It lives on the caller's and the link's goroutines.
//
// A request larger than Config.AppendBytesMax is sent as several frames instead of
// being shortened: in pipeline mode Raft sends the rest only at its next trigger.
type appendPipeline struct {
	rt   *RaftTransport
	to   ReplicaID
	sess *session

	mu      sync.Mutex
	order   []*appendFuture // sent and not handed to Raft, oldest first
	frames  int             // in flight
	failed  error           // the pipeline accepts nothing more
	changed chan struct{}   // closed and replaced when frames or failed change

	ready chan raft.AppendFuture
	done  chan struct{} // closed at Close
	once  sync.Once
}

// appendFuture is the future of one request, made of one or more frames. The
// fields in the middle are guarded by the pipeline's mutex.
type appendFuture struct {
	start time.Time
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse // the first refusal, or the last success

	open    int  // frames without an answer
	sent    bool // all frames are sent
	refused bool // resp is a refusal
	held    bool // it waits, or has waited, for this replica's own disk
	durable bool // its entries are durable here

	err  error // written before done is closed
	done chan struct{}
}

// Error waits for the answer.
func (f *appendFuture) Error() error {
	<-f.done
	return f.err
}
func (f *appendFuture) Start() time.Time                      { return f.start }
func (f *appendFuture) Request() *raft.AppendEntriesRequest   { return f.args }
func (f *appendFuture) Response() *raft.AppendEntriesResponse { return f.resp }

// AppendEntriesPipeline implements raft.Transport.
func (rt *RaftTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if rt.m.cfg.PipelineDepth < 2 {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	p, err := rt.m.peer(NodeID(target))
	if err != nil {
		return nil, err
	}
	sess := p.current()
	if sess == nil {
		return nil, ErrPeerDown
	}
	return &appendPipeline{
		rt: rt, to: ReplicaID(id), sess: sess, changed: make(chan struct{}),
		ready: make(chan raft.AppendFuture, pipelineUnread+rt.m.cfg.PipelineDepth), done: make(chan struct{}),
	}, nil
}

// Consumer implements raft.AppendPipeline.
func (p *appendPipeline) Consumer() <-chan raft.AppendFuture { return p.ready }

// AppendEntries implements raft.AppendPipeline. It waits while the window is full.
func (p *appendPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if !p.rt.m.cfg.Healthy() {
		p.rt.m.stats.unhealthy.Add(1)
		return nil, ErrUnhealthy
	}
	f := &appendFuture{start: time.Now(), args: args, resp: resp, done: make(chan struct{})}
	timer := time.NewTimer(p.rt.m.cfg.AnswerWait)
	defer timer.Stop()
	if err := p.sendAll(f, timer.C); err != nil {
		p.fail(err)
		p.rt.failedAppend(p.to.Node(), args)
		return nil, err
	}
	return f, nil
}

// sendAll sends the frames of a request one after the other.
func (p *appendPipeline) sendAll(f *appendFuture, timeout <-chan time.Time) error {
	rest := *f.args
	for first := true; first || len(rest.Entries) > 0; first = false {
		n := fit(rest.Entries, p.rt.m.cfg.AppendBytesMax)
		chunk := rest
		chunk.Entries, rest.Entries = rest.Entries[:n], rest.Entries[n:]
		if n > 0 {
			last := chunk.Entries[n-1]
			rest.PrevLogEntry, rest.PrevLogTerm = last.Index, last.Term
		}
		req, err := p.rt.frameFor(p.to, p.rt.capped(&chunk))
		if err != nil {
			return err
		}
		if err := p.reserve(f, first, timeout); err != nil {
			return err
		}
		if _, err := p.sess.sendWait(p.done, timeout, req, func(b []byte, err error) { p.answered(f, b, err) }); err != nil {
			return err
		}
	}
	p.mu.Lock()
	f.sent = true
	finished := p.handOver()
	p.mu.Unlock()
	p.report(finished)
	return nil
}

// reserve takes a place in the window for one frame of f.
func (p *appendPipeline) reserve(f *appendFuture, first bool, timeout <-chan time.Time) error {
	for {
		p.mu.Lock()
		if p.failed != nil {
			defer p.mu.Unlock()
			return p.failed
		}
		unread := len(p.ready)+len(p.order) >= pipelineUnread
		if p.frames < p.rt.m.cfg.PipelineDepth && !unread {
			p.frames++
			f.open++
			if first {
				p.order = append(p.order, f)
			}
			p.mu.Unlock()
			return nil
		}
		changed := p.changed
		p.mu.Unlock()
		if err := p.pause(changed, unread, timeout); err != nil {
			return err
		}
	}
}

// pause waits for a change. Raft reading the ready channel is not announced, so
// that rare case is looked at again after a millisecond.
func (p *appendPipeline) pause(changed <-chan struct{}, unread bool, timeout <-chan time.Time) error {
	var again <-chan time.Time
	if unread {
		t := time.NewTimer(time.Millisecond)
		defer t.Stop()
		again = t.C
	}
	select {
	case <-changed:
		return nil
	case <-again:
		return nil
	case <-p.done:
		return raft.ErrPipelineShutdown
	case <-p.rt.done:
		return ErrClosed
	case <-timeout:
		return fmt.Errorf("%w: append window stayed full", ErrTimeout)
	}
}

// answered takes the answer of one frame. It runs on the goroutine of the link.
func (p *appendPipeline) answered(f *appendFuture, b []byte, err error) {
	var resp appendAnswer
	if err == nil {
		err = p.sess.codec.readResponse(b, &resp)
	}
	if err == nil && resp.Success {
		p.rt.supported(p.to, f.args.Term, Support{Process: p.sess.process, Turns: resp.turns})
	}
	p.mu.Lock()
	p.frames--
	f.open--
	switch {
	case err != nil:
		if f.err == nil {
			f.err = err
		}
		if p.failed == nil {
			p.failed = err
		}
	case !f.refused:
		*f.resp = resp.AppendEntriesResponse
		f.refused = !resp.Success
	}
	finished := p.handOver()
	p.signal()
	p.mu.Unlock()
	p.report(finished)
}

// handOver passes finished futures to Raft, in the order of sending; p.mu is held.
// reserve keeps room for all of them.
func (p *appendPipeline) handOver() (finished []*appendFuture) {
	for len(p.order) > 0 && p.order[0].sent && p.order[0].open == 0 && p.clear(p.order[0]) {
		f := p.order[0]
		p.order[0] = nil
		p.order = p.order[1:]
		if f.err != nil {
			// Raft looks at the response only: neither success nor a term.
			*f.resp = raft.AppendEntriesResponse{}
			finished = append(finished, f)
		}
		close(f.done)
		p.ready <- f
	}
	return finished
}

// report tells the host about requests that failed.
func (p *appendPipeline) report(failed []*appendFuture) {
	for _, f := range failed {
		p.rt.failedAppend(p.to.Node(), f.args)
	}
}

// signal wakes those who wait for a place; p.mu is held.
func (p *appendPipeline) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// fail makes the pipeline refuse everything that follows.
func (p *appendPipeline) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
	p.signal()
}

// Close implements raft.AppendPipeline. Answers that still arrive are dropped.
func (p *appendPipeline) Close() error {
	p.once.Do(func() {
		close(p.done)
		p.fail(raft.ErrPipelineShutdown)
	})
	return nil
}
