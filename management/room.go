package management

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what answers of many KiB take together, whoever asks for them: lists and definitions of a large cluster have tens of MiB, and those who ask
// may read them slowly, or not at all.
const (
	// answerLarge is from how many bytes on an answer counts as a large one.
	answerLarge = 64 << 10
	// answersMade is how many large answers are being made at a time, answersBytesMax what those have that are being read. An answer
	// that has more is the only one.
	answersMade     = 8
	answersBytesMax = 64 << 20
	// answersFetched is how many of them are made at a time of messages that are taken from queues: each has up to fetchBytesMax of them, and then
	// as much in JSON. They have a room of their own, because a queue without a leader keeps a turn for ten seconds.
	answersFetched = 4
	// timeoutRoom is how long a request waits for its turn.
	timeoutRoom = 30 * time.Second
	// answerStalled is how long a reader may read nothing while others wait for its room.
	answerStalled = 2 * time.Second
)

// room bounds large answers.
type room struct {
	most    int           // answersBytesMax
	wait    time.Duration // timeoutRoom
	stalled time.Duration // answerStalled
	making  chan struct{} // one for each that is being made
	full    *Busy         // the refusal when there has been no room for so long
	// reserve is how many bytes an answer gets before it is made: one that takes messages from a queue must not be refused afterwards. 0: it gets room
	// when its size is known.
	reserve int

	mu      sync.Mutex
	held    int
	readers map[*answering]struct{}
	freed   chan struct{} // closed when a reader has ended
}

func newRoom(made, reserve int) *room {
	return &room{
		most: answersBytesMax, wait: timeoutRoom, stalled: answerStalled, making: make(chan struct{}, made), full: errNoRoom,
		reserve: reserve, readers: map[*answering]struct{}{}, freed: make(chan struct{}),
	}
}

// sizes has how many bytes the largest answer to requests of one kind has had.
type sizes struct {
	whole atomic.Int64 // 0: not known yet, and perhaps large
	page  atomic.Int64 // of requests for a page of a list; 0: not known yet, and hardly large
}

func (s *sizes) of(r *http.Request) (size *atomic.Int64, large bool) {
	if r.URL.Query().Has("page") {
		return &s.page, s.page.Load() >= answerLarge
	}
	n := s.whole.Load()
	return &s.whole, n == 0 || n >= answerLarge
}

// answering is the answer to one request, from before it is made until it is written. The one that serves the request uses it.
type answering struct {
	room *room
	ctx  context.Context //nolint:containedctx // the request's
	size *atomic.Int64
	made bool // it is not being made: it has no place in room.making

	bytes int       // of the room that it has
	cut   func()    // ends its writing
	moved time.Time // when some of it was written; under the room's mutex, as is
	over  bool      // it was cut
}

var errNoRoom = &Busy{Reason: "too many large answers are being made or read"}

// begin waits for a turn to make an answer, unless such ones are small, and for what answers of this room reserve. Whoever gets one ends it. The error is errNoRoom.
func (o *room) begin(r *http.Request, s *sizes) (*answering, error) {
	size, large := s.of(r)
	a := &answering{room: o, ctx: r.Context(), size: size, made: true}
	if o.reserve > 0 {
		return a, a.reserve()
	}
	if r.Method != http.MethodGet || !large {
		return a, nil
	}
	return a, a.await()
}

// reserve waits for a turn and for room.
func (a *answering) reserve() error {
	if err := a.await(); err != nil {
		return err
	}
	a.bytes = a.room.reserve
	err := a.fit()
	if err != nil {
		a.madeIt()
	}
	return err
}

// await waits for a turn.
func (a *answering) await() error {
	timer := time.NewTimer(a.room.wait)
	defer timer.Stop()
	select {
	case a.room.making <- struct{}{}:
		a.made = false
		return nil
	case <-timer.C:
		return errNoRoom
	case <-a.ctx.Done():
		return errNoRoom // nobody reads it
	}
}

// madeIt gives back the turn.
func (a *answering) madeIt() {
	if !a.made {
		a.made = true
		<-a.room.making
	}
}

// enter waits until there is room for n bytes that the client is to read. If others keep it and read nothing, they are cut off.
func (a *answering) enter(n int, cut func()) error {
	for {
		old := a.size.Load()
		if int64(n) <= old || a.size.CompareAndSwap(old, int64(n)) {
			break
		}
	}
	a.cut = cut
	switch {
	case a.bytes > 0: // a little more than was reserved, perhaps
		a.room.keep(a, n)
		a.madeIt()
		return nil
	case n < answerLarge:
		a.madeIt()
		return nil
	}
	if a.made { // such answers were small before
		if err := a.await(); err != nil {
			return err
		}
	}
	defer a.madeIt()
	a.bytes = n
	return a.fit()
}

// fit waits until there is room for a.bytes.
func (a *answering) fit() error {
	timer := time.NewTimer(a.room.wait)
	defer timer.Stop()
	for {
		freed, look := a.room.take(a)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-time.After(look):
		case <-timer.C:
			a.bytes = 0
			return a.room.full
		case <-a.ctx.Done():
			a.bytes = 0
			return a.room.full // nobody reads it
		}
	}
}

// take gives a its room. Else it returns what is closed when there is some more, and when to look again for those that stall.
func (o *room) take(a *answering) (freed <-chan struct{}, look time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.held == 0 || o.held+a.bytes <= o.most {
		o.held += a.bytes
		if a.cut != nil {
			o.readers[a] = struct{}{}
		}
		a.moved = now
		return nil, 0
	}
	for reader := range o.readers {
		if now.Sub(reader.moved) >= o.stalled && !reader.over {
			reader.over = true
			reader.cut()
		}
	}
	return o.freed, o.stalled / 4
}

// keep gives a, which has some room, n bytes of it, and has it read.
func (o *room) keep(a *answering, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held += n - a.bytes
	a.bytes, a.moved = n, time.Now()
	o.readers[a] = struct{}{}
	o.tell()
}

// tell tells those that wait that there may be room.
func (o *room) tell() {
	close(o.freed)
	o.freed = make(chan struct{})
}

// moves notes that the client has read something.
func (a *answering) moves() {
	if a.bytes > 0 {
		a.room.mu.Lock()
		a.moved = time.Now()
		a.room.mu.Unlock()
	}
}

// end gives everything back. It returns whether the answer was cut off.
func (a *answering) end() (cut bool) {
	a.madeIt()
	if a.bytes == 0 {
		return false
	}
	o := a.room
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.readers, a)
	o.held -= a.bytes
	a.bytes = 0
	o.tell()
	return a.over
}
