package storm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/warrenmq/warren/test/frames"
)

// speak is an AMQP client: connection after connection, until ctx ends.
func (w *world) speak(ctx context.Context, number int) {
	d := newDice(w.cfg.Seed, uint64(1000+number))
	t := w.trace(fmt.Sprintf("amqp%02d", number))
	for ctx.Err() == nil {
		s, err := dial(ctx, w, d, t)
		if err != nil {
			t.say("no connection: %v", err)
			time.Sleep(d.between(10*time.Millisecond, 300*time.Millisecond))
			continue
		}
		go s.read()
		err = s.session(ctx)
		t.say("ends: %v", err)
		s.leave()
	}
}

// session logs in and does step after step.
func (s *speaker) session(ctx context.Context) error {
	if s.d.chance(.08) {
		return s.stranger()
	}
	manner := s.d.IntN(10)
	if manner < 2 {
		s.user, s.vhost = pick(s.d, "guest", "u1"), "/" // who lasts
	}
	if err := s.login(); err != nil {
		return err
	}
	channels := 1 + s.d.IntN(4)
	if s.d.chance(.03) {
		channels = 300
	}
	for n := range channels {
		if err := s.openChannel(uint16(n + 1)); err != nil {
			return err
		}
	}
	rest, least := 5*time.Millisecond, 20
	switch {
	case manner < 2:
		s.steps, rest, least = transacting, 500*time.Millisecond, 200
		for n := range channels {
			if err := errors.Join(s.declareLasting(uint16(n+1)), s.selectTx(uint16(n+1))); err != nil {
				return err
			}
		}
	case manner < 5:
		s.steps, rest = careful, 300*time.Millisecond
	}
	for range least + s.d.IntN(s.d.IntN(600)+1) {
		if ctx.Err() != nil {
			return nil
		}
		if s.of(0).closed && s.d.chance(.5) {
			return s.method(0, 10, 51)
		}
		if err := s.step(uint16(1 + s.d.IntN(channels))); err != nil {
			return err
		}
		switch {
		case s.d.chance(.5):
			time.Sleep(s.d.between(0, rest))
		case s.d.chance(.1):
			time.Sleep(s.d.between(0, 100*time.Millisecond))
		}
	}
	return nil
}

// login is what comes before channels. The answers are not waited for each: the server must bear it.
func (s *speaker) login() error {
	user, vhost := s.user, s.vhost
	heartbeat := pick[uint16](s.d, 0, 0, 0, 1, 60)
	s.trace.say("logs in as %q to %q", user, vhost)
	properties := frames.Table("capabilities", frames.Table("consumer_cancel_notify", s.d.chance(.8), "basic.nack", true, "connection.blocked", true,
		"authentication_failure_close", s.d.chance(.5), "publisher_confirms", true), "connection_name", s.trace.name)
	for _, data := range [][]byte{
		[]byte("AMQP\x00\x00\x09\x01"),
		frames.Method(0, 10, 11, properties, "PLAIN", []byte("\x00"+user+"\x00"+s.d.passwordOf(user)), "en_US"),
		frames.Method(0, 10, 31, pick[uint16](s.d, 2047, 2047, 400), pick[uint32](s.d, 131072, 131072, 8192), heartbeat),
		frames.Method(0, 10, 40, vhost, "", byte(0)),
	} {
		if err := s.send(data); err != nil {
			return err
		}
		if s.d.chance(.5) {
			time.Sleep(s.d.between(0, 5*time.Millisecond))
		}
	}
	return nil
}

func (s *speaker) openChannel(n uint16) error {
	s.note(n, func(ch *channel) { *ch = channel{open: true} })
	return s.method(n, 20, 10, "")
}

// step is one step on a channel, whatever state that has.
func (s *speaker) step(n uint16) error {
	ch := s.of(n)
	switch {
	case ch.closed && ch.until.IsZero():
		hold := time.Duration(0)
		if s.d.chance(.5) {
			hold = s.d.between(0, s.d.between(0, 5*time.Second))
		}
		s.note(n, func(ch *channel) { ch.until = time.Now().Add(hold) })
		return nil
	case ch.closed && time.Now().After(ch.until):
		s.note(n, func(ch *channel) { *ch = channel{} })
		return s.method(n, 20, 41)
	case ch.closed && s.d.chance(.9): // other channels have their turn
		if s.d.chance(.1) {
			return s.method(0, 10, 70, []byte(password), "while a channel is being closed")
		}
		time.Sleep(s.d.between(0, 20*time.Millisecond))
		return nil
	case !ch.open && s.d.chance(.99):
		return s.openChannel(n)
	case s.steps[0].value.name == steps[0].value.name && s.d.chance(.004):
		return s.wild()
	}
	return s.steps.pick(s.d).do(s, n)
}

// wild is what no client sends.
func (s *speaker) wild() error {
	number := uint16(s.d.IntN(6))
	if s.d.chance(.1) {
		number = uint16(s.d.number())
	}
	classes := []uint16{10, 20, 30, 40, 50, 60, 85, 90, uint16(s.d.IntN(100))}
	class, id := pick(s.d, classes...), uint16(s.d.IntN(13)*10+s.d.IntN(2))
	var f []byte
	switch s.d.IntN(4) {
	case 0:
		f = frames.Frame(byte(s.d.IntN(10)), number, s.d.bytes(60))
	case 1:
		c := pick(s.d, frames.Wrong()...)
		s.trace.say("> %s", c.Name)
		for _, data := range c.Send {
			if err := s.send(data); err != nil {
				return err
			}
		}
		return nil
	case 2:
		f = frames.Method(number, class, id, s.arguments()...)
	default:
		f = slices.Clone(frames.Method(number, class, id, s.arguments()...))
		f = f[:1+s.d.IntN(len(f))]
	}
	s.trace.say("> wild %q", f)
	return s.send(f)
}

// arguments are of any types.
func (s *speaker) arguments() []any {
	list := make([]any, s.d.IntN(7))
	for i := range list {
		list[i] = pick[any](s.d, byte(s.d.IntN(256)), uint16(0), uint32(s.d.number()), uint64(s.d.number()), "q0", s.d.queueName(), s.table(), []byte{})
		if text, ok := list[i].(string); ok && len(text) > 255 {
			list[i] = text[:255]
		}
	}
	return list
}

// stranger does not get as far as an open connection.
func (s *speaker) stranger() error {
	s.trace.say("is a stranger")
	hello := []byte("AMQP\x00\x00\x09\x01")
	startOk := frames.Method(0, 10, 11, frames.Table("a", "b"), pick(s.d, "PLAIN", "AMQPLAIN", "EXTERNAL", "NONE"), s.d.bytes(40), "en_US")
	said := slices.Concat(hello, startOk, frames.Method(0, 10, 31, uint16(s.d.number()), uint32(s.d.number()), uint16(s.d.IntN(3))), frames.Method(0, 10, 40, "/", "", byte(0)))
	switch s.d.IntN(4) {
	case 0:
		said = s.d.bytes(100)
	case 1:
		said = []byte("AMQP\x01\x01\x08\x00")
	case 2:
		c := pick(s.d, frames.Wrong()...)
		said = slices.Concat(append([][]byte{hello}, c.Send...)...)
	}
	err := s.send(said[:s.d.IntN(len(said)+1)])
	time.Sleep(s.d.between(0, 300*time.Millisecond))
	return err
}

// leave ends the connection in one of the ways in which connections end. Nothing of it is left behind.
func (s *speaker) leave() {
	defer func() {
		_ = s.conn.Close()
		s.mu.Lock()
		s.paused = time.Time{}
		s.mu.Unlock()
		<-s.gone
	}()
	tcp := s.conn.(*net.TCPConn)
	switch way := s.d.IntN(8); way {
	case 0, 1, 2:
		if err := s.method(0, 10, 50, uint16(200), "bye", uint16(0), uint16(0)); err != nil {
			return
		}
		for s.d.chance(.5) { // it goes on to speak
			if err := s.steps.pick(s.d).do(s, 1); err != nil {
				return
			}
		}
		if way == 0 {
			return
		}
		s.await(2 * time.Second)
	case 3:
		s.trace.say("resets the connection")
		_ = tcp.SetLinger(0)
	case 4:
		s.trace.say("says no more")
		_ = tcp.CloseWrite()
		s.await(time.Second)
	case 5:
		f := frames.Method(1, 60, 40, uint16(0), "", "q0", byte(0))
		_ = s.send(f[:s.d.IntN(len(f))])
	case 6:
		s.trace.say("reads nothing and goes")
		s.pause(time.Second)
		time.Sleep(s.d.between(0, time.Second))
	}
}

// await waits until the server has ended the connection.
func (s *speaker) await(patience time.Duration) {
	select {
	case <-s.gone:
	case <-time.After(patience):
	}
}
