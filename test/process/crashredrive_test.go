package process

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/test/cluster"
)

// redriveSteps are the steps of the messages of a redrive, in their order. They have no
// Route command: the log takes message and targets at once.
func redriveSteps() []failpoint.Point {
	return append([]failpoint.Point{failpoint.RedriveProposed}, slices.DeleteFunc(failpoint.Steps(), func(p failpoint.Point) bool {
		return p == failpoint.MoveUnrouted || p == failpoint.MoveRouteProposed
	})...)
}

// The ways of a redrive.
const (
	toLast     = ""         // where the messages died last
	toExchange = "exchange" // where they were published, which has two queues now
	toQueue    = "queue"    // another queue
)

// redriveRow is a redrive and what happens at one of its steps.
type redriveRow struct {
	crashRow
	to string
}

func (r redriveRow) String() string {
	if r.to == toLast {
		return r.crashRow.String()
	}
	return r.crashRow.String() + ", to " + r.to
}

// redriveRows are all rows.
func redriveRows() (rows []redriveRow) {
	for _, to := range []string{toLast, toExchange, toQueue} {
		targets := 1
		if to == toExchange {
			targets = 2
		}
		for _, point := range redriveSteps() {
			for _, h := range []harm{killSource, killTarget, cutApart} {
				rows = append(rows, redriveRow{crashRow{point, h, targets, rejected}, to})
			}
		}
	}
	return rows
}

// crashRedrives kills the leader of a dead-letter queue, or of the queue the messages go
// to, or cuts the two apart, at each step of a redrive: all messages are in each target,
// once and in order. D72.
func crashRedrives(t *testing.T, c *cluster.Cluster) {
	rows := []redriveRow{
		{crashRow{failpoint.RedriveProposed, killSource, 1, rejected}, toLast},
		{crashRow{failpoint.MoveTaken, killTarget, 2, rejected}, toExchange},
		{crashRow{failpoint.MoveSent, cutApart, 1, rejected}, toQueue},
	}
	if os.Getenv(crashEnv) != "" {
		rows = redriveRows()
	}
	for i, row := range rows {
		ok := t.Run(row.String(), func(t *testing.T) { newCrash(t, c, row.crashRow, 1000, i).redrive(row.to) })
		if !ok && !allUp(c) {
			t.Fatal("the nodes are not up again")
		}
	}
}

// redrive lets all messages die, so that they come to the source, and sends them on from
// there.
func (k *crash) redrive(to string) {
	k.row.reason = "" // what is drained has died, and come back
	s := at(k.T, k.at.clients)
	filter := k.declareDead(s, to)
	ctx, cancel := context.WithTimeout(k.Context(), crashWait)
	defer cancel()
	k.pass = 2 // some of the messages have passed it
	k.armPoint()
	begun := time.Now()
	redrive(k.T, k.at.clients, k.source, filter)
	k.doHarm(ctx)
	var st map[string]any
	s.until("the redrive to end", func() bool {
		status, body := api(k.T, http.MethodGet, redriveURL(k.at.clients, k.source))
		st = nil
		_ = json.Unmarshal(body, &st) // asked again
		return status == http.StatusOK && st["state"] == "done"
	})
	took := time.Since(begun)
	left := k.drain(k.source)
	if len(left) > 0 {
		k.Errorf("%d are left: %v", len(left), st)
	}
	for _, target := range k.targets {
		there := k.drain(target)
		k.once(append(slices.Clone(left), there...))
		if !slices.IsSorted(there) {
			k.Errorf("they came to %s out of order", target)
		}
	}
	k.Logf("all there after %.1f s", took.Seconds())
	k.forget()
}

// declareDead makes a dead-letter queue, the source of the redrive, and the queues that it
// goes to, and fills it with messages that died. It returns what to ask for.
func (k *crash) declareDead(s *session, to string) map[string]any {
	k.Helper()
	local := amqp.Table{"x-queue-leader-locator": "client-local"}
	bySource, byTarget := at(k.T, k.at.source), at(k.T, k.at.target)
	k.dlx = s.exchange("dlx", "fanout", nil)
	orders := s.exchange("orders", "fanout", nil)
	dead := plainQueue(bySource, s.name("dead"), local)
	s.bind(dead, "", k.dlx, nil)
	origin := plainQueue(byTarget, s.name("origin"), amqp.Table{
		"x-queue-leader-locator": "client-local", "x-dead-letter-exchange": k.dlx,
	})
	s.bind(origin, "", orders, nil)
	k.targets = []string{origin}
	filter := map[string]any{"rate": 2000}
	k.source = origin
	consumer := at(k.T, k.at.clients)
	held := k.holdFrom(consumer, orders)
	consumer.noError("nack", held[len(held)-1].Nack(true, false))
	k.source = dead
	s.ready(k.source, k.messages)
	consumer.noError("close", consumer.conn.Close()) // it would take what comes back
	switch to {
	case toExchange:
		audit := plainQueue(s, s.name("audit"), local)
		s.bind(audit, "", orders, nil)
		k.targets = append(k.targets, audit)
		filter["to"] = toExchange
	case toQueue:
		k.targets[0] = plainQueue(byTarget, s.name("elsewhere"), local)
		filter["to"], filter["queue"] = toQueue, k.targets[0]
	}
	k.ids.source, k.ids.target = k.led(k.source, k.at.source), k.led(k.targets[0], k.at.target)
	return filter
}
