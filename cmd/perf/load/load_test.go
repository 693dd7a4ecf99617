package load

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHistogramPrecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "d"))
		low, high := valueOf(bucketOf(d)), valueOf(bucketOf(d)+1)
		if d.Truncate(time.Microsecond) < low || d.Truncate(time.Microsecond) >= high {
			t.Fatalf("%v is not in its bucket, %v to %v", d, low, high)
		}
		if width := high - low; width > time.Microsecond && float64(width) > float64(low)/(1<<subBits)+1 {
			t.Fatalf("the bucket of %v is %v wide", d, width)
		}
	})
}

func TestQuantiles(t *testing.T) {
	var h histogram
	if h.quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0: time.Millisecond, 0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		got := h.quantile(q)
		if got > want || got < want-want/16 {
			t.Errorf("quantile %v: got %v, want about %v", q, got, want)
		}
	}
	h.reset()
	if h.quantile(0.5) != 0 {
		t.Error("a reset histogram has a median")
	}
}

func TestStamp(t *testing.T) {
	body := make([]byte, stampBytes+5)
	stamp(body, 7, 123456, time.Minute)
	p, n, sent, err := readStamp(body)
	if p != 7 || n != 123456 || sent != time.Minute || err != nil {
		t.Errorf("got %d, %d, %v, %v", p, n, sent, err)
	}
	if _, _, _, err := readStamp(body[:stampBytes-1]); err == nil {
		t.Error("a short body has a stamp")
	}
}

func TestBooks(t *testing.T) {
	var b books
	for range 5 {
		b.send()
	}
	b.confirm(0, true)
	b.receive(0, false) // the usual order
	b.receive(1, false)
	b.confirm(1, true)    // the confirm comes late
	b.confirm(2, true)    // lost
	b.confirm(3, false)   // refused
	b.receive(4, false)   // never confirmed
	b.receive(0, true)    // redelivered
	b.receive(1, false)   // repeated
	b.receive(500, false) // not ours
	var got totals
	b.addTo(&got)
	want := totals{sent: 5, confirmed: 3, received: 3, open: 1, refused: 1, redelivered: 1, duplicates: 1, surprises: 1}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestGap(t *testing.T) {
	var g gap
	g.await(1 * time.Second)
	g.await(2 * time.Second)
	g.came(4 * time.Second)
	g.came(5 * time.Second)
	if g.value() != 3*time.Second {
		t.Errorf("got %v", g.value())
	}
	g.reset()
	g.came(20 * time.Second)
	g.came(21 * time.Second)
	if g.value() != time.Second {
		t.Errorf("after a reset: %v", g.value())
	}
}

func TestBadFlags(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"", "the first argument is the mode"},
		{"fly --urls a", "the first argument is the mode"},
		{"throughput", "either --urls or --start is needed"},
		{"throughput --urls a --start b", "either --urls or --start is needed"},
		{"throughput --urls a now", `unexpected argument "now"`},
		{"throughput --urls a --size 3", "--size must be at least"},
		{"throughput --urls a --queues 2 --ack-every 2", "--ack-every needs a consumer for each queue"},
		{"deadletter --urls a --queues 2", "every source needs a publisher"},
		{"throughput --urls a --ack-every 0", "--ack-every must be between"},
		{"throughput --urls a --window 0", "must be at least 1"},
		{"throughput --urls a --server-pids x", "--server-pids"},
		{"deadletter --urls a --via post", "--via must be reject, ttl or delivery-limit"},
		{"deadletter --urls a --via ttl --preload 5", "--preload goes with --via reject"},
		{"failover --urls a", "failover needs --start, --servers or --leader-pid"},
		{"failover --servers a=b@c", "is not of the form name=pid@url"},
		{"throughput --urls a --client-gogc 0", "--client-gogc must be at least 1"},
		{"backlog --urls a --no-ack", "--no-ack and --fanout go with throughput and latency"},
		{"throughput --urls a --fanout --queues 3 --consumers 2", "--fanout needs a consumer for each queue"},
		{"start --urls a", "start needs --start"},
		{"queues --urls a --parallel 0", "--parallel must be at least 1"},
		{"latency --urls a --freeze", "--freeze, --cut and --one-leader go with failover"},
		{"failover --start a --nodes 3 --cut --freeze", "--freeze or --cut, not both"},
		{"failover --servers a=1@c --cut", "--cut needs --start"},
		{"failover --start a --nodes 2", "failover needs three nodes"},
		{"throughput --urls a --protocol mqtt", "--protocol: there is no"},
		{"queues --urls a --protocol grpc", "--protocol goes with throughput"},
	} {
		var out, errs bytes.Buffer
		if code := Execute(t.Context(), nil, strings.Fields(tc.args), &out, &errs); code != 2 || !strings.Contains(errs.String(), tc.want) || out.Len() > 0 {
			t.Errorf("%q: code %d, %q, want 2 and %q", tc.args, code, errs.String(), tc.want)
		}
	}
}
