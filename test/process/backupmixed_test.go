package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/test/cluster"
)

// What mixedLoad works with.
const (
	mixedLeft, mixedRight   = "tx-left", "tx-right"
	mixedLate, mixedLater   = "late", "later"
	mixedParked, mixedAgain = "parked", "again"
	mixedInPark             = 500
)

// mixedLoad moves messages between queues in the other ways there are: transactions over two queues, delayed messages, a redrive.
type mixedLoad struct {
	t *testing.T

	mu                 sync.Mutex
	committed, delayed map[string]time.Time // by message, when it was confirmed
}

func newMixedLoad(t *testing.T, n *cluster.Node) *mixedLoad {
	s := at(t, n)
	for _, q := range []string{mixedLeft, mixedRight, mixedLater, mixedParked, mixedAgain} {
		plainQueue(s, q, nil)
	}
	if err := s.ch.ExchangeDeclare(mixedLate, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"}); err != nil {
		t.Fatal(err)
	}
	if err := s.ch.QueueBind(mixedLater, "", mixedLate, false, nil); err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for i := range mixedInPark {
		bodies = append(bodies, fmt.Sprint("parked-", i))
	}
	s.fill(mixedParked, bodies...)
	return &mixedLoad{t: t, committed: map[string]time.Time{}, delayed: map[string]time.Time{}}
}

// publish runs until ctx ends: commits a message for both queues of a transaction, and confirms a delayed one.
func (l *mixedLoad) publish(ctx context.Context, url string) {
	conn, err := connect(url)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer conn.Close()
	tx, err := conn.Channel()
	if err == nil {
		err = tx.Tx()
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	late, err := conn.Channel()
	if err == nil {
		err = late.Confirm(false)
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprint("m-", i)
		for _, q := range []string{mixedLeft, mixedRight} {
			err = errors.Join(err, tx.PublishWithContext(ctx, "", q, false, false, amqp.Publishing{Body: []byte(id), DeliveryMode: amqp.Persistent}))
		}
		if err = errors.Join(err, tx.TxCommit()); err != nil {
			return
		}
		l.mu.Lock()
		l.committed[id] = time.Now()
		l.mu.Unlock()
		c, err := late.PublishWithDeferredConfirmWithContext(ctx, mixedLate, "", false, false, amqp.Publishing{
			Body: []byte(id), DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-delay": int32(i % 50 * 20)},
		})
		if err != nil {
			return
		}
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			return
		}
		l.mu.Lock()
		l.delayed[id] = time.Now()
		l.mu.Unlock()
	}
}

// drained takes everything out of a restored cluster: a transaction is whole or not there, what was confirmed before the backup began is there, and
// nothing comes twice.
func (l *mixedLoad) drained(t *testing.T, n *cluster.Node, began time.Time) {
	t.Helper()
	s := at(t, n)
	found := map[string]map[string]int{}
	take := func() {
		for _, q := range []string{mixedLeft, mixedRight, mixedLater, mixedParked, mixedAgain} {
			if found[q] == nil {
				found[q] = map[string]int{}
			}
			for {
				d, ok, err := s.ch.Get(q, true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				found[q][string(d.Body)]++
			}
		}
	}
	wrong := func() (all []string) {
		for id, at := range l.committed {
			if at.Before(began) && found[mixedLeft][id] == 0 {
				all = append(all, id+" is lost")
			}
		}
		if !maps.Equal(found[mixedLeft], found[mixedRight]) {
			all = append(all, fmt.Sprintf("transactions are not whole: %d and %d messages", len(found[mixedLeft]), len(found[mixedRight])))
		}
		for id, at := range l.delayed {
			if at.Before(began) && found[mixedLater][id] == 0 {
				all = append(all, id+" was delayed and is lost")
			}
		}
		for i := range mixedInPark {
			if id := fmt.Sprint("parked-", i); found[mixedParked][id]+found[mixedAgain][id] != 1 {
				all = append(all, fmt.Sprintf("%s is there %d times", id, found[mixedParked][id]+found[mixedAgain][id]))
			}
		}
		for q, ids := range found {
			for id, n := range ids {
				if n != 1 {
					all = append(all, fmt.Sprintf("%s is %d times in %s", id, n, q))
				}
			}
		}
		return all
	}
	for deadline := time.Now().Add(timeoutStart); ; time.Sleep(200 * time.Millisecond) {
		if take(); len(wrong()) == 0 || time.Now().After(deadline) {
			break
		}
	}
	time.Sleep(500 * time.Millisecond)
	take()
	bad := wrong()
	slices.Sort(bad)
	t.Logf("%d transactions, %d delayed, %d redriven and %d not; wrong: %d", len(found[mixedLeft]), len(found[mixedLater]), len(found[mixedAgain]), len(found[mixedParked]), len(bad))
	if len(bad) > 0 || len(found[mixedLeft]) == 0 || len(found[mixedLater]) == 0 || len(found[mixedAgain]) == 0 {
		t.Errorf("wrong: %s", strings.Join(bad[:min(len(bad), 10)], "; "))
	}
}

// restoredLater has a node of a restored cluster lose its folder. One that is restored for it again, which has forgotten what it has confirmed since, is refused; an
// empty one joins.
func restoredLater(t *testing.T, n *cluster.Node, again func()) {
	t.Helper()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	wipe(t, n)
	again()
	ends(t, n, "this folder was restored after its cluster had begun")
	wipe(t, n)
	start(t, n)
	mustCtl(t, n, "cluster_status")
}

// wipe empties the data folder of a node that does not run.
func wipe(t *testing.T, n *cluster.Node) {
	t.Helper()
	if err := os.RemoveAll(n.DataDir()); err != nil {
		t.Fatal(err)
	}
}

// TestBackupBreaksOff kills the leader of a queue while its bytes are fetched, for certain: whoever asked has read some of
// them and no more. The answer breaks off, so nobody takes it for whole, and the next backup is.
func TestBackupBreaksOff(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(1))
	var bodies []string
	for range 12 {
		body := make([]byte, 1<<20) // what cannot be compressed fills all buffers between the leader and the reader
		_, _ = rand.Read(body)
		bodies = append(bodies, string(body))
	}
	s.fill(plainQueue(s, "large", nil), bodies...)
	for i := range 2 { // one is led by each node
		s.fill(plainQueue(s, fmt.Sprint("small-", i), nil), "x")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Node(0).HTTP()+"/api/warren/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in, err := backup.Open(resp.Body)
	if err != nil {
		t.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	// One whose bytes do not come first, nor from the node that was asked.
	i := -1
	for _, q := range in.Header.Queues[1:] {
		i = max(i, slices.IndexFunc(c.Nodes(), func(n *cluster.Node) bool { return strings.HasPrefix(q.Node, n.Name+"/") }))
	}
	if i < 1 {
		t.Fatalf("led by %+v", in.Header.Queues)
	}
	if err := c.Node(i).Kill(); err != nil {
		t.Fatal(err)
	}
	parts := 0
	for ; err == nil; parts++ {
		var p *backup.Part
		if p, err = in.Next(); err == nil {
			_, err = io.Copy(io.Discard, p)
		}
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, backup.ErrMalformed) {
		t.Errorf("whole after %d parts, without its leader", parts)
	}
	t.Logf("broke off in part %d of %d: %v", parts, len(in.Header.Queues)+1, err)
	start(t, c.Node(i))
	code, out, why := ctl(t, c.Node(i), "backup", "--output", "-")
	if code != 0 {
		t.Fatal(why)
	}
	if in, err = backup.Open(bytes.NewReader([]byte(out))); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = in.Next()
	}
	if !errors.Is(err, io.EOF) || len(in.Header.Queues) != 3 {
		t.Errorf("%d queues, %v", len(in.Header.Queues), err)
	}
}
