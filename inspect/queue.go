package inspect

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/store"
)

// State is a queue's machine as a replica's folder gives it: its newest snapshot and everything in the log above it.
type State struct {
	Group uint64 `json:"id"`
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	// Applied is the last entry in it. What is above Certain, the snapshot, is in the log here, and is not known to be committed.
	Applied   uint64       `json:"applied"`
	Certain   uint64       `json:"certain"`
	Time      time.Time    `json:"machine_time"`
	Closed    bool         `json:"closed"`
	Messages  int          `json:"messages"` // live ones, delivered or not
	Bytes     int64        `json:"message_bytes"`
	Tail      uint64       `json:"last_message"`   // id of the newest ever
	Mark      uint64       `json:"delivered_mark"` // ids above it were never delivered
	Outbox    int          `json:"outbox"`         // dead letters on their way out
	Parked    int          `json:"parked"`         // of these, without a way
	Undecided int          `json:"undecided"`      // expired, and may yet stay
	Pinned    int          `json:"pinned_entries"`
	Counters  fsm.Counters `json:"counters"`
	Sources   []Source     `json:"sources"`
	Targets   []Target     `json:"targets"`

	machine *fsm.Machine
	group   store.InspectedGroup
	entry   raft.Log // read last
}

// Source is a queue from which dead letters, or parts of transactions, came: all up to Watermark were taken.
type Source struct {
	Queue     uint64 `json:"queue"`
	Epoch     uint32 `json:"epoch"`
	Watermark uint64 `json:"watermark"`
}

// Target is a queue to which dead letters go: Next is the number of the next one for it, Pending are not taken yet.
type Target struct {
	Queue   uint64 `json:"queue"`
	Next    uint64 `json:"next"`
	Pending int    `json:"pending"`
	Gone    bool   `json:"gone"`
}

// State computes the machine of a queue.
func (f *Folder) State(queue uint64) (*State, error) {
	g, ok := f.in.Group(store.GroupID(queue))
	if !ok {
		return nil, unknown(queue)
	}
	s := &State{Group: queue, machine: fsm.New(), group: g}
	snapshot, err := g.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("queue %d: %w", queue, err)
	}
	if snapshot != nil {
		if s.machine, err = fsm.Restore(snapshot.Manifest); err != nil {
			return nil, fmt.Errorf("queue %d: snapshot at %d: %w", queue, snapshot.Index, err)
		}
		s.Applied, s.Certain = snapshot.Index, snapshot.Index
	}
	_, last := g.Log()
	for _, i := range g.Indexes(s.Applied+1, last) {
		if err := s.apply(i); err != nil {
			return nil, fmt.Errorf("queue %d: entry %d: %w", queue, i, err)
		}
	}
	s.describe()
	return s, nil
}

// apply applies one entry. A machine that cannot go on panics; here that is an error.
func (s *State) apply(index uint64) (err error) {
	l, err := s.group.Entry(index)
	if err != nil {
		return err
	}
	if index != s.Applied+1 && s.Applied != 0 {
		return fmt.Errorf("entry %d is missing", s.Applied+1)
	}
	s.Applied = index
	if l.Type != raft.LogCommand {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	s.machine.Apply(index, l.Data)
	return nil
}

func (s *State) describe() {
	m := s.machine
	q, o := m.Queue(), m.Outbox()
	s.VHost, s.Name, s.Closed, s.Time = m.VHost(), m.Name(), m.Closed(), time.UnixMilli(m.Time()).UTC()
	s.Messages, s.Bytes, s.Tail, s.Mark = q.Len(), q.Bytes(), uint64(q.Tail()), uint64(m.Mark())
	s.Outbox, s.Undecided, s.Counters = o.Len(), m.UndecidedLen(), m.Counters()
	s.Parked = o.Count(dlx.ParkedUnrouted) + o.Count(dlx.ParkedCycle)
	for _, r := range m.Pins() {
		s.Pinned += int(r.Last - r.First + 1)
	}
	for src, w := range m.Sources() {
		s.Sources = append(s.Sources, Source{src.Queue, src.Epoch, w})
	}
	for _, t := range o.Targets() {
		s.Targets = append(s.Targets, Target{t.Queue, t.Next, t.Pending, t.Gone})
	}
}
