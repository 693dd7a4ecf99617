package nemesis

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/network"
)

// Nemesis is a kind of fault.
type Nemesis struct {
	Name string
	// Links says that it needs a network whose links can be harmed.
	Links bool
	// Within says that it needs nodes that can be broken from within: db.Options.Failpoints.
	Within bool
	// Pause is how long clients may be without confirms because of it, on an idle machine; 0: as long
	// as it lasts. After is how long it takes effect after it was healed.
	Pause, After time.Duration
	// Prepare, if not nil, is called once before the nodes are started, by any run that has it among
	// its nemeses.
	Prepare func(e *Env) error
	// Begin does the harm and returns without waiting for its end. On an error nothing may be left
	// harmed.
	Begin func(ctx context.Context, e *Env) (Fault, error)
}

// Fault is harm that was done.
type Fault struct {
	// Node is the victim, "" for several.
	Node string
	// What says for people what was done.
	What string
	// Heal ends it. It is called once and does not wait until nodes are ready.
	Heal func(ctx context.Context) error
}

// Env is what a fault is done to. It is used by one goroutine.
type Env struct {
	DB  db.DB
	Net network.Network
	// Queues are those whose leaders are aimed at.
	Queues []string
	// AtLeader says that the victim is to be the leader's node of one of Queues.
	AtLeader bool
	// Rand makes all choices.
	Rand *rand.Rand
}

// Victim chooses a node.
func (e *Env) Victim(ctx context.Context) string {
	nodes := e.DB.Nodes()
	victim := nodes[e.Rand.IntN(len(nodes))]
	if e.AtLeader && len(e.Queues) > 0 {
		queue := e.Queues[e.Rand.IntN(len(e.Queues))]
		// While nobody is known to lead, any node will do.
		if leader, err := e.DB.Leader(ctx, queue); err == nil && leader != "" {
			return leader
		}
	}
	return victim
}

// others returns all nodes but one.
func (e *Env) others(node string) []string {
	var list []string
	for _, n := range e.DB.Nodes() {
		if n != node {
			list = append(list, n)
		}
	}
	return list
}

// shuffled returns the nodes in an order of chance, a victim first.
func (e *Env) shuffled(ctx context.Context) []string {
	victim := e.Victim(ctx)
	rest := e.others(victim)
	e.Rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append([]string{victim}, rest...)
}
