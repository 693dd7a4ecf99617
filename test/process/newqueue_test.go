package process

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

// TestNewQueuesAnswerAtOnce declares and deletes a queue again and again while clients of all nodes publish to it. What reaches
// its leader before that has begun is neither lost nor said again only after a second without an answer.
func TestNewQueuesAnswerAtOnce(t *testing.T) {
	t.Parallel()
	// Of the lives of a queue a tenth was slow. A machine that is busy with other things may make a few so.
	const lives, slowMax, slow = 100, 3, 900 * time.Millisecond
	c := startCluster(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var unanswered atomic.Int64
	var g errgroup.Group
	for _, n := range c.Nodes() {
		ch := at(t, n).ch
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		g.Go(func() error {
			for ctx.Err() == nil {
				begin := time.Now()
				confirm, err := ch.PublishWithDeferredConfirm("", "born", false, false, message("x"))
				if err != nil {
					return err
				}
				waiting, done := context.WithTimeout(t.Context(), timeoutReply)
				_, err = confirm.WaitContext(waiting)
				done()
				if err != nil {
					return err
				}
				if time.Since(begin) > slow {
					unanswered.Add(1)
				}
			}
			return nil
		})
	}
	s, late := at(t, c.Node(0)), 0
	for range lives {
		begin := time.Now()
		_, err := s.ch.QueueDeclare("born", true, false, false, false, amqp.Table{})
		s.noError("declare", err)
		declared := time.Now()
		_, err = s.ch.QueueDelete("born", false, false, false)
		s.noError("delete", err)
		if declared.Sub(begin) > slow || time.Since(declared) > slow {
			late++
		}
	}
	cancel()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := unanswered.Load(); late > slowMax || n > 3*slowMax {
		t.Errorf("of %d queues %d were declared or deleted late, %d publishes confirmed late", lives, late, n)
	}
}
