package amqp

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Of lines about connections without a login, which anybody can open: so many at once, and one in each strangerEvery.
const (
	strangerLines = 20
	strangerEvery = 100 * time.Millisecond
)

// strangers paces what is logged of connections without a login: else a port scanner, or a client of another protocol that tries again and again, writes
// as much as it likes to the log, which is on a disk that messages need.
type strangers struct {
	mu     sync.Mutex
	full   time.Time // when strangerLines may be logged again
	missed uint64    // lines since the last one that was logged
}

// may tells whether a line may be logged at now, and how many were not since the last.
func (s *strangers) may(now time.Time) (missed uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full.Before(now) {
		s.full = now
	}
	if s.full.Sub(now) > (strangerLines-1)*strangerEvery {
		s.missed++
		return 0, false
	}
	s.full = s.full.Add(strangerEvery)
	missed, s.missed = s.missed, 0
	return missed, true
}

// say logs a line with the log of a connection, unless that is one of too many about strangers. The next one that is logged tells of them.
func (s *strangers) say(log *slog.Logger, level slog.Level, msg string, attrs ...slog.Attr) {
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	missed, ok := s.may(time.Now())
	if !ok {
		return
	}
	if missed > 0 {
		attrs = append(attrs, slog.Uint64("unlogged", missed))
	}
	log.LogAttrs(ctx, level, msg, attrs...)
}

// say logs a line about the connection. Those before the login are paced.
func (c *conn) say(level slog.Level, msg string, attrs ...slog.Attr) {
	if c.user.Name == "" {
		c.srv.strangers.say(c.log, level, msg, attrs...)
		return
	}
	c.log.LogAttrs(context.Background(), level, msg, append(attrs, slog.String("user", c.user.Name))...)
}
