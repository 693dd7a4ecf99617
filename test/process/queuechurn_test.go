package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/warrenmq/warren/test/cluster"
)

// Rounds of queues that are declared and deleted: with soakEnv set, and else.
const (
	churnRound, churnRounds             = 500, 40
	churnSampleRound, churnSampleRounds = 50, 4
	churnAtOnce                         = 16
)

// What the rounds may leave. The first half fills what has a bound: the catalog remembers the outcomes of its newest 8,192
// requests, and its file of entries has its greatest size when the first snapshots have cut it. Of the second half next to nothing
// may be left: 400 bytes of each queue of a soak would be too much. The files of the log are as large as a segment, however little is in them.
const (
	churnLeftHeap     = 8 << 20
	churnLeftOfSecond = 4 << 20
	churnLeftCatalog  = 24 << 20
	churnLeftLog      = 256 << 20
)

// churnRoll is how much a round of a soak writes before the nodes are measured: the store remembers a deleted group until the segment
// with its records is freed, and that is a segment full.
const churnRoll = 160 << 20

var (
	liveBytes = regexp.MustCompile(`(?m)^warren_store_live_bytes ([0-9.e+]+)$`)
	segments  = regexp.MustCompile(`(?m)^warren_store_segments ([0-9.e+]+)$`)
)

// churned is what a node has after some rounds.
type churned struct {
	footprint
	live, segments int
	log, catalog   int64 // bytes of files
}

func (c churned) String() string {
	return fmt.Sprintf("%v, %d bytes live in %d segments, files of %.1f MiB, of the catalog %.1f MiB",
		c.footprint, c.live, c.segments, float64(c.log)/(1<<20), float64(c.catalog)/(1<<20))
}

func churnedOf(t *testing.T, n *cluster.Node) churned {
	t.Helper()
	c := churned{footprint: measure(t, n), live: metric(t, n, liveBytes), segments: metric(t, n, segments)}
	c.catalog = folderBytes(t, filepath.Join(n.DataDir(), "catalog"))
	c.log = folderBytes(t, n.DataDir()) - c.catalog
	return c
}

// folderBytes is what the files below a folder take on the disk.
func folderBytes(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a segment that was freed meanwhile
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestQueueChurnLeavesNothing declares and deletes queues in rounds, over several connections, beside one queue that keeps a message, and
// checks that no goroutine, file, memory, byte of the log or of the catalog is left of them.
func TestQueueChurnLeavesNothing(t *testing.T) {
	t.Parallel()
	size, rounds := churnSampleRound, churnSampleRounds
	if os.Getenv(soakEnv) != "" {
		size, rounds = churnRound, churnRounds
	}
	c := startCluster(t, 3)
	k := &churn{t: t, c: c}
	for i := range churnAtOnce {
		k.sessions = append(k.sessions, at(t, c.Node(i%3)))
	}
	k.sessions[0].noError("declare", declareOne(k.sessions[0], churnKept))
	k.sessions[0].publish("", churnKept, message("kept"))
	k.round(size)
	k.roll(rounds)
	first, half := make([]churned, 3), make([]churned, 3)
	for i := range first {
		first[i] = churnedOf(t, c.Node(i))
	}
	for range rounds/2 - 1 {
		k.round(size)
	}
	k.roll(rounds)
	for i := range half {
		half[i] = k.settled(i, first[i], churnLeftHeap)
	}
	for range rounds - rounds/2 {
		k.round(size)
	}
	k.roll(rounds)
	for i := range half {
		last := k.settled(i, half[i], churnLeftOfSecond)
		(&soak{t: t, c: c}).profile(i)
		t.Logf("node%d after %d queues: %v", i+1, size, first[i])
		t.Logf("node%d after %d queues: %v", i+1, size*(rounds/2), half[i])
		t.Logf("node%d after %d queues: %v", i+1, size*rounds, last)
	}
}

// churnKept is the queue that stays.
const churnKept = "kept"

func declareOne(s *session, name string) error {
	_, err := s.ch.QueueDeclare(name, true, false, false, false, amqp.Table{})
	return err
}

// churn declares and deletes queues.
type churn struct {
	t        *testing.T
	c        *cluster.Cluster
	sessions []*session
	made     int
}

// round makes and deletes n queues of all kinds and waits until no node knows one.
func (k *churn) round(n int) {
	k.t.Helper()
	var g errgroup.Group
	for w, s := range k.sessions {
		g.Go(func() error {
			for i := w; i < n; i += len(k.sessions) {
				if err := churnOne(s, k.made+i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		k.t.Fatal(err)
	}
	k.made += n
	waitGone(k.t, k.c)
}

// roll fills segments of the log and empties them, if there are more than the rounds of a sample.
func (k *churn) roll(rounds int) {
	k.t.Helper()
	if rounds == churnSampleRounds {
		return
	}
	const name, size = "roll", 1 << 20
	s := k.sessions[0]
	s.noError("declare", declareOne(s, name))
	body := make([]byte, size)
	for range churnRoll / size {
		s.publish("", name, amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent})
	}
	_, err := s.ch.QueueDelete(name, false, false, false)
	s.noError("delete", err)
	waitGone(k.t, k.c)
}

// churnOne declares a queue, uses it and deletes it.
func churnOne(s *session, i int) error {
	name := "churn-" + strconv.Itoa(i)
	durable, exclusive := i%8 != 0, i%8 == 0
	if _, err := s.ch.QueueDeclare(name, durable, false, exclusive, false, amqp.Table{}); err != nil {
		return err
	}
	if i%4 == 1 {
		if err := s.ch.QueueBind(name, name, "amq.topic", false, nil); err != nil {
			return err
		}
	}
	if i%4 == 2 {
		if _, err := s.ch.Consume(name, "", true, false, false, false, nil); err != nil {
			return err
		}
	}
	if err := s.ch.Publish("", name, false, false, message("x")); err != nil {
		return err
	}
	_, err := s.ch.QueueDelete(name, false, false, false)
	return err
}

// settled waits until node i has no more than before, but for some memory and the files that have a bound.
func (k *churn) settled(i int, before churned, heap int) (now churned) {
	k.t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		now = churnedOf(k.t, k.c.Node(i))
		if now.goroutines <= before.goroutines+leftGoroutines && now.files <= before.files+leftFiles && now.heap <= before.heap+heap &&
			now.live <= before.live && now.catalog <= before.catalog+churnLeftCatalog && now.log <= before.log+churnLeftLog {
			return now
		}
		if time.Now().After(limit) {
			k.t.Errorf("node%d after %d queues: %v; before: %v", i+1, k.made, now, before)
			return now
		}
	}
}

// metric reads one figure of a node.
func metric(t *testing.T, n *cluster.Node, form *regexp.Regexp) int {
	t.Helper()
	text, err := n.Fetch(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	m := form.FindSubmatch(text)
	if m == nil {
		t.Fatalf("/metrics does not tell %v", form)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}

// waitGone waits until no node knows a queue but the one that is kept, closing ones included.
func waitGone(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	limit := time.Now().Add(time.Minute)
	for i := range 3 {
		for {
			list, err := c.Node(i).Queues(t.Context())
			if err == nil && len(list) == 1 { // churnKept
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("node%d still has %d queues (%v)", i+1, len(list)-1, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
