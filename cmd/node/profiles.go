package main

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"sync"
)

const (
	// blockRate has the block profile sample one wait for so many nanoseconds of waiting, and every longer one.
	blockRate = 10_000
	// mutexFraction has the mutex profile sample one in so many events.
	mutexFraction = 10
)

// onDemand serves a profile that costs while it is recorded, so that it is while somebody waits for one only.
// Without seconds in the request it answers with what earlier requests recorded, as net/http/pprof does.
type onDemand struct {
	handler http.Handler
	set     func(on bool)

	mu     sync.Mutex
	takers int
}

func blockProfile() *onDemand {
	return &onDemand{handler: pprof.Handler("block"), set: func(on bool) {
		if on {
			runtime.SetBlockProfileRate(blockRate)
		} else {
			runtime.SetBlockProfileRate(0)
		}
	}}
}

func mutexProfile() *onDemand {
	return &onDemand{handler: pprof.Handler("mutex"), set: func(on bool) {
		if on {
			runtime.SetMutexProfileFraction(mutexFraction)
		} else {
			runtime.SetMutexProfileFraction(0)
		}
	}}
}

func (p *onDemand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("seconds") != "" {
		p.take(1)
		defer p.take(-1)
	}
	p.handler.ServeHTTP(w, r)
}

// take counts who waits for a profile, and records while there are any.
func (p *onDemand) take(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takers += n
	if p.takers == max(n, 0) { // the first has come, or the last has gone
		p.set(n > 0)
	}
}
