package process

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/test/cluster"
)

// crashEnv switches TestCrashMatrix from some rows with few messages to all (`make
// test-crash`).
const crashEnv = "WARREN_CRASH_FULL"

// harm is what happens while the move stands at a step. The clients are at a node that
// leads neither the source nor the first target and is never harmed, but by all.
type harm string

const (
	killSource harm = "kill the source's leader"
	killTarget harm = "kill the target's leader"
	killBoth   harm = "kill both"
	killOne    harm = "kill the node that leads both"
	killAll    harm = "kill all nodes"
	restartAll harm = "stop all nodes"
	cutApart   harm = "cut the two apart"
	// The isolated leader stands at the step until its successor has moved everything, and
	// goes on then; if it is the other one that stands there, it is cut off for a while.
	isolateSource harm = "isolate the source's leader"
	isolateTarget harm = "isolate the target's leader"
	// A node that was down from the start is filled by snapshots while the move stands at the
	// step, and is made the leader of both queues by the death of theirs at the same step, later.
	fillLate harm = "fill a late node, which leads then"
)

// The reasons to die, as the x-death header names them.
const (
	rejected = "rejected"
	expired  = "expired"
	maxLen   = "maxlen"         // the source drops its head
	limited  = "delivery_limit" // the limit is 0, and the consumer requeues
)

// crashRow is one row of the matrix.
type crashRow struct {
	point   failpoint.Point
	harm    harm
	targets int
	reason  string
}

// byItself tells whether messages die without a consumer.
func (r crashRow) byItself() bool { return r.reason == expired || r.reason == maxLen }

// kept is how many messages the source keeps in the end.
func (r crashRow) kept() int {
	if r.reason == maxLen {
		return 10
	}
	return 0
}

func (r crashRow) String() string {
	return fmt.Sprintf("%s, %s, %d, %s", r.point, r.harm, r.targets, r.reason)
}

// atTarget tells which side passes the point.
func (r crashRow) atTarget() bool {
	return slices.Contains([]failpoint.Point{failpoint.MoveReceived, failpoint.MoveTakeProposed, failpoint.MoveTaken, failpoint.WithdrawTaken}, r.point)
}

// crashRows is the whole matrix.
func crashRows() (rows []crashRow) {
	for _, p := range failpoint.AllSteps() {
		for _, h := range []harm{killSource, killTarget, killBoth, cutApart} {
			for _, targets := range []int{1, 3} {
				rows = append(rows, crashRow{p, h, targets, rejected})
			}
		}
		for _, h := range []harm{killOne, killAll, restartAll, isolateSource, isolateTarget, fillLate} {
			rows = append(rows, crashRow{p, h, 1, rejected})
		}
		for _, h := range []harm{killSource, killTarget, cutApart} {
			rows = append(rows, crashRow{p, h, 1, expired})
		}
		for _, h := range []harm{killSource, killTarget, killBoth} {
			for _, reason := range []string{maxLen, limited} {
				rows = append(rows, crashRow{p, h, 1, reason}, crashRow{p, h, 3, reason})
			}
		}
	}
	return rows
}

// TestCrashMatrix kills leaders, or cuts them apart, exactly between two steps of the
// move of dead letters: each message arrives once in each target, in order, and nothing
// stays on its way. D16, D17, D70, D72.
func TestCrashMatrix(t *testing.T) {
	t.Parallel()
	rows, messages := []crashRow{
		{failpoint.MoveUnrouted, killSource, 1, expired},
		{failpoint.MoveRouteProposed, killBoth, 1, rejected},
		{failpoint.MoveSent, cutApart, 3, rejected},
		{failpoint.MoveTaken, killSource, 1, rejected},
		{failpoint.MoveTaken, killTarget, 3, rejected},
		{failpoint.MoveDoneProposed, killOne, 1, rejected},
		{failpoint.MoveAnswered, killAll, 1, rejected},
		{failpoint.MoveRouted, isolateSource, 1, rejected},
		{failpoint.MoveReceived, isolateTarget, 1, rejected},
		{failpoint.MoveRouted, killBoth, 3, maxLen},
		{failpoint.MoveUnrouted, killSource, 1, limited},
		{failpoint.MovePlanProposed, killSource, 3, rejected},
		{failpoint.MoveTaken, fillLate, 1, rejected},
	}, 1000
	full := os.Getenv(crashEnv) != ""
	if full {
		rows, messages = crashRows(), 10000
	}
	c := stoppableCluster(t)
	begun := time.Now()
	for i, row := range rows {
		ok := t.Run(row.String(), func(t *testing.T) {
			k := newCrash(t, c, row, messages, i)
			if full {
				k.pass += rand.Uint64N(3)
			}
			k.run()
		})
		if !ok && !allUp(c) {
			t.Fatal("the nodes are not up again")
		}
	}
	t.Logf("%d rows of %d messages in %v", len(rows), messages, time.Since(begun).Round(time.Second))
}

// allUp tells whether the rows that follow a failed one have nodes to run on.
func allUp(c *cluster.Cluster) bool {
	return !slices.ContainsFunc(c.Nodes(), func(n *cluster.Node) bool { return !n.Running() })
}

// stoppableCluster returns three running nodes with failpoints.
func stoppableCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	needWarren(t)
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Binary = binary })
	startAll(t, c)
	return c
}

// TestNoFailpoints: what is released cannot be stopped from outside.
func TestNoFailpoints(t *testing.T) {
	t.Parallel()
	needWarren(t)
	for _, b := range []struct {
		build func() (string, error)
		has   bool
	}{{shared.binary, false}, {shared.stoppable, true}} {
		path, err := b.build()
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, mark := range []string{string(failpoint.MoveUnrouted), "/debug/failpoints", "/debug/snapshots", string(failpoint.ForgetWatermark), "WARREN_SEEDED_FAULT"} {
			if has := contains(data, mark); has != b.has {
				t.Errorf("%s has %q: %v", path, mark, has)
			}
		}
	}
}
