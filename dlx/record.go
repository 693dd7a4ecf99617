package dlx

import "slices"

// String is RabbitMQ's word for the reason.
func (r Reason) String() string {
	switch r {
	case Rejected:
		return "rejected"
	case Expired:
		return "expired"
	case MaxLen:
		return "maxlen"
	case DeliveryLimit:
		return "delivery_limit"
	case Transaction:
		return "transaction"
	case QueueRemoved:
		return "queue_removed"
	case Redrive:
		return "redrive"
	}
	return "unknown"
}

// Record adds a death to a message's history and returns the new history; the
// given one is not changed. If the history has a record of the same queue and
// reason, that one is counted up, gets d's time as its last and d's detail, and moves to the
// front, keeping everything else. Otherwise d becomes the first record with a
// count of one. The mark of a redrive stays at its place in time: it goes to the next
// older record when its own moves to the front.
func Record(deaths []Death, d Death) []Death {
	i := slices.IndexFunc(deaths, func(x Death) bool { return x.Queue == d.Queue && x.Reason == d.Reason })
	if i < 0 {
		d.Count = 1
		d.FirstMillis = d.LastMillis
		return append([]Death{d}, deaths...)
	}
	out := make([]Death, 0, len(deaths))
	again := deaths[i]
	again.Count++
	again.LastMillis, again.Detail = d.LastMillis, d.Detail
	out = append(out, again)
	out = append(out, deaths[:i]...)
	out = append(out, deaths[i+1:]...)
	if again.Redriven {
		out[0].Redriven = false
		if i+1 < len(out) {
			out[i+1].Redriven = true
		}
	}
	return out
}

// Cycle reports whether delivering a dead message to the queue target would let
// it go round by itself. deaths is the history after the present death, whose
// reason is given. A client's rejection anywhere since the message last died in
// target makes it legal, and so do a redrive and the removal of a queue: somebody
// decided each time.
func Cycle(deaths []Death, reason Reason, target string) bool {
	if reason == Rejected || reason == QueueRemoved {
		return false
	}
	for i := range deaths {
		if deaths[i].Reason == Rejected || deaths[i].Reason == QueueRemoved || deaths[i].Redriven {
			return false
		}
		if deaths[i].Queue == target {
			return true
		}
	}
	return false
}

// Hops counts how often a message has died by itself since somebody last sent it back: it
// expired, had to make room, or came back too often. What a client has told of earlier deaths is
// left out.
func Hops(deaths []Death) (n uint64) {
	for i := range deaths {
		switch d := &deaths[i]; d.Reason {
		case Expired, MaxLen, DeliveryLimit:
			n += d.Count - min(d.Before, d.Count)
		}
	}
	return n
}

// WithoutCycles returns the targets that do not close a cycle, in their order,
// and the number of the others. name gives a target's queue name. Targets is not
// changed.
func WithoutCycles[T any](deaths []Death, reason Reason, targets []T, name func(T) string) (kept []T, cycling int) {
	for _, t := range targets {
		if Cycle(deaths, reason, name(t)) {
			cycling++
			continue
		}
		kept = append(kept, t)
	}
	return kept, cycling
}
