package steward

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/repair"
	"github.com/warrenmq/warren/cluster/replicas"
)

// reason is why something was refused, "" if it was not.
func reason(err error) replicas.Reason {
	if e, ok := errors.AsType[*replicas.Error](err); ok {
		return e.Reason
	}
	if err != nil {
		return replicas.Reason(err.Error())
	}
	return ""
}

// TestLeave follows a node from its first word to its end, and what is refused on the way.
func TestLeave(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	for i := range 3 {
		r.declare(fmt.Sprint("q", i), "c", "a", "b")
	}
	s := r.steward(repair.Policy{Groups: 1}, r.cat)
	check := func(what string, err error, want replicas.Reason) {
		t.Helper()
		if got := reason(err); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("unknown", s.Leave(t.Context(), "nobody", true), replicas.NoNode)
	check("not known", ofCatalog(catalog.ErrUnknownOutcome), replicas.Timeout)
	_, err := s.Progress("nobody")
	check("unknown", err, replicas.NoNode)
	check("not leaving", s.Dismiss(t.Context(), "c"), replicas.Refused)
	check("cancel of nothing", s.Leave(t.Context(), "c", false), "")
	if p, err := s.Progress("c"); err != nil || p.Replicas != 3 || p.State != "regular" || p.Done {
		t.Errorf("%+v, %v", p, err)
	}
	check("leave", s.Leave(t.Context(), "c", true), "")
	check("too early", s.Dismiss(t.Context(), "c"), replicas.HasReplicas)
	r.until("one queue at a time", func() bool {
		p, err := s.Progress("c")
		return err == nil && p.Underway == 1 && p.Waiting == 2 && p.State == "leaving"
	})
	check("cancel", s.Leave(t.Context(), "c", false), "")
	r.reach()
	if p, _ := s.Progress("c"); p.Replicas != 2 || p.State != "regular" || p.Waiting != 0 {
		t.Errorf("%+v", p)
	}
	check("leave again", s.Leave(t.Context(), "c", true), "")
	r.until("it has nothing", func() bool { r.reach(); p, _ := s.Progress("c"); return p.Done })
	check("dismiss", s.Dismiss(t.Context(), "c"), "")
	check("gone", s.Dismiss(t.Context(), "c"), replicas.NoNode)
	// Of the three that are left one more cannot be emptied.
	check("another one", s.Leave(t.Context(), "b", true), "")
	r.until("it is stuck", func() bool { p, _ := s.Progress("b"); return p.Nowhere == 3 && p.Waiting == 0 })
	check("another one", s.Leave(t.Context(), "a", true), "")
	check("the last one", s.Leave(t.Context(), "d", true), replicas.LastMember)
}

// TestBalance evens out who should lead, of the queues that are meant, and leaves the others.
func TestBalance(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	for i := range 9 {
		r.declare(fmt.Sprint("q", i), "a", "b", "c")
	}
	r.propose(&catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: "/", Name: "quorum", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{r.ids["a"], r.ids["b"]}, Preferred: r.ids["a"],
		Arguments: amqp.Table{{Name: "x-queue-type", Value: "quorum"}},
	}})
	s := r.steward(repair.Policy{Groups: 1}, r.cat)
	leads := func() string {
		count := map[string]int{}
		for q := range r.cat.View().AllQueues() {
			count[r.names([]catalog.NodeID{q.Preferred})]++
		}
		return fmt.Sprint(count)
	}
	if _, moved, err := s.Balance(t.Context(), "quorum", replicas.Match{}); err != nil || moved != 0 || leads() != "map[a:10]" {
		t.Errorf("moved %d, %v, %s", moved, err, leads())
	}
	shares, moved, err := s.Balance(t.Context(), "all", replicas.Match{Queues: regexp.MustCompile("^q[0-3]$")})
	if err != nil || moved != 2 || fmt.Sprint(shares) != "[{a 2} {b 1} {c 1}]" {
		t.Errorf("%v, moved %d, %v, %s", shares, moved, err, leads())
	}
	if _, moved, err = s.Balance(t.Context(), "classic", replicas.Match{}); err != nil || leads() != "map[a:4 b:3 c:3]" {
		t.Errorf("moved %d, %v, %s", moved, err, leads())
	}
	if _, moved, err = s.Balance(t.Context(), "all", replicas.Match{}); err != nil || moved != 0 {
		t.Errorf("moved %d, %v, %s", moved, err, leads())
	}
}

// TestBalanceThroughANodeThatLags: a node with an old copy of the catalog evens out the queues that there are.
func TestBalanceThroughANodeThatLags(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	old := r.cat.View()
	for i := range 3 {
		r.declare(fmt.Sprint("q", i), "a", "b", "c")
	}
	s := &Steward{cfg: Config{Catalog: &behind{r.cat, old}, Alive: func(catalog.NodeID) bool { return true }}}
	if shares, moved, err := s.Balance(t.Context(), "all", replicas.Match{}); err != nil || moved != 2 || fmt.Sprint(shares) != "[{a 1} {b 1} {c 1}]" {
		t.Errorf("%v, moved %d, %v", shares, moved, err)
	}
}

// TestTwoLeaveAtOnce: of the last two that stay, told to leave through two nodes at the same time, one stays.
func TestTwoLeaveAtOnce(t *testing.T) {
	r := newRig(t, "a", "b")
	r.declare("q", "a", "b")
	s := r.steward(repair.Policy{}, r.cat)
	other := r.steward(repair.Policy{}, &meanwhile{r.cat, func() {
		if err := s.Leave(t.Context(), "a", true); err != nil {
			t.Error(err)
		}
	}})
	if got := reason(other.Leave(t.Context(), "b", true)); got != replicas.Refused {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]string{"a": "leaving", "b": "regular"} {
		if p, err := s.Progress(name); err != nil || p.State != want {
			t.Errorf("%s is %s, %v", name, p.State, err)
		}
	}
}

// meanwhile is a catalog in which something happens before a proposal.
type meanwhile struct {
	Catalog
	do func()
}

func (m *meanwhile) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	m.do()
	return m.Catalog.Propose(ctx, cmd)
}

// behind is the catalog of a node that lags behind the others until it asks their leader.
type behind struct {
	Catalog
	old *catalog.View // nil: it has asked
}

func (b *behind) View() *catalog.View {
	if b.old != nil {
		return b.old
	}
	return b.Catalog.View()
}

func (b *behind) ReadIndex(ctx context.Context) error {
	b.old = nil
	return b.Catalog.ReadIndex(ctx)
}

// TestLeavingThroughANodeThatLags: whoever takes back through a node with an old copy of the catalog that a node leaves, has taken it back, and a node that
// stays after all is not dismissed.
func TestLeavingThroughANodeThatLags(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	s := r.steward(repair.Policy{}, r.cat)
	through := func(old *catalog.View) *Steward { return &Steward{cfg: Config{Catalog: &behind{r.cat, old}}} }
	regular := r.cat.View()
	if err := s.Leave(t.Context(), "c", true); err != nil {
		t.Fatal(err)
	}
	leaving := r.cat.View()
	if err := through(regular).Leave(t.Context(), "c", false); err != nil {
		t.Error(err)
	}
	if p, err := s.Progress("c"); err != nil || p.State != "regular" {
		t.Errorf("%+v, %v", p, err)
	}
	if got := reason(through(leaving).Dismiss(t.Context(), "c")); got != replicas.Refused {
		t.Errorf("%q", got)
	}
}
