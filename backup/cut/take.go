package cut

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
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
	dropWait    = 2 * time.Second
	touchEvery  = keptFor / 4
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
		t := &taking{c: &c, id: newUUID()}
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
		pause := time.NewTimer(max(pauseMin, t.stood))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		case <-pause.C:
		}
	}
}

// taking is one attempt.
type taking struct {
	c       *Cluster
	id      string
	header  backup.Header
	reached []string // nodes that have answered before anything is held
	nodes   []string // that were asked to hold
	stood   time.Duration
	catalog bytes.Buffer
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
	if err := t.confirm(ctx, now, where); err != nil {
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
		pause := time.NewTimer(pauseMin)
		select {
		case <-ctx.Done():
			pause.Stop()
			return whyNot(last, context.Cause(ctx))
		case <-pause.C:
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

// captured does the steps 1 to 4. Of what it returns, the catalog's queues are those that were captured and are there still.
func (t *taking) captured(ctx context.Context) (now Catalog, where map[uint64]place, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.c.Hold)
	defer cancel()
	if where, err = t.hold(ctx); err != nil {
		return now, nil, err
	}
	if now, err = t.c.Catalog(ctx); err != nil {
		return now, nil, fmt.Errorf("read the catalog: %w", err)
	}
	if err := missing(now.Queues, where); err != nil {
		return now, nil, err
	}
	work := map[string][]Queue{}
	for _, q := range now.Queues {
		work[where[q.ID].node] = append(work[where[q.ID].node], Queue{q.ID, where[q.ID].term})
	}
	known := now.Queues
	if err := t.each(ctx, work, func(node string, queues []Queue) error {
		_, err := t.call(ctx, node, request{Do: doCapture, Queues: queues})
		return err
	}); err != nil {
		return now, nil, err
	}
	if now, err = t.c.Catalog(ctx); err != nil {
		return now, nil, fmt.Errorf("read the catalog: %w", err)
	}
	if now.Queues, err = captured(known, now.Queues); err != nil {
		return now, nil, err
	}
	held := map[string][]Queue{}
	for _, n := range t.nodes {
		held[n] = nil
	}
	err = t.each(ctx, held, func(node string, _ []Queue) error {
		ctx, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		a, err := t.call(ctx, node, request{Do: doRelease})
		switch {
		case len(work[node]) == 0:
			return nil // whatever it did, it has led nothing of this
		case err == nil && !a.Unbroken:
			err = fmt.Errorf("node %s: %w", node, errNotHeld)
		}
		return err
	})
	return now, where, err
}

// captured returns those of now that were known before the captures. One that is newer is not in the backup: it has taken nothing that moved. But one
// that has the name of a queue that is gone may be that queue under another id, recovered meanwhile from a replica that was not captured.
func captured(known, now []backup.Queue) (both []backup.Queue, err error) {
	type name struct{ vhost, name string }
	ids, names := map[uint64]bool{}, map[name]bool{}
	for _, q := range known {
		ids[q.ID], names[name{q.VHost, q.Name}] = true, true
	}
	for _, q := range now {
		switch {
		case ids[q.ID]:
			both = append(both, q)
		case names[name{q.VHost, q.Name}]:
			return nil, fmt.Errorf("'%s' in vhost '%s' is another queue than a moment ago", q.Name, q.VHost)
		}
	}
	return both, nil
}

// confirm is step 5. It fills in the header's queues.
func (t *taking) confirm(ctx context.Context, now Catalog, where map[uint64]place) error {
	ctx, cancel := context.WithTimeout(ctx, t.c.Hold+confirmWait)
	defer cancel()
	work := map[string][]Queue{}
	for _, n := range t.nodes {
		work[n] = nil
	}
	for _, q := range now.Queues {
		p := where[q.ID]
		work[p.node] = append(work[p.node], Queue{q.ID, p.term})
	}
	var mu sync.Mutex
	opened := map[uint64]Opened{}
	err := t.each(ctx, work, func(node string, queues []Queue) error {
		if len(queues) == 0 {
			return nil
		}
		a, err := t.call(ctx, node, request{Do: doConfirm, LimitMS: confirmWait.Milliseconds(), Queues: queues})
		mu.Lock()
		defer mu.Unlock()
		for _, o := range a.Opened {
			opened[o.ID] = o
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, q := range now.Queues {
		o, ok := opened[q.ID]
		if !ok {
			return fmt.Errorf("node %s says nothing of queue %d", where[q.ID].node, q.ID)
		}
		q.Index, q.Term, q.Bytes, q.Node = o.Index, o.Term, o.Bytes, where[q.ID].node
		t.header.Queues = append(t.header.Queues, q)
	}
	return nil
}

// hold has all nodes hold their moves. The first of them is asked alone: of two backups that begin at once, the one that has it gets all.
func (t *taking) hold(ctx context.Context) (map[uint64]place, error) {
	r := request{Do: doHold, LimitMS: t.c.Hold.Milliseconds()}
	all := slices.Sorted(slices.Values(t.reached))
	where, nodes, err := t.ask(ctx, all[:min(1, len(all))], r)
	t.nodes = nodes
	if err != nil || len(all) <= 1 {
		return where, err
	}
	others, nodes, err := t.ask(ctx, all[1:], r)
	t.nodes = append(t.nodes, nodes...)
	for id, p := range others {
		if where[id].term < p.term {
			where[id] = p
		}
	}
	return where, err
}

// ask asks nodes at once and returns where queues are led, in the highest term, and who was asked. Nodes that do not answer are
// left out: what they lead shows in the end. One that works on another backup is an error.
func (t *taking) ask(ctx context.Context, nodes []string, r request) (where map[uint64]place, asked []string, err error) {
	where = map[uint64]place{}
	var mu sync.Mutex
	var refusals []error
	var reached []string
	var work sync.WaitGroup
	for _, n := range nodes {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askWait)
			defer cancel()
			a, err := t.call(ctx, n, r)
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, n)
			if err != nil {
				refusals = append(refusals, err)
				return
			}
			reached = append(reached, n)
			for _, q := range a.Led {
				if where[q.ID].term < q.Term {
					where[q.ID] = place{n, q.Term}
				}
			}
		})
	}
	work.Wait()
	for _, err := range refusals {
		if len(reached) == 0 || strings.Contains(err.Error(), errBusy.Error()) {
			return nil, asked, errors.Join(refusals...)
		}
		t.c.Logger.Info("a node is not asked for a backup", "backup", t.id, "err", err)
	}
	t.reached = reached
	return where, asked, ctx.Err()
}

// askWait bounds the first questions to a node, which may be one that does not answer.
const askWait = 3 * time.Second

// each calls f for every node at once.
func (t *taking) each(ctx context.Context, work map[string][]Queue, f func(node string, queues []Queue) error) error {
	var mu sync.Mutex
	var all []error
	var g sync.WaitGroup
	for node, queues := range work {
		g.Go(func() {
			if err := f(node, queues); err != nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, err)
			}
		})
	}
	g.Wait()
	return errors.Join(append(all, ctx.Err())...)
}

func (t *taking) call(ctx context.Context, node string, r request) (a answer, err error) {
	r.Version, r.ID = messageVersion, t.id
	raw, err := callRaw(ctx, t.c, node, r)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, fmt.Errorf("node %s: the answer is not understood: %w", node, err)
	}
	return a, nil
}

func callRaw(ctx context.Context, c *Cluster, node string, r request) ([]byte, error) {
	req, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	raw, err := c.Call(ctx, node, req)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	return raw, nil
}

// drop has every node forget the cut.
func (t *taking) drop() { dropAll(t.c, t.id, t.nodes) }

func dropAll(c *Cluster, id string, nodes []string) {
	ctx, cancel := context.WithTimeout(context.Background(), dropWait)
	defer cancel()
	var work sync.WaitGroup
	for _, n := range nodes {
		work.Go(func() {
			// A node that does not hear it forgets by itself.
			_, _ = callRaw(ctx, c, n, request{Version: messageVersion, ID: id, Do: doDrop})
		})
	}
	work.Wait()
}

// newUUID returns a random (version 4) uuid.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
