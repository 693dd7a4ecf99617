package grpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

var goodToken = hpack.HeaderField{Name: "authorization", Value: "Bearer good.token"}

// TestStalledRequestsAreCutOff: a call whose request does not go on is cut off when another waits for its room, and not before.
func TestStalledRequestsAreCutOff(t *testing.T) {
	t.Parallel()
	s, addr := served(t, func(p *patience) { p.stalled = 50 * time.Millisecond })
	s.publishes.bytes.most = 100 << 10
	r := rudely(t, addr)
	used := func(want int64, waited bool) {
		t.Helper()
		for end := time.Now().Add(limitsWait); ; time.Sleep(time.Millisecond) {
			s.publishes.bytes.mu.Lock()
			used := s.publishes.bytes.used
			s.publishes.bytes.mu.Unlock()
			if used == want && s.publishes.bytes.waited() == waited {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d bytes are used, want %d", used, want)
			}
		}
	}
	r.begin(1, warrenv1.PublishService_Publish_FullMethodName, 60<<10, goodToken)
	used(60<<10, false)
	time.Sleep(5 * s.waits.stalled)
	used(60<<10, false) // nobody needs it
	r.begin(3, warrenv1.PublishService_PublishStream_FullMethodName, 50<<10, goodToken)
	if _, answered, err := r.answer(1); err != nil || !answered {
		t.Fatal(err)
	}
	used(50<<10, false)
	if err := r.conn.Close(); err != nil {
		t.Fatal(err)
	}
	used(0, false)
}

// TestCallsWithoutRequestEnd: a call that is begun and says nothing ends.
func TestCallsWithoutRequestEnd(t *testing.T) {
	t.Parallel()
	_, addr := served(t, func(p *patience) { p.request = 50 * time.Millisecond })
	r := rudely(t, addr)
	for i, path := range []string{warrenv1.AdminService_AddUser_FullMethodName, warrenv1.StatusService_Watch_FullMethodName, warrenv1.ConsumeService_Get_FullMethodName} {
		stream := uint32(2*i + 1)
		r.begin(stream, path, 100, goodToken)
		if _, answered, err := r.answer(stream); err != nil || !answered {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// TestRequestRoom: room is given in the order of coming; what is alone may have more, and who leaves holds nobody up.
func TestRequestRoom(t *testing.T) {
	t.Parallel()
	o := &requestRoom{most: 10}
	ctx, cancel := context.WithTimeout(t.Context(), limitsWait)
	defer cancel()
	if err := o.enter(ctx, 20, nil); err != nil {
		t.Fatal(err)
	}
	entered := make(chan int64, 3)
	next := func() int64 {
		select {
		case n := <-entered:
			return n
		case <-ctx.Done():
			return 0
		}
	}
	waiting := func(want int) {
		t.Helper()
		until(t, fmt.Sprint(want, " that wait"), func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.queue) == want
		})
	}
	left, leave := context.WithCancel(ctx)
	for i, n := range []int64{9, 8, 2, 1} {
		of := ctx
		if i == 0 {
			of = left
		}
		go func() { // ends with its context, or has room
			if o.enter(of, n, nil) == nil {
				entered <- n
			}
		}()
		waiting(i + 1)
	}
	leave()
	waiting(3)
	ended := make(chan struct{})
	close(ended)
	wantRefusal(t, o.enter(ctx, 1, ended), codes.Unavailable, reasonLeaving)
	o.free(20)
	if a, b := next(), next(); a+b != 10 {
		t.Errorf("%d and %d have room, want 8 and 2", a, b)
	}
	o.free(2)
	if n := next(); n != 1 {
		t.Errorf("%d has room, want 1", n)
	}
	o.free(9)
	if o.used != 0 || o.waited() {
		t.Errorf("%d bytes are left", o.used)
	}
}
