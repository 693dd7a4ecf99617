package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// opened reads the first request of a consumer and answers it.
func opened(s consumeSide) (credit uint32, err error) {
	req, err := s.Recv()
	if err != nil {
		return 0, err
	}
	return req.GetCredit(), s.Send(&warrenv1.ConsumeResponse{Opened: &warrenv1.ConsumeOpened{Queue: "q", ConsumerTag: "t"}})
}

func deliver(s consumeSide, first, last uint64) error {
	resp := &warrenv1.ConsumeResponse{}
	for n := first; n <= last; n++ {
		resp.Deliveries = append(resp.Deliveries, &warrenv1.Delivery{Number: n, Message: &warrenv1.Message{RoutingKey: "q", Body: fmt.Append(nil, n)}})
	}
	return s.Send(resp)
}

// consumed is what a fake was told.
type consumed struct {
	mu    sync.Mutex
	lines []string
}

// listen notes settlements until the stream ends, and confirms the cancel.
func (l *consumed) listen(s consumeSide) error {
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.mu.Lock()
		for _, e := range req.GetSettlements() {
			for n := e.GetFirst(); n <= e.GetLast(); n++ {
				l.lines = append(l.lines, fmt.Sprintf("%d %v", n, Settle(e.GetKind())))
			}
		}
		l.mu.Unlock()
		if req.GetCancel() {
			if err := s.Send(&warrenv1.ConsumeResponse{Cancelled: true}); err != nil {
				return err
			}
		}
	}
}

func (l *consumed) want(t *testing.T, lines ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.lines)
	if !slices.Equal(l.lines, lines) {
		t.Errorf("the node was told %q, want %q", l.lines, lines)
	}
}

// TestSettlements shows how deliveries are settled by what handlers do, and what the end of the consumer's context does.
func TestSettlements(t *testing.T) {
	f := startFake(t)
	var l consumed
	f.consume = append(f.consume, func(s consumeSide) error {
		credit, err := opened(s)
		if err != nil || credit != 16 {
			return fmt.Errorf("%d, %w", credit, err)
		}
		if err := deliver(s, 1, 8); err != nil {
			return err
		}
		return l.listen(s)
	})
	c := dialFake(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := c.Consume(ctx, "q", ConsumerConfig{OnError: Reject}, func(hctx context.Context, d *Delivery) error {
		switch d.number {
		case 2:
			return errors.New("bad")
		case 3:
			return d.Requeue()
		case 4:
			if d.Release() != nil || !errors.Is(d.Ack(), ErrSettled) {
				t.Error("not settled, or twice")
			}
			return errors.New("too late")
		case 6:
			cancel()
			<-ctx.Done()
			if hctx.Err() != nil {
				t.Error("the handler's context has ended with the consumer's")
			}
		case 7, 8:
			t.Errorf("%d is handled after the end", d.number)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	l.want(t, "1 ack", "2 reject", "3 requeue", "4 release", "5 ack", "6 ack", "7 release", "8 release")
}

// TestDeliveriesOfALostStream are not settled by their numbers at the next one, which begins when their handlers have returned.
func TestDeliveriesOfALostStream(t *testing.T) {
	first, second := startFake(t), startFake(t)
	breaks := make(chan struct{})
	first.consume = append(first.consume, func(s consumeSide) error {
		if _, err := opened(s); err != nil {
			return err
		}
		if err := deliver(s, 1, 3); err != nil {
			return err
		}
		<-breaks
		return refusal(codes.Unavailable, "NODE_LEAVES")
	})
	var l consumed
	second.consume = append(second.consume, func(s consumeSide) error {
		if _, err := opened(s); err != nil {
			return err
		}
		if err := deliver(s, 1, 1); err != nil {
			return err
		}
		return l.listen(s)
	})
	c := dialFake(t, first, second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	running, handled := 0, 0
	err := c.Consume(ctx, "q", ConsumerConfig{Concurrency: 2}, func(hctx context.Context, d *Delivery) error {
		mu.Lock()
		running++
		handled++
		n := handled
		mu.Unlock()
		defer func() {
			mu.Lock()
			running--
			mu.Unlock()
		}()
		switch n {
		case 1:
			<-hctx.Done()
			time.Sleep(20 * time.Millisecond)
			if !errors.Is(context.Cause(hctx), ErrDeliveryLost) || !errors.Is(d.Ack(), ErrDeliveryLost) {
				t.Errorf("a delivery of a lost stream can be settled, or %v", context.Cause(hctx))
			}
		case 2:
			close(breaks)
			<-hctx.Done()
		case 3:
			mu.Lock()
			if running != 1 {
				t.Error("a handler of the former stream is still at work")
			}
			mu.Unlock()
			cancel()
		default:
			t.Errorf("handled %d", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	l.want(t, "1 ack")
}

// TestEndWithoutQuorum: a consumer ends although the node does not end its stream, as while the queue has no quorum for what was settled.
func TestEndWithoutQuorum(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]bool{"by its context": false, "by the node": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t)
			var told consumed
			f.consume = append(f.consume, func(s consumeSide) error {
				if _, err := opened(s); err != nil {
					return err
				}
				if err := deliver(s, 1, 1); err != nil {
					return err
				}
				if cancelled {
					if err := s.Send(&warrenv1.ConsumeResponse{Cancelled: true}); err != nil {
						return err
					}
				}
				if err := told.listen(s); err != nil {
					return err
				}
				<-s.Context().Done()
				return s.Context().Err()
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c, ended := dialFake(t, f), make(chan error, 1)
			go func() {
				ended <- c.Consume(ctx, "q", ConsumerConfig{}, func(context.Context, *Delivery) error {
					time.AfterFunc(100*time.Millisecond, cancel)
					return nil
				})
			}()
			if err := wait(t, ended); err != nil {
				t.Error(err)
			}
			told.want(t, "1 ack")
		})
	}
}

// TestShutdownTimeout: handlers that do not end in time are told, and their deliveries go back.
func TestShutdownTimeout(t *testing.T) {
	f := startFake(t)
	f.consume = append(f.consume, func(s consumeSide) error {
		if _, err := opened(s); err != nil {
			return err
		}
		if err := deliver(s, 1, 1); err != nil {
			return err
		}
		return new(consumed).listen(s)
	})
	c := dialFake(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Consume(ctx, "q", ConsumerConfig{ShutdownTimeout: time.Millisecond}, func(hctx context.Context, _ *Delivery) error {
		cancel()
		<-hctx.Done()
		return hctx.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestCloseEndsConsumers as the end of their context does.
func TestCloseEndsConsumers(t *testing.T) {
	f := startFake(t)
	var l consumed
	f.consume = append(f.consume, func(s consumeSide) error {
		if _, err := opened(s); err != nil {
			return err
		}
		if err := deliver(s, 1, 1); err != nil {
			return err
		}
		return l.listen(s)
	})
	c := dialFake(t, f)
	handling := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- c.Consume(t.Context(), "q", ConsumerConfig{}, func(context.Context, *Delivery) error {
			close(handling)
			return nil
		})
	}()
	wait(t, handling)
	closeClient(t, c)
	if err := wait(t, done); err != nil {
		t.Error(err)
	}
	l.want(t, "1 ack")
}

func TestConsumerRefused(t *testing.T) {
	f := startFake(t)
	f.consume = append(f.consume, func(s consumeSide) error {
		if _, err := opened(s); err != nil {
			return err
		}
		return refusal(codes.NotFound, "QUEUE_DELETED")
	})
	c := dialFake(t, f)
	none := func(context.Context, *Delivery) error { return nil }
	if err := c.Consume(t.Context(), "q", ConsumerConfig{}, none); !errors.Is(err, ErrQueueDeleted) || !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if err := c.Consume(t.Context(), "q", ConsumerConfig{}, none); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrQueueDeleted) {
		t.Errorf("got %v", err)
	}
	for _, cfg := range []ConsumerConfig{
		{Concurrency: -1},
		{Concurrency: 5, Prefetch: 4},
		{Prefetch: prefetchMost + 1},
		{OnError: 9},
		{ShutdownTimeout: -1},
		{Arguments: Table{"n": uint64(1)}},
		{Declare: &Queue{Arguments: Table{"n": uint64(1)}}},
		{Bindings: []Binding{{Queue: "a", Exchange: "b"}}},
	} {
		if err := c.Consume(t.Context(), "q", cfg, none); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if err := c.Consume(t.Context(), "q", ConsumerConfig{}, nil); err == nil {
		t.Error("no handler is taken")
	}
}

// TestExclusiveAgain: the cluster may not know yet that the former stream of an exclusive consumer is gone, nor that the exclusive queue is which it had
// declared. What is taken to begin with is another's.
func TestExclusiveAgain(t *testing.T) {
	for name, e := range map[string]struct {
		queue  string
		cfg    ConsumerConfig
		code   codes.Code
		reason string
		want   error
	}{
		"consumer": {"q", ConsumerConfig{Exclusive: true}, codes.PermissionDenied, "ACCESS_REFUSED", ErrAccessRefused},
		"queue":    {"", ConsumerConfig{Declare: &Queue{Name: "mine", Exclusive: true}}, codes.FailedPrecondition, "RESOURCE_LOCKED", ErrResourceLocked},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			refuse := func(consumeSide) error { return refusal(e.code, e.reason) }
			f.consume = append(f.consume,
				func(s consumeSide) error {
					_, err := opened(s)
					return errors.Join(err, refusal(codes.Unavailable, "NODE_LEAVES"))
				}, refuse, refuse,
				func(s consumeSide) error {
					if _, err := opened(s); err != nil {
						return err
					}
					cancel()
					return new(consumed).listen(s)
				}, refuse)
			c := dialFake(t, f)
			none := func(context.Context, *Delivery) error { return nil }
			if err := c.Consume(ctx, e.queue, e.cfg, none); err != nil {
				t.Error(err)
			}
			if err := c.Consume(t.Context(), e.queue, e.cfg, none); !errors.Is(err, e.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestExtendAndSayWhy: what handlers tell beside the ends of deliveries. Texts that are none settle nothing, and what is settled cannot be extended.
// Those that wait for a handler are extended with the one that is handled.
func TestExtendAndSayWhy(t *testing.T) {
	f := startFake(t)
	told := make(chan *warrenv1.Settlement, 100)
	f.consume = append(f.consume, func(s consumeSide) error {
		if _, err := opened(s); err != nil {
			return err
		}
		if err := deliver(s, 1, 3); err != nil {
			return err
		}
		for {
			req, err := s.Recv()
			if err != nil {
				return nil //nolint:nilerr // the client has ended its side
			}
			for _, e := range req.GetSettlements() {
				told <- e
			}
			if req.GetCancel() {
				if err := s.Send(&warrenv1.ConsumeResponse{Cancelled: true}); err != nil {
					return err
				}
			}
		}
	})
	nextOf := func(kind warrenv1.SettleKind, first, last uint64, detail string) {
		t.Helper()
		select {
		case e := <-told:
			if e.GetKind() != kind || e.GetFirst() != first || max(e.GetFirst(), e.GetLast()) != last || e.GetDetail() != detail {
				t.Errorf("told %v, want %v of %d to %d", e, kind, first, last)
			}
		case <-time.After(patience):
			t.Errorf("nothing is told, want %v of %d to %d", kind, first, last)
		}
	}
	next := func(kind warrenv1.SettleKind, number uint64, detail string) {
		t.Helper()
		nextOf(kind, number, number, detail)
	}
	c := dialFake(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := c.Consume(ctx, "q", ConsumerConfig{}, func(_ context.Context, d *Delivery) error {
		switch d.number {
		case 1:
			for range 2 {
				if err := d.Extend(); err != nil {
					t.Error(err)
				}
				next(warrenv1.SettleKind_SETTLE_KIND_EXTEND, 1, "")
				nextOf(warrenv1.SettleKind_SETTLE_KIND_EXTEND, 2, 3, "")
			}
			for _, bad := range []string{strings.Repeat("x", detailMax+1), "\xff"} {
				if err := d.RejectWith(bad); !errors.Is(err, ErrInvalid) {
					t.Errorf("%q: %v", bad, err)
				}
			}
			if d.RejectWith("why") != nil || !errors.Is(d.Extend(), ErrSettled) || !errors.Is(d.RejectWith("again"), ErrSettled) {
				t.Error("not rejected, or twice")
			}
			next(warrenv1.SettleKind_SETTLE_KIND_REJECT, 1, "why")
		case 2:
			return d.RejectWith("another")
		case 3:
			if err := d.RejectWith("the third"); err != nil {
				t.Error(err)
			}
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	next(warrenv1.SettleKind_SETTLE_KIND_REJECT, 2, "another") // texts that differ are not told together
	next(warrenv1.SettleKind_SETTLE_KIND_REJECT, 3, "the third")
}
