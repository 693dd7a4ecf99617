package recovery

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/cluster/bootstrap"
)

// NodeID names one incarnation of a node's storage.
type NodeID = bootstrap.NodeID

// Survey is what a node tells of its own copy of the catalog, and of whom it hears.
type Survey struct {
	Node NodeID `json:"node"`
	// Cluster is the id of the cluster that it belongs to.
	Cluster string `json:"cluster"`
	// Term and Index are those of the newest entry that it has, committed or not.
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
	// Leader is whom it knows to lead the catalog, "" if nobody.
	Leader NodeID `json:"leader,omitempty"`
	// Voters are those of its newest configuration, Nodes those of its catalog that were not replaced.
	Voters []NodeID `json:"voters"`
	Nodes  []NodeID `json:"nodes"`
	// Replaced are nodes of its catalog in whose place others are.
	Replaced []NodeID `json:"replaced,omitempty"`
	// Met are the nodes of its cluster that gossip hears of, Linked those that it is linked to.
	Met    []NodeID `json:"met"`
	Linked []NodeID `json:"linked"`
	// Queues are those of its catalog.
	Queues Queues `json:"queues"`
}

// Queues counts the replicated queues of a catalog.
type Queues struct {
	All int `json:"all"`
	// Minority have lost most of their replicas with the lost nodes, but not all; Gone have lost all.
	Minority int `json:"minority"`
	Gone     int `json:"gone"`
}

// newerThan tells whether its log is newer, as in an election.
func (s *Survey) newerThan(o *Survey) bool {
	return cmp.Or(cmp.Compare(s.Term, o.Term), cmp.Compare(s.Index, o.Index)) > 0
}

// Peers is how the node that conducts a recovery speaks with those that go on, itself included.
type Peers interface {
	Self() NodeID
	// Survey asks a node. lost are names or ids of nodes, for its count of queues.
	Survey(ctx context.Context, n NodeID, lost []string) (*Survey, error)
	// Promise binds a node to a succession and ends its part in the present catalog. What it tells is final then.
	Promise(ctx context.Context, n NodeID, s *bootstrap.Succession) (*Survey, error)
	// Prepare has a node make what it goes on from, out of the copy of keep, whose newest entry is given. All return the same sum.
	Prepare(ctx context.Context, n NodeID, id string, keep *Survey) (sum string, err error)
	// Found takes a node into the next life; this node's word is the decision.
	Found(ctx context.Context, n NodeID, id string) error
	// Abandon gives a succession up.
	Abandon(ctx context.Context, n NodeID, id string) error
}

// ClusterRequest is what an operator asks for.
type ClusterRequest struct {
	// Lost are the names of the nodes that are gone for good, or the ids of their storages.
	Lost []string `json:"lost"`
	// Yes: it is done. Otherwise it is said what would be done.
	Yes bool `json:"yes,omitempty"`
}

// Survivor is a node that goes on.
type Survivor struct {
	Node  NodeID `json:"node"`
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
	Voter bool   `json:"voter"`
}

// ClusterReport is what a request led to.
type ClusterReport struct {
	Cluster string `json:"cluster"`
	// Next is the id of the cluster's next life, "" if nothing was done.
	Next string `json:"next,omitempty"`
	// Keep is whose copy of the catalog it goes on from.
	Keep      NodeID     `json:"keep"`
	Survivors []Survivor `json:"survivors"`
	Lost      []NodeID   `json:"lost"`
	Queues    Queues     `json:"queues"`
}

// Times of a recovery.
const (
	surveyWait  = 5 * time.Second
	promiseWait = 15 * time.Second
	prepareWait = 5 * time.Minute
	foundWait   = 5 * time.Second
)

// candidate is the plan of a succession.
type candidate struct {
	surveys []*Survey // of those that go on, sorted
	lost    []NodeID  // sorted
	// fresh are those of lost that run, in the place of what was lost, and have nothing yet: their folders were empty, and nobody could let them in.
	fresh []NodeID
	keep  *Survey
}

// ErrUndecided reports that this node could not write whether it has founded the next life: it has to be started again.
var ErrUndecided = errors.New("whether the cluster goes on in its next life is not known before this node is started again")

// RecoverCluster finds out whether a cluster whose catalog has lost its majority can go on without the lost nodes, and has it go on if the request says
// so. An *Error is a request that cannot be met as it is.
func RecoverCluster(ctx context.Context, p Peers, r *ClusterRequest) (*ClusterReport, error) {
	c, err := survey(ctx, p, r.Lost)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, err
	}
	report := c.report()
	if !r.Yes {
		return report, nil
	}
	s := &bootstrap.Succession{ID: newUUID(), Former: c.keep.Cluster, By: p.Self(), Lost: c.lost}
	for _, v := range c.surveys {
		s.Members = append(s.Members, v.Node)
	}
	promised, err := c.promise(ctx, p, s)
	if err == nil {
		err = c.prepare(ctx, p, s)
	}
	if err != nil {
		return nil, errors.Join(err, abandon(ctx, p, s, promised))
	}
	if err := p.Found(ctx, p.Self(), s.ID); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	report = c.report()
	report.Next = s.ID
	for _, n := range s.Members {
		if n != p.Self() {
			call, cancel := context.WithTimeout(ctx, foundWait)
			_ = p.Found(call, n, s.ID) // it finds out by itself: see bootstrap.Identity.Consider
			cancel()
		}
	}
	return report, nil
}

// survey asks every node that is not named as lost, those that only others know too.
func survey(ctx context.Context, p Peers, names []string) (*candidate, error) {
	if len(names) == 0 {
		return nil, refuse("the nodes that are lost are to be named")
	}
	known, named := map[NodeID]*Survey{}, map[string]bool{}
	replaced := map[NodeID]bool{}
	c := &candidate{}
	for todo := []NodeID{p.Self()}; len(todo) > 0; {
		n := todo[0]
		todo = todo[1:]
		if _, seen := known[n]; seen {
			continue
		}
		known[n] = nil
		if name := namedAs(n, names); name != "" {
			named[name] = true
			c.lost = append(c.lost, n)
			continue
		}
		call, cancel := context.WithTimeout(ctx, surveyWait)
		s, err := p.Survey(call, n, names)
		cancel()
		if err != nil {
			return nil, refuse("no answer from node '%s', which may have the newest copy of the catalog: bring it back, or stop it and name it as lost (%v)", n, err)
		}
		known[n] = s
		for _, gone := range s.Replaced {
			replaced[gone] = true
		}
		todo = append(append(todo, s.Nodes...), s.Met...)
	}
	if namedAs(p.Self(), names) != "" {
		return nil, refuse("this node is named as lost: ask one that goes on")
	}
	for _, s := range known {
		if s != nil && !replaced[s.Node] {
			c.surveys = append(c.surveys, s)
		}
	}
	c.lost = slices.DeleteFunc(c.lost, func(n NodeID) bool { return replaced[n] })
	for _, name := range names {
		if !named[name] {
			return nil, refuse("no node of the cluster is called '%s'", name)
		}
	}
	if len(c.lost) == 0 {
		return nil, refuse("other nodes are in the place of those that are named as lost")
	}
	c.findFresh(ctx, p, names)
	slices.Sort(c.lost)
	slices.SortFunc(c.surveys, func(a, b *Survey) int { return cmp.Compare(a.Node, b.Node) })
	return c, nil
}

// findFresh asks those that are named as lost, run, and are in nobody's catalog.
func (c *candidate) findFresh(ctx context.Context, p Peers, names []string) {
	for _, n := range c.lost {
		linked, known := false, false
		for _, s := range c.surveys {
			linked = linked || slices.Contains(s.Linked, n)
			known = known || slices.Contains(s.Nodes, n) || slices.Contains(s.Voters, n)
		}
		if !linked || known {
			continue
		}
		call, cancel := context.WithTimeout(ctx, surveyWait)
		s, err := p.Survey(call, n, names)
		cancel()
		if err == nil && s.Term == 0 && s.Index == 0 && len(s.Voters)+len(s.Nodes) == 0 {
			c.fresh = append(c.fresh, n)
		}
	}
}

// namedAs returns the name that means a node, "" if none does.
func namedAs(n NodeID, names []string) string {
	name, _, _ := strings.Cut(string(n), "/")
	for _, s := range names {
		if s == name || s == string(n) {
			return s
		}
	}
	return ""
}

// check reports why the cluster must not go on as planned, and chooses whose copy it goes on from.
func (c *candidate) check() error {
	by := map[NodeID]*Survey{}
	for _, s := range c.surveys {
		by[s.Node] = s
		if c.keep == nil || s.newerThan(c.keep) {
			c.keep = s
		}
	}
	for _, s := range c.surveys {
		if s.Cluster != c.keep.Cluster {
			return refuse("node '%s' belongs to cluster %s, node '%s' to %s: a recovery is under way, see the nodes' logs", s.Node, s.Cluster, c.keep.Node, c.keep.Cluster)
		}
		for _, n := range s.Linked {
			if slices.Contains(c.lost, n) && !slices.Contains(c.fresh, n) {
				return refuse("node '%s' is named as lost, and node '%s' is linked to it: stop it first", n, s.Node)
			}
		}
		// Who follows a leader that is lost, or is none any more, does not know that yet.
		if leader := by[s.Leader]; leader != nil && leader.Leader == leader.Node {
			return refuse("the catalog has a leader, node '%s': nothing is to be recovered", leader.Node)
		}
		for _, n := range append(slices.Clone(s.Nodes), s.Met...) {
			if by[n] == nil && !slices.Contains(c.lost, n) && !c.replaced(n) {
				return refuse("node '%s' knows of node '%s', which was not asked: try again", s.Node, n)
			}
		}
	}
	there := 0
	for _, n := range c.keep.Voters {
		if by[n] != nil {
			there++
		}
	}
	if there > len(c.keep.Voters)/2 {
		return refuse("%d of the catalog's %d voters are there, which is a majority: they elect a leader by themselves", there, len(c.keep.Voters))
	}
	return nil
}

func (c *candidate) replaced(n NodeID) bool {
	return slices.ContainsFunc(c.surveys, func(s *Survey) bool { return slices.Contains(s.Replaced, n) })
}

func (c *candidate) report() *ClusterReport {
	r := &ClusterReport{Cluster: c.keep.Cluster, Keep: c.keep.Node, Lost: c.lost, Queues: c.keep.Queues}
	for _, s := range c.surveys {
		r.Survivors = append(r.Survivors, Survivor{s.Node, s.Term, s.Index, slices.Contains(c.keep.Voters, s.Node)})
	}
	return r
}

// promise gathers everybody's promise, this node's own first, and looks again at what they have then. It returns who may have promised.
func (c *candidate) promise(ctx context.Context, p Peers, s *bootstrap.Succession) (asked []NodeID, err error) {
	order := append([]NodeID{s.By}, slices.DeleteFunc(slices.Clone(s.Members), func(n NodeID) bool { return n == s.By })...)
	final := make([]*Survey, 0, len(order))
	for _, n := range order {
		asked = append(asked, n)
		call, cancel := context.WithTimeout(ctx, promiseWait)
		v, err := p.Promise(call, n, s)
		cancel()
		if err != nil {
			return asked, refuse("node '%s' does not promise itself to the next life: %v", n, err)
		}
		final = append(final, v)
	}
	slices.SortFunc(final, func(a, b *Survey) int { return cmp.Compare(a.Node, b.Node) })
	c.surveys, c.keep = final, nil
	return asked, c.check()
}

// prepare has everybody make what the next life begins with, the one with the newest copy first.
func (c *candidate) prepare(ctx context.Context, p Peers, s *bootstrap.Succession) error {
	order := append([]NodeID{c.keep.Node}, slices.DeleteFunc(slices.Clone(s.Members), func(n NodeID) bool { return n == c.keep.Node })...)
	want := ""
	for _, n := range order {
		call, cancel := context.WithTimeout(ctx, prepareWait)
		sum, err := p.Prepare(call, n, s.ID, c.keep)
		cancel()
		if err == nil && want != "" && sum != want {
			err = fmt.Errorf("it has made something else (%s) than node '%s' (%s)", sum, c.keep.Node, want)
		}
		if err != nil {
			return refuse("node '%s' cannot make its copy of the catalog: %v", n, err)
		}
		want = sum
	}
	return nil
}

// abandon takes the promises back. This node's own goes first: from then on nobody founds it.
func abandon(ctx context.Context, p Peers, s *bootstrap.Succession, asked []NodeID) error {
	ctx = context.WithoutCancel(ctx)
	for i, n := range asked {
		call, cancel := context.WithTimeout(ctx, foundWait)
		err := p.Abandon(call, n, s.ID)
		cancel()
		if i == 0 && err != nil {
			return fmt.Errorf("the promises stay until this node is started again: %w", err)
		}
	}
	return nil
}

// newUUID returns a random (version 4) uuid.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
