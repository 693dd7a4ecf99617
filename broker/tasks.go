package broker

import "sync"

// tasks are goroutines that end with the broker. The zero tasks is ready.
type tasks struct {
	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup
}

// start runs f in a goroutine, unless wait has been called.
func (t *tasks) start(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.wg.Go(f)
	}
	return !t.ended
}

// wait returns when all have ended; none begins from now on.
func (t *tasks) wait() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.wg.Wait()
}
