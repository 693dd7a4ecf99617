package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

func publisher(t *testing.T, c *Client, cfg PublisherConfig) *Publisher {
	t.Helper()
	p, err := c.Publisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestResend shows what goes over a second stream, at another node, when the first one breaks: what had no result, in its order, under the
// same ids, and then the rest.
func TestResend(t *testing.T) {
	first, second := startFake(t), startFake(t)
	read := make(chan []*warrenv1.Publication, 2)
	first.publish = append(first.publish, func(s publishSide) error {
		list, err := took(s, 5)
		read <- list
		if err != nil {
			return err
		}
		if err := result(s, 2, 3, confirmed); err != nil {
			return err
		}
		return refusal(codes.Unavailable, "NODE_LEAVES")
	})
	second.publish = append(second.publish, func(s publishSide) error {
		list, err := took(s, 4)
		read <- list
		if err != nil {
			return err
		}
		if err := result(s, 1, 4, confirmed); err != nil {
			return err
		}
		_, err = took(s, 1) // until the end
		return err
	})
	c := dialFake(t, first, second)
	p := publisher(t, c, PublisherConfig{Deduplicate: true})
	var pending []*Pending
	send := func(body string) {
		item, err := p.PublishAsync(t.Context(), &Message{RoutingKey: "q", Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, item)
	}
	for i := range 5 {
		send(fmt.Sprint(i))
	}
	ids := map[string]string{}
	for _, pub := range wait(t, read) {
		ids[string(pub.GetMessage().GetBody())] = pub.GetDeduplicationId()
	}
	send("5")
	var again []string
	for _, pub := range wait(t, read) {
		body := string(pub.GetMessage().GetBody())
		again = append(again, body)
		if id, sent := ids[body]; pub.GetDeduplicationId() == "" || sent && id != pub.GetDeduplicationId() {
			t.Errorf("%s has the id %q, and had %q", body, pub.GetDeduplicationId(), id)
		}
	}
	if want := []string{"0", "3", "4", "5"}; !slices.Equal(again, want) {
		t.Errorf("sent %v to the second node, want %v", again, want)
	}
	for i, item := range pending {
		wait(t, item.Done())
		if item.Err() != nil {
			t.Errorf("%d: %v", i, item.Err())
		}
	}
	if got := c.Addrs()[0]; got != second.addr {
		t.Errorf("the client is at %s, want %s", got, second.addr)
	}
}

// TestBreaker: a message that breaks every stream it is sent by fails in the end, and what comes after it goes on.
func TestBreaker(t *testing.T) {
	f := startFake(t)
	streams := 0
	for range 2 * brokenMax {
		f.publish = append(f.publish, func(s publishSide) error {
			for n := uint64(1); ; n++ {
				list, err := took(s, 1)
				switch {
				case err != nil:
					return err
				case string(list[0].GetMessage().GetBody()) == "bad":
					streams++
					return status.Error(codes.Internal, "grpc: error while marshaling")
				}
				if err := result(s, n, n, confirmed); err != nil {
					return err
				}
			}
		})
	}
	p := publisher(t, dialFake(t, f), PublisherConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Publish(ctx, &Message{RoutingKey: "q", Body: []byte("bad")}); !errors.Is(err, ErrResultUnknown) || ctx.Err() != nil {
		t.Fatalf("got %v, want %v", err, ErrResultUnknown)
	}
	if err := p.Publish(ctx, &Message{RoutingKey: "q", Body: []byte("good")}); err != nil {
		t.Fatal(err)
	}
	if streams != brokenMax {
		t.Errorf("sent by %d streams, want %d", streams, brokenMax)
	}
}

// TestLargeHeaders: headers count as bodies do, in what one request carries and in what is outstanding, and may not be too large for any request.
func TestLargeHeaders(t *testing.T) {
	f := startFake(t)
	largest := make(chan int, 1)
	f.publish = append(f.publish, func(s publishSide) error {
		most := 0
		for n := 0; n < 40; {
			req, err := s.Recv()
			if err != nil {
				return err
			}
			n += len(req.GetPublications())
			most = max(most, proto.Size(req))
		}
		largest <- most
		if err := result(s, 1, 40, confirmed); err != nil {
			return err
		}
		_, err := took(s, 1) // until the end
		return err
	})
	p := publisher(t, dialFake(t, f), PublisherConfig{})
	list := make([]Message, 40)
	for i := range list {
		list[i] = Message{RoutingKey: "q", Headers: Table{"h": strings.Repeat("h", 90<<10)}}
	}
	if err := p.PublishBatch(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if most := wait(t, largest); most > publicationBytesMax+100<<10 {
		t.Errorf("a request of %d bytes", most)
	}
	item, err := p.PublishAsync(t.Context(), &list[0])
	if err != nil {
		t.Fatal(err)
	}
	if item.bytes < 90<<10 {
		t.Errorf("counts %d bytes", item.bytes)
	}
	if _, err := p.PublishAsync(t.Context(), &Message{Headers: Table{"h": strings.Repeat("h", 1<<20)}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a header of a MiB: %v", err)
	}
	p.stopWorks() // the last one has no result
}

// TestTooLarge: a request that is too large fails what was sent, and not what waits.
func TestTooLarge(t *testing.T) {
	f := startFake(t)
	waits := make(chan struct{})
	f.publish = append(f.publish, func(s publishSide) error {
		if _, err := took(s, 1); err != nil {
			return err
		}
		why := "disk"
		if err := s.Send(&warrenv1.PublishStreamResponse{Blocked: &why}); err != nil {
			return err
		}
		<-waits
		return status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
	}, func(s publishSide) error {
		if _, err := took(s, 1); err != nil {
			return err
		}
		if err := result(s, 1, 1, confirmed); err != nil {
			return err
		}
		_, err := took(s, 1) // until the end
		return err
	})
	p := publisher(t, dialFake(t, f), PublisherConfig{})
	var list []*Pending
	for _, body := range []string{"large", "waits"} {
		item, err := p.PublishAsync(t.Context(), &Message{RoutingKey: "q", Body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, item)
		for end := time.Now().Add(patience); p.Blocked() == ""; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the publisher is not blocked")
			}
		}
	}
	close(waits)
	wait(t, list[0].Done())
	wait(t, list[1].Done())
	if list[0].Err() == nil || list[1].Err() != nil {
		t.Errorf("%v, %v", list[0].Err(), list[1].Err())
	}
}

// TestResultTimeout: a node that takes messages and tells nothing of them is left, one that says that it takes none is waited for.
func TestResultTimeout(t *testing.T) {
	const limit = 20 * time.Millisecond
	silent, good := startFake(t), startFake(t)
	var streams atomic.Int32
	known := make(chan struct{})
	for range 100 { // so many times may a machine that is busy exceed the limit
		silent.publish = append(silent.publish, func(s publishSide) error {
			_, err := took(s, 3)
			return err
		})
		good.publish = append(good.publish, func(s publishSide) error {
			streams.Add(1)
			if _, err := took(s, 2); err != nil {
				return err
			}
			why, none := "disk", ""
			if err := s.Send(&warrenv1.PublishStreamResponse{Blocked: &why}); err != nil {
				return err
			}
			if err := result(s, 1, 1, confirmed); err != nil {
				return err
			}
			<-known
			time.Sleep(5 * limit)
			if err := result(s, 2, 2, confirmed); err != nil {
				return err
			}
			if err := s.Send(&warrenv1.PublishStreamResponse{Blocked: &none}); err != nil {
				return err
			}
			_, err := took(s, 1)
			return err
		})
	}
	c := dialFake(t, silent, good)
	p := publisher(t, c, PublisherConfig{ResultTimeout: limit})
	var pending []*Pending
	for range 2 {
		r, err := p.PublishAsync(t.Context(), &Message{RoutingKey: "q"})
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, r)
	}
	wait(t, pending[0].Done())
	before := streams.Load()
	close(known)
	wait(t, pending[1].Done())
	if err := errors.Join(pending[0].Err(), pending[1].Err()); err != nil || before == 0 || streams.Load() != before {
		t.Errorf("%v; %d streams at the good node, and then %d", err, before, streams.Load())
	}
}

func TestOutcomes(t *testing.T) {
	f := startFake(t)
	f.publish = append(f.publish, func(s publishSide) error {
		if _, err := took(s, 6); err != nil {
			return err
		}
		err := s.Send(&warrenv1.PublishStreamResponse{Results: []*warrenv1.PublishResult{
			{First: 6, Last: 6, Outcome: warrenv1.PublishOutcome_PUBLISH_OUTCOME_REFUSED, Error: &warrenv1.Error{Code: int32(codes.Aborted), Reason: "QUEUE_DELETED", Message: "deleted"}},
			{First: 4, Last: 4, Outcome: warrenv1.PublishOutcome_PUBLISH_OUTCOME_UNROUTABLE},
			{First: 2, Last: 2, Outcome: warrenv1.PublishOutcome_PUBLISH_OUTCOME_REFUSED},
			{First: 5, Last: 5, Outcome: warrenv1.PublishOutcome_PUBLISH_OUTCOME_FAILED, Error: &warrenv1.Error{Code: int32(codes.NotFound), Reason: "NOT_FOUND", Message: "no exchange 'x'"}},
			{First: 1, Last: 1, Outcome: confirmed},
			{First: 3, Last: 3, Outcome: warrenv1.PublishOutcome(77)},
		}})
		if err != nil {
			return err
		}
		_, err = took(s, 1)
		return err
	})
	c := dialFake(t, f)
	p := publisher(t, c, PublisherConfig{})
	err := p.PublishBatch(t.Context(), make([]Message, 6))
	batch, ok := errors.AsType[*BatchError](err)
	if !ok || len(batch.Unwrap()) != 5 || !errors.Is(err, ErrUnroutable) {
		t.Fatalf("got %v", err)
	}
	for i, want := range []error{nil, ErrRefused, ErrResultUnknown, ErrUnroutable, ErrNotFound, ErrRefused} {
		if !errors.Is(batch.Errs[i], want) {
			t.Errorf("%d: got %v, want %v", i, batch.Errs[i], want)
		}
	}
	if full, deleted := errors.Is(batch.Errs[1], ErrQueueDeleted), errors.Is(batch.Errs[5], ErrQueueDeleted); full || !deleted {
		t.Errorf("because of a deleted queue: %v of one that is full, %v", full, deleted)
	}
	if e, ok := errors.AsType[*Error](batch.Errs[4]); !ok || e.Message != "no exchange 'x'" || e.Code != codes.NotFound {
		t.Errorf("got %#v", batch.Errs[4])
	}
}

// TestStreamRefused shows that what cannot be mended by another node fails what is there, and no more than that.
func TestStreamRefused(t *testing.T) {
	f := startFake(t)
	f.publish = append(f.publish,
		func(s publishSide) error {
			if _, err := took(s, 1); err != nil {
				return err
			}
			return refusal(codes.PermissionDenied, "NOT_ALLOWED")
		},
		func(s publishSide) error {
			if _, err := took(s, 1); err != nil {
				return err
			}
			if err := result(s, 1, 1, confirmed); err != nil {
				return err
			}
			_, err := took(s, 1)
			return err
		})
	c := dialFake(t, f)
	p := publisher(t, c, PublisherConfig{})
	err := p.Publish(t.Context(), &Message{RoutingKey: "q"})
	if !errors.Is(err, ErrNotAllowed) || !errors.Is(err, ErrResultUnknown) {
		t.Errorf("got %v", err)
	}
	if e, ok := errors.AsType[*Error](err); !ok || e.AMQPCode != 403 {
		t.Errorf("got %#v", err)
	}
	if err := p.Publish(t.Context(), &Message{RoutingKey: "q"}); err != nil {
		t.Error(err)
	}
}

func TestNoResend(t *testing.T) {
	f := startFake(t)
	f.publish = append(f.publish, func(s publishSide) error {
		if _, err := took(s, 1); err != nil {
			return err
		}
		return refusal(codes.Unavailable, "NODE_LEAVES")
	})
	c := dialFake(t, f)
	p := publisher(t, c, PublisherConfig{NoResend: true})
	if err := p.Publish(t.Context(), &Message{RoutingKey: "q"}); !errors.Is(err, ErrResultUnknown) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// TestRoom shows that messages without a result are bounded, by number and by size, and what ends the wait for room.
func TestRoom(t *testing.T) {
	for name, cfg := range map[string]PublisherConfig{"number": {OutstandingMax: 2}, "size": {OutstandingBytesMax: 250}} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t)
			more := make(chan struct{})
			f.publish = append(f.publish, func(s publishSide) error {
				if _, err := took(s, 2); err != nil {
					return err
				}
				<-more
				if err := result(s, 1, 1, confirmed); err != nil {
					return err
				}
				_, err := took(s, 2) // the third, and the end
				return err
			})
			c := dialFake(t, f)
			p := publisher(t, c, cfg)
			m := &Message{RoutingKey: "q", Body: make([]byte, 100)}
			for range 2 {
				if _, err := p.PublishAsync(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := p.PublishAsync(ctx, m); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrResultUnknown) {
				t.Fatalf("got %v", err)
			}
			close(more)
			third, err := p.PublishAsync(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			fourth := make(chan error, 1)
			go func() {
				_, err := p.PublishAsync(context.Background(), m)
				fourth <- err
			}()
			short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer stop()
			if err := p.Close(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if err := wait(t, fourth); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
			wait(t, third.Done())
			if !errors.Is(third.Err(), ErrClosed) || !errors.Is(third.Wait(t.Context()), third.Err()) {
				t.Errorf("got %v", third.Err())
			}
			if err := p.Publish(t.Context(), m); !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestBlocked shows that nothing is sent to a node that takes nothing.
func TestBlocked(t *testing.T) {
	f := startFake(t)
	told, freed := make(chan struct{}), make(chan struct{})
	early := make(chan bool, 1)
	f.publish = append(f.publish, func(s publishSide) error {
		if _, err := took(s, 1); err != nil {
			return err
		}
		why, none := "memory", ""
		if err := s.Send(&warrenv1.PublishStreamResponse{Blocked: &why}); err != nil {
			return err
		}
		if err := result(s, 1, 1, confirmed); err != nil { // the client has read the former, too, when it has this
			return err
		}
		<-told
		var free atomic.Bool
		go func() {
			<-freed
			free.Store(true)
			_ = s.Send(&warrenv1.PublishStreamResponse{Blocked: &none})
		}()
		_, err := took(s, 1)
		early <- !free.Load()
		if err == nil {
			err = result(s, 2, 2, confirmed)
		}
		if err == nil {
			_, err = took(s, 1)
		}
		return err
	})
	c := dialFake(t, f)
	p := publisher(t, c, PublisherConfig{})
	if err := p.Publish(t.Context(), &Message{RoutingKey: "q"}); err != nil {
		t.Fatal(err)
	}
	if got := p.Blocked(); got != "memory" {
		t.Errorf("blocked by %q", got)
	}
	item, err := p.PublishAsync(t.Context(), &Message{RoutingKey: "q"})
	if err != nil {
		t.Fatal(err)
	}
	close(told)
	time.Sleep(20 * time.Millisecond) // a message that is sent would be there
	close(freed)
	wait(t, item.Done())
	if wait(t, early) || item.Err() != nil || p.Blocked() != "" {
		t.Errorf("sent to a node that takes nothing, or %v, blocked by %q", item.Err(), p.Blocked())
	}
}

// TestResultsOfNothing: a node that answers what nobody sent is no node to trust.
func TestResultsOfNothing(t *testing.T) {
	f := startFake(t)
	f.publish = append(f.publish,
		func(s publishSide) error {
			if _, err := took(s, 1); err != nil {
				return err
			}
			if err := result(s, 1, 1<<63, confirmed); err != nil {
				return err
			}
			_, err := took(s, 1)
			return err
		},
		func(s publishSide) error {
			if _, err := took(s, 1); err != nil {
				return err
			}
			if err := result(s, 1, 1, confirmed); err != nil {
				return err
			}
			_, err := took(s, 1)
			return err
		})
	c := dialFake(t, f)
	if err := publisher(t, c, PublisherConfig{}).Publish(t.Context(), &Message{}); err != nil {
		t.Error(err)
	}
}

func TestRefusedHere(t *testing.T) {
	f := startFake(t)
	c := dialFake(t, f)
	p := publisher(t, c, PublisherConfig{})
	c.cfg.MessageBytesMax = 10
	for name, m := range map[string]Message{
		"body":   {Body: make([]byte, 11)},
		"header": {Headers: Table{"n": struct{}{}}},
		"id":     {DeduplicationID: "\xff"},
	} {
		if err := p.Publish(t.Context(), &m); !errors.Is(err, ErrInvalid) || errors.Is(err, ErrResultUnknown) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := c.PublishDelayed(t.Context(), &m, time.Second); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s, delayed: got %v", name, err)
		}
	}
	for _, cfg := range []PublisherConfig{{OutstandingMax: -1}, {OutstandingMax: outstandingMost + 1}, {OutstandingBytesMax: -1}, {ResultTimeout: -1}} {
		if _, err := c.Publisher(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
