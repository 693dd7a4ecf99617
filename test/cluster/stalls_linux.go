package cluster

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How often a core is looked at, and what counts as a stall of it.
const (
	stallTick  = 5 * time.Millisecond
	stallLeast = 25 * time.Millisecond
)

// stalls are those that were noted.
type stalls struct {
	mu   sync.Mutex
	list []stall
}

type stall struct {
	end  time.Time
	took time.Duration
}

// watched begins to watch with its first call, until the process ends.
var watched = sync.OnceValue(func() *stalls {
	s := &stalls{}
	for cpu := range runtime.NumCPU() {
		go s.watch(cpu)
	}
	return s
})

// WatchStalls begins to note for how long each core of this machine runs nothing that wants to run, for Stalled. It goes on until
// the process ends.
func WatchStalls() { watched() }

// Stalled is for how long cores have stalled since then, all together: a machine that is shared takes its cores away for a second or
// two, and nobody keeps a promise about time then. It says nothing of nodes that are slow.
func Stalled(since time.Time) time.Duration { return watched().since(since) }

func (s *stalls) watch(cpu int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set) // else it looks at some core
	for last := time.Now(); ; {
		time.Sleep(stallTick)
		now := time.Now()
		if took := now.Sub(last); took > stallLeast {
			s.mu.Lock()
			s.list = append(s.list, stall{now, took})
			s.mu.Unlock()
		}
		last = now
	}
}

func (s *stalls) since(begin time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if one.end.After(begin) {
			sum += min(one.took, one.end.Sub(begin))
		}
	}
	return sum
}
