package process

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// warren runs the binary and returns what it says.
func warren(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	raw, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(raw)
}

func mustWarren(t *testing.T, args ...string) string {
	t.Helper()
	code, out := warren(t, args...)
	if code != 0 {
		t.Fatalf("warren %q: exit code %d: %s", args, code, out)
	}
	return out
}

// restoreArgs are those of `warren restore` for one node of a cluster.
func restoreArgs(c *cluster.Cluster, n *cluster.Node, file string, more ...string) []string {
	var names []string
	for _, n := range c.Nodes() {
		names = append(names, n.Name)
	}
	return append([]string{"restore", "--from", file, "--data-dir", n.DataDir(), "--node-id", n.Name, "--nodes", strings.Join(names, ",")}, more...)
}

// restoreAll makes the folders of all nodes of a cluster that was not started.
func restoreAll(t *testing.T, c *cluster.Cluster, file string, more ...string) {
	t.Helper()
	for _, n := range c.Nodes() {
		args := restoreArgs(c, n, file, more...)
		out := mustWarren(t, args...)
		if n == c.Node(0) {
			t.Log(strings.TrimSpace(out))
		}
		if again := mustWarren(t, args...); !strings.Contains(again, "already") { // as an init container does
			t.Errorf("restored twice: %s", again)
		}
	}
}

// The topology of a load that dead-letters all the time: what is rejected from work goes to audit, where it stays, and to wait, from
// where it comes back.
const (
	loadWork, loadWait, loadAudit = "work", "wait", "audit"
	loadExchange                  = "dlx"
)

// deadLoad publishes, consumes, rejects and acks, and remembers what it did.
type deadLoad struct {
	t *testing.T

	mu        sync.Mutex
	confirmed map[string]time.Time
	acked     map[string]bool // sent
	rejected  map[string]int  // sent
}

func newDeadLoad(t *testing.T, n *cluster.Node) *deadLoad {
	s := at(t, n)
	if err := s.ch.ExchangeDeclare(loadExchange, "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	plainQueue(s, loadWork, amqp.Table{"x-dead-letter-exchange": loadExchange})
	plainQueue(s, loadWait, amqp.Table{"x-message-ttl": 60, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": loadWork})
	plainQueue(s, loadAudit, nil)
	for _, q := range []string{loadWait, loadAudit} {
		if err := s.ch.QueueBind(q, "", loadExchange, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	return &deadLoad{t: t, confirmed: map[string]time.Time{}, acked: map[string]bool{}, rejected: map[string]int{}}
}

// busy waits until something was confirmed, acked and rejected: a backup of less proves nothing.
func (l *deadLoad) busy(t *testing.T) {
	t.Helper()
	await(t, timeoutStart, "the load is under way", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.confirmed) > 0 && len(l.acked) > 0 && len(l.rejected) > 0
	})
}

// publish runs until ctx ends or the node is gone.
func (l *deadLoad) publish(ctx context.Context, url, name string) {
	conn, err := connect(url)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		c, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", loadWork, false, false, amqp.Publishing{
			MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(strings.Repeat(id+" ", 20)),
		})
		if err != nil {
			return
		}
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			return
		}
		l.mu.Lock()
		l.confirmed[id] = time.Now()
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(4 * time.Millisecond):
		}
	}
}

// consume rejects most of what it gets, some times each.
func (l *deadLoad) consume(ctx context.Context, url string) {
	conn, err := connect(url)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Qos(20, 0, false)
	}
	var in <-chan amqp.Delivery
	if err == nil {
		in, err = ch.Consume(loadWork, "", false, false, false, false, nil)
	}
	if err != nil {
		l.t.Error(err)
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case d, ok := <-in:
			if !ok {
				return
			}
			l.mu.Lock()
			rejects := rand.IntN(10) < 7
			if rejects {
				l.rejected[d.MessageId]++
			} else {
				l.acked[d.MessageId] = true
			}
			l.mu.Unlock()
			if rejects {
				err = d.Reject(false)
			} else {
				err = d.Ack(false)
			}
			if err != nil {
				return
			}
		}
	}
}

// deaths is how often a message was rejected from work, by its own history.
func deaths(d *amqp.Delivery) (n int) {
	list, _ := d.Headers["x-death"].([]any)
	for _, e := range list {
		if death, _ := e.(amqp.Table); death["queue"] == loadWork && death["reason"] == "rejected" {
			count, _ := death["count"].(int64)
			n += int(count)
		}
	}
	return n
}

// atRest tells whether queues' leaders have nothing left, no letters under way either.
func atRest(ctx context.Context, c *cluster.Cluster, queues ...string) bool {
	led := map[string]bool{}
	for _, n := range c.Nodes() {
		list, err := n.Queues(ctx)
		if err != nil {
			return false
		}
		for i := range list {
			if q := &list[i]; q.Leader == n.Name && slices.Contains(queues, q.Name) {
				if led[q.Name] = true; q.Ready+q.Unacked+q.Outbox > 0 {
					return false
				}
			}
		}
	}
	return len(led) == len(queues)
}

// restored ends a cluster and checks that a backup of it, begun at began, is whole in a new one of so many nodes.
func (l *deadLoad) restored(t *testing.T, c *cluster.Cluster, nodes int, backup string, began time.Time) {
	t.Helper()
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	again := newCluster(t, nodes)
	restoreAll(t, again, backup)
	startAll(t, again)
	l.drained(t, again, began)
}

// drained takes everything out of a restored cluster and compares: whatever was confirmed before the backup began is there
// once, or was acked; each rejection has its one copy in audit.
func (l *deadLoad) drained(t *testing.T, c *cluster.Cluster, began time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	found, history, audit := map[string]int{}, map[string]int{}, map[string]int{}
	s := at(t, c.Node(0))
	work, err := s.ch.Consume(loadWork, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	quiet := time.NewTimer(2 * time.Second)
	for done := false; !done; {
		select {
		case d := <-work:
			found[d.MessageId]++
			history[d.MessageId] = deaths(&d)
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
			quiet.Reset(2 * time.Second)
		case <-quiet.C:
			if done = atRest(ctx, c, loadWork, loadWait); !done {
				quiet.Reset(time.Second)
			}
		case <-ctx.Done():
			t.Fatal("the restored queues do not become empty")
		}
	}
	for {
		d, ok, err := s.ch.Get(loadAudit, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		audit[d.MessageId]++
	}
	before, twice, lost, wrong := 0, 0, 0, 0
	for id, at := range l.confirmed {
		if at.After(began) {
			continue
		}
		before++
		if found[id] == 0 && !l.acked[id] {
			lost++
			t.Logf("%s is lost, %d times rejected, %d copies", id, l.rejected[id], audit[id])
		}
	}
	for id, n := range found {
		if n > 1 {
			twice++
		}
		if history[id] != audit[id] {
			wrong++
			t.Logf("%s was rejected %d times and has %d copies", id, history[id], audit[id])
		}
	}
	for id, n := range audit {
		if found[id] == 0 && n > l.rejected[id] {
			wrong++
			t.Logf("%s was rejected %d times at most and has %d copies", id, l.rejected[id], n)
		}
	}
	t.Logf("%d confirmed before, %d found, %d copies in audit; lost %d, twice %d, wrong number of copies %d", before, len(found), len(audit), lost, twice, wrong)
	if lost+twice+wrong > 0 || before == 0 || len(found) == 0 || len(audit) == 0 {
		t.Fail()
	}
}

// TestBackupAndRestore takes a backup of three nodes that publish, consume and dead-letter in a retry loop, kills them, and makes new clusters of
// it: three nodes of the same names, five of others, and one. Transactions, delayed messages and a redrive are under way too.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	l, mixed := newDeadLoad(t, c.Node(0)), newMixedLoad(t, c.Node(0))
	mustCtl(t, c.Node(0), "add_user", "keeper", "secret")
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i, n := range c.Nodes() {
		work.Go(func() { l.publish(ctx, n.URL(), fmt.Sprint("p", i)) })
		work.Go(func() { l.consume(ctx, n.URL()) })
	}
	work.Go(func() { mixed.publish(ctx, c.Node(2).URL()) })
	time.Sleep(2 * time.Second)
	mustCtl(t, c.Node(0), "dlq", "retry", mixedParked, "--to", "queue:"+mixedAgain, "--rate", "200", "--wait=false")
	time.Sleep(200 * time.Millisecond)
	file := filepath.Join(t.TempDir(), "cluster.backup")
	l.mu.Lock()
	began := time.Now()
	l.mu.Unlock()
	t.Log(strings.TrimSpace(mustCtl(t, c.Node(1), "backup", "--output", file, "--silent")))
	time.Sleep(300 * time.Millisecond)
	cancel()
	work.Wait()
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	var rep struct {
		Messages, Outbox, Pairs int
		Standstill              int `json:"standstill_ms"`
		Queues                  []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(mustWarren(t, "backup", "verify", "--json", file)), &rep); err != nil {
		t.Fatal(err)
	}
	t.Logf("verified: %+v", rep)
	if rep.Pairs < 3 || rep.Messages == 0 || len(rep.Queues) != 9 || int64(rep.Standstill) > bound(2*time.Second, began).Milliseconds() {
		t.Errorf("the backup has %+v", rep)
	}
	t.Run("cut off", func(t *testing.T) { refusesDamaged(t, file) })
	for name, to := range map[string]struct {
		nodes  int
		prefix string
		more   []string
	}{
		"three of the same names": {nodes: 3},
		"five others":             {nodes: 5, prefix: "other", more: []string{"--zones", "other1=a,other2=a,other3=b,other4=b,other5=c", "--replicas", "3"}},
		"one":                     {nodes: 1, prefix: "single"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, to.nodes, func(cfg *cluster.Config) { cfg.Prefix = to.prefix })
			restoreAll(t, c, file, to.more...)
			startAll(t, c)
			l.drained(t, c, began)
			mixed.drained(t, c.Node(0), began)
			if out := mustCtl(t, c.Node(0), "list_users", "--silent"); !strings.Contains(out, "keeper") {
				t.Errorf("users are %q", out)
			}
			q, err := c.Queue(t.Context(), loadWork)
			if err != nil || len(q.Members) != min(3, to.nodes) {
				t.Errorf("queue is on %v (%v)", q.Members, err)
			}
			s := at(t, c.Node(0)) // and it works on
			s.fill(plainQueue(s, "new", nil), "one")
			s.fill(loadWork, "two")
			if to.nodes == 3 {
				n := c.Node(2)
				restoredLater(t, n, func() { mustWarren(t, restoreArgs(c, n, file, to.more...)...) })
			}
		})
	}
}

// refusesDamaged cuts a backup off and damages it, and gives wrong arguments.
func refusesDamaged(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	damaged, good := filepath.Join(dir, "damaged"), filepath.Join(dir, "data")
	flipped := append([]byte{}, raw...)
	flipped[len(raw)/2] ^= 1
	for name, content := range map[string][]byte{"cut off": raw[:len(raw)-9], "half": raw[:len(raw)/2], "changed": flipped, "empty": nil} {
		if err := os.WriteFile(damaged, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := warren(t, "backup", "verify", damaged); code != 1 {
			t.Errorf("%s: verified: %s", name, out)
		}
		if code, out := warren(t, "restore", "--from", damaged, "--data-dir", good, "--node-id", "a", "--nodes", "a"); code != 1 || !strings.Contains(out, "backup") {
			t.Errorf("%s: restored, exit code %d: %s", name, code, out)
		}
		if _, err := os.Stat(filepath.Join(good, "RESTORING")); err != nil {
			continue // not begun
		}
		if code, out := warren(t, "serve", "--node-id", "a", "--data-dir", good, "--amqp-addr", "127.0.0.1:0"); code != 1 {
			t.Errorf("%s: a node starts on what a restore has left: %s", name, out)
		}
	}
	for what, args := range map[string][]string{
		"another node":     {"--node-id", "b", "--nodes", "a"},
		"twice":            {"--node-id", "a", "--nodes", "a,a"},
		"a bad name":       {"--node-id", "a/b", "--nodes", "a/b"},
		"a zone of nobody": {"--node-id", "a", "--nodes", "a", "--zones", "b=z"},
		"no nodes":         {"--node-id", "a"},
	} {
		if code, out := warren(t, append([]string{"restore", "--from", file, "--data-dir", filepath.Join(dir, "never")}, args...)...); code == 0 {
			t.Errorf("%s: restored: %s", what, out)
		}
	}
	// What a failed restore has left is taken over by the next one; anything else is not.
	mustWarren(t, "restore", "--from", file, "--data-dir", good, "--node-id", "a", "--nodes", "a")
	if code, out := warren(t, "restore", "--from", file, "--data-dir", good, "--node-id", "a", "--nodes", "a", "--salt", "2"); code != 1 || !strings.Contains(out, "with other options") {
		t.Errorf("restored over a node, exit code %d: %s", code, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "never")); err == nil {
		t.Error("wrong arguments have made a folder")
	}
}

// TestBackupWhileLeadersDie takes backups through one node while the others, which lead, are killed and started again: each that
// succeeds is consistent, the others say why and leave no file.
func TestBackupWhileLeadersDie(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	l := newDeadLoad(t, c.Node(1))
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel() // also when the test ends early
	for i := range 2 {
		work.Go(func() { l.publish(ctx, c.Node(0).URL(), fmt.Sprint("p", i)) })
		work.Go(func() { l.consume(ctx, c.Node(0).URL()) })
	}
	l.busy(t)
	dir := t.TempDir()
	best, began, failed := "", time.Time{}, 0
	for i := 0; i < 2 || best == "" && i < 8; i++ {
		victim := c.Node(1 + i%2)
		var kill sync.WaitGroup
		kill.Go(func() {
			time.Sleep(time.Duration(rand.IntN(400<<i)) * time.Millisecond) // later and later, if none has come through
			if err := victim.Kill(); err != nil {
				t.Error(err)
			}
		})
		file := filepath.Join(dir, fmt.Sprint(i))
		at := time.Now()
		code, out, why := ctl(t, c.Node(0), "backup", "--output", file, "--silent")
		kill.Wait()
		if code == 0 {
			best, began = file, at
			t.Log(strings.TrimSpace(out))
			if report := mustWarren(t, "backup", "verify", file); !strings.Contains(report, "whole and consistent") {
				t.Error(report)
			}
		} else {
			failed++
			t.Log(strings.TrimSpace(why))
			left, err := filepath.Glob(file + "*")
			if err != nil || len(left) > 0 {
				t.Errorf("a backup that failed has left %q (%v)", left, err)
			}
		}
		start(t, victim)
	}
	if best == "" {
		t.Fatalf("none of %d succeeded", failed)
	}
	cancel()
	work.Wait()
	l.restored(t, c, 1, best, began)
}

// TestBackupIsGuarded asks for backups that cannot be.
func TestBackupIsGuarded(t *testing.T) {
	c := sharedCluster(t, 3)
	n := c.Node(0)
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustCtl(t, n, "add_user", "watcher", "secret")
	t.Cleanup(func() { mustCtl(t, n, "delete_user", "watcher") })
	mustCtl(t, n, "set_user_tags", "watcher", "monitoring")
	for name, x := range map[string]struct {
		code int
		args []string
	}{
		"no file":              {64, []string{"backup"}},
		"a file that is there": {64, []string{"backup", "--output", there}},
		"no such folder":       {70, []string{"backup", "--output", filepath.Join(dir, "no", "x")}},
		"a negative hold":      {64, []string{"backup", "--output", filepath.Join(dir, "x"), "--hold", "-1s"}},
		"too long a hold":      {70, []string{"backup", "--output", filepath.Join(dir, "x"), "--hold", "2h"}},
		"not an administrator": {77, []string{"backup", "--output", filepath.Join(dir, "x"), "--user", "watcher", "--password", "secret"}},
	} {
		if code, out, why := ctl(t, n, x.args...); code != x.code {
			t.Errorf("%s: exit code %d, want %d: %s%s", name, code, x.code, out, why)
		}
	}
	if raw, err := os.ReadFile(there); err != nil || string(raw) != "precious" {
		t.Errorf("%q, %v", raw, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left are %q, %v", left, err)
	}
	// A disk that is full, as a limit of the file's size has it.
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	limited := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 0; exec "$@"`, "sh", binary, "ctl", "--url", n.HTTP(), "backup", "--output", full)
	if out, err := limited.CombinedOutput(); err == nil || !strings.Contains(string(out), "write "+full) {
		t.Errorf("on a full disk: %v: %s", err, out)
	}
	if left, err := filepath.Glob(full + "*"); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
	// Two at a time: one of them at least succeeds, and what each has is whole.
	var work sync.WaitGroup
	codes := make([]int, 2)
	for i := range codes {
		work.Go(func() {
			codes[i], _, _ = ctl(t, c.Node(i), "backup", "--output", filepath.Join(dir, fmt.Sprint("twice", i)))
		})
	}
	work.Wait()
	if !slices.Contains(codes, 0) {
		t.Errorf("exit codes %v", codes)
	}
	for i, code := range codes {
		if code == 0 {
			mustWarren(t, "backup", "verify", filepath.Join(dir, fmt.Sprint("twice", i)))
		}
	}
	after := filepath.Join(dir, "after")
	mustCtl(t, n, "backup", "--output", after, "--hold", "20s")
	mustWarren(t, "backup", "verify", after)
}
