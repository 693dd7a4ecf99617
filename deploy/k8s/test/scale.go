package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/warrenmq/warren/deploy/k8s/test/rig"
)

// scale takes three pods to five, makes queues on all of them, and takes them back to three, as docs/kubernetes.md says. The three never restart.
func (t *test) scale(ctx context.Context) error {
	before, err := t.rig.UIDs(ctx)
	if err != nil {
		return err
	}
	if err := t.replicas(ctx, 5); err != nil {
		return err
	}
	if err := t.same(ctx, before); err != nil {
		return err
	}
	if err := t.onChannel(ctx, func(ch *amqp.Channel) error { return fill(ctx, ch) }); err != nil {
		return err
	}
	if err := t.scaleDown(ctx); err != nil {
		return err
	}
	if err := t.same(ctx, before); err != nil {
		return err
	}
	return t.onChannel(ctx, empty)
}

// scaleDown empties the last two nodes, then stops and forgets them.
func (t *test) scaleDown(ctx context.Context) error {
	gone := []string{"warren-4", "warren-3"}
	for _, pod := range gone {
		began := time.Now()
		if _, err := t.ctl(ctx, "warren-0", "decommission_node", pod, "--timeout", "300"); err != nil {
			return err
		}
		t.log.Info("decommissioned", "pod", pod, "seconds", int(time.Since(began).Seconds()))
	}
	if err := t.whole(ctx, "warren-0", "warren-1", "warren-2"); err != nil {
		return err
	}
	if err := t.replicas(ctx, 3); err != nil {
		return err
	}
	// A forgotten node does not come back: its volume is worth nothing.
	for _, pod := range gone {
		if err := t.rig.Client.CoreV1().PersistentVolumeClaims(rig.Namespace).Delete(ctx, "data-"+pod, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// replicas changes the StatefulSet's number of pods and waits for them.
func (t *test) replicas(ctx context.Context, n int) error {
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, n)
	if _, err := t.rig.Client.AppsV1().StatefulSets(rig.Namespace).Patch(ctx, set, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := t.rig.Ready(ctx, set, readyWait); err != nil {
		return err
	}
	return t.rig.Until(ctx, readyWait, func(ctx context.Context) error {
		pods, err := t.rig.UIDs(ctx)
		if err == nil && len(pods) != n {
			err = fmt.Errorf("%d pods", len(pods))
		}
		return err
	})
}

const (
	filledQueues   = 10
	filledMessages = 20 // in each
)

// onChannel gives use a channel through the Service.
func (t *test) onChannel(ctx context.Context, use func(*amqp.Channel) error) error {
	cfg, err := t.client(ctx)
	if err != nil {
		return err
	}
	conn, err := amqp.DialTLS(cfg.URL, cfg.TLS)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return use(ch)
}

// fill declares queues and puts messages into them, each confirmed.
func fill(ctx context.Context, ch *amqp.Channel) error {
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for i := range filledQueues {
		name := fmt.Sprint("scale-", i)
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			return err
		}
		for n := range filledMessages {
			c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: strconv.Itoa(n)})
			if err != nil {
				return err
			}
			if ok, err := c.WaitContext(ctx); err != nil || !ok {
				return fmt.Errorf("%s: confirm %t, %w", name, ok, err)
			}
		}
	}
	return nil
}

// empty takes what fill has put there, all of it, in its order.
func empty(ch *amqp.Channel) error {
	for i := range filledQueues {
		name := fmt.Sprint("scale-", i)
		for n := range filledMessages + 1 {
			d, ok, err := ch.Get(name, true)
			if err != nil {
				return err
			}
			if last := n == filledMessages; ok == last || ok && d.MessageId != strconv.Itoa(n) {
				return fmt.Errorf("%s: message %d is %q, %t", name, n, d.MessageId, ok)
			}
		}
	}
	return nil
}
