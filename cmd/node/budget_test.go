//go:build !race && !invariants

package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

var rewriteBudget = flag.Bool("rewrite", false, "write what was measured to testdata/budget.txt")

const (
	// budgetStep messages are on their way at a time. A step is one write to the socket, so that it is one
	// batch on all of its way however busy the machine is: a share of an entry and of a frame is what a
	// message allocates.
	budgetStep  = 32
	budgetSteps = 120
	budgetWarm  = 30
	budgetBody  = 1024
	budgetTries = 3
	// A measurement may be this much above its baseline.
	budgetSlack        = 0.10
	budgetSlackObjects = 0.3 // beside it
	budgetSlackBytes   = 256 // what idle nodes allocate varies, and is taken off
)

// cost is what a message has allocated on all three nodes together.
type cost struct{ objects, bytes float64 }

// least and median are of each figure by itself.
func least(of []cost) (c cost) {
	for i, d := range of {
		if i == 0 {
			c = d
		}
		c = cost{min(c.objects, d.objects), min(c.bytes, d.bytes)}
	}
	return c
}

func median(of []cost) cost {
	var objects, bytes []float64
	for _, c := range of {
		objects, bytes = append(objects, c.objects), append(bytes, c.bytes)
	}
	slices.Sort(objects)
	slices.Sort(bytes)
	return cost{objects[len(of)/2], bytes[len(of)/2]}
}

// TestBudget compares what a message allocates with testdata/budget.txt: from the socket through
// gateway, broker, leader, raft and log of three nodes, which run in this process, and back. Processor time
// is not looked at: it depends on the machine. It runs without the race detector and the tag
// invariants only, both of which allocate.
func TestBudget(t *testing.T) {
	want, err := readBudget()
	if err != nil && !*rewriteBudget {
		t.Fatal(err)
	}
	// No collection: what pools keep would be taken from them at times that nobody knows.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(3 << 30))
	c := dialBudget(t, startThree(t))
	c.channel(1)
	c.channel(2)
	all := map[string][]cost{}
	for try := range budgetTries {
		runtime.GC()
		for name, got := range measureBudget(t, c, try) {
			all[name] = append(all[name], got)
		}
		if !*rewriteBudget && len(overBudget(all, want)) == 0 {
			break // what it can be once is what it costs
		}
	}
	for _, name := range budgetNames {
		t.Logf("%-12s baseline %.2f objects, %.0f bytes; measured %.2f", name, want[name].objects, want[name].bytes, all[name])
	}
	if *rewriteBudget {
		writeBudget(t, all)
		return
	}
	for _, excess := range overBudget(all, want) {
		t.Error(excess)
	}
	if t.Failed() {
		t.Log("If that is meant, say why in the commit and renew the baseline: go test ./cmd/node -run TestBudget -rewrite")
	}
}

// measureBudget lets messages go each of the ways.
func measureBudget(t *testing.T, c *budgetClient, try int) map[string]cost {
	first, source, target := fmt.Sprintf("first-%d", try), fmt.Sprintf("source-%d", try), fmt.Sprintf("target-%d", try)
	// All are led by the node that the client is connected to.
	declareBudget(c, first, nil)
	declareBudget(c, target, nil)
	declareBudget(c, source, map[string]string{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target})
	publish := func(queue string, n int) func() {
		var burst []byte
		for range n {
			burst = (&amqp.BasicPublish{RoutingKey: queue}).AppendFrame(burst, 1)
			var p amqp.Properties
			p.SetDeliveryMode(2)
			burst = amqp.AppendContent(burst, 1, amqp.ClassBasic, p.AppendTo(nil), make([]byte, budgetBody), 131072)
		}
		return func() {
			until := c.confirmed + uint64(n)
			c.write(burst)
			for c.confirmed < until {
				c.next()
			}
		}
	}
	got := map[string]cost{}
	idle := idleCost()
	got["publish"] = costOf(idle, budgetStep, publish(first, budgetStep))

	c.call(1, &amqp.BasicQos{PrefetchCount: budgetStep}, 11)
	c.call(1, &amqp.BasicConsume{Queue: first, ConsumerTag: first}, 21)
	got["deliver"] = costOf(idle, budgetStep, func() {
		c.deliveries(1, budgetStep)
		c.settle(1, true)
	})
	c.call(1, &amqp.BasicCancel{ConsumerTag: first}, 31)

	fill := publish(source, budgetStep)
	for range budgetWarm + budgetSteps + 1 {
		fill()
	}
	c.call(2, &amqp.BasicQos{PrefetchCount: budgetStep}, 11)
	c.call(2, &amqp.BasicConsume{Queue: target, ConsumerTag: target}, 21)
	c.call(1, &amqp.BasicConsume{Queue: source, ConsumerTag: source}, 21)
	got["dead-letter"] = costOf(idle, budgetStep, func() {
		c.deliveries(1, budgetStep)
		c.settle(1, false)
		c.deliveries(2, budgetStep)
		c.settle(2, true)
	})
	c.deliveries(1, budgetStep)
	c.settle(1, true)
	c.call(1, &amqp.BasicCancel{ConsumerTag: source}, 31)
	c.call(2, &amqp.BasicCancel{ConsumerTag: target}, 31)
	return got
}

func declareBudget(c *budgetClient, queue string, arguments map[string]string) {
	args := amqp.Table{}
	args.Set("x-queue-leader-locator", "client-local")
	for name, value := range arguments {
		args.Set(name, value)
	}
	c.call(1, &amqp.QueueDeclare{Queue: queue, Durable: true, Arguments: args}, 11)
}

// allocated is what this process has ever allocated, and when.
func allocated() (cost, time.Time) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return cost{float64(m.Mallocs), float64(m.TotalAlloc)}, time.Now()
}

// idleCost is what the three nodes allocate in a second in which nothing happens: pings, gossip, timers.
func idleCost() cost {
	time.Sleep(200 * time.Millisecond) // what was declared settles
	before, began := allocated()
	time.Sleep(600 * time.Millisecond)
	after, ended := allocated()
	seconds := ended.Sub(began).Seconds()
	return cost{(after.objects - before.objects) / seconds, (after.bytes - before.bytes) / seconds}
}

// costOf is what each of the n messages of a step allocates, beside what idle nodes do.
func costOf(idle cost, n int, step func()) cost {
	for range budgetWarm {
		step()
	}
	before, began := allocated()
	for range budgetSteps {
		step()
	}
	after, ended := allocated()
	seconds, messages := ended.Sub(began).Seconds(), float64(n*budgetSteps)
	return cost{
		(after.objects - before.objects - idle.objects*seconds) / messages,
		(after.bytes - before.bytes - idle.bytes*seconds) / messages,
	}
}

var budgetNames = []string{"publish", "deliver", "dead-letter"}

// overBudget says which costs were above their baselines in every try.
func overBudget(all map[string][]cost, want map[string]cost) (excess []string) {
	for _, name := range budgetNames {
		g, w := least(all[name]), want[name]
		if g.objects > w.objects*(1+budgetSlack)+budgetSlackObjects {
			excess = append(excess, fmt.Sprintf("%s: a message allocates %.2f objects on three nodes, the baseline is %.2f", name, g.objects, w.objects))
		}
		if g.bytes > w.bytes*(1+budgetSlack)+budgetSlackBytes {
			excess = append(excess, fmt.Sprintf("%s: a message allocates %.0f bytes on three nodes, the baseline is %.0f", name, g.bytes, w.bytes))
		}
	}
	return excess
}

var budgetFile = filepath.Join("testdata", "budget.txt")

// readBudget reads lines of a name, objects and bytes.
func readBudget() (map[string]cost, error) {
	f, err := os.Open(budgetFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	budget := map[string]cost{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var name string
		var c cost
		if _, err := fmt.Sscan(lines.Text(), &name, &c.objects, &c.bytes); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", budgetFile, lines.Text(), err)
		}
		budget[name] = c
	}
	for _, name := range budgetNames {
		if _, ok := budget[name]; !ok {
			return nil, errors.Join(lines.Err(), fmt.Errorf("%s: no line for %s", budgetFile, name))
		}
	}
	return budget, lines.Err()
}

func writeBudget(t *testing.T, all map[string][]cost) {
	text := "# What a message of 1 KiB allocates on three nodes together: objects, bytes.\n" +
		"# Renew it: go test ./cmd/node -run TestBudget -rewrite\n"
	for _, name := range budgetNames {
		text += fmt.Sprintf("%s %.2f %.0f\n", name, median(all[name]).objects, median(all[name]).bytes)
	}
	if err := os.MkdirAll(filepath.Dir(budgetFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(budgetFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
