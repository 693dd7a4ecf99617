package management

import (
	"context"
	"testing"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/policy"
)

// parameterBroker keeps limits and policies.
type parameterBroker struct {
	*policyBroker
	limits *fakeLimits

	fakeShovels
}

func (b *parameterBroker) VhostLimits() []broker.LimitsOf { return b.limits.VhostLimits() }

func (b *parameterBroker) SetVhostLimits(ctx context.Context, vhost string, limits map[string]int64, replace bool) error {
	return b.limits.SetVhostLimits(ctx, vhost, limits, replace)
}

func (b *parameterBroker) ClearVhostLimits(ctx context.Context, vhost, limit string) error {
	return b.limits.ClearVhostLimits(ctx, vhost, limit)
}

// TestParameters: operator policies and limits of vhosts are the same by either path.
func TestParameters(t *testing.T) {
	f := newFakeCluster("a")
	vhosts := map[string][]string{"/": {"maker"}, "v": {}}
	f.apis["a"].cfg.Broker = &parameterBroker{
		policyBroker: &policyBroker{fakeBroker: fakeBroker{vhosts: vhosts}, sets: map[string]*policy.Set{}},
		limits:       &fakeLimits{&fakeBroker{vhosts: vhosts}, map[string]map[string]int64{"/": {}, "v": {}}, nil},
	}
	const bound = `{"pattern":"^q","definition":{"max-length":9},"priority":1,"apply-to":"queues"}`
	f.expect(t, []request{
		{"", "PUT", "parameters/operator_policy/%2F/cap", `{"value":` + bound + `,"name":"other","vhost":"v"}`, 201, ""},
		{"", "PUT", "parameters/operator_policy/%2F/cap", `{"value":` + bound + `}`, 204, ""},
		{"", "GET", "operator-policies/%2F/cap", "", 200, `{"vhost":"/","name":"cap","pattern":"^q","apply-to":"queues","definition":{"max-length":9},"priority":1}`},
		{"", "GET", "parameters/operator_policy/v", "", 200, `[]`},
		{"", "PUT", "parameters/operator_policy/%2F/x", `{"value":{"pattern":"x"}}`, 400, refusedAs("key_missing: definition")},
		{"", "PUT", "parameters/operator_policy/%2F/x", `{}`, 400, refusedAs("[{key_missing,value}]")},
		{"", "PUT", "parameters/operator_policy/none/x", `{"value":` + bound + `}`, 404, notThere},
		{"maker", "PUT", "parameters/operator_policy/%2F/cap", `{"value":` + bound + `}`, 401, "…not_authorised"},
		{"maker", "DELETE", "parameters/operator_policy/%2F/cap", "", 401, "…not_authorised"},
		{"", "DELETE", "parameters/operator_policy/%2F/cap", "", 204, ""},
		{"", "DELETE", "parameters/operator_policy/%2F/cap", "", 404, notThere},
		{"", "GET", "operator-policies", "", 200, `[]`},

		{"", "PUT", "parameters/vhost-limits/v/limits", `{"value":{"max-queues":3,"max-connections":5}}`, 201, ""},
		{"", "PUT", "parameters/vhost-limits/v/limits", `{"value":{"max-queues":4}}`, 204, ""},
		{"", "GET", "vhost-limits", "", 200, `[{"vhost":"v","value":{"max-queues":4}}]`},
		{"", "PUT", "parameters/vhost-limits/v/limits", `{"value":{"max-kittens":4}}`, 400, `…Unrecognised terms`},
		{"", "PUT", "parameters/vhost-limits/v/limits", `{"value":[4]}`, 400, refusedAs("not_json")},
		{"maker", "PUT", "parameters/vhost-limits/%2F/limits", `{"value":{"max-queues":4}}`, 401, noAdministrator},
		{"", "PUT", "vhost-limits/%2F/max-queues", `{"value":1}`, 204, ""},
		{"", "GET", "parameters/vhost-limits/%2F/limits", "", 200, `{"value":{"max-queues":1},"vhost":"/","component":"vhost-limits","name":"limits"}`},
		{"maker", "DELETE", "parameters/vhost-limits/%2F/limits", "", 401, noAdministrator},
		{"", "DELETE", "parameters/vhost-limits/v/limits", "", 204, ""},
		{"", "DELETE", "parameters/vhost-limits/v/limits", "", 404, notThere},
		{"", "GET", "vhost-limits", "", 200, `[{"vhost":"/","value":{"max-queues":1}}]`},
	})
}
