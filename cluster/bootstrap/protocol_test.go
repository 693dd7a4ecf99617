package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var errCrash = errors.New("crashed")

// world is a network of virgin nodes in one process. At one chosen step of the protocol the
// node that takes it crashes: every write, every message sent, delivered and answered is
// a step.
type world struct {
	t       *testing.T
	crashAt int

	mu      sync.Mutex
	steps   int
	crashed *host
	hosts   map[string]*host // by name, the running ones
}

type host struct {
	w      *world
	name   string
	dir    string
	expect int
	id     *Identity
	calls  map[uint8]func(context.Context, NodeID, []byte) ([]byte, error)
	ctx    context.Context
	cancel context.CancelFunc
	done   chan Membership // closed without a value if Run failed
	err    error           // why it did, once done is closed
}

// step is called by a host before it does anything.
func (w *world) step(h *host) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.ctx.Err() != nil {
		return errCrash
	}
	w.steps++
	if w.steps == w.crashAt {
		w.crashed = h
		h.cancel()
		delete(w.hosts, h.name)
		return errCrash
	}
	return nil
}

func (w *world) start(name, dir string, expect int) *host {
	w.t.Helper()
	h := &host{w: w, name: name, dir: dir, expect: expect, id: mustOpen(w.t, dir, name), done: make(chan Membership, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.calls = h.id.Handlers(expect)
	h.id.fault = func() error { return w.step(h) }
	w.mu.Lock()
	w.hosts[name] = h
	w.mu.Unlock()
	var log *slog.Logger
	if os.Getenv("WARREN_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("at", name)
	}
	go func() {
		defer close(h.done)
		m, err := Run(h.ctx, Config{
			Identity: h.id, Expect: expect, Interval: time.Millisecond, Logger: log,
			Peers: func() []Peer { return w.peers() },
			Call: func(ctx context.Context, addr string, method uint8, req []byte) ([]byte, error) {
				return w.call(h, addr, method, req)
			},
		})
		h.err = err
		if err == nil {
			h.done <- m
		}
	}()
	return h
}

// running returns the hosts. Identities must not be asked under w.mu: they call step with
// theirs held.
func (w *world) running() []*host {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.hosts))
}

func (w *world) peers() []Peer {
	var out []Peer
	for _, o := range w.running() {
		out = append(out, Peer{o.id.NodeID(), o.name})
	}
	return out
}

func (w *world) call(from *host, addr string, method uint8, req []byte) ([]byte, error) {
	w.mu.Lock()
	to := w.hosts[addr]
	w.mu.Unlock()
	if to == nil {
		return nil, errors.New("nobody there")
	}
	if method != MethodStatus { // asking changes nothing and is repeated without end
		if err := errors.Join(w.step(from), w.step(to)); err != nil {
			return nil, err
		}
	}
	resp, err := to.calls[method](from.ctx, from.id.NodeID(), req)
	if method != MethodStatus {
		if e := errors.Join(w.step(to), w.step(from)); e != nil {
			return nil, e
		}
	}
	return resp, err
}

// end stops a host and lets its directory be opened again.
func (h *host) end() {
	h.w.t.Helper()
	h.cancel()
	<-h.done
	h.id.mu.Lock() // a handler may be writing
	defer h.id.mu.Unlock()
	mustClose(h.w.t, h.id)
}

func (h *host) membership() Membership {
	h.w.t.Helper()
	select {
	case m, ok := <-h.done:
		if !ok {
			h.w.t.Fatalf("%s ended without a cluster", h.name)
		}
		return m
	case <-time.After(30 * time.Second):
		h.w.t.Fatalf("%s found no cluster (crash at step %d)", h.name, h.w.crashAt)
		return Membership{}
	}
}

// TestCrashAtEveryStep crashes one node at each step in turn and starts it again, with
// its disk or with an empty one. There is always exactly one cluster in the end.
func TestCrashAtEveryStep(t *testing.T) {
	for _, wipe := range []bool{false, true} {
		reached := true
		crashes := 0
		for at := 1; reached; at++ {
			reached = crashOnce(t, at, wipe)
			if reached {
				crashes++
			}
		}
		t.Logf("wipe %v: %d steps crashed", wipe, crashes)
		if crashes < 15 {
			t.Fatalf("only %d steps: the test does not see the protocol", crashes)
		}
	}
}

func crashOnce(t *testing.T, at int, wipe bool) (reached bool) {
	base := t.TempDir()
	w := &world{t: t, crashAt: at, hosts: make(map[string]*host)}
	names := []string{"n1", "n2", "n3"}
	all := make(map[string]*host)
	for _, n := range names {
		all[n] = w.start(n, filepath.Join(base, n), len(names))
	}
	settled := func() bool {
		w.mu.Lock()
		crashed := w.crashed
		w.mu.Unlock()
		if crashed != nil {
			return true
		}
		for _, h := range all {
			if h.id.ClusterID() == "" {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(30 * time.Second); !settled(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no cluster and no crash at step %d", at)
		}
	}
	w.mu.Lock()
	crashed := w.crashed
	w.crashAt = -1
	w.mu.Unlock()
	if crashed != nil {
		crashed.end()
		if wipe {
			if err := os.RemoveAll(crashed.dir); err != nil {
				t.Fatal(err)
			}
		}
		all[crashed.name] = w.start(crashed.name, crashed.dir, len(names))
	}
	first := all["n1"].membership()
	for _, n := range names[1:] {
		if m := all[n].membership(); m.ClusterID != first.ClusterID {
			t.Fatalf("crash at step %d, wipe %v: %s in %s, n1 in %s", at, wipe, n, m.ClusterID, first.ClusterID)
		} else if m.Founding != nil && first.Founding != nil && !slices.Equal(m.Founding, first.Founding) {
			t.Fatalf("crash at step %d: founding members differ", at)
		}
	}
	for _, h := range all {
		h.end()
	}
	return crashed != nil
}

func TestAloneFoundsAtOnce(t *testing.T) {
	dir := t.TempDir()
	id := mustOpen(t, dir, "n1")
	m, err := Run(t.Context(), Config{Identity: id, Expect: 1})
	if err != nil || len(m.Founding) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	mustClose(t, id)
	again := mustOpen(t, dir, "n1")
	defer mustClose(t, again)
	m2, err := Run(t.Context(), Config{Identity: again, Expect: 3})
	if err != nil || m2.ClusterID != m.ClusterID {
		t.Fatalf("after restart %+v, %v", m2, err)
	}
}

func TestLateNodeJoins(t *testing.T) {
	w := &world{t: t, hosts: make(map[string]*host)}
	first := w.start("n1", t.TempDir(), 1)
	m := first.membership()
	late := w.start("n2", t.TempDir(), 0)
	if got := late.membership(); got.ClusterID != m.ClusterID || got.Founding != nil {
		t.Fatalf("late node: %+v, want cluster %s", got, m.ClusterID)
	}
	first.end()
	late.end()
}

// waits runs a host that must not find a cluster within a limit and returns why.
func waits(t *testing.T, w *world, h *host, limit time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := Run(ctx, Config{
		Identity: h.id, Expect: h.expect, Interval: time.Millisecond,
		Peers: func() []Peer { return w.peers() },
		Call: func(_ context.Context, addr string, method uint8, req []byte) ([]byte, error) {
			return w.call(h, addr, method, req)
		},
	})
	if err == nil {
		t.Fatalf("%s found a cluster", h.name)
	}
	return err.Error()
}

// idle starts a host that only answers.
func (w *world) idle(name string, expect int) *host {
	h := w.start(name, w.t.TempDir(), 0)
	h.cancel()
	<-h.done
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.expect, h.done = expect, make(chan Membership)
	close(h.done)
	h.calls = h.id.Handlers(expect)
	return h
}

func TestReasonsToWait(t *testing.T) {
	other := pledge{ClusterID: newUUID()}
	for name, c := range map[string]struct {
		expects []int // of n1, n2, …
		prepare func(hosts []*host)
		want    string
	}{
		"too few":           {expects: []int{3, 3}, want: "2 of 3 expected nodes are there: n1, n2"},
		"too many":          {expects: []int{2, 2, 2}, want: "3 nodes are there, 2 are expected"},
		"different numbers": {expects: []int{2, 3}, want: "expects 3 nodes, this one 2"},
		"expect 0":          {expects: []int{0, 0}, want: "does not found one"},
		"two clusters": {expects: []int{3, 3, 3}, want: "different clusters", prepare: func(h []*host) {
			for i, p := range []pledge{other, {ClusterID: newUUID()}} {
				if err := h[i+1].id.adopt(p, nil); err != nil {
					t.Error(err)
				}
			}
		}},
		"promised elsewhere": {expects: []int{2, 2}, want: "has promised itself to a cluster with node 'n9'", prepare: func(h []*host) {
			p := pledge{ClusterID: newUUID(), Members: []NodeID{h[1].id.NodeID(), NodeID("n9/" + newUUID())}}
			if err := h[1].id.promise(p, 2); err != nil {
				t.Error(err)
			}
		}},
		"silent": {expects: []int{2, 2}, want: "does not answer", prepare: func(h []*host) {
			h[1].calls[MethodStatus] = func(context.Context, NodeID, []byte) ([]byte, error) { return nil, errCrash }
		}},
		"not the lowest": {expects: []int{2, 2}, want: "node 'n0' is to propose", prepare: func(h []*host) {
			h[1].w.mu.Lock()
			defer h[1].w.mu.Unlock()
			delete(h[1].w.hosts, "n2")
			h[1].end()
			low := mustOpen(t, t.TempDir(), "n0")
			h[1].id, h[1].name, h[1].calls = low, "n0", low.Handlers(2)
			h[1].w.hosts["n0"] = h[1]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, hosts: make(map[string]*host)}
			var hosts []*host
			for i, e := range c.expects {
				hosts = append(hosts, w.idle(fmt.Sprintf("n%d", i+1), e))
			}
			if c.prepare != nil {
				c.prepare(hosts)
			}
			limit := 50 * time.Millisecond // a starved process knows why later
			got := waits(t, w, hosts[0], limit)
			for ; !strings.Contains(got, c.want) && limit < 10*time.Second; limit *= 4 {
				got = waits(t, w, hosts[0], limit)
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("waits because %q, want %q", got, c.want)
			}
			for _, h := range hosts {
				h.end()
			}
		})
	}
}

// TestPromiseRules checks the node that is asked.
func TestPromiseRules(t *testing.T) {
	i := mustOpen(t, t.TempDir(), "n1")
	defer mustClose(t, i)
	member := func(name string) NodeID { return NodeID(name + "/" + newUUID()) }
	b, c := member("n2"), member("n3")
	first := pledge{ClusterID: newUUID(), Members: []NodeID{i.NodeID(), b, c}}
	second := pledge{ClusterID: newUUID(), Members: []NodeID{i.NodeID(), b, c}}
	steps := []struct {
		name string
		do   func() error
		ok   bool
	}{
		{"found without a promise", func() error { return i.found(first) }, false},
		{"another number", func() error { return i.promise(first, 2) }, false},
		{"not a member", func() error { return i.promise(pledge{ClusterID: newUUID(), Members: []NodeID{b, c, member("n4")}}, 3) }, false},
		{"promise", func() error { return i.promise(first, 3) }, true},
		{"the same again", func() error { return i.promise(first, 3) }, true},
		{"among others", func() error {
			return i.promise(pledge{ClusterID: newUUID(), Members: []NodeID{i.NodeID(), b, member("n4")}}, 3)
		}, false},
		{"replaced", func() error { return i.promise(second, 3) }, true},
		{"found the replaced one", func() error { return i.found(first) }, false},
		{"found", func() error { return i.found(second) }, true},
		{"found again", func() error { return i.found(second) }, true},
		{"promise once founded", func() error { return i.promise(first, 3) }, false},
		{"adopt another", func() error { return i.adopt(first, nil) }, false},
		{"adopt the same", func() error { return i.adopt(second, nil) }, true},
	}
	for _, s := range steps {
		if err := s.do(); (err == nil) != s.ok {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}
