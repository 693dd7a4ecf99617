package recovery

import (
	"context"
	"testing"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// copied is a cluster that is the catalog's machine alone. Every node answers, and what a queue's leaders and others do comes behind a proposal.
type copied struct {
	t      *testing.T
	copy   *catalog.Copy
	index  uint64
	before func() // once, before the next proposal
	behind func(catalog.Result)
}

func (c *copied) View() *catalog.View { return c.copy.View() }

func (c *copied) apply(cmd catalog.Command) (catalog.Result, error) {
	c.index++
	return c.copy.Apply(c.index, cmd)
}

func (c *copied) must(cmd catalog.Command) catalog.Result {
	c.t.Helper()
	res, err := c.apply(cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

func (c *copied) Propose(_ context.Context, cmd catalog.Command) (catalog.Result, error) {
	if before := c.before; before != nil {
		c.before = nil
		before()
	}
	res, err := c.apply(cmd)
	if err == nil && c.behind != nil {
		c.behind(res)
	}
	return res, err
}

func (*copied) Positions(_ context.Context, _ catalog.NodeID, ids []uint64) ([]Position, error) {
	all := make([]Position, len(ids))
	for i := range all {
		all[i] = Position{Known: true, LastTerm: 1, LastIndex: 7, Voter: true}
	}
	return all, nil
}

// TestWhatOthersDoMeanwhile recovers a queue that is deleted between the plan and the catalog's decision, one that had been deleted before and can end now, and one
// that another operator recovers at the same time: nothing of that is a failure.
func TestWhatOthersDoMeanwhile(t *testing.T) {
	for name, want := range map[string]State{"deleted before": Deleted, "deleted behind": Deleted, "recovered by another": Recovered} {
		c := &copied{t: t, copy: catalog.NewCopy()}
		c.must(&catalog.Found{ClusterID: "c", Admin: auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest")}})
		for _, n := range []catalog.NodeID{"a/1", "b/1", "c/1"} {
			c.must(&catalog.RegisterNode{ID: n})
		}
		id := c.must(&catalog.DeclareQueue{Queue: catalog.Queue{
			Vhost: "/", Name: "q", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{"a/1", "b/1", "c/1"}, Preferred: "a/1",
		}}).ID
		for _, n := range []catalog.NodeID{"b/1", "c/1"} {
			c.must(&catalog.NodeDown{ID: n, Incarnation: c.View().Node(n).Incarnation, AtMillis: 1})
		}
		begins := func(id uint64) {
			c.must(&catalog.QueueRecovered{ID: id, IfSettings: c.View().QueueByID(id).Settings, Kept: catalog.Kept{Messages: 5}})
		}
		ends := func(id uint64) {
			c.must(&catalog.DeleteQueue{Vhost: "/", Name: "q"})
			c.must(&catalog.QueueGone{ID: id})
		}
		switch name {
		case "deleted before":
			c.before = func() { ends(id) }
		case "deleted behind":
			c.must(&catalog.DeleteQueue{Vhost: "/", Name: "q"})
			c.behind = func(res catalog.Result) {
				begins(res.ID)
				c.must(&catalog.QueueGone{ID: res.ID})
			}
		case "recovered by another":
			c.before = func() {
				begins(c.must(&catalog.RecoverQueue{ID: id, Survivors: []catalog.NodeID{"a/1"}, Lost: []catalog.NodeID{"b/1", "c/1"}}).ID)
			}
		}
		report, err := Run(t.Context(), c, &Request{Lost: []string{"b", "c"}, Yes: true})
		if err != nil || len(report.Queues) != 1 || report.Queues[0].State != want || want == Recovered && report.Queues[0].Messages != 5 {
			t.Errorf("%s: %+v %v", name, report, err)
		}
	}
}
