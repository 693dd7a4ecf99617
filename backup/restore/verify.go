package restore

import (
	"errors"
	"fmt"
	"io"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/store"
)

// Report is what a backup has.
type Report struct {
	Header backup.Header
	Queues []QueueReport
	// Messages and Outbox count the live messages and the dead letters on their way out of all queues, Pairs the pairs of queues between
	// which dead letters have moved.
	Messages, Outbox, Pairs int
}

// QueueReport is what a backup has of one queue.
type QueueReport struct {
	backup.Queue
	Messages int `json:"messages"`
	Outbox   int `json:"outbox"`
}

// ErrInconsistent tells that the states of a backup do not fit together: a dead letter would be lost or doubled.
var ErrInconsistent = errors.New("the states of the queues do not fit together")

// Verify reads a backup to its end and proves that it can be restored: that it is whole, that every part can be read, and that the states of
// each pair of queues fit together.
func Verify(from io.Reader) (rep Report, err error) {
	in, err := backup.Open(from)
	if err != nil {
		return rep, err
	}
	rep.Header = in.Header
	p := newPlan(&in.Header, &Options{Nodes: []string{"any"}})
	if _, err := readCatalog(in, p); err != nil {
		return rep, err
	}
	moves := newMoves()
	for {
		part, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return rep, err
		}
		manifest, err := store.ReadManifest(part)
		var m *fsm.Machine
		if err == nil {
			m, err = fsm.Restore(manifest)
		}
		if err == nil && m.Index() != part.Queue.Index {
			err = fmt.Errorf("its state is of index %d, not %d", m.Index(), part.Queue.Index)
		}
		if err != nil {
			return rep, fmt.Errorf("%w: queue %d: %w", backup.ErrMalformed, part.Queue.ID, err)
		}
		moves.add(part.Queue.ID, m)
		q := QueueReport{Queue: *part.Queue, Messages: m.Queue().Len(), Outbox: m.Outbox().Len()}
		rep.Queues = append(rep.Queues, q)
		rep.Messages, rep.Outbox = rep.Messages+q.Messages, rep.Outbox+q.Outbox
	}
	rep.Pairs, err = moves.check()
	return rep, err
}

// moves is what the queues of a backup know of each other.
type moves struct {
	queues map[uint64]bool
	sent   map[pair]sent
	took   map[pair]uint64 // the highest sequence that the target has taken
}

// pair is a queue and one that its dead letters go to.
type pair struct{ source, target uint64 }

// sent is how far a source is with a target: done is the highest sequence that it has dropped, next the first that it has not numbered.
type sent struct {
	done, next uint64
	gone       bool // the target is closed, and the source knows how it ended
}

func newMoves() *moves {
	return &moves{queues: map[uint64]bool{}, sent: map[pair]sent{}, took: map[pair]uint64{}}
}

func (v *moves) add(id uint64, m *fsm.Machine) {
	v.queues[id] = true
	for _, t := range m.Outbox().Targets() {
		done, _ := m.Outbox().Progress(t.Queue)
		v.sent[pair{id, t.Queue}] = sent{done, t.Next, t.Gone}
	}
	for s, upTo := range m.Sources() {
		if s.Epoch == 0 { // another epoch is of sequences that the source no longer gives
			v.took[pair{s.Queue, id}] = upTo
		}
	}
}

// check counts the pairs and finds one that does not fit: a source must not have dropped what its target has not taken, nor a target taken
// what its source has not numbered.
func (v *moves) check() (pairs int, err error) {
	for at, s := range v.sent {
		if !v.queues[at.target] || s.gone {
			continue // it lived in memory, or is closed: the source finds it gone
		}
		pairs++
		switch took := v.took[at]; {
		case took < s.done:
			return pairs, fmt.Errorf("%w: queue %d has dropped its dead letters up to %d, queue %d has taken those up to %d: %d are nowhere",
				ErrInconsistent, at.source, s.done, at.target, took, s.done-took)
		case took >= s.next:
			return pairs, fmt.Errorf("%w: queue %d has taken dead letters up to %d, queue %d has numbered those below %d: %d are there twice, others would be taken for them",
				ErrInconsistent, at.target, took, at.source, s.next, took-s.next+1)
		}
	}
	for at, took := range v.took {
		if _, known := v.sent[at]; !known && v.queues[at.source] && took > 0 {
			return pairs, fmt.Errorf("%w: queue %d has taken dead letters up to %d, queue %d has sent it none", ErrInconsistent, at.target, took, at.source)
		}
	}
	return pairs, nil
}
