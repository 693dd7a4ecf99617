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

func heapNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
