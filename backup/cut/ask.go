package cut

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// hold has all nodes hold their moves. The first of them is asked alone: of two backups that begin at once, the one that has it gets all.
func (t *taking) hold(ctx context.Context) (map[uint64]place, error) {
	r := request{Do: doHold, LimitMS: t.c.Hold.Milliseconds()}
	all := slices.Sorted(slices.Values(t.reached))
	where, nodes, err := t.ask(ctx, all[:min(1, len(all))], r)
	first := t.reached
	t.nodes = nodes
	if err != nil || len(all) <= 1 {
		return where, err
	}
	others, nodes, err := t.ask(ctx, all[1:], r)
	t.nodes, t.reached = append(t.nodes, nodes...), append(first, t.reached...)
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
	t.reached = reached
	for _, err := range refusals {
		if len(reached) == 0 || strings.Contains(err.Error(), errBusy.Error()) {
			return nil, asked, errors.Join(refusals...)
		}
		t.c.Logger.Info("a node is not asked for a backup", "backup", t.id, "err", err)
	}
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
