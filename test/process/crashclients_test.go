package process

import (
	"context"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

func (k *crash) body(i int) string { return fmt.Sprintf("%06d %s", i, strings.Repeat("x", 100)) }

// publish publishes all messages that are to die, and those that the source keeps.
func (k *crash) publish(ctx context.Context) error {
	return k.publishSome(ctx, 0, k.messages+k.row.kept())
}

// publishSome publishes messages, some hundred unconfirmed at a time.
func (k *crash) publishSome(ctx context.Context, from, to int) error {
	l, err := k.connect()
	if err != nil {
		return err
	}
	defer l.Close()
	ch, err := l.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return err
	}
	var waiting []*amqp.DeferredConfirmation
	confirmed := func() error {
		ok, err := waiting[0].WaitContext(ctx)
		if err == nil && !ok {
			err = fmt.Errorf("message %d was refused", waiting[0].DeliveryTag)
		}
		waiting = waiting[1:]
		return err
	}
	for i := from; i < to; i++ {
		if i == k.messages/3 && k.row.byItself() {
			k.armPoint()
		}
		d, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", k.source, false, false, message(k.body(i)))
		if err != nil {
			return err
		}
		if k.row.byItself() {
			k.died.Store(int64(i + 1))
		}
		if waiting = append(waiting, d); len(waiting) >= 300 {
			if err := confirmed(); err != nil {
				return err
			}
		}
	}
	for len(waiting) > 0 {
		if err := confirmed(); err != nil {
			return err
		}
	}
	return nil
}

// connect connects to the clients' node, or to another if that one is down.
func (k *crash) connect() (conn *amqp.Connection, err error) {
	for _, n := range append([]*cluster.Node{k.at.clients}, k.c.Nodes()...) {
		if conn, err = connectWith(n.URL(), amqp.Config{Heartbeat: 30 * time.Second}); err == nil {
			break
		}
	}
	return conn, err
}

// reject rejects everything in the source, over lost connections, until ctx ends.
func (k *crash) reject(ctx context.Context) {
	seen := map[string]bool{}
	lost := false
	for ctx.Err() == nil {
		if k.rejectSome(ctx, seen, lost) {
			lost = true
		} else {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (k *crash) rejectSome(ctx context.Context, seen map[string]bool, lost bool) (worked bool) {
	conn, err := k.connect()
	if err != nil {
		return false
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return false
	}
	if err := ch.Qos(300, 0, false); err != nil {
		return false
	}
	deliveries, err := ch.Consume(k.source, "", false, false, false, false, nil)
	if err != nil {
		return false
	}
	for {
		select {
		case <-ctx.Done():
			return true
		case d, open := <-deliveries:
			if !open {
				return worked
			}
			worked = true
			id, _, _ := strings.Cut(string(d.Body), " ")
			if d.Redelivered {
				k.flagged++
				if lost {
					k.requeued[id] = true
				}
			}
			if seen[id] {
				k.again[id], k.requeued[id] = true, true
				if !d.Redelivered {
					k.Errorf("%s was delivered by the source again, not marked as redelivered", id)
				}
			}
			seen[id] = true
			if len(seen) == k.messages/3 && k.row.point != "" {
				k.armPoint()
			}
			k.pause.RLock()
			_ = d.Reject(k.row.reason == limited) // it comes again if the connection is gone
			k.pause.RUnlock()
			k.died.Store(int64(len(seen)))
		}
	}
}
