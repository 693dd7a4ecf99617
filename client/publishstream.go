package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Bounds of what one request carries.
const (
	publicationsMax     = 256
	publicationBytesMax = 256 << 10 // and the message that goes beyond
	// moreBytesMax bounds what a message has beside its body: with the body and the others it fits a request, which may be 1 MiB larger than a body.
	moreBytesMax = 512 << 10
)

// brokenMax is how many streams may break with a message by a fault of a node.
const brokenMax = 10

// run has messages sent, by one stream after the other, until the publisher is closed and none is left, or is broken off.
func (p *Publisher) run() {
	defer close(p.ended)
	w := waits{c: p.c}
	for p.waitForWork() {
		n := p.c.node()
		answered, err := p.stream(n)
		if err == nil || p.working.Err() != nil {
			break
		}
		if answered {
			w.reset()
		}
		again := passing(err)
		p.recall(err, again)
		if !again {
			p.c.log.Warn("publishing failed", "node", n.addr, "err", err)
			continue
		}
		p.c.failed(n)
		p.c.log.Warn("publishing stream lost, trying again", "node", n.addr, "err", err)
		if w.pause(p.working) != nil {
			break
		}
	}
	p.mu.Lock()
	p.recallLocked()
	rest := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	p.resolve(ErrClosed, rest...)
}

// waitForWork waits for a message; false tells that none comes any more.
func (p *Publisher) waitForWork() bool {
	for {
		p.mu.Lock()
		work, over := len(p.waiting) > 0, p.closed && p.outstanding == 0
		p.mu.Unlock()
		switch {
		case over || p.working.Err() != nil:
			return false
		case work:
			return true
		}
		select {
		case <-p.wake:
		case <-p.working.Done():
		}
	}
}

// recall takes back what a stream that broke was sent. again tells that it is to be sent by another one, or else it has failed.
func (p *Publisher) recall(err error, again bool) {
	p.mu.Lock()
	var failed []*Pending
	sent := p.recallLocked()
	switch {
	case !again && (sent == 0 || !ofRequest(err)):
		failed, p.waiting = p.waiting, nil
	case !again:
		failed, p.waiting = slices.Clone(p.waiting[:sent]), p.waiting[sent:] // the others are in no request yet
	case p.cfg.NoResend:
		failed, p.waiting = slices.Clone(p.waiting[:sent]), p.waiting[sent:]
	case broken(err):
		failed = p.givenUpLocked(sent)
	}
	p.blocked = ""
	p.mu.Unlock()
	p.resolve(err, failed...)
}

// givenUpLocked takes those out of what was sent that too many streams have broken with: one of them is why, and it would break each stream that
// comes.
func (p *Publisher) givenUpLocked(sent int) (failed []*Pending) {
	keep := make([]*Pending, 0, len(p.waiting))
	for i, item := range p.waiting {
		if i < sent {
			if item.broke++; item.broke >= brokenMax {
				failed = append(failed, item)
				continue
			}
		}
		keep = append(keep, item)
	}
	p.waiting = keep
	return failed
}

// recallLocked puts what was sent in front of what waits, in order, and returns how many these are.
func (p *Publisher) recallLocked() int {
	list := make([]*Pending, 0, len(p.sent)+len(p.waiting))
	for _, item := range p.sent {
		item.unknown = true
		list = append(list, item)
	}
	clear(p.sent)
	slices.SortFunc(list, func(a, b *Pending) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	n := len(list)
	p.waiting = append(list, p.waiting...)
	return n
}

// publishStream is one stream of a publisher.
type publishStream struct {
	p      *Publisher
	stream grpc.BidiStreamingClient[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse]
	number uint64 // of the newest message of the stream; by the sender, under the publisher's lock
}

// received is what the receiver of a stream ends with.
type received struct {
	answered bool // there were results
	err      error
}

// stream sends messages by one stream until the publisher is closed and all have results, which is no error, or it breaks.
func (p *Publisher) stream(n *node) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(p.working)
	defer cancel(nil)
	defer p.watch(cancel)()
	answered, err = p.exchange(ctx, cancel, n)
	if err != nil && p.working.Err() == nil && errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return answered, err
}

// errSilent is why a stream is given up that brings no results.
var errSilent = &Error{Code: codes.Unavailable, Message: "no result came in the time for it"}

// watch gives a stream up that brings no results, until the returned function is called.
func (p *Publisher) watch(giveUp context.CancelCauseFunc) (stop func()) {
	every := p.cfg.ResultTimeout
	if every == 0 {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before, waited, stopped := p.results, false, false
	var timer *time.Timer
	timer = time.AfterFunc(every, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if stopped {
			return
		}
		waits := len(p.sent) > 0 && p.blocked == ""
		if waits && waited && p.results == before {
			giveUp(errSilent)
			return
		}
		before, waited = p.results, waits
		timer.Reset(every)
	})
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// exchange is what a stream does.
func (p *Publisher) exchange(ctx context.Context, cancel context.CancelCauseFunc, n *node) (answered bool, err error) {
	stream, err := warrenv1.NewPublishServiceClient(n.conn).PublishStream(ctx)
	if err != nil {
		return false, errorOf(p.working, err)
	}
	x := &publishStream{p: p, stream: stream}
	ended := make(chan received, 1)
	go func() { ended <- x.receive() }() // its end is awaited below
	sendErr := stream.Send(&warrenv1.PublishStreamRequest{Open: &warrenv1.PublishOpen{Vhost: p.c.cfg.VHost}})
	for sendErr == nil {
		var req *warrenv1.PublishStreamRequest
		var over bool
		if req, over = x.take(); over {
			_ = stream.CloseSend()
			r := <-ended
			return r.answered, nil // there is nothing left to lose
		}
		if req != nil {
			sendErr = stream.Send(req)
			continue
		}
		select {
		case <-p.wake:
		case r := <-ended:
			return r.answered, errorOf(p.working, r.err)
		}
	}
	if !errors.Is(sendErr, io.EOF) { // else what it ended with is told to the receiver
		cancel(nil)
		r := <-ended
		return r.answered, errorOf(p.working, sendErr)
	}
	r := <-ended
	return r.answered, errorOf(p.working, r.err)
}

// take takes messages to send; over tells that the publisher is closed and none is left.
func (x *publishStream) take() (req *warrenv1.PublishStreamRequest, over bool) {
	p := x.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && p.outstanding == 0 {
		return nil, true
	}
	if len(p.waiting) == 0 || p.blocked != "" {
		return nil, false
	}
	req = &warrenv1.PublishStreamRequest{}
	n, bytes := 0, 0
	for n < len(p.waiting) && n < publicationsMax && bytes < publicationBytesMax {
		item := p.waiting[n]
		n++
		bytes += item.size
		x.number++
		p.sent[x.number] = item
		req.Publications = append(req.Publications, item.pub)
	}
	clear(p.waiting[:n])
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting = nil
	}
	return req, false
}

// receive takes results until the stream ends.
func (x *publishStream) receive() (r received) {
	for {
		resp, err := x.stream.Recv()
		if err != nil {
			r.err = err
			return r
		}
		if resp.Blocked != nil {
			x.block(resp.GetBlocked())
		}
		for _, result := range resp.GetResults() {
			if r.err = x.result(result); r.err != nil {
				return r
			}
			r.answered = true
		}
	}
}

func (x *publishStream) block(reason string) {
	x.p.mu.Lock()
	x.p.blocked = reason
	x.p.mu.Unlock()
	x.p.signal()
	if reason != "" {
		x.p.c.log.Warn("the node takes no messages", "reason", reason)
	}
}

// result resolves the messages of a result.
func (x *publishStream) result(r *warrenv1.PublishResult) error {
	p := x.p
	p.mu.Lock()
	if r.GetFirst() == 0 || r.GetLast() < r.GetFirst() || r.GetLast() > x.number {
		p.mu.Unlock()
		return &Error{Code: codes.Internal, Message: "the node tells the result of a message that was not sent"}
	}
	var items []*Pending
	for n := r.GetFirst(); n <= r.GetLast(); n++ {
		if item := p.sent[n]; item != nil {
			items = append(items, item)
			delete(p.sent, n)
		}
	}
	p.results++
	p.mu.Unlock()
	p.resolve(resultOf(r), items...)
	return nil
}
