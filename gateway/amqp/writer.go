package amqp

import (
	"log/slog"
	"net"
	"time"

	wire "github.com/warrenmq/warren/amqp"
)

const (
	flushBytes = 256 << 10      // what one write to the socket is at most, but for one frame
	refBytes   = 8 << 10        // pieces of at least this size are written from where they are
	writeKept  = 2 * flushBytes // what a pooled buffer may hold
)

// gather builds one write to the socket: small pieces are copied together, large
// ones stay where they are.
type gather struct {
	buf   []byte
	mark  int // buf[mark:] is not in segs yet
	segs  net.Buffers
	bytes int
}

func (g *gather) add(b []byte) {
	if len(b) >= refBytes {
		g.ref(b)
		return
	}
	g.buf = append(g.buf, b...)
	g.bytes += len(b)
}

// ref adds b without copying; it must stay unchanged until the write.
func (g *gather) ref(b []byte) {
	if g.mark < len(g.buf) {
		g.segs = append(g.segs, g.buf[g.mark:len(g.buf):len(g.buf)])
		g.mark = len(g.buf)
	}
	g.segs = append(g.segs, b)
	g.bytes += len(b)
}

// writer is the sending side of a connection. Only its goroutine touches it.
type writer struct {
	c        *conn
	log      *slog.Logger // the connection's, as it was when it arrived: the reader changes that
	g        gather
	deliver  wire.BasicDeliver
	getOK    wire.BasicGetOk
	touched  []*consumer // with messages in g, to be told after the write
	lastSent time.Time
	deadline time.Time
}

// run writes until the outbox is finished and empty, or the socket fails.
func (w *writer) run() {
	defer w.c.out.abort()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var interval time.Duration
	w.lastSent = time.Now()
	for {
		q, done := w.c.out.take()
		if done {
			return
		}
		if q != nil {
			w.c.sending.Lock()
			err := w.send(q)
			w.c.sending.Unlock()
			w.c.srv.pools.putQueue(q)
			w.c.out.written()
			if err != nil {
				w.failed(err)
				return
			}
			continue
		}
		if next := time.Duration(w.c.heartbeat.Load()) / 2; next != interval {
			interval = next
			timer.Reset(interval)
		}
		select {
		case <-w.c.out.wake:
		case <-timer.C:
			if err := w.beat(interval); err != nil {
				w.failed(err)
				return
			}
			timer.Reset(interval)
		}
	}
}

// failed ends the connection, whose socket has failed.
func (w *writer) failed(err error) {
	w.log.Debug("write failed", "err", err)
	w.c.cut()
}

// beat sends a heartbeat unless something was sent within the interval.
func (w *writer) beat(interval time.Duration) error {
	if time.Since(w.lastSent) < interval*3/4 {
		return nil
	}
	w.g.buf = wire.AppendHeartbeat(w.g.buf)
	w.g.bytes = len(w.g.buf)
	return w.flush()
}

// send writes a whole queue.
func (w *writer) send(q *outQueue) error {
	buf := w.c.srv.pools.write()
	w.g.buf = *buf
	defer func() {
		*buf, w.g.buf = w.g.buf, nil
		w.c.srv.pools.putWrite(buf)
	}()
	at := 0
	for i := range q.contents {
		item := &q.contents[i]
		w.g.add(q.ctl[at:item.ctlEnd])
		at = item.ctlEnd
		if err := w.content(item); err != nil {
			return err
		}
	}
	w.g.add(q.ctl[at:])
	for _, ch := range q.dirty {
		before := len(w.g.buf)
		w.g.buf = ch.appendConfirms(w.g.buf)
		w.g.bytes += len(w.g.buf) - before
	}
	return w.flush()
}

// content adds method, header and body of one message, and flushes when there is
// enough for a write.
func (w *writer) content(item *outContent) error {
	d := item.delivery
	defer d.Shed()
	before := len(w.g.buf)
	if c := item.consumer; c != nil {
		w.deliver = wire.BasicDeliver{
			ConsumerTag: c.tag, DeliveryTag: item.tag, Redelivered: item.redelivered,
			Exchange: d.Exchange, RoutingKey: d.Key,
		}
		w.g.buf = w.deliver.AppendFrame(w.g.buf, item.channel)
		w.deliver = wire.BasicDeliver{}
		if c.wroteMessages == 0 {
			w.touched = append(w.touched, c)
		}
		c.wroteMessages++
		c.wroteBytes += d.WindowBytes
	} else {
		w.getOK = wire.BasicGetOk{
			DeliveryTag: item.tag, Redelivered: item.redelivered,
			Exchange: d.Exchange, RoutingKey: d.Key, MessageCount: item.remaining,
		}
		w.g.buf = w.getOK.AppendFrame(w.g.buf, item.channel)
		w.getOK = wire.BasicGetOk{}
	}
	w.g.buf = wire.AppendContentHeader(w.g.buf, item.channel, wire.ClassBasic, d.PropertiesWithCounts(), uint64(len(d.Body)))
	frameMax := w.c.frameMax
	if len(d.Body) < refBytes {
		w.g.buf = wire.AppendBody(w.g.buf, item.channel, d.Body, frameMax)
		w.g.bytes += len(w.g.buf) - before
		return w.flushFull()
	}
	w.g.bytes += len(w.g.buf) - before
	chunk := wire.BodyChunk(frameMax)
	for body := d.Body; len(body) > 0; {
		n := min(len(body), chunk)
		w.g.buf = wire.AppendFrameHead(w.g.buf, wire.FrameBody, item.channel, uint32(n))
		w.g.ref(body[:n])
		w.g.buf = append(w.g.buf, wire.FrameEnd)
		w.g.bytes += wire.FrameOverhead
		body = body[n:]
		if err := w.flushFull(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) flushFull() error {
	if w.g.bytes < flushBytes {
		return nil
	}
	return w.flush()
}

// flush writes what was gathered and tells the consumers.
func (w *writer) flush() error {
	g := &w.g
	if g.bytes == 0 {
		return nil
	}
	now := time.Now()
	if timeout := w.c.srv.cfg.WriteTimeout; w.deadline.Sub(now) < timeout*3/4 {
		w.deadline = now.Add(timeout)
		if err := w.c.nc.SetWriteDeadline(w.deadline); err != nil {
			return err
		}
	}
	var err error
	w.c.written.Add(uint64(g.bytes))
	if len(g.segs) == 0 {
		_, err = w.c.to.Write(g.buf)
	} else {
		if g.mark < len(g.buf) {
			g.segs = append(g.segs, g.buf[g.mark:])
		}
		segs := g.segs
		_, err = segs.WriteTo(w.c.to)
		clear(g.segs)
	}
	if err != nil {
		return err // what is not known to be written goes back to its queue
	}
	w.lastSent = now
	*g = gather{buf: g.buf[:0], segs: g.segs[:0]}
	for i, c := range w.touched {
		c.handle.Written(c.wroteMessages, c.wroteBytes)
		c.wroteMessages, c.wroteBytes = 0, 0
		w.touched[i] = nil
	}
	w.touched = w.touched[:0]
	return nil
}
