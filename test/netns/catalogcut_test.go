package netns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// claims are queues that clients have declared: each name is asked for by a client of each node, each with other arguments, so that one can have it.
type claims struct {
	mu sync.Mutex
	by map[string]map[int]bool // the nodes' numbers by the queue
	at []int                   // how many were declared at each node
}

// limit is the argument that tells whose a queue is.
func limit(node int) amqp.Table { return amqp.Table{"x-max-length": int32(1 + node)} }

func (c *claims) declared(node int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[node]
}

// claim declares queues at a node until ctx ends, one after the other, and connects again after each error.
func (c *claims) claim(ctx context.Context, node int, n *cluster.Node) {
	var conn *amqp.Connection
	for i := 0; ctx.Err() == nil; {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = amqp.DialConfig(url(n), amqp.Config{Dial: amqp.DefaultDial(time.Second)}); err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			defer conn.Close()
		}
		ch, err := conn.Channel()
		if err != nil {
			continue
		}
		name := fmt.Sprint("claim-", i)
		_, err = ch.QueueDeclare(name, true, false, false, false, limit(node))
		told, _ := errors.AsType[*amqp.Error](err)
		switch {
		case err == nil:
			c.mu.Lock()
			if c.by[name] == nil {
				c.by[name] = map[int]bool{}
			}
			c.by[name][node] = true
			c.at[node]++
			c.mu.Unlock()
			i++
			_ = ch.Close()
		case told != nil && told.Code == amqp.PreconditionFailed:
			i++ // another one has it
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestCatalogIsCutInTwo cuts five nodes into two and three, with the catalog's leader on either side, while clients of all nodes declare the same names with
// different arguments: only the three go on, nobody is told that it has a queue which somebody else has, and every queue that was declared is there.
func TestCatalogIsCutInTwo(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 5})
	r.until("all nodes vote in the catalog", timeoutStart, func() bool { return len(r.status(r.Node(0)).Warren.Voters) == 5 })
	c := &claims{by: map[string]map[int]bool{}, at: make([]int, 5)}
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i, n := range r.Nodes() {
		clients.Go(func() { c.claim(ctx, i, n) })
	}
	for _, cutOff := range []bool{true, false} {
		var few, most []int
		leader := r.status(r.Node(0)).Warren.Leader
		leads := slices.IndexFunc(r.Nodes(), func(n *cluster.Node) bool { return n.Name == leader })
		few = []int{(leads + 1) % 5, (leads + 3) % 5}
		if cutOff {
			few[0] = leads
		}
		for i := range r.Nodes() {
			if !slices.Contains(few, i) {
				most = append(most, i)
			}
		}
		r.apart(c, few, most)
	}
	end()
	clients.Wait()
	ch := r.dial(r.Node(0))
	for name, nodes := range c.by {
		if len(nodes) != 1 {
			t.Errorf("%s was declared at the nodes %v, each with other arguments", name, nodes)
		}
		for node := range nodes {
			if _, err := ch.QueueDeclare(name, true, false, false, false, limit(node)); err != nil {
				t.Fatalf("%s, which was declared at %s: %v", name, r.Node(node).Name, err)
			}
		}
	}
	t.Logf("%d queues, at the nodes %v", len(c.by), c.at)
}

// apart cuts few nodes off from most until most have declared more, and the few are not ready.
func (r *rig) apart(c *claims, few, most []int) {
	r.Helper()
	names := func(nodes []int) (list []string) {
		for _, i := range nodes {
			list = append(list, r.Node(i).Name)
		}
		return list
	}
	declared := func(nodes []int) (n int) {
		for _, i := range nodes {
			n += c.declared(i)
		}
		return n
	}
	r.until("all declare", timeoutReply, func() bool { return declared(few) > 0 && declared(most) > 0 })
	r.part(names(few), names(most))
	before := declared(most)
	r.Logf("%v of %v: the others declare after %v", names(few), names(most), r.until("most declare", timeoutReply, func() bool { return declared(most) > before }))
	for _, name := range names(few) {
		r.until(name+" is not ready", timeoutReply, func() bool { return !ready(r.ByName(name)) })
	}
	cutOff := declared(few)
	before = declared(most)
	r.until("most declare more", timeoutReply, func() bool { return declared(most) > before+20 })
	if n := declared(few); n != cutOff {
		r.Errorf("%d queues were declared where two of five nodes are", n-cutOff)
	}
	r.lan.Heal()
	r.readyAll()
}
