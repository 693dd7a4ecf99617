package fsm

import "slices"

// stream is one origin's newest incarnation as the machine knows it.
type stream struct {
	incarnation uint64
	watermark   uint64
	// answered: the origin has seen every outcome up to here.
	answered uint64
	// outcomes that are not plain success, above answered, ascending.
	outcomes []Outcome
}

// forget drops the outcomes that the origin says it has seen.
func (s *stream) forget(answeredUpTo uint64) {
	s.answered = max(s.answered, min(answeredUpTo, s.watermark))
	n := 0
	for n < len(s.outcomes) && s.outcomes[n].Seq <= s.answered {
		n++
	}
	if s.outcomes = s.outcomes[n:]; len(s.outcomes) == 0 {
		s.outcomes = nil
	}
}

// advance ends the operation watermark+1.
func (s *stream) advance(kind OutcomeKind, count uint64) {
	s.watermark++
	if kind != Done {
		s.outcomes = append(s.outcomes, Outcome{s.watermark, kind, count})
	}
}

// recorded copies the outcomes of sequences above a number up to another.
func (s *stream) recorded(above, upTo uint64) []Outcome {
	n := 0
	for n < len(s.outcomes) && s.outcomes[n].Seq <= above {
		n++
	}
	k := n
	for k < len(s.outcomes) && s.outcomes[k].Seq <= upTo {
		k++
	}
	if n == k {
		return nil
	}
	return slices.Clone(s.outcomes[n:k])
}

// source is a queue that transfers to this one.
type source struct {
	watermark uint64
	answered  uint64
	// withdrawn sequences above answered, ascending. The source knows of those up to
	// answered, from its own log.
	withdrawn []uint64
}

func (s *source) forget(answeredUpTo uint64) {
	s.answered = max(s.answered, min(answeredUpTo, s.watermark))
	n, _ := slices.BinarySearch(s.withdrawn, s.answered+1)
	if s.withdrawn = s.withdrawn[n:]; len(s.withdrawn) == 0 {
		s.withdrawn = nil
	}
}

// gap reports whether a run of n sequences from first cannot follow watermark.
func gap(first uint64, n int, watermark uint64) bool {
	return first == 0 && n > 0 || first > watermark+1 || first+uint64(n) < first
}
