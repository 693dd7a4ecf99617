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

// crashRedrives kills the leader of a dead-letter queue, or of the queue the messages came
// from, at each step of a redrive: all messages are back, once and in order. D72.
func crashRedrives(t *testing.T, c *cluster.Cluster) {
	rows := []crashRow{
		{failpoint.RedriveProposed, killSource, 1, rejected},
		{failpoint.MoveTaken, killTarget, 1, rejected},
	}
	if os.Getenv(crashEnv) != "" {
		rows = nil
		for _, point := range redriveSteps() {
			rows = append(rows, crashRow{point, killSource, 1, rejected}, crashRow{point, killTarget, 1, rejected})
		}
	}
	for i, row := range rows {
		ok := t.Run(row.String(), func(t *testing.T) { newCrash(t, c, row, 1000, i).redrive() })
		if !ok && !allUp(c) {
			t.Fatal("the nodes are not up again")
		}
	}
}

// redrive lets all messages die in the target, so that they come to the source, and sends
// them back from there.
func (k *crash) redrive() {
	k.row.reason = "" // what is drained has died, and come back
	k.declareDead()
	s := at(k.T, k.at.clients)
	dead := k.source
	k.source = k.targets[0]
	consumer := at(k.T, k.at.clients)
	held := k.hold(consumer)
	consumer.noError("nack", held[len(held)-1].Nack(true, false))
	k.source = dead
	s.ready(k.source, k.messages)
	consumer.noError("close", consumer.conn.Close()) // it would take what comes back
	ctx, cancel := context.WithTimeout(k.Context(), crashWait)
	defer cancel()
	k.pass = 2 // some of the messages have passed it
	k.armPoint()
	begun := time.Now()
	redrive(k.T, k.at.clients, k.source, map[string]any{"rate": 2000})
	k.doHarm(ctx)
	var st map[string]any
	s.until("the redrive to end", func() bool {
		status, body := api(k.T, http.MethodGet, redriveURL(k.at.clients, k.source))
		st = nil
		_ = json.Unmarshal(body, &st) // asked again
		return status == http.StatusOK && st["state"] == "done"
	})
	took := time.Since(begun)
	left, back := k.drain(k.source), k.drain(k.targets[0])
	if len(left) > 0 {
		k.Errorf("%d are left: %v", len(left), st)
	}
	k.once(append(left, back...))
	if !slices.IsSorted(back) {
		k.Error("they came back out of order")
	}
	k.Logf("all back after %.1f s", took.Seconds())
	k.forget()
}

// declareDead makes a dead-letter queue, the source of the redrive, and the queue whose
// messages die into it.
func (k *crash) declareDead() {
	k.Helper()
	s := at(k.T, k.at.source)
	k.dlx = s.exchange("dlx", "fanout", nil)
	local := amqp.Table{"x-queue-leader-locator": "client-local"}
	k.source = plainQueue(s, s.name("dead"), local)
	s.bind(k.source, "", k.dlx, nil)
	k.targets = []string{plainQueue(at(k.T, k.at.target), s.name("origin"), amqp.Table{
		"x-queue-leader-locator": "client-local", "x-dead-letter-exchange": k.dlx,
	})}
	k.ids.source, k.ids.target = k.led(k.source, k.at.source), k.led(k.targets[0], k.at.target)
}
