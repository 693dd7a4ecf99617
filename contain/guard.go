package contain

import (
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Lock is a lock that can be tried: a *sync.Mutex or a *sync.RWMutex.
type Lock interface {
	TryLock() bool
	Unlock()
}

// Locks are locks with their names. The goroutine that goes through them may hold none of them.
type Locks = iter.Seq2[string, Lock]

// Config is what a Guard needs.
type Config struct {
	Logger *slog.Logger
	// Module is what the names of this program's functions begin with, such as "example.org/module/".
	Module string
	// Core are the beginnings of names of functions, behind Module, that no panic may have passed through: what it leaves half changed may break a guarantee.
	Core []string
	// Pass are panics that are meant, such as http.ErrAbortHandler: they go on.
	Pass []error
	// Patience is how long each lock may be held, longer than anybody holds it who is alive.
	Patience time.Duration
	// End ends the process; it is told why, with the stack of the panic. Nil: by a panic that nobody recovers from.
	End func(why string)
}

// loudEvery is the least time between two log lines with the stack of one kind of work's panics.
const loudEvery = 10 * time.Second

// Guard contains the panics of a node.
type Guard struct {
	cfg Config

	mu      sync.Mutex
	sources []func() Locks
	loud    map[string]time.Time // when the last stack was logged, by kind of work
	counts  map[string]uint64    // by kind of work
	trying  bool                 // a goroutine goes through the locks
	again   bool                 // and is to do so once more
	why     string               // the newest panic
	closed  atomic.Bool
	trials  sync.WaitGroup
}

// New returns a guard without locks.
func New(cfg Config) *Guard {
	if cfg.End == nil {
		cfg.End = end
	}
	return &Guard{cfg: cfg, loud: map[string]time.Time{}, counts: map[string]uint64{}}
}

// Watch adds locks to those that are tried. f is called for each trial.
func (g *Guard) Watch(f func() Locks) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sources = append(g.sources, f)
}

// Close ends the trials of locks and returns when none goes on.
func (g *Guard) Close() {
	g.closed.Store(true)
	g.trials.Wait()
}

// Contained tells how many panics were contained, by kind of work.
func (g *Guard) Contained() map[string]uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.counts)
}

// Keep is deferred, itself. If the function that does so panics, and the panic can be contained, it ends the client's work by calling ended, and the function
// returns. kind is the kind of work. A function that the core calls has its name given as edge, as in a stack: "gateway/amqp.(*channel).Deliver"; others "". A nil
// guard contains nothing.
func (g *Guard) Keep(kind, edge string, ended func()) {
	if g == nil {
		return
	}
	if p := recover(); p != nil {
		g.took(p, kind, g.core(edge))
		ended()
	}
}

// KeepReading is Keep for work that only reads: it leaves nothing half changed, wherever it has passed through.
func (g *Guard) KeepReading(kind string, ended func()) {
	if g == nil {
		return
	}
	if p := recover(); p != nil {
		g.took(p, kind, "")
		ended()
	}
}

// took contains a panic that has passed through a function of the core, or "". It returns if it has.
func (g *Guard) took(p any, kind, core string) {
	if err, ok := p.(error); ok && slices.Contains(g.cfg.Pass, err) {
		panic(p)
	}
	why := fmt.Sprintf("%v\n\n%s", p, debug.Stack())
	if core != "" {
		g.cfg.End(fmt.Sprintf("panic in %s, which must not go on: %s", core, why))
		panic(p)
	}
	g.contained(kind, p, why)
}

// core names the function of the core that the panic has passed through, "" for none.
func (g *Guard) core(edge string) string {
	pcs := make([]uintptr, 256)
	pcs = pcs[:runtime.Callers(2, pcs)] // without Callers and core
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		name, ours := strings.CutPrefix(f.Function, g.cfg.Module)
		switch {
		case ours && name == edge:
			return ""
		case ours && slices.ContainsFunc(g.cfg.Core, func(of string) bool { return strings.HasPrefix(name, of) }):
			return name
		case !more && len(pcs) == cap(pcs):
			return "a deep stack"
		case !more:
			return ""
		}
	}
}

// contained notes a panic and has the locks tried.
func (g *Guard) contained(kind string, p any, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts[kind]++
	g.why = why
	now := time.Now()
	attrs := []any{"work", kind, "panic", p}
	if last, ok := g.loud[kind]; !ok || now.Sub(last) >= loudEvery {
		g.loud[kind] = now
		attrs = append(attrs, "stack", why)
	}
	g.cfg.Logger.Error("panic in the work for one client, which ends for it; please report this", attrs...)
	if g.again = true; !g.trying && !g.closed.Load() {
		g.trying = true
		g.trials.Go(g.try)
	}
}

// try goes through all locks until no panic has come meanwhile.
func (g *Guard) try() {
	for {
		g.mu.Lock()
		if !g.again || g.closed.Load() {
			g.trying = false
			g.mu.Unlock()
			return
		}
		g.again = false
		why, sources := g.why, slices.Clone(g.sources)
		g.mu.Unlock()
		for _, source := range sources {
			for name, lock := range source() {
				if !g.free(lock) {
					g.cfg.End(fmt.Sprintf("the lock %s is held for %v, after a panic in the work for one client: %s", name, g.cfg.Patience, why))
					return
				}
			}
		}
	}
}

// free waits until a lock was free once; false: it has not become so in time.
func (g *Guard) free(lock Lock) bool {
	pause := 50 * time.Microsecond
	for end := time.Now().Add(g.cfg.Patience); !lock.TryLock(); {
		if g.closed.Load() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
	lock.Unlock()
	return true
}

// end panics where nobody recovers, as net/http does in the goroutines of its requests.
func end(why string) {
	go panic(why)
	select {}
}
