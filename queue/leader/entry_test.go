package leader

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/warrenmq/warren/fsm"
)

// readLog gives out copies, and knows which of them are in memory still.
type readLog struct {
	*MemLog
	mu    sync.Mutex
	given []weak.Pointer[byte]
}

func (l *readLog) Read(index uint64) ([]byte, error) {
	data, err := l.MemLog.Read(index)
	if err != nil {
		return nil, err
	}
	data = bytes.Clone(data)
	l.mu.Lock()
	l.given = append(l.given, weak.Make(&data[0]))
	l.mu.Unlock()
	return data, nil
}

// inMemory counts the entries that were given out and are in memory.
func (l *readLog) inMemory() (n int) {
	runtime.GC()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.given {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// A queue keeps nothing of the log when it has nothing to deliver, and not for long when those that it delivers to have as much as they take: thousands
// of queues would keep a MiB each.
func TestEntriesAreLetGo(t *testing.T) {
	large := string(make([]byte, 4<<10)) // no part of a block of small objects
	for _, c := range []struct {
		name   string
		bodies []string
	}{{"nothing is ready", []string{large}}, {"a message waits for room", []string{large, large}}} {
		t.Run(c.name, func(t *testing.T) {
			a := node(1)
			var log *readLog
			r := newRigWith(t, plain(), func(cfg *Config) {
				log = &readLog{MemLog: cfg.Log.(*MemLog)}
				cfg.Log = log
			}, a)
			r.answerRoll(a)
			r.attach(a, 1, 1)
			ops := make([]fsm.Op, len(c.bodies))
			for i, b := range c.bodies {
				ops[i] = pub(b)
			}
			r.batch(a, ops...)
			if n := len(r.items(a, 1)); n != 1 {
				t.Fatalf("%d deliveries", n)
			}
			r.mu.Lock()
			r.out = nil // lets go of what was sent
			r.mu.Unlock()
			eventually(t, "the end of what was read", func() bool { return log.inMemory() == 0 })
		})
	}
}
