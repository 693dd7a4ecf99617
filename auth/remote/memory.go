package remote

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// memory keeps what was answered, as much as has room, and has one of those who want the same answer ask for it. It is safe for concurrent use.
type memory[K comparable] struct {
	mu    sync.Mutex
	known *simplelru.LRU[K, *remembered]
}

// remembered is what is known of one question. Guarded by the memory's mu.
type remembered struct {
	answer answer
	// login is what belongs to an answer that lets somebody in, nil for other questions.
	login *login
	until time.Time // the answer counts so long without being asked for again; zero: there is none
	asked *asking   // the request that is under way, nil if none is
}

// asking is a request that others can wait for.
type asking struct {
	ended chan struct{} // closed when the other fields are set
	got   answer
	login *login
	err   error
	// skipped tells that err is that of who should have asked, and that the server was not.
	skipped bool
}

func newMemory[K comparable](size int) *memory[K] {
	known, err := simplelru.NewLRU[K, *remembered](size, nil)
	if err != nil {
		panic(fmt.Sprintf("remote: %v", err)) // not a size
	}
	return &memory[K]{known: known}
}

// fresh returns what is known of a question, if it still counts.
func (m *memory[K]) fresh(k K, now time.Time) (a answer, l *login, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, there := m.known.Get(k)
	if !there || !now.Before(r.until) {
		return answer{}, nil, false
	}
	return r.answer, r.login, true
}

// stale tells whether the last answer to a question was yes, however long ago.
func (m *memory[K]) stale(k K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, there := m.known.Get(k)
	return there && !r.until.IsZero() && r.answer.allowed
}

// begin has the caller ask, which end tells the outcome of, or returns the request that is under way already, or one that has just ended. before is what was known.
func (m *memory[K]) begin(k K) (under *asking, mine bool, before *login) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, there := m.known.Get(k)
	if !there {
		r = &remembered{}
		m.known.Add(k, r)
	}
	switch {
	case r.asked != nil:
		return r.asked, false, nil
	case time.Now().Before(r.until): // since the caller has looked
		return &asking{ended: closed, got: r.answer, login: r.login}, false, nil
	}
	r.asked = &asking{ended: make(chan struct{})}
	return r.asked, true, r.login
}

// closed is of requests that have ended.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// end tells the outcome of a request to those who wait for it, and keeps it until then. What was known before stays if nobody answered.
func (m *memory[K]) end(k K, a *asking, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(a.ended)
	r, there := m.known.Get(k)
	if !there || r.asked != a {
		return // forgotten in the meantime
	}
	r.asked = nil
	switch {
	case a.err == nil:
		r.answer, r.login, r.until = a.got, a.login, until
	case r.until.IsZero() || errors.Is(a.err, errUnusable):
		m.known.Remove(k)
	}
}

// size is how much is known.
func (m *memory[K]) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known.Len()
}
