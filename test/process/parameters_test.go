package process

import (
	"net/http"
	"strings"
	"testing"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

// TestParametersAreTheSame: limits and operator policies that are made as runtime parameters hold, are shown by their own paths, and go from one
// cluster to another with its definitions.
func TestParametersAreTheSame(t *testing.T) {
	t.Parallel()
	needWarren(t)
	from, to := startCluster(t, 1).Node(0), startCluster(t, 1).Node(0)
	get := func(base, path string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("guest", "guest")
		status, body := answerOf(t, req)
		if status != http.StatusOK {
			t.Fatal(path, status, body)
		}
		return body
	}
	limitAPI(t, from, "parameters/vhost-limits/%2F/limits", `{"value":{"max-queues":1}}`, http.StatusCreated)
	limitAPI(t, from, "parameters/operator_policy/%2F/cap", `{"value":{"pattern":"^q","definition":{"max-length":2},"apply-to":"queues"}}`, http.StatusCreated)
	exported := get(from.HTTP(), "definitions")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to.HTTP()+"/api/definitions", strings.NewReader(exported))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	if status, body := answerOf(t, req); status >= 300 {
		t.Fatal(status, body)
	}
	const limits, policies = `"value":{"max-queues":1}`, `"definition":{"max-length":2}`
	for _, n := range []string{from.HTTP(), to.HTTP()} {
		for path, want := range map[string]string{
			"vhost-limits/%2F": limits, "parameters/vhost-limits": limits, "operator-policies/%2F": policies, "parameters/operator_policy": policies,
		} {
			if got := get(n, path); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	}
	s := at(t, to)
	q := plainQueue(s, "q1", nil)
	s.fill(q, "a", "b", "c")
	s.holds(q, "b", "c")
	if _, err := s.ch.QueueDeclare("q2", true, false, false, false, nil); err == nil {
		t.Error("a queue above the limit")
	}
	limitAPI(t, to, "parameters/vhost-limits/%2F/limits", "", http.StatusNoContent)
	limitAPI(t, to, "parameters/operator_policy/%2F/cap", "", http.StatusNoContent)
	// As a tool of RabbitMQ's does it, which deletes whatever it is shown.
	hole, err := rabbithole.NewClient(from.HTTP(), "guest", "guest")
	s.noError("client", err)
	_, err = hole.PutRuntimeParameter("operator_policy", "/", "other", map[string]any{"pattern": ".", "definition": map[string]any{"max-length": 5}})
	s.noError("put", err)
	s.noError("delete all", hole.DeleteAllRuntimeParameters())
	for _, n := range []string{from.HTTP(), to.HTTP()} {
		if got := get(n, "vhost-limits") + get(n, "operator-policies"); got != "[][]" {
			t.Error(got)
		}
	}
}

// TestEmptyWordsOverHTTP: a word that is said to be nothing is refused, as RabbitMQ 4 does it; only what is not said has a default.
func TestEmptyWordsOverHTTP(t *testing.T) {
	t.Parallel()
	needWarren(t)
	n := startCluster(t, 1).Node(0)
	const bad, done, absent = http.StatusBadRequest, http.StatusCreated, http.StatusNotFound
	for _, word := range []string{`""`, `null`} {
		limitAPI(t, n, "exchanges/%2F/x", `{"type":`+word+`}`, bad)
		limitAPI(t, n, "policies/%2F/p", `{"pattern":"^q","definition":{"max-length":1},"apply-to":`+word+`}`, bad)
		limitAPI(t, n, "operator-policies/%2F/p", `{"pattern":"^q","definition":{"max-length":1},"apply-to":`+word+`}`, bad)
		limitAPI(t, n, "parameters/operator_policy/%2F/p", `{"value":{"pattern":"^q","definition":{"max-length":1},"apply-to":`+word+`}}`, bad)
	}
	limitAPI(t, n, "policies/%2F/p", `{"pattern":"^q","definition":{"max-length":1},"priority":null}`, bad)
	limitAPI(t, n, "vhosts/v", `{"default_queue_type":""}`, bad)
	for _, path := range []string{"exchanges/%2F/x", "policies/%2F/p", "operator-policies/%2F/p", "vhosts/v"} {
		limitAPI(t, n, path, "", absent)
	}
	limitAPI(t, n, "exchanges/%2F/x", `{}`, done)
	limitAPI(t, n, "policies/%2F/p", `{"pattern":"^q","definition":{"max-length":1}}`, done)
	limitAPI(t, n, "vhosts/v", `{"default_queue_type":null,"description":null,"tags":null}`, done)
}
