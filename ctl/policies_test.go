package ctl

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestPolicyVerbs(t *testing.T) {
	const dlx = `{"dead-letter-exchange":"my-dlx"}`
	checkVerbs(t, []verbCase{
		{
			args: []string{"set_policy", "DLX", ".*", dlx, "--apply-to", "queues"}, method: "PUT", path: "/api/policies/%2F/DLX",
			body:   `{"apply-to":"queues","definition":{"dead-letter-exchange":"my-dlx"},"pattern":".*","priority":0}`,
			status: 201, out: `Setting policy "DLX" for pattern ".*" to "{"dead-letter-exchange":"my-dlx"}" with priority "0" for vhost "/" ...` + "\n",
		},
		{
			args: []string{"-q", "set_policy", "-p", "a/b", "--priority", "-7", "--", "-n", "-p", `{"x":1}`}, method: "PUT", path: "/api/policies/a%2Fb/-n",
			body: `{"apply-to":"all","definition":{"x":1},"pattern":"-p","priority":-7}`, status: 204,
		},
		{
			args: []string{"set_operator_policy", "cap", "^q", `{"max-length":5}`, "--priority=2"}, method: "PUT", path: "/api/operator-policies/%2F/cap",
			body:   `{"apply-to":"all","definition":{"max-length":5},"pattern":"^q","priority":2}`,
			status: 201, out: `Setting operator policy override "cap" for pattern "^q" to "{"max-length":5}" with priority "2" for vhost "/" ...` + "\n",
		},
		{
			args: []string{"list_policies"}, method: "GET", path: "/api/policies/%2F", status: 200,
			answer: `[{"vhost":"/","name":"DLX","pattern":".*","apply-to":"queues","definition":{"message-ttl":5,"dead-letter-exchange":"<x>"},"priority":0}]`,
			out: "Listing policies for vhost \"/\" ...\nvhost\tname\tpattern\tapply-to\tdefinition\tpriority\n" +
				"/\tDLX\t.*\tqueues\t{\"dead-letter-exchange\":\"<x>\",\"message-ttl\":5}\t0\n",
		},
		{
			args: []string{"list_operator_policies", "-p", "v", "--formatter", "json"}, method: "GET", path: "/api/operator-policies/v", status: 200,
			answer: `[{"vhost":"v","name":"cap","pattern":"","apply-to":"all","definition":{"max-length":5},"priority":3}]`,
			out:    "[\n" + `{"vhost":"v","name":"cap","pattern":"","apply-to":"all","definition":{"max-length":5},"priority":3}` + "\n]\n",
		},
		{
			args: []string{"clear_policy", "DLX"}, method: "DELETE", path: "/api/policies/%2F/DLX", status: 204,
			out: "Clearing policy \"DLX\" on vhost \"/\" ...\n",
		},
		{
			args: []string{"clear_operator_policy", "cap", "-p", "v"}, method: "DELETE", path: "/api/operator-policies/v/cap", status: 204,
			out: "Clearing operator policy \"cap\" on vhost \"v\" ...\n",
		},
		{
			args: []string{"set_policy", "p", "(", `{"max-length":5}`}, method: "PUT", path: "/api/policies/%2F/p", status: 400,
			body:   `{"apply-to":"all","definition":{"max-length":5},"pattern":"(","priority":0}`,
			answer: `{"error":"bad_request","reason":"Validation failed\n\npattern should be regular expression but is invalid\n"}`,
			code:   ExitSoftware, failed: "Error:\nValidation failed\n\npattern should be regular expression but is invalid\n",
		},
		{
			args: []string{"set_policy", "p", ".*", dlx, "-p", "w"}, method: "PUT", path: "/api/policies/w/p", status: 404, answer: `{}`,
			body: `{"apply-to":"all","definition":{"dead-letter-exchange":"my-dlx"},"pattern":".*","priority":0}`,
			code: ExitData, failed: "Error:\nVirtual host 'w' does not exist\n",
		},
		{args: []string{"list_policies", "-p", "w"}, method: "GET", path: "/api/policies/w", status: 404, answer: `{}`, code: ExitData, failed: "Virtual host 'w'"},
		{args: []string{"set_policy", "p", ".*", `{"a`}, code: ExitData, failed: "Error:\nJSON decoding error"},
		{args: []string{"set_policy", "p", ".*"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"set_policy", "p", ".*", "{}", "more"}, code: ExitUsage, failed: "too many arguments"},
		{args: []string{"set_policy", "p", ".*", "{}", "--priority", "high"}, code: ExitUsage, failed: "invalid argument"},
		{args: []string{"clear_policy"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"list_policies", "more"}, code: ExitUsage, failed: "too many arguments"},
	})
}

func TestClearWhatIsNotThere(t *testing.T) {
	for vhost, want := range map[string]string{"/": "Policy does not exist", "w": "Virtual host 'w' does not exist"} {
		_, _, failed := run(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete || vhost == "w" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = io.WriteString(w, "[]")
		}, "clear_policy", "p", "-p", vhost)
		if !strings.Contains(failed, want) {
			t.Errorf("%s: %q", vhost, failed)
		}
	}
}
