package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/queue/leader"
)

// diary is groups in memory that write down what they are asked for.
type diary struct {
	*memGroups
	mu      sync.Mutex
	lines   []string
	hold    chan struct{} // Delete waits for it if it is not nil
	starts  chan struct{} // and Start for this one
	damaged uint64        // the generation that cannot be started
	alone   bool          // the rest of the group does not work
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) Start(q *catalog.Queue, r *leader.Replica, lead func(uint64, string, bool)) (Group, error) {
	g := q.Generation(testNode)
	d.write("start %d", g)
	d.mu.Lock()
	bad, hold := g < d.damaged, d.starts
	d.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if bad {
		return nil, fmt.Errorf("group: %w", ErrDamaged)
	}
	made, err := d.memGroups.Start(q, r, lead)
	return followed{made.(memGroup), d}, err
}

func (d *diary) Yield(context.Context, uint64) { d.write("yield") }

func (d *diary) Stop(id uint64) error {
	d.write("stop")
	return d.memGroups.Stop(id)
}

func (d *diary) Survives(context.Context, *catalog.Queue) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.alone
}

func (d *diary) Delete(id uint64) error {
	d.mu.Lock()
	hold := d.hold
	d.mu.Unlock()
	if hold != nil {
		<-hold
	}
	d.write("delete")
	return d.memGroups.Delete(id)
}

type followed struct {
	memGroup
	d *diary
}

func (f followed) Follow(q *catalog.Queue) {
	f.d.write("follow %s, led by %s", strings.Join(short(q.Target()), "+"), shortName(string(q.Preferred)))
}

func short(ids []catalog.NodeID) (names []string) {
	for _, id := range ids {
		names = append(names, shortName(string(id)))
	}
	return names
}

// await waits until the newest lines are these.
func (d *diary) await(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		d.mu.Lock()
		got = slices.Clone(d.lines)
		d.mu.Unlock()
		if len(got) >= len(want) && slices.Equal(got[len(got)-len(want):], want) {
			return
		}
	}
	t.Fatalf("it came to\n%s\nwant at the end\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

const (
	secondNode = "n2/uuid"
	thirdNode  = "n3/uuid"
)

// managed runs a broker at level 2 beside two nodes that are only in the catalog, with a queue on this one and on others.
func managed(t *testing.T, d *diary, others ...catalog.NodeID) (b *Broker, plan func(wanted, renew []catalog.NodeID, preferred catalog.NodeID), q func() *catalog.Queue) {
	t.Helper()
	d.memGroups = &memGroups{logs: map[uint64]*leader.MemLog{}}
	b = newBrokerOver(t, d)
	do := func(c catalog.Command) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := b.cat.Propose(ctx, c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
	atNewestLevel(t, b)
	members := append([]catalog.NodeID{testNode}, others...)
	do(&catalog.RegisterNode{ID: secondNode})
	do(&catalog.RegisterNode{ID: thirdNode})
	do(&catalog.DeclareQueue{Queue: catalog.Queue{Vhost: "/", Name: "q", Durable: true, Kind: catalog.Replicated, Members: members, Preferred: testNode}})
	q = func() *catalog.Queue { return b.cat.View().Queue("/", "q") }
	return b, func(wanted, renew []catalog.NodeID, preferred catalog.NodeID) {
		t.Helper()
		do(&catalog.PlanMembers{ID: q().ID, Wanted: wanted, Renew: renew, Preferred: preferred, IfSettings: q().Settings})
	}, q
}

func atNewestLevel(t *testing.T, b *Broker) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); b.cat.View().Level() < level.Now; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the catalog stays at level %d", b.cat.View().Level())
		}
	}
}

func reach(t *testing.T, b *Broker, q *catalog.Queue) {
	t.Helper()
	if _, err := b.cat.Propose(t.Context(), &catalog.MembersReached{ID: q.ID, IfSettings: q.Settings}); err != nil {
		t.Fatal(err)
	}
}

// TestReplicasFollowTheCatalog takes a queue from a node and gives it back: the replica goes when the plan is reached, not before; and nothing
// is started while it is being deleted, however often the catalog changes meanwhile.
func TestReplicasFollowTheCatalog(t *testing.T) {
	d := &diary{}
	b, plan, q := managed(t, d)
	d.await(t, "start 0", "follow n1, led by n1")
	both := []catalog.NodeID{testNode, secondNode}
	plan(both[1:], nil, secondNode)
	d.await(t, "follow n1, led by n1", "follow n2, led by n1")
	if b.queues.get(q().ID) == nil {
		t.Fatal("the replica is gone before the plan is reached")
	}
	d.mu.Lock()
	d.hold = make(chan struct{})
	d.mu.Unlock()
	reach(t, b, q())
	d.await(t, "follow n2, led by n1", "yield")
	plan(both, nil, testNode)
	again := q().Settings
	plan(both[1:], nil, secondNode)
	plan(both, nil, testNode)
	time.Sleep(50 * time.Millisecond)
	d.await(t, "yield")
	close(d.hold)
	d.await(t, "yield", "delete", fmt.Sprintf("start %d", again), "follow n1+n2, led by n2")
	reach(t, b, q())
	d.await(t, "follow n1+n2, led by n2", "follow n1+n2, led by n1")
	three := []catalog.NodeID{testNode, secondNode, thirdNode} // of two none may begin anew
	plan(three, nil, testNode)
	reach(t, b, q())
	plan(three, three[:1], testNode)
	d.await(t, "yield", "delete", fmt.Sprintf("start %d", q().Settings), "follow n1+n2+n3, led by n1")
	c := dial(t, b)
	c.put("q", "m", nil)
	if _, err := b.cat.Propose(t.Context(), &catalog.DeleteQueue{Vhost: "/", Name: "q", ID: q().ID}); err != nil {
		t.Fatal(err)
	}
	d.await(t, "delete")
	b.queues.mu.RLock()
	defer b.queues.mu.RUnlock()
	if len(b.queues.leaving)+len(b.queues.left) > 0 {
		t.Errorf("queues %v are leaving, %v have left", b.queues.leaving, b.queues.left)
	}
}

// TestDamagedReplicaIsRenewed: a replica that cannot be started begins anew under another generation, twice if need be, but only when
// the rest of the group works.
func TestDamagedReplicaIsRenewed(t *testing.T) {
	d := &diary{damaged: 1, alone: true}
	b, _, q := managed(t, d, secondNode, thirdNode)
	d.await(t, "start 0")
	time.Sleep(renewEvery + renewEvery/4)
	d.await(t, "start 0")
	d.mu.Lock()
	d.alone = false
	d.damaged = q().ID + 1_000_000
	d.mu.Unlock()
	d.await(t, "delete", fmt.Sprintf("start %d", awaitGeneration(t, q, 0)))
	first := q().Generation(testNode)
	d.mu.Lock()
	d.damaged = 0
	d.mu.Unlock()
	d.await(t, "delete", fmt.Sprintf("start %d", awaitGeneration(t, q, first)), "follow n1+n2+n3, led by n1")
	for end := time.Now().Add(30 * time.Second); len(b.queues.stillDamaged()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is taken for damaged still")
		}
	}
	dial(t, b).put("q", "m", nil)
}

func awaitGeneration(t *testing.T, q func() *catalog.Queue, above uint64) uint64 {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if g := q().Generation(testNode); g > above {
			return g
		}
	}
	t.Fatalf("no generation after %d", above)
	return 0
}
