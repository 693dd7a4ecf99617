package process

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/test/cluster"
)

// deadCount is the number of dead letters of the cases that RabbitMQ's own tests have.
const deadCount = 300

// TestCrashTargetRecreated deletes the target of dead letters and declares it again while
// they move, each time at another step of the source: all arrive in one of the targets, once.
// D18, D71, D72.
func TestCrashTargetRecreated(t *testing.T) {
	t.Parallel()
	c := stoppableCluster(t)
	k := newCrash(t, c, crashRow{targets: 1, reason: rejected}, deadCount, 0)
	k.eachLetter = true
	k.declareOn(amqp.Table{"x-queue-leader-locator": "client-local", "x-dead-letter-strategy": "at-least-once"})
	s := at(t, k.at.clients)
	held := k.hold(s)
	var got []string
	begun := time.Now()
	for _, point := range failpoint.Steps() {
		k.row.point = point
		if k.row.atTarget() {
			continue // what such a target takes is not known
		}
		k.arm()
		reject(s, held[:40])
		held = held[40:]
		ctx, cancel := context.WithTimeout(t.Context(), crashWait)
		k.awaitPoint(ctx)
		var taken []string
		s.until(fmt.Sprintf("an empty target at %s", point), func() bool { // more may come behind what was late
			k.quiet(s, k.targets[0])
			taken = append(taken, k.drain(k.targets[0])...)
			_, err := s.channel(s.conn).QueueDelete(k.targets[0], false, true, false)
			return err == nil
		})
		plainQueue(s, k.targets[0], nil)
		s.bind(k.targets[0], "#", k.dlx, nil)
		s.noError("disarm", k.at.source.Disarm(ctx))
		cancel()
		t.Logf("%s after %.1f s: %d came before the target was deleted", point, time.Since(begun).Seconds(), len(taken))
		got = append(got, taken...)
	}
	reject(s, held)
	k.outbox(0)
	t.Logf("all moved after %.1f s", time.Since(begun).Seconds())
	k.quiet(s, k.targets[0])
	k.once(append(got, k.drain(k.targets[0])...))
}

// TestCrashSourceDeleted deletes the source while its dead letters move: all that were in
// its outbox arrive, once. D11, D72.
func TestCrashSourceDeleted(t *testing.T) {
	t.Parallel()
	c := stoppableCluster(t)
	// The steps at which the source's leader goes on, so that it takes all rejects.
	for i, point := range []failpoint.Point{failpoint.MoveUnrouted, failpoint.MoveRouted, failpoint.MoveSent, failpoint.MoveAnswered} {
		t.Run(string(point), func(t *testing.T) {
			k := newCrash(t, c, crashRow{point: point, targets: 1, reason: rejected}, deadCount, i)
			k.declare()
			s := at(t, k.at.clients)
			held := k.hold(s)
			s.fill(k.source, "goes with the queue")
			k.arm()
			reject(s, held)
			ctx, cancel := context.WithTimeout(t.Context(), crashWait)
			defer cancel()
			k.awaitPoint(ctx)
			k.outbox(deadCount)
			if _, err := s.ch.QueueDelete(k.source, false, false, false); err != nil {
				t.Fatal(err)
			}
			s.noError("disarm", k.at.source.Disarm(ctx))
			s.ready(k.targets[0], deadCount)
			k.once(k.drain(k.targets[0]))
			s.until("the source to be gone", func() bool {
				for _, q := range k.queues() {
					if q.ID == k.ids.source {
						return false
					}
				}
				return true
			})
		})
	}
}

// TestCrashTargetWithoutQuorum kills two of the target's three members: dead letters wait in
// the outbox, and arrive when the members are back. D63.
func TestCrashTargetWithoutQuorum(t *testing.T) {
	t.Parallel()
	const messages = 50
	c := stoppableCluster(t)
	k := newCrash(t, c, crashRow{targets: 1, reason: rejected}, messages, 0)
	k.declare()
	s := at(t, k.at.clients)
	k.source = plainQueue(s, s.name("alone"), amqp.Table{
		"x-dead-letter-exchange": k.dlx, "x-quorum-initial-group-size": 1, "x-queue-leader-locator": "client-local",
	})
	k.led(k.source, k.at.clients)
	held := k.hold(s)
	k.kill(k.at.source, k.at.target)
	reject(s, held)
	k.outbox(messages)
	time.Sleep(10 * time.Second)
	k.outbox(messages)
	startAll(t, c)
	k.outbox(0)
	s.ready(k.targets[0], messages)
	k.check(k.targets[0])
}

// TestCrashAgainAndAgain kills whoever leads the source or one of its two targets at a step
// chosen by chance, starts it again and goes on, so that a crash meets what the ones before
// left half done. D16, D72.
func TestCrashAgainAndAgain(t *testing.T) {
	t.Parallel()
	rounds, each := 5, 200
	if os.Getenv(crashEnv) != "" {
		rounds, each = 60, 500
	}
	c := stoppableCluster(t)
	k := newCrash(t, c, crashRow{targets: 2, reason: rejected}, rounds*each, 0)
	k.eachLetter = rand.N(2) == 0
	k.declare()
	ctx, cancel := context.WithTimeout(t.Context(), crashWait+time.Duration(rounds)*5*time.Second)
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	begin := func(round int) (*cluster.Node, failpoint.Point) {
		k.pause.Lock()
		defer k.pause.Unlock()
		if err := k.publishSome(ctx, round*each, (round+1)*each); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		return k.armLeader(ctx)
	}
	work.Go(func() { k.reject(ctx) })
	kills := 0
	for round := range rounds {
		node, point := begin(round)
		_ = cluster.Poll(ctx, func() (bool, error) {
			if node.Running() && k.died.Load() < int64((round+1)*each) {
				return false, nil
			}
			return true, nil
		})
		time.Sleep(time.Duration(rand.N(200)) * time.Millisecond)
		for end := time.Now().Add(3 * time.Second); node.Running() && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			// what moves may be late behind who rejects
		}
		if !node.Running() || node.Disarm(ctx) != nil { // it may just be dying
			if _, err := node.Wait(ctx); err != nil {
				t.Fatalf("round %d at %s: %v", round, point, err)
			}
			kills++
		}
		startAll(t, c)
	}
	k.awaitMoved(ctx)
	cancel()
	work.Wait()
	for _, target := range k.targets {
		k.check(target)
	}
	t.Logf("%d kills, %d of %d delivered again", kills, len(k.again), k.messages)
	if kills < rounds/2 {
		t.Errorf("only %d of %d rounds killed a node", kills, rounds)
	}
}

// armLeader arms a point that kills the present leader of the source or the first target.
func (k *crash) armLeader(ctx context.Context) (*cluster.Node, failpoint.Point) {
	k.Helper()
	steps := k.steps()
	row := crashRow{point: steps[rand.N(len(steps))]}
	queue, id := k.source, k.ids.source
	if row.atTarget() {
		queue, id = k.targets[0], k.ids.target
	}
	node, err := k.c.Leader(ctx, queue)
	if err != nil {
		k.Fatal(err)
	}
	f := cluster.Failpoint{Point: string(row.point), Queue: id, Action: "kill", At: 1}
	if err := node.Arm(ctx, f); err != nil {
		k.Fatal(err)
	}
	return node, row.point
}

// hold publishes all messages to the source and returns their deliveries.
func (k *crash) hold(s *session) []amqp.Delivery {
	k.Helper()
	return k.holdFrom(s, "")
}

// holdFrom is hold; the messages come through an exchange.
func (k *crash) holdFrom(s *session, exchange string) []amqp.Delivery {
	k.Helper()
	bodies := make([]string, k.messages)
	for i := range bodies {
		bodies[i] = k.body(i)
	}
	s.fillThrough(exchange, k.source, bodies...)
	_, deliveries := s.consume(k.source, k.messages)
	return s.take(deliveries, false, bodies...)
}

func reject(s *session, held []amqp.Delivery) {
	s.Helper()
	for _, d := range held {
		s.noError("reject", d.Reject(false))
	}
}

// arm holds the next pass of the row's point.
func (k *crash) arm() {
	k.Helper()
	f := cluster.Failpoint{Point: string(k.row.point), Queue: k.ids.source, Action: "hold", At: 1}
	if err := k.at.source.Arm(k.Context(), f); err != nil {
		k.Fatal(err)
	}
}

// quiet waits until the queue's length has not changed for a while.
func (k *crash) quiet(s *session, queue string) {
	k.Helper()
	last, since := -1, time.Now()
	s.until(queue+" to be quiet", func() bool {
		q, err := s.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		s.noError("look", err)
		if q.Messages != last {
			last, since = q.Messages, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	}, &last)
}

// outbox waits until the source has n dead letters on their way.
func (k *crash) outbox(n int) {
	k.Helper()
	got := -1
	deadline := time.Now().Add(timeoutReply)
	for got != n {
		for _, q := range k.queues() {
			if q.Name == k.source && q.Leader != "" {
				got = q.Outbox
			}
		}
		if got != n && time.Now().After(deadline) {
			k.Fatalf("%d dead letters are on their way, want %d", got, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// queues is what the clients' node tells. It takes its time while a queue has no leader.
func (k *crash) queues() (list []cluster.Queue) {
	k.Helper()
	client := http.Client{Timeout: timeoutReply}
	resp, err := client.Get(k.at.clients.HTTP() + "/debug/queues")
	if err != nil {
		k.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		k.Fatal(err)
	}
	return list
}

// once checks that every message is among the ids, and none twice.
func (k *crash) once(ids []string) {
	k.Helper()
	count := map[string]int{}
	for _, id := range ids {
		count[id]++
	}
	for i := range k.messages {
		if id := fmt.Sprintf("%06d", i); count[id] != 1 {
			k.Errorf("%s came %d times", id, count[id])
		}
	}
	if len(count) != k.messages {
		k.Errorf("%d different messages came, want %d", len(count), k.messages)
	}
}
