package ctl

import (
	"net/http"
	"testing"
)

func TestParameterVerbs(t *testing.T) {
	checkVerbs(t, []verbCase{
		{
			args: []string{"set_cluster_name", "shop"}, method: "PUT", path: "/api/cluster-name", body: `{"name":"shop"}`, status: 204,
			out: "Setting cluster name to shop ...\n",
		},
		{
			args: []string{"set_cluster_name", ""}, method: "PUT", path: "/api/cluster-name", body: `{"name":""}`, status: 400,
			answer: `{"error":"bad_request","reason":"1 to 255 bytes"}`, code: ExitSoftware, failed: "1 to 255 bytes",
		},
		{
			args: []string{"list_global_parameters"}, method: "GET", path: "/api/global-parameters", status: 200, answer: `[{"name":"cluster_name","value":"shop"}]`,
			out: "Listing global runtime parameters ...\nname\tvalue\ncluster_name\tshop\n",
		},
		{args: []string{"list_parameters", "-p", "none"}, method: "GET", path: "/api/vhosts/none", status: 404, code: ExitData, failed: "Virtual host 'none' does not exist"},
	})
	code, out, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
		body := `{"name":"v"}`
		if r.URL.Path == "/api/parameters" {
			body = `[{"component":"operator_policy","vhost":"/","name":"o","value":{}},{"component":"vhost-limits","vhost":"v","name":"limits","value":{"max-queues":3}}]`
		}
		_, _ = w.Write([]byte(body)) // the test sees what is missing
	}, "list_parameters", "-p", "v", "-q")
	if want := "component\tname\tvalue\nvhost-limits\tlimits\t{\"max-queues\":3}\n"; code != ExitOK || out != want {
		t.Errorf("%d %q %s, want %q", code, out, failure, want)
	}
}
