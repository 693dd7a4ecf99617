package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// handshake takes the connection from its first byte to connection.open-ok.
func (c *conn) handshake() error {
	c.in.until(time.Now().Add(c.srv.cfg.HandshakeTimeout))
	if err := c.verifyPeer(); err != nil {
		return err
	}
	if err := c.header(); err != nil {
		return err
	}
	mechanisms := auth.Offered(c.srv.cfg.Mechanisms, c.verified)
	c.out.method(0, &wire.ConnectionStart{
		VersionMajor: 0, VersionMinor: 9,
		ServerProperties: c.srv.serverProperties(),
		Mechanisms:       strings.Join(mechanisms, " "),
		Locales:          "en_US",
	})
	start, err := expect[*wire.ConnectionStartOk](c)
	if err != nil {
		return err
	}
	c.srv.greeted(c)
	if err := c.login(start, mechanisms); err != nil {
		return err
	}
	cfg := &c.srv.cfg
	c.out.method(0, &wire.ConnectionTune{ChannelMax: cfg.ChannelMax, FrameMax: cfg.FrameMax, Heartbeat: cfg.Heartbeat})
	tune, err := expect[*wire.ConnectionTuneOk](c)
	if err != nil {
		return err
	}
	if err := c.tune(tune); err != nil {
		return err
	}
	open, err := expect[*wire.ConnectionOpen](c)
	if err != nil {
		return err
	}
	return c.openVHost(open, start.ClientProperties)
}

// verifyPeer completes the handshake of TLS, if that is spoken, and learns who
// the client's certificate says it is.
func (c *conn) verifyPeer() error {
	secure, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.cfg.HandshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	state := secure.ConnectionState()
	c.secure = &state
	if chains := state.VerifiedChains; len(chains) > 0 {
		c.verified, c.peer = true, c.srv.cfg.PeerName.Of(chains[0][0])
	}
	return nil
}

// header answers everything but AMQP 0-9-1 with the header of the protocol that
// is spoken here.
func (c *conn) header() error {
	h, err := c.fr.Header()
	if err != nil {
		return err
	}
	kind := wire.RecognizeHeader(h)
	if kind.Accepted() {
		return nil
	}
	c.say(slog.LevelWarn, "peer does not speak AMQP 0-9-1", slog.String("protocol", kind.String()), slog.String("header", h.String()))
	answer := kind.Answer(false)
	c.out.raw(answer[:])
	c.drain(false)
	return errWrongProtocol
}

// expect reads the next method of the handshake.
func expect[M wire.Method](c *conn) (M, error) {
	var none M
	for {
		f, err := c.fr.Next()
		if err != nil {
			return none, err
		}
		switch {
		case f.Type == wire.FrameHeartbeat && f.Channel == 0:
			continue
		case f.Type != wire.FrameMethod:
			return none, wire.Errorf(wire.UnexpectedFrame, 0, "expected %s, got a frame of type %d", none.Name(), f.Type)
		case f.Channel != 0:
			return none, wire.Errorf(wire.ChannelError, 0, "expected %s, got a method on channel %d", none.Name(), f.Channel)
		}
		m, err := wire.Decode(f.Payload)
		if err != nil {
			return none, err
		}
		if want, ok := m.(M); ok {
			return want, nil
		}
		if _, ok := m.(*wire.ConnectionClose); ok {
			return none, errClientClosed
		}
		return none, wire.Errorf(wire.CommandInvalid, m.ID(), "expected %s, got %s", none.Name(), m.Name())
	}
}

// login checks who the client is.
func (c *conn) login(m *wire.ConnectionStartOk, offered []string) error {
	if v, ok := m.ClientProperties.Get("capabilities"); ok {
		if caps, ok := v.(wire.Table); ok {
			has := func(name string) bool {
				v, _ := caps.Get(name)
				yes, _ := v.(bool)
				return yes
			}
			c.cancelNotify = has("consumer_cancel_notify")
			c.blockedNotify = has("connection.blocked")
			c.failureClose = has("authentication_failure_close")
		}
	}
	if v, ok := m.ClientProperties.Get("connection_name"); ok {
		c.name, _ = v.(string)
	}
	if !slices.Contains(offered, m.Mechanism) {
		return wire.Errorf(wire.CommandInvalid, m.ID(), "unknown authentication mechanism '%s'", m.Mechanism)
	}
	ctx, cancel := c.operation()
	defer cancel()
	u, err := c.identify(ctx, m.Mechanism, m.Response)
	if err == nil {
		c.user, c.mechanism = u, m.Mechanism
		return nil
	}
	if e, ok := errors.AsType[*broker.Error](err); !ok || e.Kind != broker.AccessRefused {
		return protocolError(err, m.ID())
	}
	c.say(slog.LevelWarn, "login refused", slog.String("mechanism", m.Mechanism), slog.Any("err", err))
	if !c.failureClose {
		c.pause(c.srv.cfg.AuthFailureDelay)
		return errAuthentication
	}
	return wire.Errorf(wire.AccessRefused, 0,
		"Login was refused using authentication mechanism %s. For details see the broker logfile.", m.Mechanism)
}

// identify asks the broker who the client is.
func (c *conn) identify(ctx context.Context, mechanism, response string) (broker.User, error) {
	if mechanism == auth.MechanismExternal {
		return c.srv.broker.LoginExternal(ctx, c.peer, []byte(response), c.nc.RemoteAddr())
	}
	return c.srv.broker.Login(ctx, mechanism, []byte(response), c.nc.RemoteAddr())
}

// pause waits, but not beyond the end of the connection.
func (c *conn) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
	}
}

// tune checks what the client made of the offer.
func (c *conn) tune(m *wire.ConnectionTuneOk) error {
	cfg := &c.srv.cfg
	if err := negotiated("channel_max", uint32(m.ChannelMax), 1, uint32(cfg.ChannelMax)); err != nil {
		return err
	}
	if err := negotiated("frame_max", m.FrameMax, cfg.FrameMaxMin, cfg.FrameMax); err != nil {
		return err
	}
	c.frameMax, c.channelMax = m.FrameMax, m.ChannelMax
	c.fr.SetMax(m.FrameMax)
	c.heartbeat.Store(int64(m.Heartbeat) * int64(time.Second))
	c.out.nudge() // the writer learns its interval
	return nil
}

// negotiated checks one limit; 0 asks for no limit, which this server has.
func negotiated(field string, client, low, high uint32) error {
	detail, side, limit, bound := "", "", "", uint32(0)
	switch {
	case client == 0 || client > high:
		side, limit, bound = "higher", "maximum", high
		if client == 0 && field == "channel_max" {
			detail = " (no limit)"
		}
	case client < low:
		side, limit, bound = "lower", "minimum", low
	default:
		return nil
	}
	return wire.Errorf(wire.NotAllowed, wire.MethodConnectionTune,
		"negotiated %s = %d%s is %s than the %s allowed value (%d)", field, client, detail, side, limit, bound)
}

// openVHost opens the connection at the broker and ends the handshake.
func (c *conn) openVHost(m *wire.ConnectionOpen, props wire.Table) error {
	if !c.srv.place(c) {
		return wire.Errorf(wire.NotAllowed, m.ID(), "connection refused: node connection limit (%d) is reached", c.srv.cfg.OpenMax)
	}
	ctx, cancel := c.operation()
	defer cancel()
	b, err := c.srv.broker.Open(ctx, c.user, m.VirtualHost, broker.ConnInfo{
		Protocol: "AMQP 0-9-1", Name: c.name,
		Peer: c.nc.RemoteAddr(), Local: c.nc.LocalAddr(),
		ClientProperties: props, Kick: c.kick,
	})
	if err != nil {
		return protocolError(err, m.ID())
	}
	c.broker, c.vhost = b, m.VirtualHost
	c.log = c.log.With("vhost", m.VirtualHost)
	c.in.silence(2 * time.Duration(c.heartbeat.Load()))
	c.blockMu.Lock()
	c.open = true
	c.blockMu.Unlock()
	c.register(props)
	c.limitTime()
	c.out.method(0, &wire.ConnectionOpenOk{})
	c.log.Debug("connection opened", "user", c.user.Name, "name", c.name)
	return nil
}
