package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/failpoint"
)

// ticket is one write of the flusher. All records appended since the last write share it.
type ticket struct {
	done chan struct{}
	err  error // valid after done

	over bool          // guarded by wal.mu, as the next
	then []func(error) // to be called when it is over

	// For the linger: whether more than one group appended.
	group   GroupID
	several bool
}

func newTicket() *ticket { return &ticket{done: make(chan struct{})} }

// wait returns when the ticket's records are durable.
func (t *ticket) wait() error {
	<-t.done
	return t.err
}

// span is a stretch of a slab that is not on disk yet.
type span struct {
	segment  *segment
	slab     *slab
	from, to int
}

// wal turns records of all groups into one stream of writes: an appender places its records in the newest slab
// under mu, the flusher writes and syncs what has gathered and releases everybody who waited. Only one
// write is ever outstanding: all bytes before a write's first record are durable when it starts,
// which is what recovery relies on when it cuts a torn tail.
type wal struct {
	fs    FS
	cache *tailCache
	fatal func(error)
	// grow asks for a next segment of about that size; called with mu held, must not block.
	grow func(size int64)
	// sealed is told of every segment that will not be appended to again; called with mu held, must not block.
	sealed func(*segment)

	linger       time.Duration
	segmentBytes int64

	mu      sync.Mutex
	work    sync.Cond // flusher: something to write, or closing
	room    sync.Cond // appenders: buffer drained, next segment there, or failed
	active  *segment
	off     int64 // first free byte of active
	seq     uint64
	slab    *slab
	spans   []span
	pending int     // bytes in spans
	writing int     // bytes in the write under way
	cur     *ticket // of what is in spans
	last    *ticket // of the newest write begun
	next    *segment
	asked   bool  // grow was called for the present active segment
	starved int   // appenders that wait for next
	since   int64 // clock when appending to active began, at from
	from    int64
	err     error
	closing bool

	syncs     atomic.Uint64
	syncTimes syncTimes
	written   atomic.Uint64
	records   atomic.Uint64

	syncsSeen, writtenSeen uint64 // by writeBytesMean

	tail []byte // the last page of a write; only the flusher uses it

	began     time.Time
	syncSince atomic.Int64 // clock when the outstanding write started, 0 if none
	flushed   atomic.Int64 // nanoseconds of writes that have ended
	// starvedSince is the clock when the first of the appenders that wait for a segment began to, 0 if none does.
	starvedSince atomic.Int64
}

// start begins appending at off of active; seq is the newest one known.
func (w *wal) start(active *segment, off int64, seq uint64) {
	w.work.L, w.room.L = &w.mu, &w.mu
	w.began = time.Now()
	w.active, w.off, w.seq, w.cur = active, off, seq, newTicket()
	w.since, w.from = w.clock(), w.off
	w.tail = make([]byte, 64<<10)[:PageBytes] // so large that the runtime gives whole pages
}

// clock is a monotonic time in ns, never 0.
func (w *wal) clock() int64 { return int64(time.Since(w.began)) + 1 }

// append places recs in order, stores their places in locs and their seqs in recs, and returns the ticket
// to wait for. It blocks while too much is buffered or no segment is ready.
func (w *wal) append(recs []record, locs []loc) (*ticket, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.stopped() == nil && w.pending > pendingBytesMax {
		w.room.Wait()
	}
	for i := range recs {
		l, err := w.place(&recs[i])
		if err != nil {
			return nil, err
		}
		locs[i] = l
	}
	t := w.cur
	g := recs[0].group
	if t.group == 0 {
		t.group = g
	} else if t.group != g {
		t.several = true
	}
	w.work.Signal()
	return t, nil
}

// place puts one record at the tail. Called with mu held; may give it up while it waits for a segment.
func (w *wal) place(r *record) (loc, error) {
	n := padded(r.bodyBytes)
	for w.stopped() == nil && !w.fits(n) {
		w.advance()
	}
	if err := w.stopped(); err != nil {
		return loc{}, err
	}
	l := w.put(r, n)
	if !w.asked && w.next == nil && w.off > w.active.size/8 && w.soon() {
		w.asked = true
		w.grow(w.nextSize())
	}
	return l, nil
}

// nextSize is the size of the segment to come. Called with mu held.
func (w *wal) nextSize() int64 {
	size := w.active.size
	if w.takes(size) < growWithin {
		size *= 4
	}
	return min(size, w.segmentBytes)
}

// soon reports whether the next segment should be prepared. Later is better: a segment that is freed meanwhile
// saves preparing one. Called with mu held.
func (w *wal) soon() bool {
	return w.off > w.active.size/2 || w.takes(w.active.size-w.off) < prepareWithin
}

// takes is how long appending so many bytes will take at the pace of the active segment. Called with mu held.
func (w *wal) takes(bytes int64) time.Duration {
	return time.Duration(float64(w.clock()-w.since) * float64(bytes) / float64(max(1, w.off-w.from)))
}

// fits lets a record that is larger than a segment have a fresh one to itself; the file grows.
func (w *wal) fits(n int64) bool {
	return w.off+n <= w.active.size || w.off <= segmentHeadBytes+switchBytes
}

// advance moves to the next segment, waiting for it. Called with mu held.
func (w *wal) advance() {
	from := w.active.number
	if w.next == nil && !w.asked {
		w.asked = true
		w.grow(w.nextSize())
	}
	if w.starved++; w.starved == 1 {
		w.starvedSince.Store(w.clock())
	}
	for w.stopped() == nil && w.next == nil && w.active.number == from {
		w.work.Signal() // what this appender has placed so far must not wait for the segment
		w.room.Wait()
	}
	if w.starved--; w.starved == 0 {
		w.starvedSince.Store(0)
	}
	if w.stopped() != nil || w.active.number != from {
		return
	}
	old := w.active
	old.end = w.off
	old.sealed.Store(true)
	w.active, w.off, w.next, w.asked, w.slab = w.next, segmentHeadBytes, nil, false, nil
	w.since, w.from = w.clock(), w.off
	sw := switchRecord(old.number, old.end, w.seq)
	w.put(&sw, padded(sw.bodyBytes))
	w.sealed(old)
	w.room.Broadcast()
}

// put encodes a record at the tail, which has room for it. Called with mu held.
func (w *wal) put(r *record, n int64) loc {
	w.seq++
	r.seq = w.seq
	if len(w.spans) == 0 || r.kind == kindSwitch {
		r.flags |= flagBatch
	}
	b := w.slab
	if b == nil || b.used+int(n) > len(b.buf) {
		b = newSlab(w.active.number, w.off, max(min(slabBytes, w.active.size-w.off), n), w.slab)
		w.slab = b
		w.cache.add(b)
	}
	r.put(b.buf[b.used:b.used+int(n)], w.active.number, w.off)
	if k := len(w.spans); k > 0 && w.spans[k-1].slab == b {
		w.spans[k-1].to += int(n)
	} else {
		w.spans = append(w.spans, span{w.active, b, b.used, b.used + int(n)})
	}
	l := loc{segment: w.active.number, off: uint32(w.off), bodyBytes: r.bodyBytes}
	w.active.track(&r.header, w.off)
	if r.kind.isData() {
		w.active.live.Add(n)
	}
	b.used += int(n)
	b.unsynced += int(n)
	w.off += n
	w.pending += int(n)
	w.records.Add(1)
	return l
}

// isData tells the records that keep a segment alive from the small ones, which a state record replaces.
func (k kind) isData() bool { return k == kindEntry || k == kindPinned || k == kindManifest }

// flush is the flusher: it ends when the wal closes and nothing is left, or with the first failure.
func (w *wal) flush() {
	several := false
	for {
		w.mu.Lock()
		for len(w.spans) == 0 && !w.closing && w.err == nil {
			w.work.Wait()
		}
		if w.err != nil || len(w.spans) == 0 {
			w.mu.Unlock()
			return
		}
		if several && w.linger > 0 && w.pending < lingerBytesMax && !w.closing {
			w.mu.Unlock()
			pause(w.linger)
			w.mu.Lock()
		} else if runtime.GOMAXPROCS(0) == 1 {
			w.mu.Unlock()
			runtime.Gosched() // the sync keeps the only processor: what goes to other replicas goes first
			w.mu.Lock()
		}
		spans, t := w.spans, w.cur
		w.spans, w.pending, w.writing, w.cur, w.last = nil, 0, w.pending, newTicket(), t
		w.mu.Unlock()

		began := w.clock()
		w.syncSince.Store(began)
		err := w.write(spans)
		w.syncSince.Store(0)
		w.flushed.Add(w.clock() - began)
		several = t.several
		if err != nil {
			w.fail(err, t)
			return
		}
		w.mu.Lock()
		for _, s := range spans {
			s.slab.unsynced -= s.to - s.from
		}
		w.writing = 0
		t.over = true
		w.room.Broadcast()
		w.mu.Unlock()
		close(t.done)
		t.call() // nothing is added to a ticket that is over
	}
}

// call tells those who wait for the ticket without a goroutine.
func (t *ticket) call() {
	for _, f := range t.then {
		f(t.err)
	}
	t.then = nil
}

// await calls f when t is over, unless it is already. f may be nil.
func (w *wal) await(t *ticket, f func(error)) (over bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.over {
		return t.err == nil, t.err
	}
	if f != nil {
		t.then = append(t.then, f)
	}
	return false, nil
}

// staged is how many bytes are placed and not durable yet.
func (w *wal) staged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending + w.writing
}

// write puts spans on disk. Bytes of one segment are durable before the first byte of the next is written.
func (w *wal) write(spans []span) error {
	for i, s := range spans {
		if err := w.writeSpan(&s); err != nil {
			return &FatalError{Op: fmt.Sprintf("write segment %d", s.segment.number), Err: err}
		}
		w.written.Add(uint64(s.to - s.from))
		if i+1 < len(spans) && spans[i+1].segment == s.segment {
			continue
		}
		if failpoint.Sown(failpoint.ForgetSync) {
			continue
		}
		began := w.clock()
		if err := s.segment.file.Fdatasync(); err != nil {
			return &FatalError{Op: fmt.Sprintf("sync segment %d", s.segment.number), Err: err}
		}
		w.syncs.Add(1)
		w.syncTimes.note(time.Duration(w.clock() - began))
	}
	return nil
}

// writeSpan writes whole pages past the page cache where that can be done: the beginning of the first one once more, and zeroes behind the end.
func (w *wal) writeSpan(s *span) error {
	whole, tail, off, ok := s.slab.pages(s.from, s.to, w.tail)
	if ok {
		if err := s.segment.file.WriteDirect(whole, tail, off); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	_, err := s.segment.file.WriteAt(s.slab.buf[s.from:s.to], s.slab.base+int64(s.from))
	return err
}

// fail ends all appending with err; t, if there is one, is the ticket of the failed write. OnFatal runs
// before anybody who waits learns of it, so that a process which ends there has answered nothing.
func (w *wal) fail(err error, t *ticket) {
	w.mu.Lock()
	first := w.err == nil
	if first {
		w.err = err
	}
	w.mu.Unlock()
	if first {
		w.fatal(err)
	}
	w.mu.Lock()
	over := []*ticket{t, w.cur}
	w.cur = newTicket()
	for _, t := range over {
		if t != nil {
			t.err, t.over = err, true
			close(t.done)
		}
	}
	w.work.Broadcast()
	w.room.Broadcast()
	w.mu.Unlock()
	for _, t := range over {
		if t != nil {
			t.call()
		}
	}
}

// needy reports whether an appender waits for a next segment.
func (w *wal) needy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starved > 0
}

// segment tells the number of the segment that is appended to.
func (w *wal) segment() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active.number
}

// writeBytesMean is the mean size of the writes since it was last asked, 0 if there were none. The preparer asks.
func (w *wal) writeBytesMean() uint64 {
	syncs, written := w.syncs.Load(), w.written.Load()
	n, bytes := syncs-w.syncsSeen, written-w.writtenSeen
	w.syncsSeen, w.writtenSeen = syncs, written
	if n == 0 {
		return 0
	}
	return bytes / n
}

// offer hands over the segment asked for by grow.
func (w *wal) offer(s *segment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = s
	w.room.Broadcast()
}

// idle reports whether everything is on disk. Called with mu held.
func (w *wal) idle() bool {
	if len(w.spans) > 0 || w.last == nil {
		return len(w.spans) == 0
	}
	select {
	case <-w.last.done:
		return true
	default:
		return false
	}
}

// barrier returns when everything appended before the call is durable.
func (w *wal) barrier() error {
	w.mu.Lock()
	t := w.last
	if len(w.spans) > 0 {
		t = w.cur
	}
	err := w.err
	w.mu.Unlock()
	if err != nil || t == nil {
		return err
	}
	return t.wait()
}

// close makes later appends fail and lets the flusher end after what is buffered.
func (w *wal) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	w.work.Broadcast()
	w.room.Broadcast()
}

// stopped tells why nothing may be appended. Called with mu held.
func (w *wal) stopped() error {
	if w.err == nil && w.closing {
		return ErrClosed
	}
	return w.err
}

const (
	switchBodyBytes = 20
	switchBytes     = headerBytes + 24
)

// switchRecord names the end of the segment before: number 4 · end 8 · last seq 8. Number 0 names none.
func switchRecord(number uint32, end int64, seq uint64) record {
	b := make([]byte, switchBodyBytes)
	binary.LittleEndian.PutUint32(b, number)
	binary.LittleEndian.PutUint64(b[4:], uint64(end))
	binary.LittleEndian.PutUint64(b[12:], seq)
	r := record{header: header{kind: kindSwitch}, data: b}
	r.seal()
	return r
}
