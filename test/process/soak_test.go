package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// soakEnv sets how long TestSoak opens and drops connections: `make soak` asks
// for ten minutes.
const soakEnv = "WARREN_SOAK"

// What a soak of soakFull does; a shorter one does its share of it, with
// soakSampleAtOnce connections at a time.
const (
	soakFull         = 10 * time.Minute
	soakConnections  = 10_000
	soakAtOnce       = 1_000
	soakSampleAtOnce = 100
	soakSample       = 20 * time.Second
)

// What may be left of a soak on one node, beside the cache of the log's newest bytes, which fills up to
// its bound whoever writes. The first half fills what else has a bound (docs/testing.md names it); of
// the second half's connections next to nothing may be left: 400 bytes of each would be too much.
const (
	leftGoroutines = 16
	leftFiles      = 8
	leftHeapBytes  = 6 << 20
	leftOfSecond   = 2 << 20
)

// footprint is what a node uses. The cache is not in heap, and files of the log are not in files: where little
// is written there are up to eight small ones before they grow (store's manySegments), as after 10,000 connections.
type footprint struct{ goroutines, files, heap, cache, resident int }

func (f footprint) String() string {
	mib := func(n int) float64 { return float64(n) / (1 << 20) }
	return fmt.Sprintf("%d goroutines, %d files, %.1f MiB heap beside %.1f MiB cache, %.1f MiB resident", f.goroutines, f.files, mib(f.heap), mib(f.cache), mib(f.resident))
}

var (
	goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)
	heapAlloc      = regexp.MustCompile(`# HeapAlloc = (\d+)`)
	cacheBytes     = regexp.MustCompile(`(?m)^warren_store_cache_bytes ([0-9.e+]+)$`)
)

// measure returns what a node uses after a collection of garbage.
func measure(t *testing.T, n *cluster.Node) (f footprint) {
	t.Helper()
	number := func(path string, form *regexp.Regexp) int {
		text, err := n.Fetch(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		m := form.FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s does not tell %v", path, form)
		}
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(v)
	}
	for range 2 { // pools survive the first
		f.heap = number("/debug/pprof/heap?gc=1&debug=1", heapAlloc)
	}
	f.cache = number("/metrics", cacheBytes)
	f.heap -= f.cache
	f.goroutines = number("/debug/pprof/goroutine?debug=1", goroutineTotal)
	dir := fmt.Sprintf("/proc/%d/fd", n.PID())
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name, err := os.Readlink(filepath.Join(dir, file.Name())); err != nil || filepath.Ext(name) != ".seg" { // or closed meanwhile
			f.files++
		}
	}
	f.resident = residentBytes(t, n.PID(), "VmRSS:")
	return f
}

// TestSoak opens and drops connections and channels at random, some without a
// word, and checks that nothing of them is left on the nodes.
func TestSoak(t *testing.T) {
	t.Parallel()
	duration := soakSample
	if s := os.Getenv(soakEnv); s != "" {
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	atOnce := soakAtOnce
	if duration < soakFull {
		atOnce = soakSampleAtOnce
	}
	total := max(int(float64(soakConnections)*duration.Seconds()/soakFull.Seconds()), 2*atOnce)
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	k := &soak{t: t, c: c, queue: plainQueue(s, "soak", amqp.Table{"x-max-length": 1000})}
	s.noError("close", s.conn.Close())
	k.run(t.Context(), 2*atOnce/10, atOnce/10, time.Second) // pools and caches fill once
	time.Sleep(time.Second)
	before := make([]footprint, 3)
	for i := range before {
		before[i] = measure(t, c.Node(i))
	}
	k.reset()
	begun := time.Now()
	k.run(t.Context(), total/2, atOnce, duration/2)
	time.Sleep(time.Second)
	half := make([]footprint, 3)
	for i := range half {
		half[i] = k.settled(i, before[i], leftHeapBytes)
	}
	k.run(t.Context(), total-total/2, atOnce, duration-duration/2)
	t.Logf("%d connections in %v, up to %d at once, %d channels, %d killed without a close, %d failed to open",
		k.opened.Load(), time.Since(begun).Round(time.Second), k.most.Load(), k.channels.Load(), k.killed.Load(), k.failed.Load())
	if k.failed.Load() > k.opened.Load()/100 {
		t.Errorf("%d connections could not be opened", k.failed.Load())
	}
	for i := range before {
		k.settled(i, half[i], leftOfSecond)
		k.profile(i)
	}
}

// soak is one run of connections.
type soak struct {
	t     *testing.T
	c     *cluster.Cluster
	queue string

	opened, channels, killed, failed, open, most atomic.Int64
}

func (k *soak) reset() {
	for _, n := range []*atomic.Int64{&k.opened, &k.channels, &k.killed, &k.failed, &k.open, &k.most} {
		n.Store(0)
	}
}

// run opens total connections within duration, up to atOnce at a time.
func (k *soak) run(ctx context.Context, total, atOnce int, duration time.Duration) {
	life := duration * time.Duration(atOnce) / time.Duration(total)
	deadline := time.Now().Add(duration)
	var left atomic.Int64
	left.Store(int64(total))
	var wg sync.WaitGroup
	for i := range atOnce {
		wg.Go(func() {
			// Spread the beginnings over one life.
			time.Sleep(life * time.Duration(i) / time.Duration(atOnce))
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				k.connection(min(time.Duration(rand.Int64N(int64(2*life))), max(time.Until(deadline), 10*time.Millisecond)))
			}
		})
	}
	wg.Wait()
}

// connection lives for about d.
func (k *soak) connection(d time.Duration) {
	var socket net.Conn
	conn, err := connectWith(k.c.Node(rand.IntN(3)).URL(), amqp.Config{
		Heartbeat: 20 * time.Second,
		Dial: func(network, addr string) (net.Conn, error) {
			c, err := amqp.DefaultDial(30*time.Second)(network, addr)
			socket = c
			return c, err
		},
	})
	if err != nil {
		k.failed.Add(1)
		return
	}
	k.opened.Add(1)
	now := k.open.Add(1)
	for m := k.most.Load(); now > m && !k.most.CompareAndSwap(m, now); m = k.most.Load() {
	}
	defer k.open.Add(-1)
	end := time.Now().Add(d)
	for turn := 0; turn == 0 || time.Now().Before(end); turn++ {
		k.channel(conn)
		time.Sleep(min(time.Until(end), time.Duration(rand.Int64N(int64(d)/2+1))))
	}
	if rand.IntN(3) == 0 {
		k.killed.Add(1)
		if tcp, ok := socket.(*net.TCPConn); ok && rand.IntN(2) == 0 {
			_ = tcp.SetLinger(0) // a reset in place of an end
		}
		_ = socket.Close()
		return
	}
	_ = conn.Close()
}

// channel opens a channel and does something with it; half of them are left open.
// What fails has ended with the channel, and that is all that counts here.
func (k *soak) channel(conn *amqp.Connection) {
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	k.channels.Add(1)
	switch rand.IntN(6) {
	case 0:
		_, _ = ch.Consume(k.queue, "", false, false, false, false, nil)
	case 1:
		_ = ch.Publish("", k.queue, false, false, amqp.Publishing{Body: make([]byte, 1000)})
	case 2:
		if q, err := ch.QueueDeclare("", false, false, true, false, nil); err == nil {
			_ = ch.Publish("", q.Name, false, false, amqp.Publishing{Body: make([]byte, 1000)})
		}
	case 3:
		_, _, _ = ch.Get(k.queue, false)
	case 4:
		_, _ = ch.QueueDeclarePassive("nobody's", false, false, false, false, nil) // closes the channel
	case 5:
		_, _ = ch.Consume(replyTo, "", true, false, false, false, nil)
	}
	if rand.IntN(2) == 0 {
		_ = ch.Close()
	}
}

// profile keeps a node's heap profile in the folder of WARREN_SOAK_PROFILES.
func (k *soak) profile(i int) {
	dir := os.Getenv("WARREN_SOAK_PROFILES")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), timeoutReply)
	defer cancel()
	text, err := k.c.Node(i).Fetch(ctx, "/debug/pprof/heap")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("heap%d.pb.gz", i+1)), text, 0o644)
	}
	if err != nil {
		k.t.Error(err)
	}
}

// settled waits until a node has given back what the connections took, but for heap bytes.
func (k *soak) settled(i int, before footprint, heap int) (after footprint) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		after = measure(k.t, k.c.Node(i))
		if after.goroutines <= before.goroutines+leftGoroutines && after.files <= before.files+leftFiles && after.heap <= before.heap+heap {
			k.t.Logf("node %d: %v; before %v", i+1, after, before)
			return after
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	k.t.Errorf("node %d: left %v; before %v", i+1, after, before)
	return after
}
