package metrics

import "time"

// Remote is what became of questions to the server that is asked about logins.
type Remote struct {
	Questions []Question
	// Busy were not asked, as too many waited. Away tells that the last request had no answer.
	Busy uint64
	Away bool
}

// Question is one of those that the server is asked: user, vhost, resource or topic.
type Question struct {
	Path                              string
	Allowed, Denied, Unusable, Failed uint64
	// Remembered needed no request; Old used an answer of before, since there was none of now.
	Remembered, Old uint64
	Took            time.Duration // all requests together
}

func (s *scrape) remote(r *Remote) {
	for _, q := range r.Questions {
		for _, of := range []struct {
			outcome string
			n       uint64
		}{{"allowed", q.Allowed}, {"denied", q.Denied}, {"unusable", q.Unusable}, {"failed", q.Failed}} {
			s.count(remoteRequests, of.n, q.Path, of.outcome)
		}
		s.put(remoteSeconds, q.Took.Seconds(), q.Path)
		s.count(remoteSpared, q.Remembered, q.Path, "remembered")
		s.count(remoteSpared, q.Old, q.Path, "old")
	}
	s.count(remoteBusy, r.Busy)
	away := 0.0
	if r.Away {
		away = 1
	}
	s.put(remoteAway, away)
}
