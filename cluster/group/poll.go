package group

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/transport"
)

// ballot is what the voters of one campaign's group have said so far.
type ballot struct {
	c       *campaign
	asked   int // voters asked
	heard   int // voters that answered or cannot
	answers map[transport.NodeID]replicaStatus
	decided bool
}

// ready tells whether to decide: when everybody was heard or, once the patient part is
// over, when a majority of the voters with this one has answered.
func (b *ballot) ready(patient bool) bool {
	return b.heard == b.asked || !patient && len(b.answers)+1 > len(b.c.g.voters())/2
}

// reply is one node's answer about some ballots; all is nil if it did not answer.
type reply struct {
	node    transport.NodeID
	ballots []*ballot
	all     []replicaStatus
}

// poll asks the other voters of the campaigns' groups, all groups of a node in one call,
// and decides each campaign as soon as enough of them have answered.
func (e *elections) poll(cs []*campaign) {
	ctx, cancel := context.WithTimeout(e.h.ctx, pollLongest)
	defer cancel()
	e.mu.Lock()
	hurried := e.hurried
	e.mu.Unlock()
	ballots := make([]*ballot, len(cs))
	byNode := make(map[transport.NodeID][]*ballot)
	for i, c := range cs {
		b := &ballot{c: c, answers: make(map[transport.NodeID]replicaStatus)}
		ballots[i] = b
		for _, v := range c.g.voters() {
			if v != e.h.cfg.Local && e.h.reachable(v) {
				b.asked++
				byNode[v] = append(byNode[v], b)
			}
		}
	}
	replies := make(chan reply)
	var wg sync.WaitGroup
	for n, bs := range byNode {
		wg.Go(func() { e.ask(ctx, n, bs, replies) })
	}
	go func() { // ends with the asking, which ends with ctx
		wg.Wait()
		close(replies)
	}()
	soft := time.NewTimer(pollPatience)
	defer soft.Stop()
	patient := true
	for open := true; open; {
		for _, b := range ballots {
			if !b.decided && b.ready(patient) {
				b.decided = true
				e.decide(b.c, b.answers)
			}
		}
		e.poke()
		var r reply
		select {
		case r, open = <-replies:
			for i, b := range r.ballots {
				b.heard++
				if r.all != nil {
					b.answers[r.node] = r.all[i]
				}
			}
		case <-soft.C:
			patient = false
		case <-hurried:
			hurried = nil
			cancel() // those without an answer are asked again, with the node that came back
		}
	}
}

// ask puts the question about ballots to one node.
func (e *elections) ask(ctx context.Context, n transport.NodeID, bs []*ballot, replies chan<- reply) {
	for part := range slices.Chunk(bs, statusGroupsMax) {
		ids := make([]transport.GroupID, len(part))
		for i, b := range part {
			ids[i] = b.c.g.spec.ID
		}
		all, err := e.h.askStatus(ctx, n, askLeaderless|askSleeps, ids)
		if err != nil {
			e.h.log.Debug("voter does not answer", "node", n, "groups", len(ids), "err", err)
		}
		replies <- reply{node: n, ballots: part, all: all}
	}
}

// hasRival tells whether another voter is candidate already: its request for a vote is
// under way. It frees itself if it cannot win.
func hasRival(own replicaStatus, answers map[transport.NodeID]replicaStatus) bool {
	for _, s := range answers {
		if s.known() && s.flags&statusCandidate != 0 && s.term >= own.term {
			return true
		}
	}
	return false
}

// isBehind tells whether a replica's log is shorter than another one's, by which that one refuses it a vote.
func (s replicaStatus) isBehind(o replicaStatus) bool {
	return cmp.Or(cmp.Compare(s.lastTerm, o.lastTerm), cmp.Compare(s.lastIndex, o.lastIndex)) < 0
}

// withoutRivalsBehind are the answers of all but candidates whose logs are shorter than our own.
func withoutRivalsBehind(own replicaStatus, answers map[transport.NodeID]replicaStatus) map[transport.NodeID]replicaStatus {
	rest := maps.Clone(answers)
	maps.DeleteFunc(rest, func(_ transport.NodeID, s replicaStatus) bool {
		return s.flags&statusCandidate != 0 && s.isBehind(own)
	})
	return rest
}

// electorate is what a node knows of the voters of a group.
type electorate struct {
	voters []transport.NodeID
	local  transport.NodeID
	own    replicaStatus
	others map[transport.NodeID]replicaStatus // the answers
	dead   func(transport.NodeID) bool
}

// canWin tells whether enough voters are left that may vote for a candidate, or have.
func (e electorate) canWin(n transport.NodeID, candidate replicaStatus) bool {
	left := len(e.voters)
	for _, v := range e.voters {
		o, known := e.others[v]
		if v == e.local {
			o, known = e.own, true
		}
		if v != n && (e.dead(v) || known && o.known() && o.refuses(candidate)) {
			left--
		}
	}
	return left >= len(e.voters)/2+1
}

// refuses tells whether a voter refuses a candidate, or has. One that is candidate of the same term does, and one whose log is longer and that is in no
// later term, whether it has the request already or not. What it has of the candidate's term is no reason: that comes from the candidate, which has won.
func (s replicaStatus) refuses(candidate replicaStatus) bool {
	switch {
	case s.term > candidate.term || s.lastTerm >= candidate.term:
		return false
	case s.term == candidate.term && s.flags&statusCandidate != 0:
		return true
	}
	return candidate.isBehind(s)
}

// rivals are the answers of all but candidates that cannot win.
func (e electorate) rivals() map[transport.NodeID]replicaStatus {
	rest := maps.Clone(e.others)
	maps.DeleteFunc(rest, func(n transport.NodeID, s replicaStatus) bool {
		return s.flags&statusCandidate != 0 && !e.canWin(n, s)
	})
	return rest
}

// lostElection tells whether a candidate cannot win: a rival of at least its term is
// candidate too, or every voter that answers has reached that term without making it leader.
func lostElection(own replicaStatus, answers map[transport.NodeID]replicaStatus) bool {
	if hasRival(own, answers) {
		return true
	}
	reached := 0
	for _, s := range answers {
		if s.known() && s.term >= own.term {
			reached++
		}
	}
	return reached > 0 && reached == len(answers)
}

// leaderAmong returns the newest leader that answered for itself.
func leaderAmong(answers map[transport.NodeID]replicaStatus, ownTerm uint64) (l leadership, ok bool) {
	for n, s := range answers {
		if s.leads() && s.term >= ownTerm && s.term >= l.term {
			l, ok = leadership{term: s.term, leader: n}, true
		}
	}
	return l, ok
}

// hearsay tells whether another voter follows a leader that did not answer here and is
// not known to be dead: the link to it may be the only one that is broken. Who follows
// it also notices its end.
func (e *elections) hearsay(g *Group, own replicaStatus, answers map[transport.NodeID]replicaStatus) bool {
	for _, s := range answers {
		if s.leader == "" || s.leader == e.h.cfg.Local || s.term < own.term {
			continue
		}
		if _, answered := answers[s.leader]; !answered && g.mayLead(s.leader) {
			return true
		}
	}
	return false
}

// bestReplica returns the voter that should lead: the longest log first, then one that
// is not being stopped, then the preferred node, then an order that all nodes agree on. A voter that does not run the
// group yet counts, as long as we are patient, as one that holds nothing but the first configuration.
func bestReplica(g *Group, own replicaStatus, answers map[transport.NodeID]replicaStatus, patient bool) transport.NodeID {
	local := g.host.cfg.Local
	nodes := []transport.NodeID{local}
	logs := map[transport.NodeID]replicaStatus{local: own}
	for n, s := range answers {
		generation, _ := g.replicaAt(n).Generation()
		if s.known() && (!s.voter() || s.generation != generation) || !s.known() && !patient {
			continue
		}
		if !s.known() {
			s.lastTerm, s.lastIndex = 1, 1
		}
		logs[n] = s
		nodes = append(nodes, n)
	}
	nodes = rank(g, nodes)
	slices.SortStableFunc(nodes, func(a, b transport.NodeID) int {
		return cmp.Or(
			cmp.Compare(logs[b].lastTerm, logs[a].lastTerm),
			cmp.Compare(logs[b].lastIndex, logs[a].lastIndex),
			cmp.Compare(logs[a].flags&statusUnwilling, logs[b].flags&statusUnwilling),
		)
	})
	return nodes[0]
}

// rank orders nodes by who should lead a group, all else being equal: the preferred
// node, then an order by hash that spreads the groups of a lost node.
func rank(g *Group, nodes []transport.NodeID) []transport.NodeID {
	home := g.Home()
	weight := make(map[transport.NodeID]uint64, len(nodes))
	for _, n := range nodes {
		f := fnv.New64a()
		var id [8]byte
		for i := range id {
			id[i] = byte(g.spec.ID >> (8 * i))
		}
		f.Write(id[:])
		f.Write([]byte(n))
		weight[n] = f.Sum64()
	}
	ranked := slices.Clone(nodes)
	slices.SortFunc(ranked, func(a, b transport.NodeID) int {
		if a != b && (a == home || b == home) {
			if a == home {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(weight[a], weight[b]), cmp.Compare(a, b))
	})
	return ranked
}
