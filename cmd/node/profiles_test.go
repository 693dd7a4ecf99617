package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestProfilesOnDemand: the block and mutex profiles cost nothing but while somebody waits for one.
func TestProfilesOnDemand(t *testing.T) {
	var calls []bool
	inside := make(chan struct{})
	leave := make(chan struct{})
	p := &onDemand{
		handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside <- struct{}{}; <-leave }),
		set:     func(on bool) { calls = append(calls, on) },
	}
	var g errgroup.Group
	ask := func(target string) {
		g.Go(func() error {
			p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, target, http.NoBody))
			return nil
		})
		select {
		case <-inside:
		case <-time.After(10 * time.Second):
			t.Fatal("the profile is not asked for")
		}
	}
	ask("/debug/pprof/block") // what there is: nothing is recorded for it
	if leave <- struct{}{}; len(calls) != 0 {
		t.Errorf("without seconds: %v", calls)
	}
	ask("/debug/pprof/block?seconds=5")
	ask("/debug/pprof/block?seconds=1")
	if len(calls) != 1 || !calls[0] {
		t.Errorf("two at once: %v, want one start", calls)
	}
	close(leave)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 2 || calls[1] {
		t.Errorf("at the end: %v, want a start and an end", calls)
	}
}

// TestBlockAndMutexProfiles takes both, as a program that measures does.
func TestBlockAndMutexProfiles(t *testing.T) {
	for name, p := range map[string]*onDemand{"block": blockProfile(), "mutex": mutexProfile()} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/"+name+"?seconds=1", http.NoBody))
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %d bytes", name, w.Code, w.Body.Len())
		}
		w = httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/"+name+"?seconds=soon", http.NoBody))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s for a time that is none: %d, want 400", name, w.Code)
		}
	}
}
