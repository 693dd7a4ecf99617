package shovel

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// How long a message that was refused waits before it is tried again: longer each time, until one succeeds.
const (
	againMin = 500 * time.Millisecond
	againMax = 30 * time.Second
)

// How long a message is put aside for which the destination has closed its channel: each attempt costs a connection and holds up the others, and it
// will not get smaller.
const (
	asideMin = 5 * time.Second
	asideMax = 10 * time.Minute
)

// suspicion is what is held against a message for whose sake, perhaps, the destination has closed its channel: it is too large there, say, or its
// exchange does not exist. The broker does not say which one of those under way it was. So each of these is sent with nothing else under way, and the one
// with which the channel is closed then is put aside for a while, so that the others go on, and do not arrive again with each attempt.
type suspicion struct {
	// alone: nothing else may be under way with it.
	alone bool
	// aside is how long it was put aside the last time, and why.
	aside time.Duration
	why   string
}

// errSuspects: the channel was closed for a message, and it is worth while to open another one at once.
var errSuspects = errors.New("for a message")

// suspect looks for whom a destination has closed its channel, if it has, before what is under way is gathered. It returns err, as [errSuspects] if the
// connection was of use.
func (f *forwarder) suspect(err error) error {
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || !e.Server || !ofChannel(e.Code) || len(f.sent) == 0 || f.w.def.ReconnectDelay == 0 {
		return err
	}
	for _, l := range f.sent {
		if !l.alone {
			l.alone = true
			f.suspects++
		}
	}
	if len(f.sent) == 1 {
		l := f.sent[0]
		l.aside = min(max(2*l.aside, asideMin), asideMax)
		l.until, l.why = time.Now().Add(l.aside), e.Error()
		f.w.cfg.Logger.Warn("the destination of a shovel closes its channel for a message, which is put aside", "vhost", f.w.def.VHost, "shovel", f.w.def.Name,
			"err", e, "routing_key", l.RoutingKey, "bytes", len(l.Body), "again_in", l.aside)
	}
	if f.verdicts == 0 { // perhaps it closes its channel for everything
		return err
	}
	return fmt.Errorf("%w: %w", errSuspects, err)
}

// ofChannel tells AMQP's soft errors (AMQP 0-9-1, 4.2.4 of the specification and its generated constants), which close a channel.
func ofChannel(code int) bool {
	switch code {
	case amqp.ContentTooLarge, amqp.NoRoute, amqp.NoConsumers, amqp.AccessRefused, amqp.NotFound, amqp.ResourceLocked, amqp.PreconditionFailed:
		return true
	}
	return false
}

// careful tells whether a suspect is under way, or is the next one to be.
func (f *forwarder) careful() bool {
	if f.suspects == 0 {
		return false
	}
	if len(f.sent) > 0 && f.sent[0].alone {
		return true
	}
	now := time.Now()
	for _, l := range f.waiting {
		if l.alone && !now.Before(l.until) {
			return true
		}
	}
	return false
}

// acquit is called for a message of which the destination says something, and closes nothing.
func (f *forwarder) acquit(l *letter) {
	if l.alone {
		f.suspects--
	}
	l.suspicion = suspicion{}
}

// reason is why a message is aside, "" if none is.
func (f *forwarder) reason() string {
	if f.suspects > 0 {
		for _, l := range f.waiting {
			if l.why != "" {
				return "put aside: " + l.why
			}
		}
	}
	return ""
}
