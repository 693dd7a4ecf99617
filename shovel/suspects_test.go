package shovel

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneClosesTheChannel: messages for which the destination closes its channel are put aside. The others go on, none comes more than twice, and when the
// destination takes them, they arrive.
func TestOneClosesTheChannel(t *testing.T) {
	for name, poisonous := range map[string][]int{"the first": {0}, "one": {70}, "neighbours": {10, 11, 12}, "several": {3, 60, 110, 199}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1, 200)
				for _, i := range poisonous {
					w.poison[w.ready[i]] = true
				}
				all := slices.Clone(w.ready)
				worker := w.start(t, `{"src-uri":"amqp://src@","dest-uri":"amqp://dst@","src-queue":"q","dest-queue":"d","src-prefetch-count":50,"reconnect-delay":1}`)
				time.Sleep(time.Minute)
				w.mu.Lock()
				for _, id := range all {
					if w.gone[id] == w.poison[id] {
						t.Errorf("%s: gone %v, poisonous %v", id, w.gone[id], w.poison[id])
					}
					if n := w.copies[id]; n > 2 && !w.poison[id] {
						t.Errorf("%s came %d times", id, n)
					}
				}
				clear(w.poison)
				w.mu.Unlock()
				if s := worker.Status(); s.State != Running && s.State != Terminated || !strings.Contains(s.Reason, "too large") || s.Waiting != len(poisonous) {
					t.Errorf("the status is %+v", s)
				}
				select {
				case <-w.done:
				case <-time.After(asideMax + time.Minute):
					t.Errorf("%d of %d arrived", len(w.gone), w.total)
				}
				worker.Stop()
				w.serving.Wait()
				for _, p := range w.problems {
					t.Error(p)
				}
			})
		})
	}
}

// TestAllCloseTheChannel: a destination that closes its channel for everything is not asked more often than the reconnect delay allows, but twice at first.
func TestAllCloseTheChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, 100)
		for _, id := range w.ready {
			w.poison[id] = true
		}
		worker := w.start(t, `{"src-uri":"amqp://src@","dest-uri":"amqp://dst@","src-queue":"q","dest-queue":"d","reconnect-delay":5}`)
		time.Sleep(10 * time.Minute)
		w.mu.Lock()
		dials := w.dials
		clear(w.poison)
		w.mu.Unlock()
		if dials > 1+10*60/5+2 {
			t.Errorf("%d connections to the destination in ten minutes", dials)
		}
		select {
		case <-w.done:
		case <-time.After(asideMax + time.Minute):
			t.Errorf("%d of %d arrived", len(w.gone), w.total)
		}
		worker.Stop()
		w.serving.Wait()
	})
}
