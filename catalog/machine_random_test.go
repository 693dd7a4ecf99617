package catalog

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
)

// wild makes commands that fit the state most of the time, so that queues are planned, lost, recovered and lost again, and nodes come, are replaced and forgotten.
type wild struct {
	r *rand.Rand
	m *machine
}

func (w *wild) n(most int) int { return w.r.IntN(most + 1) }

func (w *wild) yes() bool { return w.n(1) == 0 }

func (w *wild) view() *View { return w.m.view.Load() }

func (w *wild) node() NodeID {
	return NodeID(fmt.Sprintf("n%d/%c", 1+w.n(3), 'a'+rune(w.n(5)/5)))
}

func (w *wild) incarnation(id NodeID) uint64 {
	if n := w.view().Node(id); n != nil && w.n(5) > 0 {
		return n.Incarnation
	}
	return uint64(w.n(40))
}

func (w *wild) queue() *Queue {
	all := slices.Collect(w.view().AllQueues())
	if len(all) == 0 {
		return &Queue{ID: uint64(1 + w.n(40)), Members: []NodeID{n1}}
	}
	return all[w.n(len(all)-1)]
}

// settings are mostly those of the queue.
func (w *wild) settings(q *Queue) uint64 {
	if w.n(9) == 0 {
		return uint64(1 + w.n(40))
	}
	return q.Settings
}

func (w *wild) nodes(most int) (list []NodeID) {
	for len(list) == 0 || len(list) < 1+w.n(most-1) {
		if n := w.node(); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

func (w *wild) vhost() string { return []string{"/", "/", "v"}[w.n(2)] }

func (w *wild) plan(q *Queue) Command {
	c := &PlanMembers{ID: q.ID, Wanted: w.nodes(4), IfSettings: w.settings(q)}
	if w.yes() {
		c.Wanted = slices.Clone(q.Target())
		if extra := w.node(); w.yes() && !slices.Contains(c.Wanted, extra) {
			c.Wanted = append(c.Wanted, extra)
		}
	}
	c.Preferred = c.Wanted[w.n(len(c.Wanted)-1)]
	if w.n(3) == 0 {
		c.Renew = c.Wanted[:1]
	}
	return c
}

// recover names the members that are lost, and the others.
func (w *wild) recover(q *Queue) Command {
	c := &RecoverQueue{ID: q.ID, IfSettings: w.settings(q)}
	from := q.Members
	if q.Survivors != nil {
		from = q.Survivors
	}
	tx := begin(w.view(), 1)
	for _, n := range from {
		if tx.lost(n) {
			c.Lost = append(c.Lost, n)
		} else {
			c.Survivors = append(c.Survivors, n)
		}
	}
	return c
}

func (w *wild) aboutNodes() Command {
	id := w.node()
	switch w.n(9) {
	case 0, 1, 2:
		return &RegisterNode{ID: id, Process: uint64(w.n(3))}
	case 3:
		return &ForgetNode{id, w.incarnation(id)}
	case 4:
		return &RemoveNode{id}
	case 5:
		return &SetNodeState{ID: id, State: NodeState(1 + w.n(2)), NotLast: w.yes()}
	case 6:
		return &NodeAbout{id, w.incarnation(id), "z", "v", 2, nil}
	}
	return &NodeDown{id, w.incarnation(id), int64(w.n(2) * 7)}
}

func (w *wild) command() Command {
	q := w.queue()
	switch w.n(19) {
	case 0, 1, 2, 3:
		return w.aboutNodes()
	case 4, 5:
		c := &DeclareQueue{Queue: Queue{Vhost: w.vhost(), Name: fmt.Sprint("q", w.n(2)), Kind: Replicated, Members: w.nodes(3), Size: uint64(w.n(4))}}
		c.Queue.Preferred = c.Queue.Members[0]
		if w.n(3) == 0 {
			c.Queue.Kind, c.Queue.Members = Transient, c.Queue.Members[:1]
			c.NodeIncarnation = w.incarnation(c.Queue.Members[0])
		} else if w.yes() {
			c.Queue.FirstLeader = c.Queue.Preferred
		}
		return c
	case 6:
		return &DeclareExchange{
			Exchange: Exchange{Vhost: w.vhost(), Name: fmt.Sprint("x", w.n(1)), Type: exchange.Delayed, Durable: w.yes(), AutoDelete: w.yes(), Arguments: amqp.Table{{Name: "x-delayed-type", Value: "fanout"}}},
			Members:  []NodeID{n1, n2, n3}, Preferred: n2, Size: uint64(w.n(4)),
		}
	case 7:
		return &DeleteExchange{Vhost: w.vhost(), Name: fmt.Sprint("x", w.n(1))}
	case 8:
		return &Bind{Binding{Vhost: w.vhost(), Source: fmt.Sprint("x", w.n(1)), Destination: fmt.Sprint("q", w.n(2))}}
	case 9:
		return &DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: q.ID}
	case 10:
		return &QueueGone{q.ID}
	case 11, 12:
		return w.plan(q)
	case 13:
		return &MembersReached{q.ID, w.settings(q)}
	case 14, 15:
		return w.recover(q)
	case 16:
		return &QueueRecovered{q.ID, w.settings(q), Kept{1, 2, 3, 4}}
	case 17:
		return &SetPreferred{q.ID, q.Members[0], w.settings(q)}
	case 18:
		return &PauseQueue{q.ID, w.yes()}
	}
	return w.access()
}

func (w *wild) access() Command {
	switch w.n(8) {
	case 6:
		return &PutShovel{w.vhost(), fmt.Sprint("s", w.n(1)), "u", fmt.Sprint(w.n(3))}
	case 7:
		return &DeleteShovel{w.vhost(), fmt.Sprint("s", w.n(1)), 0}
	case 0:
		return &PutVhost{Vhost: Vhost{Name: w.vhost()}}
	case 1:
		return &DeleteVhost{Name: "v"}
	case 2:
		return &PutUser{auth.User{Name: "u"}}
	case 3:
		return &DeleteUser{Name: "u"}
	case 4:
		return &PutTopicPermission{Vhost: w.vhost(), User: "u", Exchange: fmt.Sprint("x", w.n(1)), Write: ".*", Read: "^a"}
	case 5:
		return &DeleteTopicPermission{Vhost: w.vhost(), User: "u", Exchange: []string{"", "x1"}[w.n(1)]}
	}
	return &NameCluster{fmt.Sprint("name ", w.n(2))}
}

// TestAnyHistoryRestores applies commands that fit, in any order, and holds at each entry that a recount agrees, that a snapshot can be read, and that who
// began with one is byte for byte the same.
func TestAnyHistoryRestores(t *testing.T) {
	recovered := 0
	for seed := range uint64(40) {
		silent := func(*applied) {}
		w := &wild{r: rand.New(rand.NewPCG(seed, 3)), m: newMachine(silent)}
		other := newMachine(silent)
		begins := []Command{
			&Found{ClusterID: "c", Admin: auth.User{Name: "guest"}}, &RegisterNode{ID: n1}, &RegisterNode{ID: n2}, &RegisterNode{ID: n3}, &ActivateLevel{2},
		}
		for i := range 90 {
			c := w.command()
			if i < len(begins) {
				c = begins[i]
			}
			if c.validate() != nil {
				continue
			}
			index := uint64(2*i + 1)
			e := encodeEntry(requestID{15: byte(i), 1: 1}, c)
			out := w.m.apply(index, e)
			if again := other.apply(index, e); out.outcome != again.outcome {
				t.Fatalf("seed %d, %d: %+v, a restored replica: %+v", seed, index, out.outcome, again.outcome)
			}
			if _, ok := c.(*RecoverQueue); ok && out.outcome.code == 0 {
				recovered++
			}
			check(t, w.view())
			raw := snapshotBytes(t, w.m)
			if !bytes.Equal(raw, snapshotBytes(t, other)) {
				t.Fatalf("seed %d, %d, %T: a restored replica differs", seed, index, c)
			}
			other = newMachine(silent)
			if err := (fsm{other}).Restore(io.NopCloser(bytes.NewReader(raw))); err != nil {
				t.Fatalf("seed %d, %d, after %T: %v", seed, index, c, err)
			}
			check(t, other.view.Load())
		}
	}
	if recovered < 40/4 {
		t.Errorf("only %d queues were recovered", recovered)
	}
}
