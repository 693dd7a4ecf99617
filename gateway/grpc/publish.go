package grpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
)

// unansweredMax is how many messages of a stream may be without a result that has been sent: then no more are read.
const unansweredMax = 16 << 10

// failuresMax is how many results with an error wait to be sent, at which no more messages are read either: each has a text.
const failuresMax = 256

type publishService struct {
	warrenv1.UnimplementedPublishServiceServer
	s *Server
}

// Publish implements the service.
func (p *publishService) Publish(ctx context.Context, req *warrenv1.PublishRequest) (*warrenv1.PublishResponse, error) {
	m, err := p.s.publicationOf(req.GetPublication())
	if err != nil {
		return nil, err
	}
	if err := checkName("vhost", req.GetVhost()); err != nil {
		return nil, err
	}
	if err := p.s.holdUp(ctx, p.s.ends()); err != nil { // again: reading it takes time
		return nil, err
	}
	began := time.Now()
	ctx, release := p.s.heldUp(ctx, func() time.Time { return began })
	defer release()
	routed, confirm, handle := true, broker.Confirm{}, []byte(nil)
	if req.GetCancellable() {
		handle, confirm.Refused, err = p.s.broker.PublishCancellable(ctx, callerOf(ctx).user, vhostOf(req.GetVhost()), m)
	} else {
		routed, confirm, err = p.s.broker.PublishOnce(ctx, callerOf(ctx).user, vhostOf(req.GetVhost()), m)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case confirm.Deleted:
		return nil, refuseDeleted()
	case confirm.Refused:
		return nil, refuse(codes.ResourceExhausted, reasonRefused, "a queue refuses the message: it is full")
	case !routed && m.Mandatory:
		return nil, refuse(codes.FailedPrecondition, reasonUnroutable, "no queue gets the message")
	}
	return &warrenv1.PublishResponse{Routed: routed, Handle: handle}, nil
}

// refuseDeleted refuses a message whose queue was deleted on its way: published again, it goes where it would go now.
func refuseDeleted() *refusal {
	return refuse(codes.Aborted, reasonDeleted, "a queue was deleted while the message was on its way to it")
}

// CancelDelayed implements the service.
func (p *publishService) CancelDelayed(ctx context.Context, req *warrenv1.CancelDelayedRequest) (*warrenv1.CancelDelayedResponse, error) {
	if err := checkName("vhost", req.GetVhost()); err != nil {
		return nil, err
	}
	if err := checked(p.s.broker.CheckHandle(req.GetHandle())); err != nil {
		return nil, err
	}
	cancelled, err := p.s.broker.CancelDelayed(ctx, callerOf(ctx).user, vhostOf(req.GetVhost()), req.GetHandle())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	return &warrenv1.CancelDelayedResponse{Cancelled: cancelled}, nil
}

// PublishStream implements the service. One goroutine receives, and one sends.
func (p *publishService) PublishStream(stream grpc.BidiStreamingServer[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse]) error {
	first, err := firstOf(stream.Context(), p.s, stream.Recv)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if first.GetOpen() == nil {
		return invalid("the first request of the stream does not open it")
	}
	x := &publishStream{stream: stream, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan struct{})}
	if x.session, err = p.s.begin(stream.Context(), first.GetOpen().GetVhost(), x, x.missing); err != nil {
		return err
	}
	defer x.close()
	p.s.workers.Go(func() { x.receive(first) }) // ends when this call has returned, if not before
	return x.run(x.send)
}

// publishStream is one stream of messages.
type publishStream struct {
	*session
	stream grpc.BidiStreamingServer[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse]
	read   uint64 // messages, by the receiver
	wake   chan struct{}
	room   chan struct{}
	ended  chan struct{} // closed when the receiver reads no more

	mu       sync.Mutex
	results  []result
	taken    uint64    // messages that have been read
	answered uint64    // of which the result has been sent
	failures int       // results with an error that have not been sent
	sending  time.Time // when the response was begun that is being sent; zero: none is
	passing  time.Time // since when the broker is to take a message of a request that has room; zero: it is not
	failed   error     // what the receiver ended with; nil at the client's end
}

// result is the end of one message.
type result struct {
	number  uint64
	outcome warrenv1.PublishOutcome
	err     *refusal
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Confirm implements broker.Sink.
func (x *publishStream) Confirm(confirms []broker.Confirm) {
	x.mu.Lock()
	for _, c := range confirms {
		r := result{number: c.Tag, outcome: warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED}
		if c.Refused {
			r.outcome = warrenv1.PublishOutcome_PUBLISH_OUTCOME_REFUSED
		}
		if c.Deleted {
			r.err = refuseDeleted()
			x.failures++
		}
		x.results = append(x.results, r)
	}
	x.mu.Unlock()
	signal(x.wake)
}

// Deliver implements broker.Sink; there is no consumer.
func (x *publishStream) Deliver(*broker.Delivery) {}

// Cancelled implements broker.Sink.
func (x *publishStream) Cancelled(*broker.Consumer) {}

// TimedOut implements broker.Sink.
func (x *publishStream) TimedOut(*broker.Consumer, time.Duration) {}

// Failed implements broker.Sink.
func (x *publishStream) Failed(err *broker.Error) { x.end(refusalOf(err)) }

// missing tells whether a message has no result.
func (x *publishStream) missing() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.answered < x.taken
}

// receive reads messages until the client ends its side, or the session its work.
func (x *publishStream) receive(req *warrenv1.PublishStreamRequest) {
	defer close(x.ended)
	defer x.s.cfg.Guard.Keep(work, "", func() { x.stop(fault()) })
	err := x.s.holdUp(x.ctx, nil) // whoever opens a stream for each message is held up, too
	for err == nil {
		if err = x.publish(req); err != nil {
			break
		}
		workedOn(x.ctx) // others may need the room while this one is held up
		req = nil
		err = x.s.holdUp(x.ctx, x.leaving)
		select {
		case <-x.leaving:
			return
		default:
		}
		if err == nil {
			err = x.waitRoom(0) // before there is a request that keeps room from others
		}
		if err != nil {
			break
		}
		if req, err = x.stream.Recv(); err == nil && req.GetOpen() != nil {
			err = invalid("only the first request of a stream opens it")
		}
	}
	if !errors.Is(err, io.EOF) {
		x.mu.Lock()
		x.failed = err
		x.mu.Unlock()
	}
}

// publish passes the messages of a request on. An alarm for memory does not keep a request that was read: it takes memory until then, and those of
// many streams could take as much as keeps the alarm up.
func (x *publishStream) publish(req *warrenv1.PublishStreamRequest) error {
	ctx, release := x.s.heldUp(x.ctx, x.passingSince)
	defer release()
	for _, p := range req.GetPublications() {
		if !x.s.alarm.Load().memory {
			if err := x.s.holdUp(x.ctx, nil); err != nil {
				return err
			}
		}
		if err := x.waitRoom(1); err != nil {
			return err
		}
		if err := x.publishOne(ctx, p); err != nil {
			return err
		}
	}
	return x.use(func(ch *broker.Channel) error {
		ch.Flush()
		return nil
	})
}

// publishOne passes a message on. ctx is that of the stream, or ends before it if the request keeps room from others for too long: the stream ends then.
func (x *publishStream) publishOne(ctx context.Context, p *warrenv1.Publication) error {
	x.read++
	r := result{number: x.read}
	m, err := x.s.publicationOf(p)
	routed := false
	if err == nil {
		m.Tag = x.read
		if ctx != x.ctx {
			x.passes(time.Now())
			defer x.passes(time.Time{})
		}
		err = x.use(func(ch *broker.Channel) (err error) {
			routed, err = ch.Publish(ctx, &m)
			return err
		})
	}
	switch {
	case err != nil && x.ctx.Err() != nil:
		return x.cause()
	case err != nil && ctx.Err() != nil:
		why := refusalOf(context.Cause(ctx))
		x.end(why)
		return why
	case err != nil:
		r.outcome, r.err = warrenv1.PublishOutcome_PUBLISH_OUTCOME_FAILED, refusalOf(err)
	case routed:
		return nil // its confirm comes
	case m.Mandatory:
		r.outcome = warrenv1.PublishOutcome_PUBLISH_OUTCOME_UNROUTABLE
	default:
		r.outcome = warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED
	}
	x.mu.Lock()
	x.results = append(x.results, r)
	if r.err != nil {
		x.failures++
	}
	x.mu.Unlock()
	signal(x.wake)
	return nil
}

func (x *publishStream) passes(since time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.passing = since
}

func (x *publishStream) passingSince() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.passing
}

// waitRoom notes that so many messages are taken, once there are not too many without a result.
func (x *publishStream) waitRoom(n uint64) error {
	if x.takes(n) {
		return nil
	}
	look := time.NewTicker(x.s.waits.stalled / 4)
	defer look.Stop()
	for {
		if err := x.use(func(ch *broker.Channel) error {
			ch.Flush()
			return nil
		}); err != nil {
			return err
		}
		select {
		case <-x.room:
		case <-look.C:
			if x.obstructs() {
				why := refuse(codes.ResourceExhausted, reasonSlow, "results have not been read for %v, and others wait", x.s.waits.stalled)
				x.end(why) // whoever sends them does not see that this one ends
				return why
			}
		case <-x.ctx.Done():
			return x.cause()
		}
		if x.takes(n) {
			return nil
		}
	}
}

// takes notes that so many messages are taken, if there may be more.
func (x *publishStream) takes(n uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.taken-x.answered >= unansweredMax || x.failures >= failuresMax {
		return false
	}
	x.taken += n
	return true
}

// obstructs tells whether the client has not read results for a while, so that a request of its cannot go on whose room others wait for.
func (x *publishStream) obstructs() bool {
	x.mu.Lock()
	since := x.sending
	x.mu.Unlock()
	return !since.IsZero() && time.Since(since) >= x.s.waits.stalled && roomWanted(x.ctx)
}

// transmit sends a response, which takes as long as the client has no room for it.
func (x *publishStream) transmit(resp *warrenv1.PublishStreamResponse) error {
	note := func(at time.Time) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.sending = at
	}
	note(time.Now())
	defer note(time.Time{})
	return x.stream.Send(resp)
}

// send passes results on until the session ends.
func (x *publishStream) send() error {
	told := ""
	ended := x.ended
	leaving := x.leaving
	for {
		a := x.s.alarm.Load()
		if a.reason != told {
			told = a.reason
			if err := x.transmit(&warrenv1.PublishStreamResponse{Blocked: &a.reason}); err != nil {
				return err
			}
		}
		if err := x.sendResults(); err != nil {
			return err
		}
		if ended == nil || leaving == nil {
			if over, err := x.over(); over {
				return err
			}
		}
		select {
		case <-x.wake:
		case <-a.changes:
		case <-ended:
			ended = nil
		case <-leaving:
			leaving = nil
		case <-x.ctx.Done():
			return x.cause()
		}
	}
}

// over tells whether a stream whose receiver has ended, or is to, is at its end: no result is missing. The error says how it ends.
func (x *publishStream) over() (bool, error) {
	x.mu.Lock()
	failed, missing := x.failed, x.answered < x.taken
	x.mu.Unlock()
	switch {
	case failed != nil:
		return true, failed
	case missing:
		return false, nil
	}
	// When the node leaves the receiver may be waiting for a request. What it reads now and passes on no more has no result.
	return true, x.leaves()
}

// sendResults sends what has come, ranges of the same outcome together.
func (x *publishStream) sendResults() error {
	x.mu.Lock()
	results := x.results
	x.results = nil
	x.mu.Unlock()
	if len(results) == 0 {
		return nil
	}
	byNumber := func(a, b result) int {
		if a.number < b.number {
			return -1
		}
		return 1
	}
	if !slices.IsSortedFunc(results, byNumber) {
		slices.SortFunc(results, byNumber)
	}
	resp := &warrenv1.PublishStreamResponse{}
	var last *warrenv1.PublishResult
	failures := 0
	for _, r := range results {
		if last != nil && last.GetLast()+1 == r.number && last.GetOutcome() == r.outcome && last.GetError() == nil && r.err == nil {
			last.Last = r.number
			continue
		}
		last = &warrenv1.PublishResult{First: r.number, Last: r.number, Outcome: r.outcome}
		if r.err != nil {
			last.Error = r.err.inline()
			failures++
		}
		resp.Results = append(resp.Results, last)
	}
	if err := x.transmit(resp); err != nil {
		return err
	}
	x.mu.Lock()
	x.answered += uint64(len(results))
	x.failures -= failures
	x.mu.Unlock()
	signal(x.room)
	return nil
}
