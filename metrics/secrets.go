package metrics

import "time"

// Certificate is one that the node shows.
type Certificate struct {
	Use      string // "clients" or "nodes"
	NotAfter time.Time
	// Authorities is when the next of the authorities expires that others are checked by; zero for none.
	Authorities       time.Time
	Reloads, Failures uint64
}

// Logins are those by one protocol.
type Logins struct {
	Protocol               string
	Accepted, Failed, Held uint64
}

// Passwords are what became of costly password hashes.
type Passwords struct{ Computed, Remembered, Busy uint64 }

// Gossip are figures about the keys of gossip.
type Gossip struct {
	Keys               int
	Unopened, Failures uint64
}

// secrets puts the node's certificates and keys of gossip, and the logins at it.
func (s *scrape) secrets() {
	if s.cfg.Gossip != nil {
		g := s.cfg.Gossip()
		s.count(gossipKeys, uint64(g.Keys))
		s.count(gossipUnopened, g.Unopened)
		s.count(gossipFailures, g.Failures)
	}
	if s.cfg.Logins != nil {
		for _, l := range s.cfg.Logins() {
			s.count(loginAttempts, l.Accepted+l.Failed+l.Held, l.Protocol)
			s.count(loginsAccepted, l.Accepted, l.Protocol)
			s.count(loginsFailed, l.Failed, l.Protocol)
			s.count(loginsHeld, l.Held, l.Protocol)
		}
	}
	if s.cfg.Passwords != nil {
		p := s.cfg.Passwords()
		s.count(passwordChecks, p.Computed, "computed")
		s.count(passwordChecks, p.Remembered, "remembered")
		s.count(passwordChecks, p.Busy, "busy")
	}
	if s.cfg.Remote != nil {
		if r := s.cfg.Remote(); r != nil {
			s.remote(r)
		}
	}
	if s.cfg.Certificates != nil {
		for _, c := range s.cfg.Certificates() {
			s.put(certExpiry, time.Until(c.NotAfter).Seconds(), c.Use)
			if !c.Authorities.IsZero() {
				s.put(authorityExpiry, time.Until(c.Authorities).Seconds(), c.Use)
			}
			s.count(certReloads, c.Reloads, c.Use)
			s.count(certFailures, c.Failures, c.Use)
		}
	}
}
