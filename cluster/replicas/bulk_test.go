package replicas

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// carryOut has all plans carried out but those of the given queues, until the test ends. It returns how many were under way at a time
// at most.
func (r *rig) carryOut(but ...string) (most func() int) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan int)
	go func() {
		highest := 0
		defer func() { ended <- highest }()
		for pause(ctx, time.Millisecond) {
			var open []*catalog.Queue
			for q := range r.cat.View().AllQueues() {
				if q.Wanted != nil && !slices.Contains(but, q.Name) {
					open = append(open, q)
				}
			}
			highest = max(highest, len(open))
			for _, q := range open {
				_, _ = r.cat.Propose(ctx, &catalog.MembersReached{ID: q.ID, IfSettings: q.Settings}) // the test sees what is missing
			}
		}
	}()
	stop := func() int {
		cancel()
		return <-ended
	}
	done := false
	r.t.Cleanup(func() {
		if !done {
			stop()
		}
	})
	return func() int {
		done = true
		return stop()
	}
}

// told writes results down, one word each.
func told(results []Result) string {
	var all []string
	for _, r := range results {
		word := fmt.Sprintf("%s:%s=%d", r.VHost, r.Name, r.Size)
		if e, ok := errors.AsType[*Error](r.Err); ok {
			word += "!" + string(e.Reason)
		} else if r.Err != nil {
			word += "!!" + r.Err.Error()
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func TestGrowAndShrink(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c", "n4/d")
	ctx := t.Context()
	r.declare("one", "n1/a")
	r.declare("two", "n1/a", "n2/b")
	r.declare("three", "n1/a", "n2/b", "n3/c")
	r.declare("gone", "n1/a", "n4/d")
	r.propose(&catalog.DeleteQueue{Vhost: "/", Name: "gone"}) // and closing: its dead letters are on their way
	r.propose(&catalog.DeclareQueue{NodeIncarnation: r.cat.View().Node(local).Incarnation, Queue: catalog.Queue{
		Vhost: "/", Name: "transient", Kind: catalog.Transient, Members: []catalog.NodeID{local}, Preferred: local,
	}})
	r.carryOut()
	grow := func(node string, which Match) string {
		t.Helper()
		results, err := r.op.Grow(ctx, node, which)
		if err != nil {
			t.Fatal(err)
		}
		return told(results)
	}
	if got := grow("n4", Match{Even: true}); got != "/:two=3" {
		t.Error(got)
	}
	if got := grow("n4", Match{Queues: regexp.MustCompile("t")}); got != "/:three=4" {
		t.Error(got)
	}
	if got := grow("n4", Match{VHosts: regexp.MustCompile("^v")}); got != "" {
		t.Error(got)
	}
	if got := grow("n4", Match{}); got != "/:one=2" {
		t.Error(got)
	}
	if got := grow("n4", Match{}); got != "" {
		t.Errorf("again: %s", got)
	}
	shrunk, err := r.op.Shrink(ctx, "n1")
	if got := told(shrunk); err != nil || got != "/:gone=1 /:one=1 /:three=3 /:two=2" {
		t.Errorf("%s %v", got, err)
	}
	shrunk, err = r.op.Shrink(ctx, "n4")
	if got := told(shrunk); err != nil || got != "/:gone=1!last_node /:one=1!last_node /:three=2 /:two=1" {
		t.Errorf("%s %v", got, err)
	}
	for _, id := range []catalog.NodeID{"n1/a", "n4/d"} {
		if n := r.cat.View().Replicas(id); n != map[catalog.NodeID]int{"n1/a": 0, "n4/d": 2}[id] {
			t.Errorf("%s has %d replicas", id, n)
		}
	}
	if _, err := r.op.Shrink(ctx, "n9"); err == nil {
		t.Error("a node that is not there was emptied")
	}
	_, err = r.op.Grow(ctx, "n9", Match{})
	refused(t, err, NoNode, "n9")
	r.down["n3/c"] = true
	_, err = r.op.Grow(ctx, "n3", Match{})
	refused(t, err, NotRunning, "")
	r.propose(&catalog.SetNodeState{ID: "n2/b", State: catalog.NodeDraining})
	_, err = r.op.Grow(ctx, "n2", Match{})
	refused(t, err, GoesAway, "node 'n2' is draining")
}

// TestGrowIsBounded has many queues: only some of them change at a time, and what is not done in time is told.
func TestGrowIsBounded(t *testing.T) {
	r := newRig(t, "n2/b")
	for i := range 30 {
		r.declare(fmt.Sprintf("q%02d", i), "n1/a")
	}
	most := r.carryOut("q07")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { // what is late is late when all others are done
		for done := 0; done < 29 && pause(ctx, time.Millisecond); {
			done = 0
			for q := range r.cat.View().AllQueues() {
				if q.Wanted == nil && len(q.Members) == 2 {
					done++
				}
			}
		}
		pause(ctx, time.Second) // that they are is known to who waits
		cancel()
	}()
	results, err := r.op.Grow(ctx, "n2", Match{})
	if err != nil || len(results) != 30 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	late := slices.DeleteFunc(results, func(r Result) bool { return r.Err == nil })
	if got := told(late); got != "/:q07=2!timeout" {
		t.Errorf("late: %s", got)
	}
	if n := most(); n == 0 || n > bulkAtOnce {
		t.Errorf("%d at a time", n)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.op.Shrink(ended, "n2"); err == nil {
		t.Error("nobody waits, and it was done")
	}
}

// fickle is a catalog in which others are at work: they delete a queue "before" when its plan is on its way, a queue "behind" once it is planned, and reach all other plans.
type fickle struct {
	Catalog

	r *rig
}

func (f fickle) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	p, ok := cmd.(*catalog.PlanMembers)
	if !ok {
		return f.Catalog.Propose(ctx, cmd)
	}
	name := f.View().QueueByID(p.ID).Name
	ends := func() {
		for _, c := range []catalog.Command{&catalog.DeleteQueue{Vhost: "/", Name: name}, &catalog.QueueGone{ID: p.ID}} {
			if _, err := f.Catalog.Propose(ctx, c); err != nil {
				f.r.t.Error(err)
			}
		}
	}
	if name == "before" {
		ends()
	}
	res, err := f.Catalog.Propose(ctx, cmd)
	switch {
	case name == "behind":
		ends()
	case err == nil:
		_, err = f.Catalog.Propose(ctx, &catalog.MembersReached{ID: p.ID, IfSettings: res.Queue.Settings})
	}
	return res, err
}

// unsure is a catalog that cannot tell what becomes of a change.
type unsure struct{ Catalog }

func (unsure) Propose(context.Context, catalog.Command) (catalog.Result, error) {
	return catalog.Result{}, catalog.ErrUnknownOutcome
}

// moving is a catalog in which a queue's members change when it is to get another home.
type moving struct {
	fickle

	move func()
}

func (m moving) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	if _, ok := cmd.(*catalog.SetPreferred); ok {
		m.move()
	}
	return m.fickle.Propose(ctx, cmd)
}

// TestBulkWhileQueuesGo: a queue that is deleted once it was found, or while its replicas change, is no failure of grow, grow_to_count or shrink.
func TestBulkWhileQueuesGo(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c")
	r.op.Catalog = fickle{r.cat, r}
	ctx := t.Context()
	for name, do := range map[string]func() ([]Result, error){
		"grow":          func() ([]Result, error) { return r.op.Grow(ctx, "n3", Match{Queues: regexp.MustCompile("grow$|^b")}) },
		"grow_to_count": func() ([]Result, error) { return r.op.GrowTo(ctx, 3, Match{Queues: regexp.MustCompile("count$|^b")}) },
		"shrink":        func() ([]Result, error) { return r.op.Shrink(ctx, "n2") },
	} {
		for _, q := range []string{"before", name, "behind"} {
			r.declare(q, "n1/a", "n2/b")
		}
		results, err := do()
		for _, res := range results {
			if res.Err != nil || res.Name[0] == 'b' {
				t.Errorf("%s: %s", name, told(results))
			}
		}
		if err != nil || r.queue("before") != nil || r.queue("behind") != nil || r.queue(name).Settled != 0 || len(r.queue(name).Members) == 2 {
			t.Errorf("%s: %s %v", name, told(results), err)
		}
	}
}

func TestPrefer(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c", "n4/d")
	ctx := t.Context()
	r.declare("q", "n1/a", "n2/b", "n3/c")
	found, err := r.op.Find(ctx, "/", "q")
	if err != nil || fmt.Sprintf("%+v", found.Members) != "[{ID:n1/a Name:n1 Running:true Stays:true} {ID:n2/b Name:n2 Running:true Stays:true} {ID:n3/c Name:n3 Running:true Stays:true}]" {
		t.Errorf("%+v %v", found, err)
	}
	for _, changed := range []bool{true, false} {
		q, to, did, err := r.op.Prefer(ctx, "/", "q", "n2")
		if err != nil || to != "n2/b" || did != changed || q.ID != found.ID || r.queue("q").Preferred != "n2/b" {
			t.Errorf("%+v %s %t %v", q, to, did, err)
		}
	}
	for node, want := range map[string]Reason{"n4": NotMember, "n9": NoNode} {
		_, _, _, err := r.op.Prefer(ctx, "/", "q", node)
		refused(t, err, want, "")
	}
	_, _, _, err = r.op.Prefer(ctx, "/", "none", "n2")
	refused(t, err, NoQueue, "")
	_, err = r.op.Find(ctx, "/", "none")
	refused(t, err, NoQueue, "")
	// While a replica is on its way out the leadership does not go there, and the plan's end keeps what was asked for.
	if _, err := r.op.Remove(ctx, "/", "q", "n3"); err != nil {
		t.Fatal(err)
	}
	_, _, _, err = r.op.Prefer(ctx, "/", "q", "n3")
	refused(t, err, NotMember, "")
	if found, err := r.op.Find(ctx, "/", "q"); err != nil || len(found.Members) != 3 || found.Members[2].Stays || found.Preferred != "n2/b" {
		t.Errorf("%+v %v", found, err)
	}
	if _, _, changed, err := r.op.Prefer(ctx, "/", "q", "n1"); err != nil || !changed {
		t.Error(changed, err)
	}
	r.reached("q")
	if got := r.where("q"); got != "[n1/a n2/b] by n1/a, wanted [] by " {
		t.Error(got)
	}
	// The members change between the look and the word.
	r.declare("moves", "n1/a", "n2/b", "n3/c")
	r.op.Catalog = moving{fickle{r.cat, r}, sync.OnceFunc(func() {
		if _, err := r.op.Remove(ctx, "/", "moves", "n3"); err != nil {
			t.Error(err)
		}
	})}
	if _, _, changed, err := r.op.Prefer(ctx, "/", "moves", "n2"); err != nil || !changed || len(r.queue("moves").Members) != 2 || r.queue("moves").Preferred != "n2/b" {
		t.Errorf("%s %t %v", r.where("moves"), changed, err)
	}
	r.op.Catalog = unsure{r.cat}
	_, _, _, err = r.op.Prefer(ctx, "/", "moves", "n1")
	refused(t, err, Timeout, "not known")
	r.op.Catalog = r.cat
	r.down["n2/b"] = true
	_, _, _, err = r.op.Prefer(ctx, "/", "q", "n2")
	refused(t, err, NotRunning, "")
	_, _, _, err = r.op.Prefer(ctx, "/", "q", "n1")
	refused(t, err, NoQuorum, "")
}

func TestForget(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c")
	ctx := t.Context()
	for i := range 12 {
		r.declare(fmt.Sprintf("q%02d", i), "n2/b", "n1/a")
	}
	forget := func(node string) error {
		t.Helper()
		done, err := r.op.Forget(ctx, node)
		if done == (err != nil) {
			t.Errorf("%s: %t %v", node, done, err)
		}
		return err
	}
	refused(t, forget("n9"), NoNode, "")
	refused(t, forget("n1"), NodeRuns, "node 'n1' is running")
	refused(t, forget("n3"), NodeRuns, "node 'n3' is running")
	r.down["n2/b"], r.down["n3/c"] = true, true
	refused(t, forget("n2"), HasReplicas, "replicas of 12 queues: 'q00' in vhost '/', 'q01'")
	refused(t, forget("n2"), HasReplicas, "'q09' in vhost '/', …; take")
	if err := forget("n3"); err != nil || !r.cat.View().Forgotten("n3/c") || r.cat.View().NodeByName("n3") != nil {
		t.Errorf("n3 stays: %v", err)
	}
	refused(t, forget("n3"), NoNode, "")
	// Deleted queues that wait for this node alone go with it, and not before all others are off it.
	r.propose(&catalog.RegisterNode{ID: "n5/e"})
	r.declare("alone", "n5/e")
	r.declare("kept", "n5/e")
	alone := r.cat.View().Queue("/", "alone").ID
	r.propose(&catalog.DeleteQueue{Vhost: "/", Name: "alone"})
	r.down["n5/e"] = true
	refused(t, forget("n5"), HasReplicas, "replicas of 1 queues: 'kept' in vhost '/'; take")
	if r.cat.View().QueueByID(alone) == nil {
		t.Error("it went without the node")
	}
	r.propose(&catalog.DeleteQueue{Vhost: "/", Name: "kept"})
	if err := forget("n5"); err != nil || !r.cat.View().Forgotten("n5/e") || r.cat.View().QueueByID(alone) != nil {
		t.Errorf("n5 stays: %v", err)
	}
	// A storage that was replaced is forgotten by its id.
	r.propose(&catalog.RegisterNode{ID: "n4/d"})
	r.propose(&catalog.RegisterNode{ID: "n4/new"})
	if err := forget("n4/d"); err != nil || r.cat.View().Node("n4/d") != nil || r.cat.View().NodeByName("n4") == nil {
		t.Errorf("n4/d stays: %v", err)
	}
}

// TestGrowTo: queues get as many replicas as asked for, first in zones where they have none, then where there is least; others stay.
func TestGrowTo(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c", "n4/d", "n5/e")
	ctx := t.Context()
	for id, zone := range map[catalog.NodeID]string{local: "east", "n2/b": "east", "n3/c": "west", "n4/d": "west", "n5/e": "north"} {
		n := r.cat.View().Node(id)
		r.propose(&catalog.NodeAbout{ID: id, Incarnation: n.Incarnation, Zone: zone, Version: "v", Level: 2})
	}
	r.declare("one", "n1/a")
	r.declare("two", "n1/a", "n3/c")
	r.declare("three", "n1/a", "n3/c", "n5/e")
	r.carryOut()
	grow := func(count int, which Match) string {
		t.Helper()
		results, err := r.op.GrowTo(ctx, count, which)
		if err != nil {
			t.Fatal(err)
		}
		return told(results)
	}
	if got := grow(3, Match{Even: true}); got != "/:two=3" || !slices.Contains(r.queue("two").Members, "n5/e") {
		t.Errorf("%s: %v", got, r.queue("two").Members)
	}
	if got := grow(3, Match{}); got != "/:one=3" || !slices.Contains(r.queue("one").Members, "n5/e") || !slices.Contains(r.queue("one").Members, "n4/d") {
		t.Errorf("%s: %v", got, r.queue("one").Members)
	}
	if got := grow(3, Match{}); got != "" {
		t.Errorf("again: %s", got)
	}
	r.down["n2/b"] = true
	if got := grow(9, Match{}); got != "/:one=4 /:three=4 /:two=4" {
		t.Errorf("more than there are nodes: %s", got)
	}
	if got := grow(9, Match{}); got != "" {
		t.Errorf("no node is left: %s", got)
	}
	ended, stop := context.WithCancel(ctx)
	stop()
	if _, err := r.op.GrowTo(ended, 5, Match{}); err == nil {
		t.Error("nobody waits, and it was done")
	}
}
