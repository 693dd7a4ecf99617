package contain

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a guard over locks, and what became of it.
type rig struct {
	*Guard
	log   strings.Builder
	ended chan string
}

func newRig(locks ...*sync.Mutex) *rig {
	r := &rig{ended: make(chan string, 1)}
	r.Guard = New(Config{
		Logger: slog.New(slog.NewTextHandler(&r.log, nil)), Module: "github.com/warrenmq/warren/", Core: []string{"contain.core", "contain.(*store)."},
		Patience: 300 * time.Millisecond, End: func(why string) { r.ended <- why },
	})
	r.Watch(func() Locks {
		return func(yield func(string, Lock) bool) {
			for _, l := range locks {
				if !yield("lock", l) {
					return
				}
			}
		}
	})
	return r
}

// serve is the edge of these tests.
func (r *rig) serve(work func()) (over bool) {
	defer r.Keep("work", "contain.(*rig).serve", func() { over = true })
	work()
	return false
}

type store struct{}

func (*store) write(f func()) { f() }

//go:noinline
func coreWork(f func()) { f() }

// below is core that calls the edge: nothing of it is between the edge and the panic.
//
//go:noinline
func coreCalls(r *rig) bool { return r.serve(beneath) }

func beneath() { panic("beneath") }

func TestKeep(t *testing.T) {
	fault := func() { panic("a fault") }
	for name, tc := range map[string]struct {
		work  func()
		over  bool
		again any // the panic that goes on
	}{
		"no panic":              {work: func() {}},
		"a panic":               {work: fault, over: true},
		"of the runtime":        {work: func() { _ = []int{}[len(name(t))] }, over: true},
		"in the core":           {work: func() { coreWork(fault) }, again: "a fault"},
		"in a method of it":     {work: func() { new(store).write(fault) }, again: "a fault"},
		"after the core's work": {work: func() { coreWork(func() {}); fault() }, over: true},
		"of a deferred call":    {work: func() { defer fault(); panic("first") }, over: true},
		"and core in one":       {work: func() { defer coreWork(fault); panic("first") }, again: "a fault"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(new(sync.Mutex))
			defer r.Close()
			var again any
			var over bool
			func() {
				defer func() { again = recover() }()
				over = r.serve(tc.work)
			}()
			if over != tc.over || again != tc.again {
				t.Errorf("ended %v, went on with %v; want %v, %v", over, again, tc.over, tc.again)
			}
			if got := r.Contained()["work"]; (got == 1) != tc.over {
				t.Errorf("%d panics counted", got)
			}
			r.Close()
			if told := strings.Contains(r.log.String(), "contain.(*rig).serve"); told != tc.over {
				t.Errorf("the log has the stack: %v\n%s", told, r.log.String())
			}
		})
	}
}

func name(t *testing.T) string { return t.Name() }

func TestCoreBeneathTheEdge(t *testing.T) {
	r := newRig()
	defer r.Close()
	if !coreCalls(r) {
		t.Error("the panic was not contained")
	}
}

func TestNoGuard(t *testing.T) {
	defer func() {
		if p := recover(); p != "a fault" {
			t.Errorf("panic %v", p)
		}
	}()
	(&rig{}).serve(func() { panic("a fault") })
}

func TestLocks(t *testing.T) {
	t.Run("released in time", func(t *testing.T) {
		var mu sync.Mutex
		r := newRig(&mu)
		mu.Lock()
		r.serve(func() { panic("a fault") })
		time.Sleep(10 * time.Millisecond)
		mu.Unlock()
		r.trials.Wait()
		r.Close()
		select {
		case why := <-r.ended:
			t.Errorf("ended: %s", why)
		default:
		}
	})
	t.Run("left held", func(t *testing.T) {
		var free, mu sync.Mutex
		r := newRig(&free, &mu)
		defer r.Close()
		r.serve(func() {
			mu.Lock()
			panic("a fault")
		})
		if why := <-r.ended; !strings.Contains(why, "the lock lock is held") || !strings.Contains(why, "a fault") || !strings.Contains(why, "TestLocks") {
			t.Errorf("ended: %s", why)
		}
	})
	t.Run("each panic has a trial after it", func(t *testing.T) {
		var slow, mu sync.Mutex
		r := newRig(&mu, &slow)
		defer r.Close()
		slow.Lock()
		r.serve(func() { panic("a fault") }) // its trial waits at slow
		time.Sleep(5 * time.Millisecond)
		r.serve(func() {
			mu.Lock()
			panic("another fault")
		})
		slow.Unlock()
		if why := <-r.ended; !strings.Contains(why, "another fault") {
			t.Errorf("ended: %s", why)
		}
	})
}

func TestStacksAreNotRepeated(t *testing.T) {
	r := newRig()
	for range 3 {
		r.serve(func() { panic("a fault") })
	}
	r.Close()
	if n := strings.Count(r.log.String(), "stack="); n != 1 {
		t.Errorf("%d stacks in the log", n)
	}
	if n := strings.Count(r.log.String(), "please report"); n != 3 {
		t.Errorf("%d lines in the log", n)
	}
}
