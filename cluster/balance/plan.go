package balance

import (
	"cmp"
	"slices"
	"time"
)

// Stray is a group that this node leads although it is at home on another.
type Stray struct {
	Group uint64
	// Home is the id of the node that should lead it.
	Home string
	// Heat is how busy it was lately, in any unit: the coldest go first.
	Heat int64
	// NotBefore is the earliest time of a try; see Policy.After.
	NotBefore time.Time
}

// Node is what is known here of another node.
type Node struct {
	// Since is when it was found alive, without a break until now; zero if it is not.
	Since time.Time
	// Linked tells that it can be asked now.
	Linked bool
	// Unwilling tells that it said it wants no leaders: it is being stopped.
	Unwilling bool
}

// Policy bounds how eagerly leaders go home.
type Policy struct {
	// Settle is how long a node must have been alive: one that comes and goes is given nothing.
	Settle time.Duration
	// Lag is how many entries its replica may be behind the leader's log when the move begins.
	Lag uint64
	// Pause is how long a group is left alone after a failed move; it doubles with each
	// further failure up to PauseMax.
	Pause, PauseMax time.Duration
}

// Default returns the policy of a node.
func Default() Policy {
	return Policy{Settle: 10 * time.Second, Lag: 64, Pause: 5 * time.Second, PauseMax: 5 * time.Minute}
}

// Plan returns the groups to move now, at most room of them, in the order in which to move
// them, and how long it is until something else can change the answer: 0 if only news of a
// node or a new stray can. It does not keep or change strays.
func (p Policy) Plan(now time.Time, strays []Stray, node func(id string) Node, room int) (moves []Stray, again time.Duration) {
	homes := map[string]Node{}
	for _, s := range strays {
		n, ok := homes[s.Home]
		if !ok {
			n = node(s.Home)
			homes[s.Home] = n
		}
		if n.Since.IsZero() {
			continue // news of it will come
		}
		at := n.Since.Add(p.Settle)
		if s.NotBefore.After(at) {
			at = s.NotBefore
		}
		if (!n.Linked || n.Unwilling) && at.Before(now.Add(p.Pause)) {
			at = now.Add(p.Pause)
		}
		if wait := at.Sub(now); wait > 0 {
			again = earlier(again, wait)
			continue
		}
		moves = append(moves, s)
	}
	slices.SortFunc(moves, func(a, b Stray) int {
		return cmp.Or(cmp.Compare(a.Heat, b.Heat), cmp.Compare(a.Group, b.Group))
	})
	if room = max(0, room); len(moves) > room {
		moves, again = moves[:room:room], earlier(again, time.Nanosecond)
	}
	return moves, again
}

// earlier returns the shorter of two waits, of which 0 is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// After returns the time before which a group is not tried again after that many failures
// in a row, of which the newest was now.
func (p Policy) After(now time.Time, failures int) time.Time {
	pause := p.Pause
	for ; failures > 1 && pause < p.PauseMax; failures-- {
		pause *= 2
	}
	return now.Add(min(pause, p.PauseMax))
}

// Replica is what a replica says about itself.
type Replica struct {
	// Runs tells that it is there, Voter that it may lead.
	Runs, Voter bool
	// LastTerm and LastIndex name the newest entry of its log.
	LastTerm, LastIndex uint64
}

// Ready tells whether a replica at home can take over from the leader's: it is a voter that
// has the leader's log but for the newest entries.
func (p Policy) Ready(leader, home Replica) bool {
	return home.Runs && home.Voter && home.LastTerm == leader.LastTerm && home.LastIndex+p.Lag >= leader.LastIndex
}
