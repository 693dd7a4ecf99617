package catalog

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
)

// No command walks queues or exchanges that it does not change: twenty times as many of them may make it a little
// dearer, but not ten times.
func TestCommandsDoNotWalkAllQueues(t *testing.T) {
	const few, many = 500, 10_000
	made := map[int]*script{}
	for _, n := range []int{few, many} {
		s := newScript(t)
		s.ok(&PutVhostLimits{Vhost: "/", Limits: VhostLimits{Queues: auth.LimitOf(many + 10)}})
		s.ok(&RegisterNode{ID: n1})
		s.ok(&RegisterNode{ID: n2})
		for i := range n {
			s.ok(declare(fmt.Sprint("queue-", i)))
			s.ok(declareX(fmt.Sprint("exchange-", i), exchange.Direct))
		}
		made[n] = s
	}
	for name, commands := range map[string][]Command{
		"a node registers": {&RegisterNode{ID: n2}},
		"a queue comes and goes beside a limit": {
			declare("one-more"), &DeleteQueue{Vhost: "/", Name: "one-more"},
		},
		"a node goes":                {&RegisterNode{ID: n3}, &RemoveNode{ID: n3}},
		"an exchange comes and goes": {declareX("another", exchange.Fanout), &DeleteExchange{Vhost: "/", Name: "another"}},
	} {
		t.Run(name, func(t *testing.T) {
			cost := func(s *script) time.Duration {
				best := time.Hour
				for range 50 {
					began := time.Now()
					for _, c := range commands {
						s.ok(c)
					}
					best = min(best, time.Since(began))
				}
				return best
			}
			least, most := cost(made[few]), cost(made[many])
			t.Logf("%v with %d, %v with %d", least, few, most, many)
			if most > 10*least {
				t.Errorf("%v with %d queues and exchanges, %v with %d", least, few, most, many)
			}
		})
	}
}
