package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Peer is a node heard of in the lobby: a hint whom to ask.
type Peer struct {
	Node NodeID
	Addr string // of its mesh
}

// Config describes a first start.
type Config struct {
	// Identity is this node's; required.
	Identity *Identity
	// Expect is how many nodes found a cluster together: 1 founds alone at once, 0 never
	// founds and waits for a cluster to join. All founding nodes need the same number.
	Expect int
	// Peers returns the nodes heard of lately; required unless Expect is 1.
	Peers func() []Peer
	// Call asks the node at an address; required unless Expect is 1. It has the form of
	// transport.Mesh.CallAddr.
	Call func(ctx context.Context, addr string, method uint8, req []byte) ([]byte, error)
	// Logger may be nil.
	Logger *slog.Logger
	// Waiting is told why there is no cluster yet, in each round; it may be nil.
	Waiting func(why string)
	// Interval is the time between rounds; 150 ms.
	Interval time.Duration
}

const (
	callWait    = time.Second      // for one answer
	reportEvery = 10 * time.Second // between repetitions of why there is no cluster yet
)

// Run returns as soon as the node belongs to a cluster: at once if it did before, otherwise
// when one was found or founded. It ends with ctx's error or when the
// identity cannot be written.
func Run(ctx context.Context, cfg Config) (Membership, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Interval == 0 {
		cfg.Interval = 150 * time.Millisecond
	}
	if cfg.Expect < 0 || cfg.Expect > membersMax {
		return Membership{}, fmt.Errorf("expected number of nodes is %d, want 0 to %d", cfg.Expect, membersMax)
	}
	r := &runner{cfg: cfg, self: cfg.Identity.NodeID()}
	for {
		if m, ok := cfg.Identity.Membership(); ok {
			return m, nil
		}
		waiting, err := r.round(ctx)
		if err != nil {
			return Membership{}, err
		}
		if waiting == "" {
			continue
		}
		r.report(waiting)
		if cfg.Waiting != nil {
			cfg.Waiting(waiting)
		}
		t := time.NewTimer(cfg.Interval)
		select {
		case <-ctx.Done():
			t.Stop()
			return Membership{}, fmt.Errorf("no cluster yet (%s): %w", waiting, ctx.Err())
		case <-t.C:
		}
	}
}

// runner is one Run.
type runner struct {
	cfg      Config
	self     NodeID
	reported string
	at       time.Time
}

// report logs why the node still waits, when the reason is new and now and then.
func (r *runner) report(why string) {
	if why == r.reported && time.Since(r.at) < reportEvery {
		return
	}
	r.reported, r.at = why, time.Now()
	r.cfg.Logger.Info("waiting for a cluster", "because", why)
}

// answer is what one peer said.
type answer struct {
	peer   Peer
	status *status // nil if it did not answer as itself
}

// round asks everybody and does what can be done. waiting says why nothing could be; err
// means that the identity could not be written.
func (r *runner) round(ctx context.Context) (waiting string, err error) {
	if p, folder := r.cfg.Identity.restored(); p != nil {
		return r.roundRestored(ctx, p, folder)
	}
	if r.cfg.Expect == 1 {
		return "", r.foundAlone()
	}
	answers := r.askAll(ctx)
	if p, former, why := foundedAmong(answers); why != "" {
		return why, nil
	} else if p != nil {
		err := r.cfg.Identity.adopt(*p, former)
		if err == nil {
			r.cfg.Logger.Info("found a cluster", "cluster", p.ClusterID)
		}
		return "", ignoreRefused(err)
	}
	if r.cfg.Expect == 0 {
		return "no peer belongs to a cluster, and this node does not found one (expect 0)", nil
	}
	members, why := r.unanimous(answers)
	if why != "" {
		return why, nil
	}
	return r.propose(ctx, pledge{ClusterID: newUUID(), Members: members}, answers)
}

// ignoreRefused drops a refusal by the own identity: it means that another
// node's message came first, and the next look at the membership shows it.
func ignoreRefused(err error) error {
	if errors.Is(err, errRefused) {
		return nil
	}
	return err
}

func (r *runner) foundAlone() error {
	p := pledge{ClusterID: newUUID(), Members: []NodeID{r.self}}
	if err := r.cfg.Identity.promise(p, 1); err != nil {
		return fmt.Errorf("found a cluster of one: %w", err)
	}
	if err := r.cfg.Identity.found(p); err != nil {
		return fmt.Errorf("found a cluster of one: %w", err)
	}
	r.cfg.Logger.Info("founded a cluster of one", "cluster", p.ClusterID)
	return nil
}

// askAll asks every peer for its status at once.
func (r *runner) askAll(ctx context.Context) []answer {
	var answers []answer
	for _, p := range r.cfg.Peers() {
		if p.Node != r.self {
			answers = append(answers, answer{peer: p})
		}
	}
	r.each(answers, func(a *answer) {
		raw, err := r.call(ctx, a.peer, MethodStatus, nil)
		if err != nil {
			r.cfg.Logger.Debug("a peer does not tell its status", "peer", string(a.peer.Node), "addr", a.peer.Addr, "err", err)
			return
		}
		s, err := decodeStatus(raw)
		if err != nil || s.Node != a.peer.Node {
			r.cfg.Logger.Warn("a peer's status cannot be used", "peer", string(a.peer.Node), "addr", a.peer.Addr, "err", err)
			return
		}
		a.status = s
	})
	return answers
}

// each runs f for every answer at once and waits for all.
func (r *runner) each(answers []answer, f func(*answer)) {
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { f(&answers[i]) })
	}
	all.Wait()
}

func (r *runner) call(ctx context.Context, p Peer, method uint8, req []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	return r.cfg.Call(ctx, p.Addr, method, req)
}

// foundedAmong returns the cluster the answers name, nil if none does, and its former lives. Two different ones are
// a reason to wait: somebody has to say which is meant. A former life of the other one is not meant.
func foundedAmong(answers []answer) (p *pledge, former []string, why string) {
	for _, a := range answers {
		if a.status != nil {
			former = append(former, a.status.Former...)
		}
	}
	for _, a := range answers {
		if a.status == nil || a.status.Cluster == nil {
			continue
		}
		c := a.status.Cluster
		switch {
		case slices.Contains(former, c.ClusterID):
		case p == nil:
			p = c
		case p.ClusterID != c.ClusterID:
			return nil, nil, fmt.Sprintf("peers belong to different clusters, %s and %s: configure the addresses of one", p.ClusterID, c.ClusterID)
		case len(p.Members) == 0:
			p = c // a founding member knows more
		}
	}
	if p == nil {
		return nil, nil, ""
	}
	for _, a := range answers {
		if a.status != nil && a.status.Cluster != nil && a.status.Cluster.ClusterID == p.ClusterID && len(a.status.Former) > 0 {
			return p, a.status.Former, ""
		}
	}
	return p, nil, ""
}

// unanimous returns the members of a cluster that may be founded now, or why it may not:
// exactly the expected number is there, all answer, all expect the same.
func (r *runner) unanimous(answers []answer) (members []NodeID, why string) {
	members = []NodeID{r.self}
	for _, a := range answers {
		switch {
		case a.status == nil:
			return nil, fmt.Sprintf("node '%s' was heard of but does not answer at %s", a.peer.Node, a.peer.Addr)
		case a.status.Expect != r.cfg.Expect:
			return nil, fmt.Sprintf("node '%s' expects %d nodes, this one %d", a.peer.Node, a.status.Expect, r.cfg.Expect)
		}
		members = append(members, a.peer.Node)
	}
	slices.Sort(members)
	p := pledge{Members: members}
	names := p.names()
	slices.Sort(names)
	switch distinct := slices.Compact(slices.Clone(names)); {
	case len(distinct) < len(names):
		return nil, "two nodes with the same node id are there: " + strings.Join(names, ", ")
	case len(names) < r.cfg.Expect:
		return nil, fmt.Sprintf("%d of %d expected nodes are there: %s", len(names), r.cfg.Expect, strings.Join(names, ", "))
	case len(names) > r.cfg.Expect:
		return nil, fmt.Sprintf("%d nodes are there, %d are expected: %s", len(names), r.cfg.Expect, strings.Join(names, ", "))
	case names[0] != nameOf(r.self):
		return nil, fmt.Sprintf("node '%s' is to propose", names[0])
	}
	return members, ""
}

// propose gathers everybody's promise to a new cluster id and founds. The node itself
// promises first and founds first; if anything took its promise in between, nothing
// is founded.
func (r *runner) propose(ctx context.Context, p pledge, answers []answer) (waiting string, err error) {
	if err := r.cfg.Identity.promise(p, r.cfg.Expect); err != nil {
		if errors.Is(err, errRefused) {
			return err.Error(), nil
		}
		return "", err
	}
	raw, err := json.Marshal(request{messageVersion, r.self, p})
	if err != nil {
		return "", fmt.Errorf("encode a request: %w", err)
	}
	var mu sync.Mutex
	var refusals []string
	r.each(answers, func(a *answer) {
		if _, err := r.call(ctx, a.peer, MethodPromise, slices.Clone(raw)); err != nil {
			mu.Lock()
			defer mu.Unlock()
			refusals = append(refusals, fmt.Sprintf("node '%s' does not promise: %v", a.peer.Node, err))
		}
	})
	if len(refusals) > 0 {
		slices.Sort(refusals)
		return strings.Join(refusals, "; "), nil
	}
	if err := r.cfg.Identity.found(p); err != nil {
		if errors.Is(err, errRefused) {
			return err.Error(), nil
		}
		return "", err
	}
	r.cfg.Logger.Info("founded a cluster", "cluster", p.ClusterID, "nodes", len(p.Members), "restored", p.Copies != nil)
	r.each(answers, func(a *answer) {
		if _, err := r.call(ctx, a.peer, MethodFound, slices.Clone(raw)); err != nil {
			// It learns of it when it asks this node.
			r.cfg.Logger.Debug("a founding member was not told", "peer", string(a.peer.Node), "err", err)
		}
	})
	return "", nil
}
