package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster/replicas"
	"github.com/warrenmq/warren/policy"
)

// TestNotFoundIsSaidOfAnUpToDateCopy: what another node has made is found although this node's copy of the catalog does not have it yet; if that cannot be
// brought up to date, the answer is 503 and not that there is no such thing, which tools take for its deletion.
func TestNotFoundIsSaidOfAnUpToDateCopy(t *testing.T) {
	away := &broker.Error{Kind: broker.TimedOut, Text: "the catalog cannot be reached", Unasked: true}
	const outOfReach = `{"error":"service_unavailable","reason":"the catalog cannot be reached"}`
	spec := policy.Spec{VHost: "/", Name: "p", Pattern: "q", ApplyTo: policy.All, Priority: 1}
	var err error
	if spec.Definition, err = policy.ParseDefinition([]byte(`{"max-length":5}`)); err != nil {
		t.Fatal(err)
	}
	t.Run("policies", func(t *testing.T) {
		f := newFakeCluster("a")
		b := &policyBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {}}}, sets: map[string]*policy.Set{}}
		f.apis["a"].cfg.Broker = b
		for _, operator := range []bool{false, true} {
			path := "policies/%2F/p"
			if operator {
				path = "operator-policies/%2F/p"
			}
			b.catchUp = func() error { return away }
			f.expect(t, []request{{"", "GET", path, "", 503, outOfReach}})
			b.catchUp = func() error { return nil }
			f.expect(t, []request{{"", "GET", path, "", 404, notThere}})
			b.catchUp = func() error {
				s := spec
				s.Operator = operator
				_, err := b.PutPolicy(t.Context(), s)
				return err
			}
			f.expect(t, []request{{"", "GET", path, "", 200, `…"max-length":5},"priority":1}`}})
		}
	})
	t.Run("permissions", func(t *testing.T) {
		f, b := newFakeCluster("a"), newFakeUsers()
		f.apis["a"].cfg.Broker = b
		b.catchUp = func() error { return away }
		f.expect(t, []request{
			{"", "GET", "permissions/%2F/guest", "", 503, outOfReach},
			{"", "GET", "topic-permissions/%2F/guest", "", 503, outOfReach},
		})
		b.vhosts["v"] = nil
		f.expect(t, []request{{"manager", "GET", "policies/v", "", 503, outOfReach}})
		b.catchUp = func() error {
			_, err := b.PutPermission(t.Context(), "/", "guest", "a", "b", "c")
			return err
		}
		f.expect(t, []request{{"", "GET", "permissions/%2F/guest", "", 200, `…"read":"c"}`}})
		b.catchUp = func() error { return nil }
		f.expect(t, []request{{"manager", "GET", "policies/v", "", 401, "…User not authorised to access object"}})
	})
}

// TestWhatMayHaveBeenDoneIsCalledTimeout: an answer tells a change that may have been made from one that was not.
func TestWhatMayHaveBeenDoneIsCalledTimeout(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{broker.Errorf(broker.TimedOut, "operation timed out"), "timeout"},
		{fmt.Errorf("ask: %w", context.DeadlineExceeded), "timeout"},
		{&broker.Error{Kind: broker.TimedOut, Text: "the catalog cannot be reached", Unasked: true}, "service_unavailable"},
		{broker.Errorf(broker.Unavailable, "no leader"), "service_unavailable"},
	} {
		if got := shortOf(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
	}
	if r, ok := errors.AsType[*refusal](ofReplicas(replicas.Unknown(errors.New("why")))); !ok || r.status != http.StatusServiceUnavailable || r.Short != shortTimeout {
		t.Errorf("of replicas: %+v", r)
	}
}
