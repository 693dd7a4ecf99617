package amqp

import (
	"log/slog"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/contain"
)

// work is the kind of work that is contained here.
const work = "amqp"

// live serves the connection until it ends; the error says how. A fault of this program is one.
func (c *conn) live() (err error) {
	defer c.srv.cfg.Guard.Keep(work, "", func() { err = wire.Errorf(wire.InternalError, 0, "internal error") })
	if err := c.handshake(); err != nil {
		c.srv.stats.handshakesFailed.Add(1)
		return err
	}
	return c.serve()
}

// write writes until nothing is to be written any more, or the socket fails.
func (c *conn) write(log *slog.Logger) {
	defer c.srv.cfg.Guard.Keep(work, "", c.cut)
	(&writer{c: c, log: log}).run()
}

// fault ends the connection of a channel for a fault of this program in what the broker told the channel.
func (ch *channel) fault() {
	ch.c.kick(&broker.Error{Kind: broker.Internal, Text: "internal error"})
}

// Locks are those that connections share with others, and those of each connection that others take.
func (s *Server) Locks() contain.Locks {
	return func(yield func(string, contain.Lock) bool) {
		_ = yield("amqp.Server.mu", &s.mu) && yield("amqp.Server.quietMu", &s.quietMu) &&
			yield("amqp.assembly.mu", &s.assembly.mu) && yield("amqp.strangers.mu", &s.strangers.mu) && s.locksOfAll(yield)
	}
}

func (s *Server) locksOfAll(yield func(string, contain.Lock) bool) bool {
	for _, c := range s.connections() {
		if !yield("amqp.conn.blockMu", &c.blockMu) || !yield("amqp.outbox.mu", &c.out.mu) || !yield("amqp.conn.channelsMu", &c.channelsMu) {
			return false
		}
		for _, ch := range c.openChannels() {
			if !yield("amqp.channel.mu", &ch.mu) {
				return false
			}
		}
	}
	return true
}
