package process

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// shovelRig is a cluster with a source and a target.
type shovelRig struct {
	*session

	c        *cluster.Cluster
	src, dst string
}

func newShovelRig(t *testing.T, c *cluster.Cluster, n *cluster.Node) *shovelRig {
	s := at(t, n)
	return &shovelRig{s, c, s.queue("src", amqp.Table{"x-queue-type": "quorum"}), s.queue("dst", amqp.Table{"x-queue-type": "quorum"})}
}

// put makes a shovel from src to dst, with more keys, or others.
func (r *shovelRig) put(n *cluster.Node, more map[string]any) {
	r.Helper()
	value := map[string]any{"src-uri": "amqp://", "src-queue": r.src, "dest-uri": "amqp://", "dest-queue": r.dst, "reconnect-delay": 1}
	for k, v := range more {
		if value[k] = v; v == nil {
			delete(value, k)
		}
	}
	text, err := json.Marshal(value)
	r.noError("shovel", err)
	mustCtl(r.T, n, "set_parameter", "shovel", r.id, string(text))
	r.Cleanup(func() { ctl(r.T, r.living(), "clear_parameter", "shovel", r.id) })
}

func (r *shovelRig) living() *cluster.Node {
	for _, n := range r.c.Nodes() {
		if n.Running() {
			return n
		}
	}
	r.Fatal("no node runs")
	return nil
}

type shovelStatus struct {
	Node, State, Reason string
	Forwarded           int
	Pending, Waiting    int
}

func (r *shovelRig) status() (st shovelStatus, found bool) {
	r.Helper()
	out := mustCtl(r.T, r.living(), "shovel_status", "name", "node", "state", "reason", "forwarded", "pending", "waiting", "-q", "--formatter", "json")
	var rows []struct {
		Name string
		shovelStatus
	}
	r.noError(out, json.Unmarshal([]byte(out), &rows))
	for _, row := range rows {
		if row.Name == r.id {
			return row.shovelStatus, true
		}
	}
	return st, false
}

// untilStatus waits for a status.
func (r *shovelRig) untilStatus(what string, ok func(shovelStatus) bool) (st shovelStatus) {
	r.Helper()
	r.until(what, func() bool { st, _ = r.status(); return ok(st) }, &st)
	return st
}

// endSource ends the shovel's connection to its source.
func (r *shovelRig) endSource() {
	r.Helper()
	out := mustCtl(r.T, r.living(), "list_connections", "name", "user_provided_name", "-q", "--formatter", "json")
	var rows []struct {
		Name     string
		Provided string `json:"user_provided_name"`
	}
	r.noError(out, json.Unmarshal([]byte(out), &rows))
	for _, row := range rows {
		if row.Provided == "Shovel "+r.id+" (source)" {
			mustCtl(r.T, r.living(), "close_connection", row.Name, "by the test")
			return
		}
	}
	r.Fatalf("no connection of the shovel %s: %s", r.id, out)
}

func upTo(n int) (bodies []string) {
	for i := range n {
		bodies = append(bodies, strconv.Itoa(i))
	}
	return bodies
}

// TestShovel: what is in a queue, and what comes, goes to another one, in order, each once, with all that it had.
func TestShovel(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for i, n := range c.Nodes() {
		r := newShovelRig(t, c, n)
		r.fill(r.src, upTo(500)...)
		r.put(c.Node((i+1)%3), map[string]any{
			"dest-add-forward-headers": true, "dest-add-timestamp-header": true, "dest-publish-properties": map[string]any{"app_id": "moved", "delivery_mode": 2},
		})
		r.publish("", r.src, amqp.Publishing{Body: []byte("last"), MessageId: "id", Headers: amqp.Table{"h": int32(5)}, Priority: 3, Expiration: "600000"})
		r.ready(r.dst, 501)
		r.ready(r.src, 0)
		bodies := r.drainMany(r.dst)
		if want := append(upTo(500), "last"); !slices.Equal(bodies, want) {
			t.Errorf("%d messages in this order: %.200q", len(bodies), bodies)
		}
		r.publish("", r.src, amqp.Publishing{Body: []byte("whole"), MessageId: "id", Headers: amqp.Table{"h": int32(5)}, Priority: 3, Expiration: "600000"})
		r.ready(r.dst, 1)
		d := r.get(r.dst)
		by, _ := d.Headers["x-shovelled"].([]any)
		at, _ := d.Headers["x-shovelled-timestamp"].(int64)
		if d.MessageId != "id" || d.Headers["h"] != int32(5) || d.Priority != 3 || d.Expiration != "600000" || d.AppId != "moved" || len(by) != 1 ||
			time.Since(time.Unix(at, 0)) > time.Minute {
			t.Errorf("%+v", d)
		} else if p, _ := by[0].(amqp.Table); p["shovel-name"] != r.id || p["src-queue"] != r.src || p["dest-queue"] != r.dst || p["shovel-vhost"] != "/" {
			t.Errorf("%+v", by)
		}
		r.noError("ack", d.Ack(false))
		st := r.untilStatus("all forwarded", func(st shovelStatus) bool { return st.State == "running" && st.Forwarded == 502 })
		if m := scrape(t, "/metrics", c.ByName(st.Node)); m[`warren_shovels{state="running"}`] < 1 || m["warren_shovel_messages_forwarded_total"] < 502 {
			t.Errorf("%v shovels, %v messages", m[`warren_shovels{state="running"}`], m["warren_shovel_messages_forwarded_total"])
		}
		mustCtl(t, n, "restart_shovel", r.id)
		r.untilStatus("connected anew", func(st shovelStatus) bool { return st.State == "running" })
		r.fill(r.src, "again")
		r.ready(r.dst, 1)
		if now, _ := r.status(); now.Node != st.Node {
			t.Errorf("at %s, then at %s", st.Node, now.Node)
		}
		mustCtl(t, n, "delete_shovel", r.id)
		r.until("the shovel is gone", func() bool { _, found := r.status(); return !found })
		r.fill(r.src, "stays")
		r.ready(r.src, 1)
		if code, _, _ := ctl(t, n, "restart_shovel", r.id); code != 65 {
			t.Errorf("restart of a shovel that is not there: %d", code)
		}
	}
}

// TestShovelKeepsWhatIsNotWanted: what the target refuses, and what no queue wants, stays at the source, unharmed, and goes when it can.
func TestShovelKeepsWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	t.Run("refused", func(t *testing.T) {
		r := newShovelRig(t, c, c.Node(0))
		full := r.queue("full", amqp.Table{"x-queue-type": "quorum", "x-max-length": 3, "x-overflow": "reject-publish"})
		r.put(c.Node(1), map[string]any{"dest-queue": full})
		r.fill(r.src, upTo(20)...)
		r.untilStatus("some wait", func(st shovelStatus) bool {
			return st.State == "running" && st.Waiting > 0 && strings.Contains(st.Reason, "nack")
		})
		got := map[string]int{}
		r.until("all have come", func() bool {
			for _, b := range r.drain(full) {
				got[b]++
			}
			return len(got) == 20
		}, &got)
		for b, n := range got {
			if n != 1 {
				t.Errorf("%s came %d times", b, n)
			}
		}
		r.ready(r.src, 0)
	})
	t.Run("not wanted", func(t *testing.T) {
		r := newShovelRig(t, c, c.Node(1))
		x := r.exchange("x", "topic", nil)
		r.bind(r.dst, "good", x, nil)
		r.put(c.Node(2), map[string]any{"dest-queue": nil, "dest-exchange": x})
		route := r.exchange("route", "topic", nil)
		r.bind(r.src, "#", route, nil)
		for i := range 10 {
			r.publish(route, []string{"good", "bad"}[i%2], amqp.Publishing{Body: []byte(strconv.Itoa(i))})
		}
		r.ready(r.dst, 5)
		r.untilStatus("half waits", func(st shovelStatus) bool { return st.Waiting == 5 && strings.Contains(st.Reason, "no queue wants") })
		r.bind(r.dst, "bad", x, nil)
		r.ready(r.dst, 10)
		r.ready(r.src, 0)
		for range 10 {
			d := r.get(r.dst)
			if d.Headers["x-delivery-count"] != nil && d.Headers["x-delivery-count"] != int64(0) {
				t.Errorf("%+v", d)
			}
			r.noError("ack", d.Ack(false))
		}
	})
	t.Run("no target", func(t *testing.T) {
		r := newShovelRig(t, c, c.Node(2))
		r.put(c.Node(0), map[string]any{"dest-queue": nil, "dest-exchange": r.name("later")})
		r.fill(r.src, "m")
		r.untilStatus("it says why", func(st shovelStatus) bool {
			return st.State == "terminated" && strings.Contains(st.Reason, "NOT_FOUND")
		})
		x := r.exchange("later", "fanout", nil)
		r.bind(r.dst, "", x, nil)
		r.ready(r.dst, 1)
		if d := r.get(r.dst); string(d.Body) != "m" {
			t.Errorf("%q", d.Body)
		}
	})
}

// TestShovelIsDone: a shovel that is to forward so many messages ends then.
func TestShovelIsDone(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for after, moved := range map[any]int{"queue-length": 30, 7: 7} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			r := newShovelRig(t, c, c.Node(0))
			r.fill(r.src, upTo(30)...)
			r.put(c.Node(2), map[string]any{"src-delete-after": after})
			r.until("the shovel is gone", func() bool {
				code, out, _ := ctl(t, c.Node(1), "list_parameters", "-q")
				return code == 0 && !strings.Contains(out, r.id)
			})
			r.ready(r.dst, moved)
			r.ready(r.src, 30-moved)
		})
	}
}

// TestShovelOfAnExchange takes what is published to an exchange through a queue of its own.
func TestShovelOfAnExchange(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	r := newShovelRig(t, c, c.Node(0))
	x := r.exchange("x", "topic", nil)
	r.put(c.Node(0), map[string]any{"src-queue": nil, "src-exchange": x, "src-exchange-key": "a.#", "ack-mode": "on-publish"})
	r.untilStatus("it runs", func(st shovelStatus) bool { return st.State == "running" })
	r.until("it is bound", func() bool { return r.publishResult(x, "a.b", amqp.Publishing{Body: []byte("m")}) })
	r.publishResult(x, "b", amqp.Publishing{Body: []byte("other")})
	r.ready(r.dst, 1)
}

// TestShovelSurvives: its node is killed, stopped and drained again and again while messages come. None is lost.
func TestShovelSurvives(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := startCluster(t, 3)
	r := newShovelRig(t, c, c.Node(0))
	r.put(c.Node(1), nil)
	var sent []string
	for round, how := range []string{"kill", "stop", "drain", "kill"} {
		st := r.untilStatus("it runs", func(st shovelStatus) bool { return st.State == "running" })
		n := c.ByName(st.Node)
		others := slices.DeleteFunc(slices.Clone(c.Nodes()), func(o *cluster.Node) bool { return o == n })
		s := at(t, others[0])
		bodies := make([]string, 300)
		for i := range bodies {
			bodies[i] = fmt.Sprint(round, ".", i)
		}
		s.fill(r.src, bodies...)
		sent = append(sent, bodies...)
		switch how {
		case "kill":
			s.noError("kill", n.Kill())
		case "stop":
			s.noError("stop", n.Stop(t.Context()))
		case "drain":
			mustCtl(t, n, "drain")
		}
		s.until("another node has it", func() bool { st, _ := r.status(); return st.State == "running" && st.Node != n.Name })
		s.fill(r.src, fmt.Sprint(round, ".last"))
		sent = append(sent, fmt.Sprint(round, ".last"))
		s.ready(r.src, 0)
		if how == "drain" {
			mustCtl(t, n, "revive")
		} else {
			s.noError("start", n.Launch())
			s.noError("ready", n.WaitReady(t.Context()))
		}
	}
	s := at(t, r.living())
	got := map[string]int{}
	for _, b := range s.drainMany(r.dst) {
		got[b]++
	}
	twice := 0
	for _, b := range sent {
		if got[b] == 0 {
			t.Errorf("%s is lost", b)
		}
		twice += got[b] - min(got[b], 1)
		if got[b] > 1 && (strings.HasPrefix(b, "1.") || strings.HasPrefix(b, "2.")) {
			t.Errorf("%s came %d times, although the shovel's node was stopped or drained in order", b, got[b])
		}
	}
	t.Logf("%d messages, %d came again", len(sent), twice)
}

// TestShovelBetweenClusters forwards over the network, with a login, to and from another cluster that goes and comes back.
func TestShovelBetweenClusters(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c, other := sharedCluster(t, 3), startCluster(t, 1)
	far := at(t, other.Node(0))
	mustCtl(t, other.Node(0), "add_user", "u", "s/p w")
	mustCtl(t, other.Node(0), "set_permissions", "u", ".*", ".*", ".*")
	uri := "amqp://u:s%2Fp%20w@" + other.Node(0).AMQPAddr() + "/%2F"
	r := newShovelRig(t, c, c.Node(0))
	there := far.queue("there", amqp.Table{"x-queue-type": "quorum"})
	r.put(c.Node(0), map[string]any{"dest-uri": []string{uri}, "dest-queue": there})
	r.fill(r.src, upTo(200)...)
	far.ready(there, 200)
	if out := mustCtl(t, c.Node(1), "shovel_status"); strings.Contains(out, "s%2Fp") {
		t.Errorf("the status shows a password: %s", out)
	}
	far.noError("freeze", other.Node(0).Signal(syscall.SIGSTOP))
	r.fill(r.src, "a", "b")
	r.untilStatus("both are under way", func(st shovelStatus) bool { return st.Pending == 2 })
	far.noError("kill", other.Node(0).Kill())
	r.untilStatus("the target is away", func(st shovelStatus) bool { return st.State == "terminated" })
	r.endSource()
	r.noError("start", other.Node(0).Launch())
	r.noError("ready", other.Node(0).WaitReady(t.Context()))
	far = at(t, other.Node(0))
	far.ready(there, 202)
	r.ready(r.src, 0)
	mustCtl(t, c.Node(0), "delete_shovel", r.id)

	back := newShovelRig(t, c, c.Node(1))
	back.put(c.Node(0), map[string]any{"src-uri": uri, "src-queue": there, "src-prefetch-count": 10})
	back.ready(back.dst, 202)
	far.ready(there, 0)
}

// TestShovelLargeMessages: some are as large as all that a shovel has room for.
func TestShovelLargeMessages(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	r := newShovelRig(t, c, c.Node(0))
	large := strings.Repeat("x", 12<<20)
	for i := range 40 {
		body := strconv.Itoa(i)
		if i%8 == 5 {
			body += large
		}
		r.fill(r.src, body)
	}
	r.put(c.Node(0), nil)
	r.ready(r.dst, 40)
	for i, b := range r.drainMany(r.dst) {
		want := strconv.Itoa(i)
		if i%8 == 5 {
			want += large
		}
		if b != want {
			t.Errorf("message %d has %d bytes: %.10s", i, len(b), b)
		}
	}
}

// TestShovelPutsAside: a message for which the destination closes the channel, as it is too large there, does not hold up the others, nor have them come
// again and again.
func TestShovelPutsAside(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c, other := sharedCluster(t, 3), newCluster(t, 1, func(cfg *cluster.Config) { cfg.Args = []string{"--max-message-size", "64KiB"} })
	startAll(t, other)
	far := at(t, other.Node(0))
	mustCtl(t, other.Node(0), "add_user", "aside", "aside")
	mustCtl(t, other.Node(0), "set_permissions", "aside", ".*", ".*", ".*")
	r := newShovelRig(t, c, c.Node(0))
	there := far.queue("there", amqp.Table{"x-queue-type": "quorum"})
	for i := range 60 {
		body := strconv.Itoa(i)
		if i == 20 || i == 40 {
			body = strings.Repeat("x", 100<<10)
		}
		r.fill(r.src, body)
	}
	r.put(c.Node(0), map[string]any{"dest-uri": "amqp://aside:aside@" + other.Node(0).AMQPAddr() + "/%2F", "dest-queue": there})
	st := r.untilStatus("all but two are there", func(st shovelStatus) bool { return st.Forwarded == 58 && st.Waiting == 2 && st.State == "running" })
	if !strings.Contains(st.Reason, "put aside") || !strings.Contains(st.Reason, "65536") {
		t.Errorf("the reason is %q", st.Reason)
	}
	r.fill(r.src, "later")
	r.untilStatus("what comes later is there", func(st shovelStatus) bool { return st.Forwarded == 59 && st.Waiting == 2 })
	mustCtl(t, c.Node(1), "delete_shovel", r.id)
	r.ready(r.src, 2)
	copies := map[string]int{}
	for _, body := range far.drain(there) {
		copies[body]++
	}
	if len(copies) != 59 {
		t.Errorf("%d different messages are there, not 59", len(copies))
	}
	for body, n := range copies {
		if n > 2 {
			t.Errorf("%.20s came %d times", body, n)
		}
	}
}

// TestShovelAwaitsItsExchange: as long as there is no such exchange the shovel says so, and takes nothing.
func TestShovelAwaitsItsExchange(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	r := newShovelRig(t, c, c.Node(0))
	r.fill(r.src, upTo(20)...)
	r.put(c.Node(0), map[string]any{"dest-exchange": r.id, "dest-exchange-key": "k", "dest-queue": nil})
	st := r.untilStatus("it has no exchange", func(st shovelStatus) bool { return st.State == "terminated" })
	if !strings.Contains(st.Reason, "no exchange '"+r.id+"'") {
		t.Errorf("the reason is %q", st.Reason)
	}
	r.ready(r.src, 20)
	r.noError("declare", r.ch.ExchangeDeclare(r.id, amqp.ExchangeDirect, true, false, false, false, nil))
	r.noError("bind", r.ch.QueueBind(r.dst, "k", r.id, false, nil))
	r.ready(r.dst, 20)
	if got := r.drain(r.dst); !slices.Equal(got, upTo(20)) {
		t.Errorf("there are %q", got)
	}
	r.noError("delete", r.ch.ExchangeDelete(r.id, false, false))
}

// TestBadShovels: what cannot be a shovel is refused, and changes nothing.
func TestBadShovels(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := ctlCluster(t)
	for value, want := range map[string]string{
		`{}`: `Key "src-uri" not found`,
		`[]`: "a shovel is a JSON object",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"http://x","dest-queue":"d"}`:                                         "the scheme is 'http'",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://"}`:                                                           "",
		`{"src-uri":"amqp://","dest-uri":"amqp://"}`:                                                                           "Must specify 'src-exchange' or 'src-queue'",
		`{"src-uri":"amqp://","src-queue":"q","src-exchange":"x","dest-uri":"amqp://"}`:                                        "Cannot specify 'src-exchange' and 'src-queue'",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"d","dest-exchange":"x"}`:                      "Cannot specify 'dest-exchange' and 'dest-queue'",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"d","src-protocol":"amqp10"}`:                  "only amqp091",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"d","what":1}`:                                 "Unrecognised terms: what",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"d","ack-mode":"never"}`:                       "ack-mode",
		`{"src-uri":"amqp://h:99999/","src-queue":"q","dest-uri":"amqp://","dest-queue":"d"}`:                                  "src-uri",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"d","src-prefetch-count":-1}`:                  "src-prefetch-count",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"d","dest-publish-properties":{"x":1}}`:        "there is no property 'x'",
		`{"src-uri":"amqp://","src-queue":"q","dest-uri":"amqp://","dest-queue":"d","src-delete-after":5,"ack-mode":"no-ack"}`: "no-ack",
	} {
		code, _, stderr := ctl(t, c.Node(0), "set_parameter", "-p", "/", "shovel", "bad", value)
		if want == "" {
			if code != 0 {
				t.Errorf("%s: %s", value, stderr)
			}
			mustCtl(t, c.Node(1), "clear_parameter", "shovel", "bad")
			continue
		}
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s", value, code, stderr)
		}
	}
	if out := mustCtl(t, c.Node(2), "list_parameters", "-q"); strings.Contains(out, "bad") {
		t.Errorf("left: %s", out)
	}
}
