package queue

import (
	"runtime"
	"testing"
)

// What Memory says is what the runtime has given, to a quarter.
func TestMemory(t *testing.T) {
	const messages = 300_000
	for name, fill := range map[string]func(q *Queue, i int){
		"plain": func(q *Queue, i int) {
			q.Append(Message{Ref: Ref{Index: uint64(i / 50), Offset: uint32(i % 50 * 120), Length: 100}, BodyBytes: 64})
		},
		"expiring": func(q *Queue, i int) {
			q.Append(Message{Ref: Ref{Index: uint64(i), Length: uint32(i % 977)}, ExpiresAt: int64(1 + i*7919%1_000_003)})
		},
		"levels": func(q *Queue, i int) {
			q.Append(Message{Ref: Ref{Index: uint64(i), Length: 5}, Priority: uint8(i % 8)})
		},
	} {
		var q Queue
		before := heapNow()
		for i := range messages {
			fill(&q, i)
		}
		taken := heapNow() - before
		if got := q.Memory(); got < taken*3/4 || got > taken*5/4 {
			t.Errorf("%s: %d bytes, the runtime has given %d", name, got, taken)
		}
		runtime.KeepAlive(&q)
	}
	var d Delays
	before := heapNow()
	for i := range messages {
		d.Set(MessageID(i), int64(i*7919%1_000_003)+1)
	}
	if taken, got := heapNow()-before, d.Memory(); got < taken*3/5 || got > taken*8/5 {
		t.Errorf("delays: %d bytes, the runtime has given %d", got, taken)
	}
	var w DedupWindow
	before = heapNow()
	for i := range messages {
		w.Add(DedupEntry{ID: DedupID{byte(i), byte(i >> 8), byte(i >> 16)}, Until: int64(i)})
	}
	if taken, got := heapNow()-before, w.Memory(); got < taken*3/5 || got > taken*8/5 {
		t.Errorf("ids: %d bytes, the runtime has given %d", got, taken)
	}
	runtime.KeepAlive(&d)
	runtime.KeepAlive(&w)
}

// What a queue has taken for many messages is given back when they are gone, in whatever order they go.
func TestMemoryComesBack(t *testing.T) {
	const messages = 50_000
	at := func(i int) int64 { return int64(i*7919%1_000_003) + 1 }
	for name, empty := range map[string]func(q *Queue){
		"as they expire": func(q *Queue) {
			for {
				at, ok := q.NextExpiry()
				if !ok {
					return
				}
				q.Due(at, func(m Message) bool {
					q.Remove(m.ID)
					return false
				})
			}
		},
		"the oldest first": func(q *Queue) {
			for m, ok := q.NextLive(0); ok; m, ok = q.NextLive(0) {
				q.Remove(m.ID)
			}
		},
		"at once": func(q *Queue) { q.RemoveRange(IDRange{1, q.Tail()}, nil) },
	} {
		var q Queue
		before := heapNow()
		for i := range messages {
			q.Append(Message{Ref: Ref{Index: uint64(i), Length: uint32(i % 977)}, BodyBytes: 1, ExpiresAt: at(i), Priority: uint8(i % 200)})
		}
		empty(&q)
		left := heapNow() - before
		if n := q.Memory(); left > 32<<10 || n > 32<<10 || q.Len() != 0 || q.Bytes() != 0 || q.Stored() != 0 || len(q.lanes) != 0 {
			t.Errorf("%s: %d bytes are left, Memory tells of %d; %d messages, %d and %d bytes", name, left, n, q.Len(), q.Bytes(), q.Stored())
		}
		runtime.KeepAlive(&q)
	}
	for name, empty := range map[string]func(d *Delays){
		"as they end": func(d *Delays) { d.Lapse(1 << 40) },
		"one by one": func(d *Delays) {
			for i := range messages {
				d.Remove(MessageID(i))
			}
		},
		"at once": func(d *Delays) { d.RemoveRange(IDRange{0, messages}) },
	} {
		var d Delays
		before := heapNow()
		for i := range messages {
			d.Set(MessageID(i), at(i))
		}
		empty(&d)
		if left, n := heapNow()-before, d.Memory(); left > 32<<10 || n > 32<<10 || d.Len() != 0 {
			t.Errorf("delays %s: %d bytes are left, Memory tells of %d", name, left, n)
		}
		runtime.KeepAlive(&d)
	}
	var w DedupWindow
	before := heapNow()
	for i := range messages {
		w.Add(DedupEntry{ID: DedupID{byte(i), byte(i >> 8), byte(i >> 16)}, Until: int64(i)})
	}
	w.Add(DedupEntry{ID: DedupID{15: 1}, Until: 2 * messages}) // never empty
	w.Expire(messages, messages)
	if left, n := heapNow()-before, w.Memory(); left > 64<<10 || n > 64<<10 || w.Len() != 1 {
		t.Errorf("ids: %d are left, with %d bytes, Memory tells of %d", w.Len(), left, n)
	}
	runtime.KeepAlive(&w)
}

func heapNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
