package remote

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/auth"
)

// counts are those of all questions. Any goroutine.
type counts struct{ of [paths]countsOf }

type countsOf struct{ allowed, denied, unusable, failed, remembered, old, nanos atomic.Uint64 }

// Counts are what became of the questions of one path since New.
type Counts struct {
	Path Path
	// Allowed and Denied are answers, Unusable those that are none and permit nothing, Failed requests without one.
	Allowed, Denied, Unusable, Failed uint64
	// Remembered needed no request, Old used an answer from before since the server does not answer.
	Remembered, Old uint64
	// Took is the time of all requests together.
	Took time.Duration
}

// Figures are those of a server.
type Figures struct {
	Counts [paths]Counts
	// Busy is how many questions had no turn.
	Busy uint64
	// Away tells that the last request had no answer.
	Away bool
	// Logins is how many are remembered.
	Logins int
}

// Figures returns those of now.
func (s *Server) Figures() Figures {
	f := Figures{Busy: s.gate.Refused(), Logins: s.logins.size()}
	s.mu.Lock()
	f.Away = s.away != nil
	s.mu.Unlock()
	for p := range paths {
		c := &s.counts.of[p]
		f.Counts[p] = Counts{
			Path: p, Allowed: c.allowed.Load(), Denied: c.denied.Load(), Unusable: c.unusable.Load(), Failed: c.failed.Load(),
			Remembered: c.remembered.Load(), Old: c.old.Load(), Took: time.Duration(c.nanos.Load()),
		}
	}
	return f
}

func (c *counts) remember(p Path) { c.of[p].remembered.Add(1) }

func (c *counts) useOld(p Path) { c.of[p].old.Add(1) }

// asked counts a request that took so long.
func (c *counts) asked(p Path, a answer, err error, took time.Duration) {
	of := &c.of[p]
	of.nanos.Add(uint64(took))
	switch {
	case errors.Is(err, auth.ErrAway):
		of.failed.Add(1)
	case err != nil:
		of.unusable.Add(1)
	case a.allowed:
		of.allowed.Add(1)
	default:
		of.denied.Add(1)
	}
}
