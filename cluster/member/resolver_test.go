package member

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestResolver follows one name through what its server may do, beside another that never answers.
func TestResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		var mu sync.Mutex
		var ips []string
		var failure error
		var delay time.Duration
		asked := 0
		var news atomic.Int64
		r := &resolver{
			log: slog.New(slog.DiscardHandler), ctx: ctx, work: &work, known: map[string]*lookedUp{}, news: func() { news.Add(1) },
			resolve: func(ctx context.Context, host string) ([]string, error) {
				if host == "dead" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				asked++
				time.Sleep(delay)
				return slices.Clone(ips), failure
			},
		}
		for _, step := range []struct {
			what  string
			ips   []string
			err   error
			delay time.Duration
			want  []string
			news  int64
		}{
			{"no such name yet", nil, &net.DNSError{Err: "no such host", IsNotFound: true}, 0, nil, 0},
			{"two addresses, one twice", []string{"10.0.0.2", "10.0.0.1", "10.0.0.2"}, nil, 0, []string{"10.0.0.1", "10.0.0.2"}, 1},
			{"the server fails", nil, errors.New("server misbehaving"), 0, []string{"10.0.0.1", "10.0.0.2"}, 1},
			{"an answer after three seconds", []string{"10.0.0.3"}, nil, 3 * time.Second, []string{"10.0.0.3"}, 2},
			{"fewer addresses", []string{}, nil, 0, nil, 2},
			{"other addresses", []string{"10.0.0.4"}, nil, 0, []string{"10.0.0.4"}, 3},
			{"the name is gone", nil, &net.DNSError{Err: "no such host", IsNotFound: true}, 0, nil, 3},
		} {
			mu.Lock()
			ips, failure, delay = step.ips, step.err, step.delay
			mu.Unlock()
			begun := time.Now()
			r.lookup([]string{"dead", "name"})
			if d := time.Since(begun); d > lookupWait {
				t.Errorf("%s: waited %v", step.what, d)
			}
			time.Sleep(step.delay + lookupInterval)
			r.mu.Lock()
			got := r.known["name"].ips
			r.mu.Unlock()
			if n := news.Load(); !slices.Equal(got, step.want) || n != step.news {
				t.Errorf("%s: got %v and %d news, want %v and %d", step.what, got, n, step.want, step.news)
			}
		}
		before := asked
		for range 10 {
			r.lookup([]string{"name"})
		}
		mu.Lock()
		defer mu.Unlock()
		if asked > before+1 {
			t.Errorf("asked %d times at once", asked-before)
		}
	})
}

// TestDeadNameHoldsNobodyUp: a name whose server does not answer, and addresses at which nobody is, do not keep a node from the others.
func TestDeadNameHoldsNobodyUp(t *testing.T) {
	first := open(t, "n1", Config{})
	_, port, err := net.SplitHostPort(first.Self().GossipAddr)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	second := open(t, "n2", Config{
		Join: []string{"dead-1:1", "dead-2:1", "slow:" + port, "dead-3:1"},
		Resolve: func(ctx context.Context, host string) ([]string, error) {
			if host != "slow" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(1500 * time.Millisecond)
			return []string{"127.0.0.1"}, nil
		},
	})
	if err := second.SetCluster(clusterA); err != nil {
		t.Fatal(err)
	}
	until(t, "the second is a member", func() bool { return is("n1", "n2")(second.Members()) })
	if d := time.Since(begun); d > 15*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1:5682":            "10.0.0.1:5682",
		"[fd00:0:0::1]:5682":       "[fd00::1]:5682",
		"[FD00::0001]:5682":        "[fd00::1]:5682",
		"[::ffff:10.0.0.1]:5682":   "10.0.0.1:5682",
		"warren-nodes.shop:5682":   "warren-nodes.shop:5682",
		"[fe80::1%eth0]:5682":      "[fe80::1%eth0]:5682",
		"not an address whatever:": "not an address whatever:",
	} {
		if got := canonical(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func TestOutwards(t *testing.T) {
	if ip := outwards(); ip != "" {
		if a, err := netip.ParseAddr(ip); err != nil || !a.IsGlobalUnicast() {
			t.Errorf("others are told %q", ip)
		}
	}
}
