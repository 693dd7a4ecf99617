package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/warrenmq/warren/dirty"
)

// session is one outgoing stream that passed its handshake. Its reader and its
// writer are goroutines of the peer; producers call send from anywhere.
type session struct {
	p       *peer
	stream  grpc.ClientStream
	writer  messageWriter   // the writer's own
	reader  messageSequence // the reader's own
	epoch   uint64          // issued by the receiver
	process uint64          // the receiver's
	level   int             // the newest that both programs know
	out     *outbox
	cancel  context.CancelFunc
	codec   raftCodec    // for what the other side sends
	pinged  atomic.Int64 // when the newest ping was queued, as it says itself

	mu      sync.Mutex
	pending map[uint64]func([]byte, error) // call id -> what to do with its answer
	next    uint64                         // last call id given out; ids never repeat in a session
	cause   error                          // why the session ended, nil while it lives

	done chan struct{} // closed at the end
}

// fieldsBytesMax is what the fields of a request take at most: group, check, the catalog's index and type of one of Raft.
const fieldsBytesMax = 2*binary.MaxVarintLen64 + 4 + 1

// request is a frame that expects an answer.
type request struct {
	kind   uint8
	fields []byte // what follows the call's id in the frame, at most fieldsBytesMax
	body   pieces // must not change after sending
}

// send queues req. done is called exactly once if and only if the error is nil,
// on the reader's goroutine or by whoever ends the session: it must not wait.
func (s *session) send(req request, done func([]byte, error)) (call uint64, err error) {
	if n := req.body.bytes(); n > s.p.m.cfg.FrameBytesMax-frameOverheadMax {
		return 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return 0, s.lost()
	}
	s.next++
	call = s.next
	s.pending[call] = done
	s.mu.Unlock()
	var buf [binary.MaxVarintLen64 + fieldsBytesMax]byte
	fields := append(binary.AppendUvarint(buf[:0], call), req.fields...)
	if err := s.out.put(laneRaft, req.kind, fields, req.body...); err != nil {
		s.mu.Lock()
		_, mine := s.pending[call]
		delete(s.pending, call)
		s.mu.Unlock()
		if !mine {
			// The session ended in between and has called done already.
			return call, nil
		}
		return 0, err
	}
	s.p.m.stats.framesOut.Add(1)
	return call, nil
}

// sendWait is send that waits for room in the queue.
func (s *session) sendWait(stop <-chan struct{}, timeout <-chan time.Time, req request, done func([]byte, error)) (uint64, error) {
	for {
		call, err := s.send(req, done)
		if !errors.Is(err, ErrBacklog) {
			return call, err
		}
		room := s.out.waitRoom()
		if call, err = s.send(req, done); !errors.Is(err, ErrBacklog) {
			return call, err
		}
		select {
		case <-room:
		case <-s.done:
		case <-stop:
			return 0, ErrClosed
		case <-timeout:
			return 0, fmt.Errorf("%w: %w", ErrTimeout, ErrBacklog)
		}
	}
}

type answer struct {
	payload []byte
	err     error
}

// waiter is what a caller waits with for its answer. It is used again: heartbeats of idle groups are most of what is asked.
type waiter struct {
	ch    chan answer
	done  func([]byte, error) // puts the answer into ch, which has room for it
	timer *time.Timer         // stopped while nobody waits
}

func (m *Mesh) waiter() *waiter {
	if w, ok := m.waiters.Get().(*waiter); ok {
		return w
	}
	w := &waiter{ch: make(chan answer, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	w.done = func(b []byte, err error) { w.ch <- answer{b, err} }
	return w
}

// roundTripWithin is roundTrip with a bound of time.
func (s *session) roundTripWithin(stop <-chan struct{}, limit time.Duration, req request) ([]byte, error) {
	w := s.p.m.waiter()
	w.timer.Reset(limit)
	return s.wait(w, stop, w.timer.C, req)
}

// roundTrip sends req and waits for the answer, until stop or timeout.
func (s *session) roundTrip(stop <-chan struct{}, timeout <-chan time.Time, req request) ([]byte, error) {
	return s.wait(s.p.m.waiter(), stop, timeout, req)
}

// wait takes w. It is used again if nobody can put an answer into it any more: once it is given back, it is another's.
func (s *session) wait(w *waiter, stop <-chan struct{}, timeout <-chan time.Time, req request) ([]byte, error) {
	call, err := s.sendWait(stop, timeout, req, w.done)
	if err == nil {
		select {
		case a := <-w.ch:
			w.timer.Stop()
			s.p.m.waiters.Put(w)
			return a.payload, a.err
		case <-stop:
			err = ErrClosed
		case <-timeout:
			err = ErrTimeout
		}
		s.forget(call)
	}
	w.timer.Stop()
	return nil, err
}

// forget drops interest in an answer.
func (s *session) forget(call uint64) {
	s.mu.Lock()
	delete(s.pending, call)
	s.mu.Unlock()
}

// lost describes why the session is over.
func (s *session) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w: %w", ErrPeerDown, s.cause)
}

// fail ends the session once: nothing is sent or received afterwards and every
// pending request is answered with ErrPeerDown.
func (s *session) fail(cause error) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause = cause
	pending := s.pending
	s.pending = map[uint64]func([]byte, error){}
	s.mu.Unlock()
	s.p.detach(s, cause)
	s.cancel()
	s.out.kill()
	close(s.done)
	err := fmt.Errorf("%w: %w", ErrPeerDown, cause)
	for _, done := range pending {
		done(nil, err)
	}
}

var errSilent = errors.New("the peer answers no pings")

// write is the writer: it sends what is queued and pings.
func (s *session) write() {
	m := s.p.m
	ticker := time.NewTicker(m.cfg.PingInterval)
	defer ticker.Stop()
	for {
		sent, err := s.writer.next(s.out)
		if err != nil {
			if errors.Is(err, io.EOF) {
				// The stream is over; the reader learns the reason.
				<-s.done
			}
			s.fail(err)
			return
		}
		due := false
		if sent {
			select {
			case <-ticker.C: // there may always be something to send, and leases go by the answers to pings
				due = true
			default:
			}
		} else {
			select {
			case <-s.out.wake:
				if !s.out.hasUrgent() { // a starved process would come back to it seconds later
					runtime.Gosched() // let those who are ready join the message
				}
			case <-ticker.C:
				due = true
			case <-s.done:
				return
			}
		}
		if due {
			s.ping()
		}
	}
}

// silenceChecks is how often it is looked in the time of SilenceMax whether the peer answers.
const silenceChecks = 10

// watchSilence ends the session when the peer answers no pings. The writer cannot: once the connection takes nothing any more, it waits there, and
// the kernel gives a connection up after a quarter of an hour only.
func (s *session) watchSilence() (stop func()) {
	began := time.Now()
	return repeat(s.p.m.cfg.SilenceMax/silenceChecks, func() {
		if s.silent(s.p.answeredSince(began)) {
			s.fail(errSilent)
		}
	})
}

// deafFactor times SilenceMax is the age of the newest answer at which a link is torn down although
// the peer is heard: pings of a starved peer arrive long before its answers do.
const deafFactor = 3

// silent tells whether the link is to be given up, as the newest ping that was answered was sent at last.
func (s *session) silent(last time.Time) bool {
	m := s.p.m
	age := time.Since(last)
	return age > m.cfg.SilenceMax && (time.Since(m.lastHeard(s.p.id)) > m.cfg.SilenceMax || age > deafFactor*m.cfg.SilenceMax)
}

func (s *session) ping() {
	now := time.Since(s.p.m.began)
	s.pinged.Store(int64(now))
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(now))
	s.out.putUrgent(framePing, b[:])
}

// prove sends the first ping and waits for its answer: only then has the other side
// made this stream the node's, so that requests and snapshots may name its epoch.
func (s *session) prove() error {
	s.ping()
	if err := s.writer.drain(s.out); err != nil {
		return err
	}
	return s.readMessage()
}

// read is the reader: it runs until the stream ends.
func (s *session) read() {
	for {
		if err := s.readMessage(); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *session) readMessage() error {
	var msg rawMessage
	if err := s.stream.RecvMsg(&msg); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	s.p.m.stats.messagesIn.Add(1)
	return s.reader.each(&msg, s.receive)
}

// receive handles one frame from the other side.
func (s *session) receive(f frame) error {
	m := s.p.m
	switch f.kind {
	case framePong:
		d := decoder{b: f.body}
		sent, clock, turns := time.Duration(d.u64()), d.u64(), d.uvarint()
		if err := d.end(); err != nil {
			return err
		}
		if now := time.Since(m.began); sent >= 0 && sent <= now {
			s.p.answered(m.began.Add(sent), now-sent, int64(min(clock, clockMax)), Support{Process: s.process, Turns: turns})
		}
	case frameCredit:
		d := decoder{b: f.body}
		n := d.uvarint()
		if err := d.end(); err != nil {
			return err
		}
		s.out.addCredit(int64(min(n, uint64(m.cfg.FrameBytesMax))))
	case frameAnswer:
		call, payload, err := decodeAnswer(f.body)
		if isMalformed(err) {
			return err
		}
		s.mu.Lock()
		done := s.pending[call]
		delete(s.pending, call)
		s.mu.Unlock()
		m.stats.framesIn.Add(1)
		if done != nil {
			done(payload, err)
		}
	default:
		return fmt.Errorf("%w: frame kind %d from the answering side", errMalformed, f.kind)
	}
	return nil
}

// messageWriter numbers and sends the messages of one direction of a stream.
type messageWriter struct {
	epoch uint64
	seq   uint64
	send  func(*rawMessage) error
}

// drain sends until the outbox has nothing that may be sent.
func (w *messageWriter) drain(o *outbox) error {
	for {
		if sent, err := w.next(o); err != nil || !sent {
			return err
		}
	}
}

// next sends one message, if there is anything that may be sent.
func (w *messageWriter) next(o *outbox) (sent bool, err error) {
	parts, ok := o.take()
	if !ok {
		return false, nil
	}
	w.seq++
	head := make([]byte, 0, 8+binary.MaxVarintLen64)
	head = binary.BigEndian.AppendUint64(head, w.epoch)
	head = binary.AppendUvarint(head, w.seq)
	msg := &rawMessage{data: append(mem.BufferSlice{mem.SliceBuffer(head)}, parts...)}
	if err := w.send(msg); err != nil {
		return false, fmt.Errorf("send: %w", err)
	}
	return true, nil
}

// messageSequence checks the messages of one direction of a stream: each carries
// the stream's epoch and the next number.
type messageSequence struct {
	epoch uint64
	last  uint64
	limit int               // largest frame accepted
	parts [laneCount][]byte // a frame arriving in parts, by lane; nil if none
	lent  [laneCount][]byte // their memory
	held  [laneCount]held   // the same of a Raft frame, with its kind
	total [laneCount]uint64 // its size
}

// each calls f for every frame of msg, which it consumes.
func (q *messageSequence) each(msg *rawMessage, f func(frame) error) error {
	r := messageReader{r: walk(msg.data), limit: q.limit}
	msg.data = nil
	defer r.r.free()
	epoch, seq, err := r.header()
	if err != nil {
		return err
	}
	if epoch != q.epoch {
		return &RemoteError{Code: CodeStale, Text: fmt.Sprintf("message of epoch %d on a stream of epoch %d", epoch, q.epoch)}
	}
	if seq != q.last+1 {
		return &RemoteError{Code: CodeStale, Text: fmt.Sprintf("message %d after %d: reordered or replayed", seq, q.last)}
	}
	q.last = seq
	for {
		fr, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if fr.kind == framePart {
			var whole bool
			if fr, whole, err = q.assemble(&r); err != nil {
				return err
			}
			if !whole {
				continue
			}
		}
		if err := f(fr); err != nil {
			return err
		}
	}
}

// assemble adds the part that r has come to to the frame of its lane; whole is true when it was
// the last.
func (q *messageSequence) assemble(r *messageReader) (fr frame, whole bool, err error) {
	ln, total, n, err := r.partHead()
	switch {
	case err != nil:
		return fr, false, err
	case int(ln) >= laneCount || n == 0 || total > uint64(q.limit):
		return fr, false, fmt.Errorf("%w: part of %d bytes of a frame of %d, lane %d", errMalformed, n, total, ln)
	}
	if q.held[ln].bytes > 0 || q.parts[ln] == nil && r.r.left > 0 && r.r.peek() == frameRaft {
		return q.assembleHeld(r, ln, total, n)
	}
	buf := q.parts[ln]
	if buf == nil {
		q.lent[ln] = dirty.Lend(int(total))
		buf = q.lent[ln][:0:total]
	}
	have := len(buf)
	if uint64(cap(buf)) != total || have+n > cap(buf) {
		return fr, false, fmt.Errorf("%w: part does not continue the frame of its lane", errMalformed)
	}
	buf = buf[:have+n]
	if err := r.read(buf[have:]); err != nil {
		return fr, false, err
	}
	if len(buf) < cap(buf) {
		q.parts[ln] = buf
		return fr, false, nil
	}
	q.parts[ln] = nil
	if buf[0] == framePart || buf[0] <= frameCredit {
		return fr, false, fmt.Errorf("%w: frame kind %d in parts", errMalformed, buf[0])
	}
	fr = frame{kind: buf[0], body: buf[1:], lent: q.lent[ln]}
	q.lent[ln] = nil
	return fr, true, nil
}

// assembleHeld is assemble of a Raft frame, whose parts stay where they are.
func (q *messageSequence) assembleHeld(r *messageReader, ln uint8, total uint64, n int) (fr frame, whole bool, err error) {
	h := &q.held[ln]
	if h.bytes == 0 {
		q.total[ln] = total
	}
	if total != q.total[ln] || uint64(h.bytes+n) > total || !r.r.hold(n, h) {
		return fr, false, fmt.Errorf("%w: part does not continue the frame of its lane", errMalformed)
	}
	if uint64(h.bytes) < total {
		return fr, false, nil
	}
	fr = frame{kind: frameRaft, held: *h}
	fr.held.pieces, fr.held.bytes = h.pieces.skip(1), h.bytes-1
	*h = held{}
	return fr, true, nil
}
