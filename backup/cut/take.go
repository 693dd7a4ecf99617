package cut

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/backup"
)

// Bounds of a cut.
const (
	// HoldDefault is how long dead letters may stand still for one attempt unless the caller says otherwise.
	HoldDefault = 10 * time.Second
	// patience is how long attempts go on, confirmWait how long leaders may take to prove themselves.
	patience    = 30 * time.Second
	confirmWait = 5 * time.Second
	attemptsMin = 3
	pauseMin    = 200 * time.Millisecond
	// leaderWait is how long the gates wait for the leaders of queues that are new, with a look each lookPause.
	leaderWait = time.Second
	lookPause  = 20 * time.Millisecond
	dropWait   = 2 * time.Second
	touchEvery = keptFor / 4
	// levelNeeded is the level of the cluster from which every node answers Method.
	levelNeeded = 2
)

// Catalog is the catalog at one moment.
type Catalog struct {
	ClusterID string
	Level     int
	Revision  uint64
	// Queues are the replicated ones, by id, with id, virtual host and name.
	Queues []backup.Queue
	// Members are the nodes that have a replica of one of Queues, or are getting one.
	Members func(queue uint64) []string
	// GoesOn tells whether one of Queues is the queue that had this id before it was recovered.
	GoesOn func(queue uint64) bool
	// Write writes it as a snapshot.
	Write func(io.Writer) error
}

// Cluster is what a cut is taken of. All fields but Hold are required.
type Cluster struct {
	// Nodes are the ids of the nodes that are not known to be dead, this one included.
	Nodes func() []string
	// Call asks a node, this one too: its [Node.Answer] answers.
	Call func(ctx context.Context, node string, req []byte) ([]byte, error)
	// Catalog reads the catalog up to date.
	Catalog func(ctx context.Context) (Catalog, error)
	// Hold is how long dead letters may stand still for one attempt; 0: HoldDefault.
	Hold    time.Duration
	Program string
	Logger  *slog.Logger
}

// Errors that callers decide by.
var (
	// ErrLevel tells that the cluster has nodes which may not know of backups yet.
	ErrLevel = errors.New("the cluster is not at the level that has backups")
	// ErrUnavailable tells that no consistent cut could be taken.
	ErrUnavailable = errors.New("no consistent backup can be taken now")
)

// Cut is a consistent cut of a cluster, kept by its nodes until Close. It belongs to one goroutine.
type Cut struct {
	Header backup.Header

	c       *Cluster
	id      string
	nodes   []string
	catalog []byte
	touch   context.CancelFunc
	touched sync.WaitGroup
}

// Take takes a cut. It fails with ErrUnavailable when that was in vain again and again.
func Take(ctx context.Context, c Cluster) (*Cut, error) {
	if c.Hold == 0 {
		c.Hold = HoldDefault
	}
	made, began := time.Now(), time.Now()
	for attempt := 1; ; attempt++ {
		t := &taking{c: &c, id: newUUID(), whole: attempt%2 == 0, opened: map[uint64]Opened{}, failed: map[uint64]string{}}
		t.header = backup.Header{ID: t.id, Made: made.UTC(), Program: c.Program}
		err := t.take(ctx)
		if err == nil {
			c.Logger.Info("a cut for a backup is taken", "backup", t.id, "queues", len(t.header.Queues), "bytes", t.header.Bytes(),
				"standstill_ms", t.header.StandstillMillis, "attempt", attempt)
			return t.cut(), nil
		}
		t.drop()
		switch {
		case ctx.Err() != nil:
			return nil, errors.Join(err, ctx.Err())
		case errors.Is(err, ErrLevel):
			return nil, err
		case strings.Contains(err.Error(), errBusy.Error()): // it may be another node's words
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		c.Logger.Warn("a cut for a backup is void", "backup", t.id, "attempt", attempt, "err", err)
		if attempt >= attemptsMin && time.Since(began) > patience {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		// Dead letters move at least as long as they stood still.
		if err := pause(ctx, max(pauseMin, t.stood)); err != nil {
			return nil, err
		}
	}
}

// pause waits, unless ctx ends: it returns why.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// taking is one attempt.
type taking struct {
	c  *Cluster
	id string
	// whole: the states are confirmed and opened while the gates are closed, so that it does no harm if a queue is deleted meanwhile. Moves stand
	// still for longer.
	whole   bool
	header  backup.Header
	reached []string // nodes that have answered the last question to many
	nodes   []string // that were asked to hold
	stood   time.Duration
	catalog bytes.Buffer

	mu     sync.Mutex
	opened map[uint64]Opened
	failed map[uint64]string // queues that could not be captured or confirmed, and why
}

func (t *taking) cut() *Cut {
	ctx, cancel := context.WithCancel(context.Background())
	k := &Cut{Header: t.header, c: t.c, id: t.id, nodes: t.nodes, catalog: t.catalog.Bytes(), touch: cancel}
	k.touched.Go(func() { k.touchAll(ctx) })
	return k
}

// take goes through the steps of the package's comment.
func (t *taking) take(ctx context.Context) error {
	if err := t.awaitLeaders(ctx); err != nil {
		return err
	}
	began := time.Now()
	now, where, err := t.captured(ctx)
	t.stood = time.Since(began)
	if err != nil {
		return err
	}
	t.header.StandstillMillis = t.stood.Milliseconds()
	t.header.ClusterID, t.header.Level, t.header.Revision = now.ClusterID, now.Level, now.Revision
	if !t.whole {
		if err := t.confirm(ctx, now.Queues, where); err != nil {
			return err
		}
	}
	if err := t.fill(now.Queues, where); err != nil {
		return err
	}
	if err := now.Write(&t.catalog); err != nil {
		return fmt.Errorf("write the catalog: %w", err)
	}
	t.header.CatalogBytes = int64(t.catalog.Len())
	return nil
}

// awaitLeaders waits, while nothing is held, until every queue has a leader.
func (t *taking) awaitLeaders(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	var last error
	for {
		now, err := t.c.Catalog(ctx)
		if err != nil {
			return whyNot(last, fmt.Errorf("read the catalog: %w", err))
		}
		if now.Level < levelNeeded {
			return fmt.Errorf("%w: level %d, it needs %d", ErrLevel, now.Level, levelNeeded)
		}
		where, _, err := t.ask(ctx, t.c.Nodes(), request{Do: doLed})
		if err != nil {
			return whyNot(last, err)
		}
		if last = missing(now.Queues, where); last == nil {
			return nil
		}
		if err := pause(ctx, pauseMin); err != nil {
			return whyNot(last, err)
		}
	}
}

// whyNot is what was missing last, with the error of what came then, unless that only says that the time is over.
func whyNot(missing, err error) error {
	if missing != nil && errors.Is(err, context.DeadlineExceeded) {
		return missing
	}
	return errors.Join(missing, err)
}

// place is where a queue is led, in which term.
type place struct {
	node string
	term uint64
}

// missing names queues that nobody leads.
func missing(queues []backup.Queue, where map[uint64]place) error {
	var names []string
	for _, q := range queues {
		if _, ok := where[q.ID]; !ok {
			names = append(names, fmt.Sprintf("'%s' in vhost '%s'", q.Name, q.VHost))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%d queues have no leader: %s", len(names), some(names))
}

func some(names []string) string {
	const shown = 5
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// captured does the steps 1 to 4, and 5 if that is wanted before 4. Of what it returns, the catalog's queues are those that were captured and are
// there still.
func (t *taking) captured(ctx context.Context) (now Catalog, where map[uint64]place, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.c.Hold)
	defer cancel()
	known, where, err := t.held(ctx)
	if err != nil {
		return now, nil, err
	}
	work := byNode(known.Queues, where)
	if err := t.each(ctx, work, func(node string, queues []Queue) error {
		a, err := t.call(ctx, node, request{Do: doCapture, Queues: queues, Each: t.whole})
		t.note(a)
		return err
	}); err != nil {
		return now, nil, err
	}
	if t.whole {
		if err := t.confirm(ctx, known.Queues, where); err != nil {
			return now, nil, err
		}
	}
	if now, err = t.c.Catalog(ctx); err != nil {
		return now, nil, fmt.Errorf("read the catalog: %w", err)
	}
	var gone []backup.Queue
	if now.Queues, gone, err = remain(known.Queues, now); err != nil {
		return now, nil, err
	}
	unbroken, err := t.release(ctx, work)
	if err != nil {
		return now, nil, err
	}
	alive := t.c.Nodes()
	for _, q := range gone {
		// Another node may have got a replica, and led it, since the catalog was read.
		for _, n := range append(known.Members(q.ID), alive...) {
			if !unbroken[n] {
				return now, nil, fmt.Errorf("'%s' in vhost '%s' is gone, and node %s may have moved what it had", q.Name, q.VHost, n)
			}
		}
	}
	return now, where, nil
}

// held has all nodes hold their moves, and returns the queues then and where each is led, in a term that began before that.
func (t *taking) held(ctx context.Context) (known Catalog, where map[uint64]place, err error) {
	if where, err = t.hold(ctx); err != nil {
		return known, nil, err
	}
	for began := time.Now(); ; {
		if known, err = t.c.Catalog(ctx); err != nil {
			return known, nil, fmt.Errorf("read the catalog: %w", err)
		}
		if err = missing(known.Queues, where); err == nil || time.Since(began) > leaderWait {
			return known, where, err
		}
		if err := pause(ctx, lookPause); err != nil {
			return known, nil, err
		}
		if where, _, err = t.ask(ctx, t.reached, request{Do: doLed}); err != nil {
			return known, nil, err
		}
	}
}

// byNode returns the queues that each node leads.
func byNode(queues []backup.Queue, where map[uint64]place) map[string][]Queue {
	work := map[string][]Queue{}
	for _, q := range queues {
		work[where[q.ID].node] = append(work[where[q.ID].node], Queue{q.ID, where[q.ID].term})
	}
	return work
}

// remain returns those of known that are in the catalog now, and the others. One that is newer is not in the backup: it has taken nothing that moved.
// But one that was recovered goes on from a replica that was not captured.
func remain(known []backup.Queue, now Catalog) (both, gone []backup.Queue, err error) {
	ids := map[uint64]bool{}
	for _, q := range now.Queues {
		ids[q.ID] = true
	}
	for _, q := range known {
		switch {
		case ids[q.ID]:
			both = append(both, q)
		case now.GoesOn(q.ID):
			return nil, nil, fmt.Errorf("'%s' in vhost '%s' is another queue than a moment ago", q.Name, q.VHost)
		default:
			gone = append(gone, q)
		}
	}
	return both, gone, nil
}

// release opens all gates, and tells which were closed all the time. It is an error if one was not whose node has work.
func (t *taking) release(ctx context.Context, work map[string][]Queue) (unbroken map[string]bool, err error) {
	all := map[string][]Queue{}
	for _, n := range t.nodes {
		all[n] = nil
	}
	var mu sync.Mutex
	unbroken = map[string]bool{}
	err = t.each(ctx, all, func(node string, _ []Queue) error {
		ctx, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		a, err := t.call(ctx, node, request{Do: doRelease})
		mu.Lock()
		unbroken[node] = err == nil && a.Unbroken
		mu.Unlock()
		switch {
		case len(work[node]) == 0:
			return nil // whatever it did, it has led nothing of this
		case err == nil && !a.Unbroken:
			err = fmt.Errorf("node %s: %w", node, errNotHeld)
		}
		return err
	})
	return unbroken, err
}

// note notes what an answer says of single queues.
func (t *taking) note(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range a.Opened {
		t.opened[o.ID] = o
	}
	for _, f := range a.Failed {
		t.failed[f.ID] = f.Why
	}
}

// confirm is step 5.
func (t *taking) confirm(ctx context.Context, queues []backup.Queue, where map[uint64]place) error {
	limit := confirmWait
	if t.whole {
		limit = min(limit, t.c.Hold/2)
	}
	ctx, cancel := context.WithTimeout(ctx, t.c.Hold+confirmWait)
	defer cancel()
	captured := slices.DeleteFunc(slices.Clone(queues), func(q backup.Queue) bool { return t.failed[q.ID] != "" })
	return t.each(ctx, byNode(captured, where), func(node string, queues []Queue) error {
		a, err := t.call(ctx, node, request{Do: doConfirm, LimitMS: limit.Milliseconds(), Queues: queues, Each: t.whole})
		t.note(a)
		return err
	})
}

// fill puts the queues into the header.
func (t *taking) fill(queues []backup.Queue, where map[uint64]place) error {
	for _, q := range queues {
		o, ok := t.opened[q.ID]
		switch why := t.failed[q.ID]; {
		case why != "":
			return fmt.Errorf("node %s: %s", where[q.ID].node, why)
		case !ok:
			return fmt.Errorf("node %s says nothing of queue %d", where[q.ID].node, q.ID)
		}
		q.Index, q.Term, q.Bytes, q.Node = o.Index, o.Term, o.Bytes, where[q.ID].node
		t.header.Queues = append(t.header.Queues, q)
	}
	return nil
}
