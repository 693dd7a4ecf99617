package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// consumeStream is one stream of a consumer. Its owner is the goroutine that called Consume, which alone sends; one more receives, and each handler has
// one.
type consumeStream struct {
	x          *consumer
	stream     grpc.BidiStreamingClient[warrenv1.ConsumeRequest, warrenv1.ConsumeResponse]
	deliveries chan *Delivery // closed by the receiver when none comes any more
	wake       chan struct{}

	mu          sync.Mutex
	over        bool // nothing is sent any more
	settlements []settlement
	extended    map[uint64]struct{} // deliveries whose time begins anew
	// came and taken are the newest delivery that has come, and the newest that a handler has taken: those between wait.
	came, taken uint64
	freed       uint32 // deliveries that are done and for which no credit was given: those of settlements too
}

type settlement struct {
	number uint64
	how    Settle
	detail string // why, of a Reject
}

// stream consumes by one stream until ctx ends and all is settled, which is no error, or the stream breaks. It returns when all handlers have.
func (x *consumer) stream(ctx context.Context, n *node) (opened bool, err error) {
	// The stream outlives ctx until everything is settled.
	own, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	s := &consumeStream{x: x, deliveries: make(chan *Delivery, x.cfg.Prefetch), wake: make(chan struct{}, 1)}
	queue, err := s.begin(ctx, own, end, n)
	if err != nil {
		return false, err
	}
	x.c.log.Debug("consuming", "queue", queue, "node", n.addr)
	ended := make(chan error, 1)
	go func() { // its end is awaited below
		err := s.receive(own, queue)
		s.finish()
		end(ErrDeliveryLost)
		ended <- err
	}()
	var handlers sync.WaitGroup
	for range x.cfg.Concurrency {
		handlers.Go(func() { s.work(ctx, own) })
	}
	idle := make(chan struct{})
	go func() { // ends with the handlers, whose end is awaited below
		handlers.Wait()
		close(idle)
	}()
	if err = s.send(ctx, own, end, idle); err == nil {
		_ = s.stream.CloseSend()
	}
	s.finish()
	<-idle
	got := awaitEnd(ctx, end, ended)
	if err == nil && errors.Is(got, io.EOF) && ctx.Err() != nil {
		return true, nil
	}
	if err == nil || errors.Is(err, errStreamEnded) {
		err = errorOf(context.Background(), got)
	}
	return true, err
}

// endWait is how long the node may take to end a stream of a consumer that has ended, when everything is sent.
const endWait = 5 * time.Second

// awaitEnd waits until the node has ended the stream. It does so when the queue has all settlements on disk: while that has no quorum, it does not.
func awaitEnd(ctx context.Context, end context.CancelCauseFunc, ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(endWait)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		end(context.Cause(ctx))
		return <-ended
	}
}

// finish notes that nothing is sent any more.
func (s *consumeStream) finish() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// begin opens the stream; ctx bounds only that.
func (s *consumeStream) begin(ctx, own context.Context, end context.CancelCauseFunc, n *node) (queue string, err error) {
	opened := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer opened()
	if s.stream, err = warrenv1.NewConsumeServiceClient(n.conn).Consume(own); err != nil {
		return "", errorOf(ctx, err)
	}
	// What fails is told by what follows.
	_ = s.stream.Send(&warrenv1.ConsumeRequest{Open: s.x.open, Credit: uint32(s.x.cfg.Prefetch)})
	resp, err := s.stream.Recv()
	if err != nil {
		return "", errorOf(ctx, err)
	}
	if resp.GetOpened() == nil {
		return "", &Error{Code: codes.Internal, Message: "the node's first response does not tell of the consumer"}
	}
	return resp.GetOpened().GetQueue(), nil
}

// receive takes deliveries until the stream ends.
func (s *consumeStream) receive(own context.Context, queue string) (err error) {
	closed := false
	defer func() {
		if !closed {
			close(s.deliveries)
		}
	}()
	for {
		resp, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if closed && len(resp.GetDeliveries()) > 0 {
			return &Error{Code: codes.Internal, Message: "the node delivers after the end of the consumer"}
		}
		if n := len(resp.GetDeliveries()); n > 0 {
			s.mu.Lock()
			s.came = resp.GetDeliveries()[n-1].GetNumber()
			s.mu.Unlock()
		}
		for _, p := range resp.GetDeliveries() {
			d := deliveryOf(queue, p)
			if !s.x.cfg.AutoAck {
				d.of = s
			}
			select {
			case s.deliveries <- d: // there is room for all that there is credit for
			case <-own.Done():
				return context.Cause(own)
			}
		}
		if resp.GetCancelled() && !closed {
			closed = true
			close(s.deliveries)
		}
	}
}

// work handles deliveries until none comes any more. What has not begun when ctx ends is given back.
func (s *consumeStream) work(ctx, own context.Context) {
	for d := range s.deliveries {
		s.mu.Lock()
		s.taken = max(s.taken, d.number)
		s.mu.Unlock()
		switch {
		case own.Err() != nil: // it cannot be settled any more
		case ctx.Err() != nil && !s.x.cfg.AutoAck:
			_ = d.Release()
		default:
			s.handle(own, d)
		}
	}
}

func (s *consumeStream) handle(ctx context.Context, d *Delivery) {
	ctx, span := s.x.c.tracer.process(ctx, d)
	err := s.x.handler(ctx, d)
	if err != nil {
		s.x.c.log.Debug("a handler failed", "queue", d.Queue, "err", err)
	}
	if s.x.cfg.AutoAck {
		s.free()
		span.end("auto-ack", err)
		return
	}
	how := Ack
	if err != nil {
		how = s.x.cfg.OnError
	}
	if lost := d.settle(how); errors.Is(lost, ErrDeliveryLost) {
		span.end("lost", cmp.Or(err, lost))
		return
	}
	span.end(Settle(d.settled.Load()).String(), err)
}

// free notes that a delivery is done that needs no settlement.
func (s *consumeStream) free() {
	s.mu.Lock()
	s.freed++
	s.mu.Unlock()
	s.signal()
}

func (s *consumeStream) settle(e settlement) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return ErrDeliveryLost
	}
	s.settlements = append(s.settlements, e)
	s.freed++
	s.mu.Unlock()
	s.signal()
	return nil
}

func (s *consumeStream) extend(number uint64) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return ErrDeliveryLost
	}
	if s.extended == nil {
		s.extended = map[uint64]struct{}{}
	}
	s.extended[number] = struct{}{}
	s.mu.Unlock()
	s.signal()
	return nil
}

func (s *consumeStream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// errStreamEnded tells that the receiver knows why.
var errStreamEnded = errors.New("the stream has ended")

// send sends settlements and credit until ctx has ended and the handlers, too: then it has sent all.
func (s *consumeStream) send(ctx, own context.Context, end context.CancelCauseFunc, idle chan struct{}) error {
	cancelled := false
	for {
		req := s.request(!cancelled)
		if ctx.Err() != nil && !cancelled {
			cancelled = true
			if req == nil {
				req = &warrenv1.ConsumeRequest{}
			}
			req.Cancel, req.Credit = true, 0
			timer := time.AfterFunc(s.x.cfg.ShutdownTimeout, func() { end(context.Cause(ctx)) })
			defer timer.Stop()
		}
		if req != nil {
			if s.stream.Send(req) != nil {
				return errStreamEnded
			}
			continue
		}
		done := ctx.Done()
		if cancelled {
			done = nil
		}
		select {
		case <-s.wake:
		case <-done:
		case <-own.Done():
			return errStreamEnded
		case <-idle:
			if req := s.request(false); req != nil && s.stream.Send(req) != nil {
				return errStreamEnded
			}
			return nil // if the stream has broken the receiver says so
		}
	}
}

// request is what is to be told to the node, nil if that is nothing.
func (s *consumeStream) request(credit bool) *warrenv1.ConsumeRequest {
	s.mu.Lock()
	list, freed, extended, taken, came := s.settlements, s.freed, s.extended, s.taken, s.came
	s.settlements, s.freed, s.extended = nil, 0, nil
	s.mu.Unlock()
	if len(list) == 0 && len(extended) == 0 && (freed == 0 || !credit) {
		return nil
	}
	req := &warrenv1.ConsumeRequest{}
	if credit {
		req.Credit = freed
	}
	for _, number := range slices.Sorted(maps.Keys(extended)) { // of those that are settled, too: they are passed over
		req.Settlements = append(req.Settlements, &warrenv1.Settlement{First: number, Kind: warrenv1.SettleKind_SETTLE_KIND_EXTEND})
	}
	if len(extended) > 0 && taken < came { // those behind can but wait
		req.Settlements = append(req.Settlements, &warrenv1.Settlement{First: taken + 1, Last: came, Kind: warrenv1.SettleKind_SETTLE_KIND_EXTEND})
	}
	slices.SortFunc(list, func(a, b settlement) int { return cmp.Compare(a.number, b.number) })
	var last *warrenv1.Settlement
	for _, e := range list {
		if last != nil && last.GetLast()+1 == e.number && last.GetKind() == e.how.proto() && last.GetDetail() == e.detail {
			last.Last = e.number
			continue
		}
		last = &warrenv1.Settlement{First: e.number, Last: e.number, Kind: e.how.proto(), Detail: e.detail}
		req.Settlements = append(req.Settlements, last)
	}
	return req
}
