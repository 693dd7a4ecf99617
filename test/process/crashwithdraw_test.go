package process

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/test/cluster"
)

// withdrawRow is a withdrawal during which the leader that passes the point is killed, or the
// two leaders are cut apart.
type withdrawRow struct {
	point failpoint.Point
	cut   bool
	// stuck is where the target's leader stands while the way changes, with what it has not
	// answered; "" if the target is full instead.
	stuck failpoint.Point
	// bindings: the way of dead letters changes by bindings, else by a policy.
	bindings bool
}

func (r withdrawRow) String() string {
	text := string(r.point)
	if r.stuck == "" {
		text += ", full"
	} else {
		text += ", stuck at " + string(r.stuck)
	}
	if r.bindings {
		text += ", bindings"
	} else {
		text += ", policy"
	}
	if r.cut {
		return text + ", " + string(cutApart)
	}
	return text + ", kill"
}

// fullLength is the maximum length of a target that is to be full.
const fullLength = 300

// withdrawRows are all rows.
func withdrawRows() (rows []withdrawRow) {
	for _, point := range failpoint.Withdrawal() {
		for _, bindings := range []bool{false, true} {
			for _, stuck := range []failpoint.Point{"", failpoint.MoveReceived, failpoint.MoveTaken} {
				if point == failpoint.WithdrawTaken && stuck != "" {
					continue // one leader stands at one point
				}
				rows = append(rows, withdrawRow{point, false, stuck, bindings}, withdrawRow{point, true, stuck, bindings})
			}
		}
	}
	return rows
}

// TestCrashWithdrawalAndRedrive kills leaders and cuts them apart at the steps of what moves letters another way
// than on. D69, D72.
func TestCrashWithdrawalAndRedrive(t *testing.T) {
	t.Parallel()
	c := stoppableCluster(t)
	t.Run("withdrawal", func(t *testing.T) { crashWithdrawals(t, c) })
	t.Run("redrive", func(t *testing.T) { crashRedrives(t, c) })
}

// crashWithdrawals changes the way of dead letters that their target has not taken, and
// kills a leader or cuts it off at each step of calling them back: each message is in the old target or in
// the new one, once and in order. D69, D72.
func crashWithdrawals(t *testing.T, c *cluster.Cluster) {
	rows := []withdrawRow{
		{failpoint.WithdrawApplied, false, failpoint.MoveTaken, false},
		{failpoint.WithdrawAnswered, false, "", true},
		{failpoint.WithdrawSent, true, "", true},
	}
	if os.Getenv(crashEnv) != "" {
		rows = withdrawRows()
	}
	for i, row := range rows {
		ok := t.Run(row.String(), func(t *testing.T) {
			k := newCrash(t, c, crashRow{point: row.point, harm: killSource, targets: 1, reason: rejected}, 1500, i)
			if k.row.atTarget() {
				k.row.harm = killTarget
			}
			if row.cut {
				k.row.harm = cutApart
			}
			k.withdraw(row)
		})
		if !ok && !allUp(c) {
			t.Fatal("the nodes are not up again")
		}
	}
}

func (k *crash) withdraw(row withdrawRow) {
	s := at(k.T, k.at.clients)
	old, spare, change := k.declareWays(s, row)
	ctx, cancel := context.WithTimeout(k.Context(), crashWait)
	defer cancel()
	if row.stuck != "" {
		f := cluster.Failpoint{Point: string(row.stuck), Queue: k.ids.target, Action: "hold", At: 1}
		s.noError("arm", k.at.target.Arm(ctx, f))
	}
	held := k.hold(s)
	s.noError("nack", held[len(held)-1].Nack(true, false))
	if row.stuck == "" {
		s.until("the target to be full", func() bool {
			q, err := s.ch.QueueDeclarePassive(old, true, false, false, false, nil)
			s.noError("look", err)
			return q.Messages >= fullLength
		})
		k.quiet(s, old)
	} else {
		k.awaitHeld(ctx, k.at.target)
		time.Sleep(500 * time.Millisecond) // all are routed
	}
	k.armPoint()
	begun := time.Now()
	change()
	if row.stuck != "" {
		k.awaitSent(ctx)
		s.noError("disarm", k.at.target.Disarm(ctx))
	}
	k.doHarm(ctx)
	harmed := time.Since(begun)
	k.awaitEmpty(ctx)
	took := time.Since(begun)
	k.targets = []string{old, spare}
	inOld, inSpare := k.drain(old), k.drain(spare)
	k.once(append(slices.Clone(inOld), inSpare...))
	for queue, ids := range map[string][]string{old: inOld, spare: inSpare} {
		if !slices.IsSorted(ids) {
			k.Errorf("%s is out of order", queue)
		}
	}
	if len(inOld) == 0 || len(inSpare) == 0 {
		k.Errorf("the old way took %d, the new one %d", len(inOld), len(inSpare))
	}
	k.Logf("harm over after %.1f s, all over after %.1f s: the old way took %d, the new one %d", harmed.Seconds(), took.Seconds(), len(inOld), len(inSpare))
	k.forget()
}

// declareWays makes the source, its target and the queue for which the way changes.
func (k *crash) declareWays(s *session, row withdrawRow) (old, spare string, change func()) {
	k.Helper()
	s.id = fmt.Sprintf("w%08x", time.Now().UnixNano()&0xffffffff)
	args := func(more amqp.Table) amqp.Table {
		more["x-queue-leader-locator"] = "client-local"
		return more
	}
	room := fullLength
	if row.stuck != "" {
		room = 100000
	}
	old = plainQueue(at(k.T, k.at.target), s.name("old"), args(amqp.Table{"x-max-length": room, "x-overflow": "reject-publish"}))
	spare = plainQueue(s, s.name("spare"), args(amqp.Table{}))
	k.targets = []string{old}
	k.dlx = s.name("dlx")
	s.noError("declare", s.ch.ExchangeDeclare(k.dlx, "fanout", true, false, false, false, nil))
	s.bind(old, "", k.dlx, nil)
	name := s.name("source")
	if row.bindings {
		k.source = plainQueue(at(k.T, k.at.source), name, args(kept(amqp.Table{"x-dead-letter-exchange": k.dlx})))
		change = func() {
			s.unbind(old, k.dlx)
			s.bind(spare, "", k.dlx, nil)
		}
	} else {
		policy := func(key string) {
			content := fmt.Sprintf(`{"dead-letter-exchange":"","dead-letter-routing-key":%q}`, key)
			mustCtl(k.T, k.at.clients, "set_policy", "--apply-to", "queues", name, "^"+regexp.QuoteMeta(name)+"$", content)
		}
		policy(old)
		k.Cleanup(func() { mustCtl(k.T, k.at.clients, "clear_policy", name) })
		k.source = plainQueue(at(k.T, k.at.source), name, args(kept(amqp.Table{})))
		change = func() { policy(spare) }
	}
	k.ids.source, k.ids.target = k.led(k.source, k.at.source), k.led(old, k.at.target)
	return old, spare, change
}

// awaitHeld waits until something is held at the node.
func (k *crash) awaitHeld(ctx context.Context, node *cluster.Node) {
	k.Helper()
	err := cluster.Poll(ctx, func() (bool, error) {
		list, err := node.Armed(ctx)
		return err == nil && slices.ContainsFunc(list, func(f cluster.Failpoint) bool { return f.Held }), nil
	})
	if err != nil {
		k.Fatalf("nothing is held at %s", node.Name)
	}
}

// awaitSent waits until the source's leader has sent a withdrawal, or is dead, or stands at
// the row's point.
func (k *crash) awaitSent(ctx context.Context) {
	k.Helper()
	f := cluster.Failpoint{Point: string(failpoint.WithdrawSent), Queue: k.ids.source, Action: "count", At: 1}
	_ = k.at.source.Arm(ctx, f) // it may be dying
	err := cluster.Poll(ctx, func() (bool, error) {
		list, err := k.at.source.Armed(ctx)
		sent := slices.ContainsFunc(list, func(f cluster.Failpoint) bool {
			return f.Action == "count" && f.Passes > 0 || f.Held
		})
		return !k.at.source.Running() || err == nil && sent, nil
	})
	if err != nil {
		k.Fatal("no withdrawal was sent")
	}
}

// awaitEmpty waits until nothing is left in the source.
func (k *crash) awaitEmpty(ctx context.Context) {
	k.Helper()
	var last cluster.Queue
	err := cluster.Poll(ctx, func() (bool, error) {
		list, err := k.at.clients.Queues(ctx)
		for _, q := range list {
			if q.Name == k.source && q.Leader != "" {
				last = q
				return err == nil && q.Ready+q.Unacked+q.Outbox == 0, nil
			}
		}
		return false, nil
	})
	if err != nil {
		k.Fatalf("the source is not empty: %d ready, %d unacked, %d in the outbox", last.Ready, last.Unacked, last.Outbox)
	}
}
