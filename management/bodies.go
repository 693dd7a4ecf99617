package management

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Bounds of what the larger bodies of requests take together, whoever sends them: each is in memory as a whole, and what it says becomes many times as much. Those of
// definitions, which administrators send, do not count.
const (
	// bodyLarge is from how many bytes on a body waits for room.
	bodyLarge = 16 << 10
	// bodyDecoded is how many times its bytes a body may take when it is decoded: an empty object in a list takes 60 of them in place of three.
	bodyDecoded = 20
	// bodiesBytesMax is what all take that are being read or worked on: eight of the largest.
	bodiesBytesMax = 8 * bodyDecoded * requestBytesMax
)

func newBodies() *room {
	o := newRoom(0, 0)
	o.most, o.full = bodiesBytesMax, &Busy{Reason: "too many large requests are being read or worked on"}
	return o
}

// largeBody is a body that has room of its own.
type largeBody struct {
	io.ReadCloser

	turn *answering
	got  int
}

// Read implements io.Reader.
func (b *largeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.got += n
	if err != nil {
		b.turn.gotten(b.got * bodyDecoded)
		return n, err
	}
	b.turn.moves()
	return n, nil
}

// makeRoom waits until there is room for the body of a request, if that may be large. Whoever sends it and does not go on with it is cut off when others wait. What it
// returns is called when the request has been worked on. The error is a *Busy.
func (a *API) makeRoom(w http.ResponseWriter, r *http.Request) (done func(), err error) {
	n := r.ContentLength
	if n < 0 || n > requestBytesMax { // it is not known, or will be refused
		n = requestBytesMax
	}
	if n <= bodyLarge {
		return func() {}, nil
	}
	conn := http.NewResponseController(w)
	turn := &answering{
		room: a.bodies, ctx: r.Context(), size: new(atomic.Int64), made: true, bytes: int(n) * bodyDecoded,
		cut: func() { _ = conn.SetReadDeadline(time.Now()) }, // a connection that is closed, or none, as in tests
	}
	if err := turn.fit(); err != nil {
		return nil, err
	}
	r.Body = &largeBody{ReadCloser: r.Body, turn: turn}
	return func() {
		if turn.end() {
			a.cfg.Logger.Info("a client did not go on with a large request, for which others wait", "from", r.RemoteAddr)
		}
	}, nil
}

// gotten notes that a body has been read, and takes no more than n bytes.
func (a *answering) gotten(n int) {
	o := a.room
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.readers, a)
	if n < a.bytes {
		o.held -= a.bytes - n
		a.bytes = n
		o.tell()
	}
}
