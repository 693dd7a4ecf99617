package detector

import (
	"time"

	"github.com/warrenmq/warren/transport"
)

// State is the verdict about one node.
type State uint8

const (
	// Unknown is the state of a node that is not watched, or is watched but has
	// neither answered nor been silent for long enough.
	Unknown State = iota
	// Alive means that the node answers.
	Alive
	// Suspect means that this node does not hear it and asks the others.
	Suspect
	// Dead means that a majority of the nodes that were not dead already does not hear it, or one of the catalog's voters and nobody hears it.
	Dead
)

func (s State) String() string {
	switch s {
	case Alive:
		return "alive"
	case Suspect:
		return "suspect"
	case Dead:
		return "dead"
	default:
		return "unknown"
	}
}

// answersToReturn is the number of fresh answers that bring a dead node back: one
// could have been under way when it died. Another process of the node is back with its link.
const answersToReturn = 2

// peer is the pure half of the detector: what is known about one watched node.
type peer struct {
	state State
	// answered is the sending time of the newest answered ping seen so far.
	answered time.Time
	// silent is the attended time since answered last advanced.
	silent time.Duration
	// came is when anything last came from it, and mute the attended time since that or an answer.
	came time.Time
	mute time.Duration
	// answers counts the advances of answered since the node was declared dead.
	answers int
	// everAlive is set once an Alive verdict was published and cleared by Dead.
	everAlive bool
	// heard is this node's own opinion, as told to others.
	heard bool
	// refused tells that the last suspicion came from a refused dial.
	refused bool
	// process identifies the run of the node's process that was heard last, 0 if none.
	process uint64
	// left is the run that said goodbye, 0 if none did.
	left uint64
}

// step is what follows from one observation.
type step uint8

const (
	stepNone      step = iota
	stepAsk            // this node does not hear it: ask the others
	stepAlive          // publish Alive
	stepLeft           // it said goodbye: publish its death
	stepRestarted      // another process speaks for the node: publish the death of the former
)

// observe folds one measurement into the peer. attended is the time since the
// previous observation that this process was really running, limit the silence
// after which the node is a suspect and hearing the silence below which this node
// tells others that it hears it.
func (p *peer) observe(s transport.PeerStatus, attended, limit, hearing time.Duration) step {
	if s.LastAnswered.After(p.answered) {
		p.answered = s.LastAnswered
		p.silent = 0
		p.answers++
		p.mute = 0
	} else {
		p.silent += attended
		p.mute += attended
	}
	if s.LastHeard.After(p.came) {
		p.came, p.mute = s.LastHeard, 0
	}
	p.refused = !s.Up && s.Refused
	p.heard = s.Up && !p.answered.IsZero() && !p.quiet(hearing)
	missing := p.refused || p.quiet(limit)
	if p.left != 0 && s.Process != p.left {
		p.left = 0 // another run
	}
	if p.left != 0 {
		p.heard = false
		if p.state == Dead {
			return stepNone // its link may live on for a moment
		}
		p.state, p.everAlive, p.answers = Dead, false, 0
		return stepLeft
	}

	// A process that came back so fast that nobody missed it leads nothing of what the
	// former one led. Its data folder is locked, so the former one is certainly gone.
	if s.Up && s.Process != 0 && s.Process != p.process {
		former := p.process
		p.process = s.Process
		if former != 0 && p.everAlive {
			p.state = Alive
			return stepRestarted
		}
		if former != 0 && p.state == Dead {
			// Nothing that it sends can have been under way when the former one died.
			p.silent, p.mute, p.heard = 0, 0, true
			return p.revive()
		}
	}

	switch p.state {
	case Dead:
		if s.Up && !missing && p.answers >= answersToReturn {
			return p.revive()
		}
	case Suspect:
		if missing {
			return stepAsk
		}
		if p.everAlive {
			p.state = Alive
			return stepNone
		}
		if s.Up && !p.answered.IsZero() {
			return p.revive()
		}
		p.state = Unknown
	default:
		if missing {
			p.state = Suspect
			return stepAsk
		}
		if p.state == Unknown && s.Up && !p.answered.IsZero() {
			return p.revive()
		}
	}
	return stepNone
}

// deafMax is how much longer than usual a node may leave pings unanswered while what it sends by
// itself arrives: a process that is starved of CPU still sends long before it answers. Not for ever,
// because the way there may be cut while the way back is not.
const deafMax = 3500 * time.Millisecond

// quiet tells whether a node has given no sign of life that counts for limit.
func (p *peer) quiet(limit time.Duration) bool {
	return p.silent >= limit && (p.mute >= limit || p.silent >= limit+deafMax)
}

func (p *peer) revive() step {
	p.state, p.everAlive = Alive, true
	return stepAlive
}

// condemn records the verdict of the majority. It reports whether the verdict is
// news: the node may have answered while the others were being asked.
func (p *peer) condemn() bool {
	if p.state != Suspect {
		return false
	}
	p.state, p.everAlive, p.answers = Dead, false, 0
	return true
}

// attention measures how late this process runs.
type attention struct {
	tick time.Duration
	// late is the decaying maximum of recent tick delays.
	late time.Duration
}

// latenessDecay is applied once per tick; with ticks of 100 ms half of an old delay
// is forgotten after some 3.4 s.
const latenessDecay = 0.98

// pass records that elapsed has gone by since the previous pass and returns how
// much of it counts as attended.
func (a *attention) pass(elapsed time.Duration) time.Duration {
	a.late = max(time.Duration(float64(a.late)*latenessDecay), elapsed-a.tick, 0)
	return max(0, min(elapsed, 2*a.tick))
}

// stretch lengthens a silence limit by recent lateness, at most by most.
func (a *attention) stretch(limit, most time.Duration) time.Duration {
	return limit + min(2*a.late, most)
}
