package group

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// memPipeline sends requests of raft's one after the other, as far as the first that fails.
type memPipeline struct {
	w     *memWire
	to    transport.ReplicaID
	sends chan *memAppend
	ready chan raft.AppendFuture
	once  sync.Once
	done  chan struct{}
}

type memAppend struct {
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	start time.Time
	err   error
	done  chan struct{}
}

func (a *memAppend) Error() error                          { <-a.done; return a.err }
func (a *memAppend) Start() time.Time                      { return a.start }
func (a *memAppend) Request() *raft.AppendEntriesRequest   { return a.args }
func (a *memAppend) Response() *raft.AppendEntriesResponse { return a.resp }

func newMemPipeline(w *memWire, to transport.ReplicaID) *memPipeline {
	p := &memPipeline{w: w, to: to, sends: make(chan *memAppend, 16), ready: make(chan raft.AppendFuture, 16), done: make(chan struct{})}
	go p.run()
	return p
}

func (p *memPipeline) run() {
	for {
		select {
		case <-p.done:
			return
		case <-p.w.done:
			return
		case a := <-p.sends:
			time.Sleep(p.w.n.net.slow[p.to.Node()])
			out, err := p.w.call(p.to, clonedAppend(a.args), nil)
			if a.err = err; err == nil {
				*a.resp = *out.(*raft.AppendEntriesResponse)
			}
			close(a.done)
			if err != nil {
				_ = p.Close()
				return
			}
			select {
			case p.ready <- a:
			case <-p.done:
				return
			}
		}
	}
}

func (p *memPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	a := &memAppend{args: args, resp: resp, start: time.Now(), done: make(chan struct{})}
	select {
	case p.sends <- a:
		return a, nil
	case <-p.done:
		return nil, raft.ErrPipelineShutdown
	case <-p.w.done:
		return nil, raft.ErrPipelineShutdown
	}
}

func (p *memPipeline) Consumer() <-chan raft.AppendFuture { return p.ready }

func (p *memPipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}
