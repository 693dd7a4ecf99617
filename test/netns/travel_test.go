package netns

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/travel"
)

// journey is how many queues there are whose messages expire into others, how many others, and how many publish to them.
type journey struct{ sources, dead, publishers int }

// travel declares the queues, over all nodes, and has the publishers begin. What it returns ends them and judges what has arrived, within a time.
func (r *rig) travel(j journey) (arrive func(limit time.Duration) travel.Verdict) {
	r.Helper()
	const every = 25 * time.Millisecond
	sources, dead := make([]string, j.sources), make([]string, j.dead)
	for i := range dead {
		dead[i] = fmt.Sprint("dead", i)
		r.declare(r.dial(r.Node(0)), dead[i], nil)
	}
	for i := range sources {
		sources[i] = fmt.Sprint("source", i)
		r.declare(r.dial(r.Node(i%len(r.Nodes()))), sources[i], amqp.Table{
			"x-message-ttl": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead[i%len(dead)],
		})
	}
	ctx, cancel := context.WithCancel(r.Context())
	all := make([]*travel.Publisher, j.publishers)
	var work sync.WaitGroup
	for i := range all {
		all[i] = &travel.Publisher{
			Name: fmt.Sprint("p", i), Queues: append(slices.Clone(sources[i:]), sources[:i]...), Every: every, First: i,
			URLs: func() []string { return urls(r.Cluster) },
		}
		work.Go(func() { all[i].Run(ctx) })
	}
	end := func() {
		cancel()
		work.Wait()
	}
	r.Cleanup(end)
	return func(limit time.Duration) travel.Verdict {
		r.Helper()
		end()
		judging, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		v, err := travel.Judge(judging, r.Cluster, url(r.Node(0)), all, sources, dead)
		r.noError("judge", err)
		r.Log(v)
		if v.Lost > 0 || v.Doubled > 0 || len(v.Silent) > 0 {
			r.Errorf("%d lost, %d dead letters doubled, no answer to %q", v.Lost, v.Doubled, v.Silent)
		}
		return v
	}
}
