package catalog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/transport"
)

// ErrLevel reports a command that the cluster's level does not have yet.
var ErrLevel = errors.New("not at this level of the cluster")

// ActivateLevel takes the cluster to a level; one that it has passed already is kept. Only the catalog's leader
// proposes it, when every node has said that no older program opens its folder any more.
type ActivateLevel struct{ Level int }

func (*ActivateLevel) kind() commandKind { return kindActivateLevel }

func (c *ActivateLevel) fields(f *fields) {
	n := uint64(c.Level)
	f.u64(&n)
	if f.reading {
		if n > levelMax {
			f.fail("level %d", n)
		}
		c.Level = int(n)
	}
}

// levelMax bounds what can be a level.
const levelMax = 1 << 15

func (c *ActivateLevel) validate() error {
	if c.Level <= level.First || c.Level > level.Now {
		return refused("level %d, this program knows level %d", c.Level, level.Now)
	}
	return nil
}

func (c *ActivateLevel) apply(tx *txn) (Result, *amqp.Error) {
	if c.Level <= tx.Level() {
		return Result{}, nil
	}
	tx.level = c.Level
	return Result{Changed: true}, nil
}

// gate reports why a command cannot be proposed at a level of the cluster.
func gate(cmd Command, at int) error {
	level.Must(levelOf(cmd))
	switch need := levelOf(cmd); {
	case cmd.kind() == kindActivateLevel:
		return refused("a level is activated by the catalog's leader")
	case need > at:
		return fmt.Errorf("%w: the cluster is at level %d (%s), this needs level %d (%s)", ErrLevel, at, level.Name(at), need, level.Name(need))
	}
	return nil
}

// levels is what the leader does about the cluster's level. The latch is held while nodes stamp their folders and while one is admitted,
// so that nobody gets in between.
type levels struct {
	latch
	// fresh: the cluster was founded in this process's life, and no older program has been seen.
	fresh bool
	// since is from when on all nodes have known the next level; zero: they do not.
	since time.Time
	// founding is when this replica first looked which level a cluster can be founded at.
	founding time.Time
	// stamped is the newest level that nodes were asked to stamp their folders for, to be activated then.
	stamped int
}

// tendLevel activates the next level when it is due.
func (c *Catalog) tendLevel(ctx context.Context) error {
	next := c.View().Level() + 1
	if next > c.ownLevel() {
		return nil
	}
	l := &c.levels
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	servers, err := c.everyServer()
	if err != nil {
		return err
	}
	if short := c.shortOf(servers, next); len(short) > 0 {
		l.since = time.Time{}
		l.fresh = l.fresh && !slices.ContainsFunc(servers, func(id NodeID) bool { return c.cfg.Mesh.Peer(id).Level == next-1 })
		return nil
	}
	if l.since.IsZero() {
		l.since = time.Now()
		c.log.Info("all nodes know the next level", "level", next, "name", level.Name(next), "settle", c.cfg.Settle, "fresh", l.fresh)
	}
	if !l.fresh && (c.cfg.Settle < 0 || time.Since(l.since) < c.cfg.Settle) {
		return nil
	}
	return c.activate(ctx, next)
}

// foundingPatience is how long the foundation waits for founding members that have not been heard of, and for their stamps.
const foundingPatience = 5 * time.Second

var errFounderAway = errors.New("a founding member has not been heard of yet")

// firstLevel takes a cluster to the newest level that all founding members know before it is founded, since no node serves before that: the first
// client is to find all that it is told of. An error says that it is worth another try; a member that is dead, or that stays away, is not waited for.
func (c *Catalog) firstLevel(ctx context.Context) error {
	l := &c.levels
	if l.founding.IsZero() {
		l.founding = time.Now()
	}
	for l.fresh && time.Since(l.founding) < foundingPatience {
		at := c.View().Level()
		if at == c.ownLevel() {
			return nil
		}
		if err := c.tendLevel(ctx); err != nil {
			return err
		}
		if c.View().Level() > at {
			continue
		}
		servers, err := c.everyServer()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(servers, func(id NodeID) bool { return !c.cfg.Mesh.Peer(id).Up && !c.isDead(id) }) {
			return nil
		}
		return errFounderAway
	}
	return nil
}

// ownLevel is the newest level that this program knows.
func (c *Catalog) ownLevel() int { return c.cfg.Mesh.Peer(c.cfg.Local).Level }

// everyServer lists the nodes that have to know a level: those of the group, and those of the catalog that were not
// replaced.
func (c *Catalog) everyServer() (all []NodeID, err error) {
	future := c.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	view := c.View()
	for _, s := range future.Configuration().Servers {
		if n := view.Node(NodeID(s.ID)); n == nil || !n.Superseded {
			all = append(all, NodeID(s.ID))
		}
	}
	for n := range view.Nodes() {
		if !n.Superseded && !slices.Contains(all, n.ID) {
			all = append(all, n.ID)
		}
	}
	return all, nil
}

// shortOf says of each node that does not have level n why.
func (c *Catalog) shortOf(servers []NodeID, n int) (why []string) {
	for _, id := range servers {
		switch p := c.cfg.Mesh.Peer(id); {
		case !p.Up:
			why = append(why, fmt.Sprintf("node '%s' is not there", nameOf(id)))
		case p.Level < n:
			why = append(why, fmt.Sprintf("the program of node '%s' knows level %d", nameOf(id), p.Level))
		}
	}
	return why
}

// activate has all nodes stamp their folders and then takes the cluster to level n, as the leader, with levels held.
func (c *Catalog) activate(ctx context.Context, n int) error {
	term := c.raft.CurrentTerm()
	servers, err := c.everyServer()
	if err != nil {
		return err
	}
	if short := c.shortOf(servers, n); len(short) > 0 {
		return refused("level %d (%s): %s", n, level.Name(n), strings.Join(short, ", "))
	}
	c.levels.stamped = max(c.levels.stamped, n)
	if err := c.stampAll(ctx, servers, n); err != nil {
		return err
	}
	// Whoever is a member since then was not asked.
	now, err := c.everyServer()
	more := slices.ContainsFunc(now, func(id NodeID) bool { return !slices.Contains(servers, id) })
	if err != nil || more || c.raft.State() != raft.Leader || c.raft.CurrentTerm() != term {
		return errors.Join(errNotLeader, err)
	}
	var id requestID
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	if err := c.applyHere(ctx, encodeEntry(id, &ActivateLevel{n})); err != nil {
		return err
	}
	c.log.Info("the cluster has a new level", "level", n, "name", level.Name(n), "nodes", len(servers))
	return nil
}

// stampAll asks all nodes at once.
func (c *Catalog) stampAll(ctx context.Context, servers []NodeID, n int) error {
	errs := make(chan error, len(servers))
	for _, id := range servers {
		if !c.spawn(func() { errs <- c.stampAt(ctx, id, n) }) {
			return ErrClosed
		}
	}
	var all []error
	for range servers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// stampAt has a node stamp its folder.
func (c *Catalog) stampAt(ctx context.Context, id NodeID, n int) error {
	if id == c.cfg.Local {
		return c.cfg.Stamp(n)
	}
	if _, err := c.callLevel(ctx, id, levelRequest{Do: levelStamp, Level: uint64(n)}); err != nil {
		return fmt.Errorf("node %s does not stamp its folder for level %d: %w", id, n, err)
	}
	return nil
}

// stampJoining lets nobody in whose folder an older program could open. levels is held.
func (c *Catalog) stampJoining(ctx context.Context, id NodeID) error {
	need := max(c.View().Level(), c.levels.stamped)
	if need == level.First {
		return nil
	}
	if p := c.cfg.Mesh.Peer(id); p.Up && p.Level < need {
		return &transport.RemoteError{Code: codeBadCommand, Text: fmt.Sprintf("the cluster is at level %d, the program of node %s knows level %d", need, id, p.Level)}
	}
	return c.stampAt(ctx, id, need)
}

// RaiseLevel takes the cluster to level n now, asked for at any node, if all nodes know it. An [*amqp.Error] says which do not.
func (c *Catalog) RaiseLevel(ctx context.Context, n int) error {
	if n > level.Now {
		return refused("level %d, this program knows level %d", n, level.Now)
	}
	var refusal string
	err := c.askLeader(ctx, func(ctx context.Context, leader NodeID) (err error) {
		if leader == c.cfg.Local {
			refusal, err = c.raiseHere(ctx, n)
			return err
		}
		refusal, err = c.callLevel(ctx, leader, levelRequest{Do: levelRaise, Level: uint64(n)})
		return err
	})
	if err == nil && refusal != "" {
		return refused("%s", refusal)
	}
	return err
}

// raiseHere is RaiseLevel at the leader.
func (c *Catalog) raiseHere(ctx context.Context, n int) (refusal string, err error) {
	if err := c.readyForTerm(ctx); err != nil {
		return "", err
	}
	if err := c.levels.lock(ctx); err != nil {
		return "", err
	}
	defer c.levels.unlock()
	for next := c.View().Level() + 1; next <= n; next++ {
		err := c.activate(ctx, next)
		if e, ok := errors.AsType[*amqp.Error](err); ok {
			return e.Text, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// levelRequest is what nodes ask each other about levels.
type levelRequest struct {
	Do    levelDo
	Level uint64
}

type levelDo uint8

const (
	levelStamp levelDo = 1 // stamp your folder; the answer is empty
	levelRaise levelDo = 2 // take the cluster to the level now; the answer is empty or why not
)

func (r *levelRequest) fields(f *fields) {
	f.version(1)
	enum(f, &r.Do, levelRaise)
	f.u64(&r.Level)
}

func (c *Catalog) callLevel(ctx context.Context, id NodeID, r levelRequest) (string, error) {
	var f fields
	r.fields(&f)
	b, err := c.cfg.Mesh.Call(ctx, id, MethodLevel, f.buf)
	return string(b), err
}

func (c *Catalog) handleLevel(ctx context.Context, _ NodeID, req []byte) ([]byte, error) {
	var r levelRequest
	f := fields{buf: req, reading: true}
	r.fields(&f)
	if err := f.end(); err != nil {
		return nil, err
	}
	if r.Level > uint64(c.ownLevel()) {
		return nil, &transport.RemoteError{Code: codeBadCommand, Text: fmt.Sprintf("level %d, this program knows level %d", r.Level, c.ownLevel())}
	}
	if r.Do == levelStamp {
		return nil, c.cfg.Stamp(int(r.Level))
	}
	if !c.Leading() {
		return nil, errNotLeader
	}
	refusal, err := c.raiseHere(ctx, int(r.Level))
	return []byte(refusal), err
}
