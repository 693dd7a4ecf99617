package amqp

import (
	"errors"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// updateSecret checks the new credential of the user, takes over what the user is now, and may do if a token's scopes say that, and
// ends the consumers of queues that the user may not read any more.
func (c *conn) updateSecret(m *wire.ConnectionUpdateSecret) error {
	ctx, cancel := c.operation()
	defer cancel()
	response := "\x00" + c.user.Name + "\x00" + m.NewSecret
	u, err := c.srv.broker.Login(ctx, "PLAIN", []byte(response), c.nc.RemoteAddr())
	if err == nil && u.Name != c.user.Name {
		err = errors.New("it is a token of user '" + u.Name + "'")
	}
	if now := c.user.RightsFrom(); err == nil && u.RightsFrom() != now {
		err = errors.New(u.RightsFrom() + " cannot take the place of " + now)
	}
	if err != nil {
		c.log.Warn("update of secret refused", "user", c.user.Name, "err", err)
		c.pause(c.srv.cfg.AuthFailureDelay)
		return wire.Errorf(wire.NotAllowed, m.ID(), "New secret was refused by one of the backends")
	}
	if err := c.broker.UpdateUser(u); err != nil {
		return protocolError(err, m.ID())
	}
	c.user = u
	c.limitTime()
	for _, ch := range c.channels {
		if err := ch.recheck(); err != nil {
			return protocolError(err, m.ID())
		}
	}
	c.log.Info("secret updated", "user", u.Name, "reason", m.Reason)
	c.out.method(0, &wire.ConnectionUpdateSecretOk{})
	return nil
}

// limitTime has the connection end when the token does that its user logged in with last.
func (c *conn) limitTime() {
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	if until := c.user.Until; !until.IsZero() {
		c.expiry = time.AfterFunc(time.Until(until), func() { c.kick(broker.CredentialExpired()) })
	}
}
