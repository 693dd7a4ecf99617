package process

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// policed is a session whose policies are set by the real binary, through a node, and are
// cleared at the end.
type policed struct {
	*session
	node *cluster.Node
	logs func() string // of all nodes
	// nodes are all of them.
	nodes []*cluster.Node
}

func (p *policed) set(kind, name, pattern, definition string, more ...string) {
	p.Helper()
	mustCtl(p.T, p.node, append([]string{"set_" + kind, name, pattern, definition}, more...)...)
	p.Cleanup(func() {
		if code, _, failure := ctl(p.T, p.node, "clear_"+kind, name); code != 0 && !strings.Contains(failure, "does not exist") {
			p.Errorf("clear %s: %s", name, failure)
		}
	})
}

func (p *policed) clear(kind, name string) {
	p.Helper()
	mustCtl(p.T, p.node, "clear_"+kind, name)
}

// reject publishes a message to a queue and rejects it.
func (p *policed) reject(queue, body string) {
	p.Helper()
	p.fill(queue, body)
	d := p.get(queue)
	if string(d.Body) != body {
		p.Fatalf("got %q, want %q", d.Body, body)
	}
	p.noError("reject", d.Reject(false))
}

// TestPolicies sets policies on existing queues by the command line and sees them act.
func TestPolicies(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3) // of its own: the patterns match queues of other tests
	for _, tc := range []struct {
		name string
		run  func(*policed)
	}{
		{"E04 dead letters by policy at once", policyDeadLetter},
		{"E05 the rules of ApsaraMQ as one policy", policyApsara},
		{"G01 the highest priority alone", policyPriority},
		{"G02 arguments, policies and operator policies", policyPrecedence},
		{"G03 length, expiry and counts at once", policyAtOnce},
		{"T12 message TTL for later messages", policyTTL},
		{"M05 overflow back to drop-head", policyOverflow},
		{"M09 the operator's limit", policyOperator},
		{"D69 parked dead letters are decided on again", policyParked},
		{"D69 a parked cycle is released", policyParkedCycle},
		{"D69 dead letters under way take the new way", policyUnderWay},
		{"D68 another strategy leaves what is under way", policyStrategy},
		{"alternate exchange", policyAlternate},
		{"consumer timeout", policyConsumerTimeout},
		{"limits of deliveries are shown", policyShownLimits},
		{"retry delay", policyRetryDelay},
		{"queues in memory", policyTransient},
		{"U12 deduplication", policyDeduplication},
		{"a dead-letter key without an exchange", policyKeyAlone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := c.Node(1)
			tc.run(&policed{at(t, c.Node(0)), n, c.Logs, c.Nodes()})
		})
	}
}

// The case of the documents: a policy named DLX, and one queue that overrides it by argument.
func policyDeadLetter(p *policed) {
	for _, kind := range []string{"classic", "quorum"} {
		q := p.queue("source-"+kind, amqp.Table{"x-queue-type": kind})
		dlx, other := p.exchange("my-dlx-"+kind, "fanout", nil), p.exchange("other-"+kind, "fanout", nil)
		dead, elsewhere := p.queue("dead-"+kind, nil), p.queue("elsewhere-"+kind, nil)
		p.bind(dead, "", dlx, nil)
		p.bind(elsewhere, "", other, nil)
		own := p.queue("own-"+kind, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": other})

		p.reject(q, "before")
		p.set("policy", p.name("DLX"), "^"+p.id, `{"dead-letter-exchange":"`+dlx+`"}`, "--apply-to", "queues")
		p.reject(q, "after")
		p.reject(own, "mine")
		p.holds(dead, "after")
		p.holds(elsewhere, "mine")
		p.clear("policy", p.name("DLX"))
		p.reject(q, "cleared")
		p.reject(own, "mine again")
		p.holds(elsewhere, "mine again")
		p.ready(dead, 0)
	}
}

// policyApsara: one definition has all of the rules, and an operator bounds the hops.
func policyApsara(p *policed) {
	q := p.queue("q", nil)
	p.set("policy", p.name("p"), p.id, `{"dead-letter-exchange":"","delivery-limit":16,"dead-letter-cycle":"stop-ttl","dead-letter-max-hops":16,`+
		`"dead-letter-death-total":true,"message-ttl":80,"message-ttl-dead-letters":false}`, "--apply-to", "queues")
	p.set("operator_policy", p.name("o"), p.id, `{"dead-letter-max-hops":8}`)
	for _, want := range []string{`"dead-letter-max-hops":8`, `"dead-letter-cycle":"stop-ttl"`, `"message-ttl-dead-letters":false`} {
		untilSays(p.T, p.node, want, "list_queues", "-q", "name", "effective_policy_definition")
	}
	p.until("the policy to act", func() bool { // without it the message is gone
		p.publish("", q, expiring("stays", "80"))
		time.Sleep(300 * time.Millisecond)
		state, err := p.ch.QueueDeclarePassive(q, true, false, false, false, nil)
		p.noError("look", err)
		return state.Messages > 0
	})
	p.clear("policy", p.name("p"))
	time.Sleep(200 * time.Millisecond)
	if d := p.get(q); string(d.Body) != "stays" {
		p.Errorf("got %q", d.Body)
	}
	for _, wrong := range []string{`{"dead-letter-cycle":"park"}`, `{"dead-letter-max-hops":0}`, `{"message-ttl-dead-letters":1}`} {
		if code, _, failure := ctl(p.T, p.node, "set_policy", p.name("wrong"), p.id, wrong); code == 0 || !strings.Contains(failure, "is not a valid") {
			p.Errorf("%s: %d, %s", wrong, code, failure)
		}
	}
}

// policyShownLimits: how often a message comes again, and after how long, is shown as it is in effect.
func policyShownLimits(p *policed) {
	quorum, classic := p.queue("quorum", amqp.Table{"x-queue-type": "quorum"}), p.queue("classic", nil)
	shows := func(queue, want string) {
		p.Helper()
		_, body := api(p.T, "GET", p.node.HTTP()+"/api/queues/%2F/"+queue+"?columns=delivery_limit,delayed_retry")
		if string(body) != want {
			p.Errorf("%s: %s, want %s", queue, body, want)
		}
	}
	shows(quorum, `{"delayed_retry":"disabled","delivery_limit":20}`)
	shows(classic, `{}`)
	p.set("policy", p.name("p"), p.id, `{"delivery-limit":7,"delayed-retry-type":"all","delayed-retry-min":1000}`)
	for _, queue := range []string{quorum, classic} {
		shows(queue, `{"delayed_retry":"all (min: 1000ms, max: 1000ms)","delivery_limit":7}`)
	}
	p.set("policy", p.name("p"), p.id, `{"delivery-limit":-1}`)
	shows(quorum, `{"delayed_retry":"disabled","delivery_limit":"unlimited"}`)
	p.clear("policy", p.name("p"))
	shows(quorum, `{"delayed_retry":"disabled","delivery_limit":20}`)
}

func policyPriority(p *policed) {
	q := p.queue("q", amqp.Table{"x-overflow": "reject-publish"})
	full := func(limit int) {
		p.Helper()
		p.fill(q, numbered("m", limit)...)
		if p.publishResult("", q, message("one too many")) {
			p.Errorf("more than %d were taken", limit)
		}
		p.drain(q)
	}
	p.set("policy", p.name("low"), p.id, `{"max-length":2,"message-ttl":1}`) // its TTL would show
	p.set("policy", p.name("high"), "q$", `{"max-length":4}`, "--priority", "5")
	p.set("policy", p.name("elsewhere"), "^q$", `{"max-length":1}`, "--priority", "9")
	p.set("policy", p.name("exchanges"), p.id, `{"max-length":1}`, "--priority", "9", "--apply-to", "exchanges")
	p.set("policy", p.name("quorum"), p.id, `{"max-length":1}`, "--priority", "9", "--apply-to", "quorum_queues")
	p.set("policy", p.name("streams"), p.id, `{"max-length":1,"max-age":"1D"}`, "--priority", "9")
	full(4)
	p.clear("policy", p.name("high"))
	p.set("policy", p.name("low"), p.id, `{"max-length":2}`)
	full(2)
	p.clear("policy", p.name("low"))
	p.fill(q, numbered("m", 20)...)
}

func policyPrecedence(p *policed) {
	classic := p.queue("classic", amqp.Table{"x-overflow": "drop-head", "x-max-length": 9})
	quorum := p.queue("quorum", amqp.Table{"x-overflow": "drop-head", "x-max-length": 9, "x-queue-type": "quorum"})
	p.set("policy", p.name("p"), p.id, `{"overflow":"reject-publish","max-length":5}`)
	p.set("operator_policy", p.name("o"), p.id, `{"max-length":3}`)
	p.fill(classic, numbered("m", 5)...) // the argument's overflow wins
	p.holds(classic, "m3", "m4", "m5")
	p.fill(quorum, "m1", "m2", "m3") // the policy's overflow wins
	if p.publishResult("", quorum, message("m4")) {
		p.Error("a fourth message was taken")
	}
	for name, want := range map[string]string{
		classic: `{"max-length":3,"overflow":"reject-publish"}`, quorum: `{"max-length":3,"overflow":"reject-publish"}`,
	} {
		line := name + "\t" + p.name("p") + "\t" + p.name("o") + "\t" + want + "\n"
		untilSays(p.T, p.node, line, "list_queues", "-q", "name", "policy", "operator_policy", "effective_policy_definition")
	}
}

func policyAtOnce(p *policed) {
	dead := p.queue("dead", nil)
	q := p.queue("work", nil)
	p.fill(q, numbered("m", 6)...)
	p.set("policy", p.name("p"), "work$", `{"max-length":2,"dead-letter-exchange":"","dead-letter-routing-key":"`+dead+`"}`)
	p.holds(dead, "m1", "m2", "m3", "m4") // those over the limit go at once
	p.holds(q, "m5", "m6")

	p.set("policy", p.name("p"), "work$", `{"delivery-limit":1,"dead-letter-exchange":"","dead-letter-routing-key":"`+dead+`"}`)
	p.fill(q, "twice")
	for range 2 {
		p.noError("reject", p.get(q).Reject(true))
	}
	d := p.get(dead)
	checkDeaths(p.session, d, death{count: 1, reason: "delivery_limit", queue: q, keys: []string{q}})

	lease := p.name("lease")
	p.noError("declare", declare(p.ch, lease, nil))
	time.Sleep(3200 * time.Millisecond) // unused for longer than its time to be
	began := time.Now()
	p.set("policy", p.name("lease"), "lease$", `{"expires":3000}`)
	_, err := p.channel(p.conn).QueueDeclarePassive(lease, true, false, false, false, nil)
	if took := time.Since(began); err != nil && took < 2900*time.Millisecond { // a slow machine may be late
		p.Errorf("the time before the policy counts: after %v: %v", took, err)
	}
	p.until("the queue to expire", func() bool {
		time.Sleep(3100 * time.Millisecond) // looking is use
		_, err := p.channel(p.conn).QueueDeclarePassive(lease, true, false, false, false, nil)
		return err != nil
	})
}

func policyTTL(p *policed) {
	q := p.queue("q", nil)
	p.fill(q, numbered("old", 50)...)
	p.set("policy", p.name("p"), p.id, `{"message-ttl":300}`)
	p.fill(q, numbered("new", 75)...)
	p.ready(q, 50) // the new ones expire behind the old ones
	p.clear("policy", p.name("p"))
	p.fill(q, "last")
	time.Sleep(600 * time.Millisecond)
	p.holds(q, append(numbered("old", 50), "last")...)
}

func policyOverflow(p *policed) {
	q := p.queue("q", amqp.Table{"x-max-length": 3})
	p.set("policy", p.name("p"), p.id, `{"overflow":"reject-publish"}`)
	p.fill(q, "1", "2", "3")
	if p.publishResult("", q, message("rejected")) {
		p.Error("a fourth message was taken")
	}
	p.clear("policy", p.name("p"))
	p.fill(q, "later")
	p.holds(q, "2", "3", "later")
}

func policyOperator(p *policed) {
	q := p.queue("q", amqp.Table{"x-max-length": 10})
	p.set("policy", p.name("p"), p.id, `{"max-length":5}`)
	p.fill(q, numbered("m", 12)...)
	p.ready(q, 5)
	p.set("operator_policy", p.name("o"), p.id, `{"max-length":3}`)
	p.holds(q, "m10", "m11", "m12")
	p.clear("operator_policy", p.name("o"))
	p.clear("policy", p.name("p"))
	p.fill(q, numbered("m", 12)...)
	p.ready(q, 10)
}

// policyParked: what has no route under at-least-once waits, and goes the way of the next policy.
func policyParked(p *policed) {
	q := p.queue("source", amqp.Table{"x-queue-type": "quorum"})
	dead := p.queue("dead", nil)
	p.set("policy", p.name("p"), "source$", `{"dead-letter-exchange":"`+p.name("nowhere")+`","dead-letter-strategy":"at-least-once"}`)
	p.reject(q, "waits")
	p.until("the letter to be parked", func() bool {
		return strings.Contains(mustCtl(p.T, p.node, "list_queues", "-q", "name", "messages_dlx"), q+"\t1\n")
	})
	p.set("policy", p.name("p"), "source$", `{"dead-letter-exchange":"","dead-letter-routing-key":"`+dead+`","dead-letter-strategy":"at-least-once"}`)
	p.holds(dead, "waits")
}

func policyParkedCycle(p *policed) {
	q := p.queue("source", nil)
	dead := p.queue("dead", nil)
	// Back to itself by expiry: the second death closes the cycle.
	p.set("policy", p.name("p"), "source$", `{"message-ttl":50,"dead-letter-exchange":"","dead-letter-strategy":"at-least-once"}`)
	p.fill(q, "round")
	p.until("the letter to be parked", func() bool {
		return strings.Contains(mustCtl(p.T, p.node, "list_queues", "-q", "name", "messages", "messages_dlx"), q+"\t0\t1\n")
	})
	p.set("policy", p.name("p"), "source$", `{"dead-letter-exchange":"","dead-letter-routing-key":"`+dead+`","dead-letter-strategy":"at-least-once"}`)
	p.holds(dead, "round")
}

// Dead letters that wait for room in one queue go into another one when a policy says so, in
// order, and those of clearing it go on.
func policyUnderWay(p *policed) {
	q, spare := p.queue("source", nil), p.queue("spare", nil)
	full := p.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	p.fill(full, "in the way")
	to := func(queue string) {
		p.set("policy", p.name("p"), "source$", `{"dead-letter-exchange":"","dead-letter-routing-key":"`+queue+`"}`)
	}
	to(full)
	rejected := func(bodies []string) {
		p.Helper()
		p.fill(q, bodies...)
		ch, deliveries := p.consume(q, 0)
		held := p.take(deliveries, false, bodies...)
		p.noError("nack", held[len(held)-1].Nack(true, false))
		p.noError("close", ch.Close())
	}
	bodies := numbered("m", 300)
	rejected(bodies)
	time.Sleep(300 * time.Millisecond)
	to(spare)
	p.holds(spare, bodies...)
	p.holds(full, "in the way")

	to(full)
	p.fill(full, "in the way")
	rejected([]string{"last"})
	time.Sleep(300 * time.Millisecond)
	p.clear("policy", p.name("p"))
	p.reject(q, "no dead letter")
	p.holdsInTurn(full, "in the way", "last") // the other comes when the first has gone
}

// policyStrategy: what waits for room in its target arrives, whatever the strategy is by then.
func policyStrategy(p *policed) {
	q, full := p.queue("source", nil), p.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	way := `{"dead-letter-exchange":"","dead-letter-routing-key":"` + full + `","dead-letter-strategy":"`
	p.set("policy", p.name("p"), "source$", way+`at-least-once"}`)
	p.fill(full, "in the way")
	for _, body := range []string{"a", "b", "c"} {
		p.reject(q, body)
	}
	p.until("the letters to wait", func() bool {
		return strings.Contains(mustCtl(p.T, p.node, "list_queues", "-q", "name", "messages_dlx"), q+"\t3\n")
	})
	p.set("policy", p.name("p"), "source$", way+`at-most-once"}`)
	p.holdsInTurn(full, "in the way", "a", "b", "c")
}

// holdsInTurn takes the bodies out of a queue whose next message may come only when one has gone.
func (p *policed) holdsInTurn(queue string, bodies ...string) {
	p.Helper()
	for _, want := range bodies {
		d := p.get(queue)
		if string(d.Body) != want {
			p.Errorf("got %q, want %q", d.Body, want)
		}
		p.noError("ack", d.Ack(false))
	}
	p.ready(queue, 0)
}

func policyAlternate(p *policed) {
	x, ae, q := p.exchange("x", "direct", nil), p.exchange("ae", "fanout", nil), p.queue("q", nil)
	p.bind(q, "", ae, nil)
	p.publish(x, "nobody", message("lost"))
	p.set("policy", p.name("p"), "x$", `{"alternate-exchange":"`+ae+`"}`, "--apply-to", "exchanges")
	p.publish(x, "nobody", message("found"))
	p.clear("policy", p.name("p"))
	p.publish(x, "nobody", message("lost again"))
	p.holds(q, "found")
}

func policyConsumerTimeout(p *policed) {
	q := p.queue("q", nil)
	p.set("policy", p.name("p"), p.id, `{"consumer-timeout":600000}`)
	p.fill(q, "held")
	_, deliveries := p.consume(q, 1)
	p.take(deliveries, false, "held")
	start := time.Now()
	p.set("policy", p.name("p"), p.id, `{"consumer-timeout":500}`)
	p.ready(q, 1) // it goes back from the consumer that was there before
	if d := time.Since(start); d < 500*time.Millisecond {
		p.Errorf("it went back after %v", d)
	}
}

func policyRetryDelay(p *policed) {
	q := p.queue("q", nil)
	p.set("policy", p.name("p"), p.id, `{"delayed-retry-type":"all","delayed-retry-min":700}`)
	p.fill(q, "again")
	d := p.get(q)
	start := time.Now()
	p.noError("reject", d.Reject(true))
	p.get(q)
	if d := time.Since(start); d < 500*time.Millisecond {
		p.Errorf("it came back after %v", d)
	}
}

func policyTransient(p *policed) {
	q, err := p.ch.QueueDeclare("", false, false, true, false, nil)
	p.noError("declare", err)
	p.set("policy", p.name("p"), "^"+strings.ReplaceAll(q.Name, ".", "\\.")+"$", `{"max-length":1}`)
	p.fill(q.Name, "1", "2")
	p.holds(q.Name, "2")
	soft := p.name("soft")
	_, err = p.ch.QueueDeclare(soft, false, true, false, false, nil)
	p.noError("declare", err)
	p.set("policy", p.name("p2"), soft, `{"max-length":2}`)
	p.fill(soft, "1", "2", "3")
	p.holds(soft, "2", "3")
}

func policyKeyAlone(p *policed) {
	q := p.queue("alone", amqp.Table{"x-queue-type": "quorum"})
	p.set("policy", p.name("p"), "alone$", `{"dead-letter-routing-key":"`+q+`","dead-letter-strategy":"at-least-once"}`)
	p.reject(q, "gone")
	p.until("the warning", func() bool {
		return strings.Contains(p.logs(), "dead lettering is disabled: there is a dead-letter-routing-key and no dead-letter-exchange")
	})
	p.ready(q, 0)
}

// TestBadPolicies gives the command line and the API what they must refuse (G04).
func TestBadPolicies(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for _, tc := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"set_policy", "bad", ".*", `{"dead-letter-exchang":"x"}`}, 70, "Error:\nValidation failed\n\n[{<<\"dead-letter-exchang\">>,<<\"x\">>}] are not recognised policy settings\n"},
		{[]string{"set_policy", "bad", ".*", `{"message-ttl":-1}`}, 70, "Error:\nValidation failed\n\n-1 is not a valid message TTL\n"},
		{[]string{"set_policy", "bad", "(", `{"message-ttl":1}`}, 70, "Error:\nValidation failed\n\npattern should be regular expression but is invalid"},
		{[]string{"set_policy", "bad", ".*", `{"message-ttl":1}`, "--apply-to", "topics"}, 70, "Validation failed\n\napply-to unrecognised"},
		{[]string{"set_policy", "bad", ".*", `{"message-ttl":1}}`}, 65, "Error:\nJSON decoding error"}, // S2's example closes a brace too early
		{[]string{"set_policy", "bad", ".*", `{}`}, 70, "no policy provided"},
		{[]string{"set_operator_policy", "bad", ".*", `{"dead-letter-exchange":"x"}`}, 70, "are not recognised policy settings"},
		{[]string{"set_policy", "bad", ".*", `{"message-ttl":1}`, "-p", "nowhere"}, 65, "Virtual host 'nowhere' does not exist"},
		{[]string{"clear_policy", "bad"}, 70, "does not exist"},
		{[]string{"set_policy", "bad", ".*"}, 64, "not enough arguments"},
	} {
		code, out, failure := ctl(t, c.Node(0), append([]string{"-q"}, tc.args...)...)
		if code != tc.code || out != "" || !strings.Contains(failure, tc.text) {
			t.Errorf("%q: exit code %d: %q %q, want %d with %q", tc.args, code, out, failure, tc.code, tc.text)
		}
	}
	address := c.Node(2).HTTP() + "/api/policies/%2F/" + "bad"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address, strings.NewReader(`{"pattern":".*","definition":{"max-priority":5}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	var refusal struct{ Error, Reason string }
	if err != nil || json.Unmarshal(raw, &refusal) != nil || resp.StatusCode != http.StatusBadRequest || refusal.Error != "bad_request" ||
		refusal.Reason != "Validation failed\n\n[{<<\"max-priority\">>,5}] are not recognised policy settings\n" {
		t.Errorf("%s: %s, %v", resp.Status, raw, err)
	}
	if out := mustCtl(t, c.Node(1), "list_policies", "-q"); strings.Contains(out, "\tbad\t") { // names of others' policies have the letters, too
		t.Errorf("something was kept: %s", out)
	}
}

// TestPoliciesSurvive: policies outlive the leaders of queue and catalog and a restart of all nodes,
// by snapshot and by log, and act for a leader that comes later.
func TestPoliciesSurvive(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	for _, name := range []string{"source", "dead", "other"} {
		plainQueue(s, name, amqp.Table{"x-queue-type": "quorum"})
	}
	mustCtl(t, c.Node(0), "set_policy", "DLX", "^source$", `{"dead-letter-exchange":"","dead-letter-routing-key":"dead"}`, "--apply-to", "queues")
	mustCtl(t, c.Node(0), "set_operator_policy", "cap", "^source$", `{"max-length":2}`, "--apply-to", "queues")
	check := func(n *cluster.Node, dead string) {
		t.Helper()
		p := &policed{session: at(t, n), node: n}
		p.reject("source", "first")
		p.fill("source", "a", "b", "c")
		p.holds("source", "b", "c")
		p.holds(dead, "first", "a")
	}
	check(c.Node(1), "dead")
	leader, _ := leaderOf(t, c, "source")
	kill(t, leader)
	survivor := c.Node(0)
	if survivor == leader {
		survivor = c.Node(1)
	}
	check(survivor, "dead")
	// The policy changes while a replica is away.
	mustCtl(t, survivor, "set_policy", "DLX", "^source$", `{"dead-letter-exchange":"","dead-letter-routing-key":"other"}`, "--apply-to", "queues")
	start(t, leader)
	stopAll(t, c)
	startAll(t, c)
	check(leader, "other")
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	check(c.Node(2), "other")
	if out := mustCtl(t, c.Node(2), "list_policies", "-q"); !strings.Contains(out, "/\tDLX\t^source$\tqueues\t{\"dead-letter-exchange\":\"\",\"dead-letter-routing-key\":\"other\"}\t0\n") {
		t.Errorf("policies after it all: %s", out)
	}
	for i := range 3 {
		kill(t, c.Node(i))
		check(c.Node((i+1)%3), "other")
		start(t, c.Node(i))
	}
}

// TestPoliciesUnderLoad changes where dead letters go while they die and the queue's leader is killed: each
// ends in exactly one place.
func TestPoliciesUnderLoad(t *testing.T) {
	t.Parallel()
	const messages = 3000
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	for _, name := range []string{"source", "dead0", "dead1"} {
		plainQueue(s, name, amqp.Table{"x-queue-type": "quorum"})
	}
	aim := func(n *cluster.Node, i int) {
		t.Helper()
		mustCtl(t, n, "set_policy", "DLX", "^source$", fmt.Sprintf(`{"dead-letter-exchange":"","dead-letter-routing-key":"dead%d","dead-letter-strategy":"at-least-once","max-length":%d}`, i%2, 100000+i))
	}
	aim(c.Node(0), 0)
	ch, deliveries := s.consume("source", 100)
	go func() { // ends with the channel
		for d := range deliveries {
			_ = d.Reject(false) // what fails comes again
		}
	}()
	for i := range messages / 100 {
		bodies := make([]string, 100)
		for j := range bodies {
			bodies[j] = fmt.Sprint(100*i + j)
		}
		s.fill("source", bodies...)
		if i%5 != 4 {
			continue
		}
		aim(c.Node(0), i/5)
		if leader, _ := leaderOf(t, c, "source"); i == 14 && leader != c.Node(0) {
			kill(t, leader)
			aim(c.Node(0), 1)
			start(t, leader)
		}
	}
	seen := map[string]int{}
	s.until("all dead letters", func() bool {
		for _, q := range []string{"dead0", "dead1"} {
			for _, body := range s.drain(q) {
				seen[body]++
			}
		}
		return len(seen) >= messages
	})
	s.noError("close", ch.Close())
	for body, n := range seen {
		if n != 1 {
			t.Errorf("message %s is there %d times", body, n)
		}
	}
}
