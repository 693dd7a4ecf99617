package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// churn declares and deletes a queue that gets dead letters and dead-letters what it gets, until ctx ends.
func (l *deadLoad) churn(ctx context.Context, url, name string) {
	conn, err := connect(url)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	for err == nil && ctx.Err() == nil {
		_, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{
			"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": loadSink, "x-dead-letter-on-removal": rand.IntN(2) == 0,
		})
		if err == nil {
			err = ch.QueueBind(name, "", loadExchange, false, nil)
		}
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		if err == nil {
			_, err = ch.QueueDelete(name, false, false, false)
		}
	}
	if err != nil {
		l.t.Errorf("%s: %v", name, err)
	}
}

const loadSink = "sink"

// TestBackupWhileQueuesComeAndGo takes backups while queues that dead letters go to and come from are deleted and declared again: each is
// consistent, and a cluster of the last one has everything once.
func TestBackupWhileQueuesComeAndGo(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	l := newDeadLoad(t, c.Node(0))
	plainQueue(at(t, c.Node(0)), loadSink, amqp.Table{"x-max-length": 1000})
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel() // also when the test ends early
	for i, n := range c.Nodes() {
		work.Go(func() { l.publish(ctx, n.URL(), fmt.Sprint("p", i)) })
		work.Go(func() { l.consume(ctx, n.URL()) })
		work.Go(func() { l.churn(ctx, n.URL(), fmt.Sprint("churn", i)) })
	}
	l.busy(t)
	dir := t.TempDir()
	var last string
	var began time.Time
	for i := range 4 {
		last, began = filepath.Join(dir, fmt.Sprint(i)), time.Now()
		t.Log(strings.TrimSpace(mustCtl(t, c.Node(i%3), "backup", "--output", last, "--silent")))
		if report := mustWarren(t, "backup", "verify", last); !strings.Contains(report, "whole and consistent") {
			t.Error(report)
		}
	}
	cancel()
	work.Wait()
	l.restored(t, c, 2, last, began)
}
