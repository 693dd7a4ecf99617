package ctl

import "testing"

// TestGossipKeys: the verb fails unless it is known that all nodes have the same keys.
func TestGossipKeys(t *testing.T) {
	const at = "/api/warren/gossip-keys"
	checkVerbs(t, []verbCase{
		{
			args: []string{"gossip_keys", "-s"}, method: "GET", path: at, status: 200,
			answer: `[{"node":"a","encryption":"on","keys":["1","2"]},{"node":"b","encryption":"on","keys":["1","2"]}]`, out: "a\ton\t1 2\nb\ton\t1 2\n",
		},
		{
			args: []string{"gossip_keys"}, method: "GET", path: at, status: 200, code: ExitSoftware, failed: "do not have the same keys",
			answer: `[{"node":"a","encryption":"on","keys":["1","2"]},{"node":"b","encryption":"on","keys":["2","1"]}]`,
		},
		{
			args: []string{"gossip_keys"}, method: "GET", path: at, status: 200, code: ExitSoftware, failed: "not known, since they do not run: a",
			answer: `[{"node":"a","encryption":"","keys":[],"unknown":true},{"node":"b","encryption":"on","keys":["1"]},{"node":"c","encryption":"on","keys":["1"]}]`,
		},
		{ // nobody has keys: nothing can differ
			args: []string{"gossip_keys", "-s"}, method: "GET", path: at, status: 200,
			answer: `[{"node":"a","encryption":"","keys":[],"unknown":true},{"node":"b","encryption":"off","keys":[]}]`, out: "a\tunknown\t\nb\toff\t\n",
		},
	})
}
