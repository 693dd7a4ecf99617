package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestTopologyVerbs looks at what a client has declared, asks where keys go, and purges, deletes and closes by command.
func TestTopologyVerbs(t *testing.T) {
	c := sharedCluster(t, 3)
	s := at(t, c.Node(1))
	work, parking := s.queue("verbs", nil), s.queue("verbs-parking", nil)
	x := "verbs-x"
	if err := s.ch.ExchangeDeclare(x, "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at(t, c.Node(0)).ch.ExchangeDelete(x, false, false) })
	for q, key := range map[string]string{work: "work.*", parking: "#"} {
		if err := s.ch.QueueBind(q, key, x, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	n := c.Node(2)
	says := func(want string, args ...string) {
		t.Helper()
		untilSays(t, n, want, args...)
	}
	says(x+"\ttopic\n", "list_exchanges", "-s")
	says(x+"\texchange\t"+work+"\tqueue\twork.*\t{}\n", "list_bindings", "-s")
	both := []string{work, parking}
	if out := strings.Fields(mustCtl(t, n, "route", "-s", x, "work.a")); len(out) != 2 || !strings.Contains(strings.Join(both, " "), out[0]) || !strings.Contains(strings.Join(both, " "), out[1]) {
		t.Errorf("work.a goes to %q", out)
	}
	if out := mustCtl(t, n, "route", "-s", x, "other"); out != parking+"\n" {
		t.Errorf("other goes to %q", out)
	}
	s.fill(work, "one", "two")
	mustCtl(t, n, "purge_queue", work)
	says(work+"\t0\n", "list_queues", "-s", "name", "messages")
	s.fill(parking, "three")
	if code, _, why := ctl(t, n, "delete_queue", "--if-empty", parking); code != 70 || !strings.Contains(why, "not empty") {
		t.Errorf("a queue that is not empty: %d %s", code, why)
	}
	mustCtl(t, n, "delete_queue", parking)
	mustCtl(t, n, "delete_queue", "--idempotently", parking)
	if code, _, _ := ctl(t, n, "delete_queue", parking); code != 65 {
		t.Errorf("a queue that is gone: %d", code)
	}

	tag, err := s.ch.Consume(work, "verbs-tag", false, false, false, false, nil)
	if err != nil || tag == nil {
		t.Fatal(err)
	}
	says(work+"\t", "list_consumers", "-s", "queue_name", "consumer_tag")
	says("guest\t1\t0\n", "list_channels", "-s", "user", "consumer_count", "messages_unacknowledged")
	says("Queue count: ", "status")

	says("protocol: amqp, purpose: AMQP 0-9-1\n", "listeners")
	says("repair-after\t", "environment", "-s")
	var parts []struct {
		Part   string
		Memory uint64
	}
	if err := json.Unmarshal([]byte(mustCtl(t, n, "memory_breakdown", "--unit", "bytes", "--formatter", "json")), &parts); err != nil {
		t.Error(err)
	}
	sum := uint64(0)
	for _, p := range parts {
		if sum += p.Memory; p.Memory == 0 && p.Part != "transient_messages" && p.Part != "heap_free" && p.Part != "queue_leaders" {
			t.Errorf("%s takes no memory", p.Part)
		}
	}
	if len(parts) != 8 || sum < 4<<20 || sum > 4<<30 {
		t.Errorf("memory: %d bytes in %+v", sum, parts)
	}
	if v := strings.TrimSpace(mustCtl(t, n, "server_version", "-s")); v == "" {
		t.Error("no version")
	}
	mustCtl(t, n, "set_log_level", "error")
	mustCtl(t, n, "set_user_tags", "guest", "administrator") // is logged at level info
	if raw, err := os.ReadFile(n.LogFile()); err != nil || strings.Contains(string(raw), "/api/warren/users/guest/tags") {
		t.Errorf("logged at level error (%v)", err)
	}
	mustCtl(t, n, "set_log_level", "info")
	eventually(t, func() error { // the node may have something else to say meanwhile
		mustCtl(t, n, "set_user_tags", "guest", "administrator")
		if tail := mustCtl(t, n, "log_tail", "-N", "3"); !strings.Contains(tail, "/api/warren/users/guest/tags") || strings.Count(tail, "\n") != 3 {
			return fmt.Errorf("the log ends with %s", tail)
		}
		return nil
	})
	mustCtl(t, n, "log_tail_stream", "-d", "1") // what it prints is what comes in that second
	if code, _, why := ctl(t, n, "set_log_level", "loud"); code != 70 || !strings.Contains(why, `must be debug, info, warn or error, got "loud"`) {
		t.Errorf("%d %s", code, why)
	}
	eventually(t, func() error { // a node that does not answer in time makes holes
		report := mustCtl(t, n, "report")
		for _, part := range []string{"# cluster_status", "Catalog", "# list_queues of vhost /", work, "# list_policies of vhost /", "# environment"} {
			if !strings.Contains(report, part) {
				return fmt.Errorf("the report lacks %q", part)
			}
		}
		if strings.Contains(report, "not shown") {
			return fmt.Errorf("the report has holes: %s", report)
		}
		return nil
	})

	victim := at(t, c.Node(0))
	ended := victim.conn.NotifyClose(make(chan *amqp.Error, 1))
	mustCtl(t, n, "add_vhost", "verbs")
	t.Cleanup(func() { mustCtl(t, n, "delete_vhost", "verbs") })
	mustCtl(t, n, "update_vhost_metadata", "verbs", "--tags", "a,b")
	says("verbs\t[a, b]", "list_vhosts", "-s", "name", "tags")
	mustCtl(t, n, "enable_vhost_deletion_protection", "verbs")
	if code, _, failure := ctl(t, n, "delete_vhost", "verbs"); code == 0 || !strings.Contains(failure, "protected from deletion") {
		t.Errorf("a protected vhost is deleted: %d %s", code, failure)
	}
	mustCtl(t, n, "disable_vhost_deletion_protection", "verbs")
	for name, args := range map[string][]string{
		"low": {"^mat", `{"max-length":7}`}, "other": {"^nat", `{"max-length":7}`}, "high": {"ch$", `{"max-length":8}`, "--priority", "3", "--apply-to", "quorum_queues"},
		"exchanges": {".*", `{"alternate-exchange":"x"}`, "--apply-to", "exchanges"},
	} {
		mustCtl(t, n, append([]string{"set_policy", "-p", "verbs", name}, args...)...)
	}
	for _, r := range []struct{ method, path, body string }{
		{http.MethodPut, "permissions/verbs/guest", `{"configure":".*","write":".*","read":".*"}`},
		{http.MethodPut, "queues/verbs/match", `{"durable":true,"arguments":{"x-queue-type":"quorum"}}`},
		{http.MethodPost, "vhosts/verbs/start/" + n.Name, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, n.HTTP()+"/api/"+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("guest", "guest")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode/100 != 2 {
			t.Errorf("%s: %s", r.path, resp.Status)
		}
	}
	matching := mustCtl(t, n, "list_policies_that_match", "-p", "verbs", "-s", "match")
	if lines := strings.Split(strings.TrimSpace(matching), "\n"); len(lines) != 2 || !strings.Contains(lines[0], "\thigh\t") || !strings.HasSuffix(lines[0], "\ttrue") ||
		!strings.Contains(lines[1], "\tlow\t") || !strings.HasSuffix(lines[1], "\tfalse") {
		t.Errorf("policies that match: %q", matching)
	}
	says("All of these quorum queues have a leader", "check_for_quorum_queues_without_an_elected_leader", "--across-all-vhosts", "^match$")
	says("The catalog has a leader", "check_if_metadata_store_is_initialized_with_data")
	if status, body := api(t, http.MethodGet, n.HTTP()+"/api/health/checks/reached-target-cluster-size"); status != http.StatusOK {
		t.Errorf("three of three nodes: %d %s", status, body)
	}
	says("Closed 0 connections", "close_all_connections", "-p", "verbs", "maintenance")
	select {
	case e := <-ended:
		t.Fatalf("closed: %v", e)
	default:
	}
	eventually(t, func() error {
		for line := range strings.Lines(mustCtl(t, n, "list_connections", "-s", "pid", "peer_port")) {
			pid, port, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if strings.HasSuffix(victim.conn.LocalAddr().String(), ":"+port) {
				mustCtl(t, n, "close_connection", pid, "for a test")
				return nil
			}
		}
		return errors.New("the connection is not listed")
	})
	select {
	case e := <-ended:
		if e == nil || e.Code != 320 || !strings.Contains(e.Reason, "for a test") {
			t.Errorf("closed with %v", e)
		}
	case <-time.After(timeoutReply):
		t.Error("not closed")
	}
}
