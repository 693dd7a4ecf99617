package nemesis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/jepsen/network"
)

// Shapes of partitions: which ordered pairs of nodes hear nothing of each other. The first of
// the nodes is the victim.

// halves splits the nodes in two, the victim on the smaller side of odd numbers.
func halves(nodes []string) []network.Pair {
	n := len(nodes) / 2
	return between(nodes[:n], nodes[n:])
}

// isolated cuts the victim off.
func isolated(nodes []string) []network.Pair { return between(nodes[:1], nodes[1:]) }

// deaf makes the victim hear nothing; mute makes it say nothing.
func deaf(nodes []string) []network.Pair { return oneWay(nodes[1:], nodes[:1]) }
func mute(nodes []string) []network.Pair { return oneWay(nodes[:1], nodes[1:]) }

// ring lets every node reach a majority, each another one. Of three nodes it cuts one
// link, so that the third is the bridge.
func ring(nodes []string) []network.Pair {
	n := len(nodes)
	if n < 5 {
		return between(nodes[:1], nodes[1:2])
	}
	var pairs []network.Pair
	for i, node := range nodes {
		for j, other := range nodes {
			if d := (j - i + n) % n; d > n/4 && d < n-n/4 {
				pairs = append(pairs, network.Pair{From: node, To: other})
			}
		}
	}
	return pairs
}

func oneWay(from, to []string) (pairs []network.Pair) {
	for _, a := range from {
		for _, b := range to {
			pairs = append(pairs, network.Pair{From: a, To: b})
		}
	}
	return pairs
}

func between(a, b []string) []network.Pair { return append(oneWay(a, b), oneWay(b, a)...) }

// partition returns a Begin that cuts the links of a shape.
func partition(shape func(nodes []string) []network.Pair) func(context.Context, *Env) (Fault, error) {
	return func(ctx context.Context, e *Env) (Fault, error) {
		nodes := e.shuffled(ctx)
		return harm(e, nodes[0], shape(nodes), network.Link{Cut: true})
	}
}

// harm sets links and heals the same ones.
func harm(e *Env, victim string, pairs []network.Pair, state network.Link) (Fault, error) {
	heal := func(context.Context) error { return e.Net.Harm(pairs, network.Link{}) }
	return Fault{Node: victim, What: fmt.Sprintf("%s: %s", state, list(pairs)), Heal: heal}, e.Net.Harm(pairs, state)
}

// list writes pairs for people.
func list(pairs []network.Pair) string {
	var b strings.Builder
	for i, p := range pairs {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s>%s", p.From, p.To)
	}
	return b.String()
}

// flapping cuts a node off and lets it back in, several times a second or every few.
func flapping(ctx context.Context, e *Env) (Fault, error) {
	nodes := e.shuffled(ctx)
	pairs := isolated(nodes)
	period := 100*time.Millisecond + time.Duration(e.Rand.Int64N(int64(1500*time.Millisecond)))
	flapping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	var failed error
	work.Go(func() { // ends with Heal
		tick := time.NewTicker(period)
		defer tick.Stop()
		for cut := true; failed == nil; cut = !cut {
			failed = e.Net.Harm(pairs, network.Link{Cut: cut})
			select {
			case <-flapping.Done():
				return
			case <-tick.C:
			}
		}
	})
	return Fault{
		Node: nodes[0], What: fmt.Sprintf("cut off and back every %v: %s", period.Round(time.Millisecond), nodes[0]),
		Heal: func(context.Context) error {
			stop()
			work.Wait()
			if failed != nil {
				return failed
			}
			return e.Net.Harm(pairs, network.Link{})
		},
	}, nil
}

// slow makes all links of a node slow, in both directions.
func slow(ctx context.Context, e *Env) (Fault, error) {
	nodes := e.shuffled(ctx)
	delay := 20*time.Millisecond + time.Duration(e.Rand.Int64N(int64(400*time.Millisecond)))
	state := network.Link{Delay: delay, Jitter: delay / 4}
	if e.Rand.IntN(2) == 0 {
		state.BytesPerSecond = 50_000 + e.Rand.IntN(500_000)
	}
	return harm(e, nodes[0], isolated(nodes), state)
}

// lossy makes all links of a node lose packets, in both directions.
func lossy(ctx context.Context, e *Env) (Fault, error) {
	nodes := e.shuffled(ctx)
	return harm(e, nodes[0], isolated(nodes), network.Link{Loss: 0.02 + 0.28*e.Rand.Float64()})
}
