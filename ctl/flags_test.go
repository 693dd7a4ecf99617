package ctl

import "testing"

func TestFlagVerbs(t *testing.T) {
	const listed = `[{"name":"a","state":"enabled","stability":"required","level":1},{"name":"b","state":"disabled","stability":"stable","level":2}]`
	checkVerbs(t, []verbCase{
		{
			args: []string{"list_feature_flags"}, method: "GET", path: "/api/feature-flags", status: 200, answer: listed,
			out: "Listing feature flags ...\nname\tstate\na\tenabled\nb\tdisabled\n",
		},
		{
			args: []string{"list_feature_flags", "-s", "name", "level"}, method: "GET", path: "/api/feature-flags", status: 200, answer: listed,
			out: "a\t1\nb\t2\n",
		},
		{args: []string{"enable_feature_flag", "all"}, method: "PUT", path: "/api/feature-flags/all/enable", status: 204, out: "Enabling all feature flags ...\n"},
		{args: []string{"enable_feature_flag", "b"}, method: "PUT", path: "/api/feature-flags/b/enable", status: 204, out: "Enabling feature flag \"b\" ...\n"},
		{
			args: []string{"-q", "enable_feature_flag", "c"}, method: "PUT", path: "/api/feature-flags/c/enable", status: 400,
			answer: `{"error":"bad_request","reason":"unsupported"}`, code: 70, failed: "Error:\nunsupported\n",
		},
	})
}
