package ctl

import "testing"

func TestListClosingQueues(t *testing.T) {
	const list = `[{"id":1,"vhost":"/","queue":"orders","members":["n1","n2"],"state":"running","leader":"n1","messages_dlx":12,"message_bytes_dlx":34,"oldest_age_ms":61500,"why":"target dead is full"},
		{"id":2,"vhost":"gone","queue":"","delay_of":"x","members":["n3"],"state":"down","leader":"","messages_dlx":0,"message_bytes_dlx":0,"oldest_age_ms":0,"why":"too few of its replicas run"}]`
	for _, tc := range []struct {
		args []string
		want string
	}{
		{
			[]string{"list_closing_queues", "-q"},
			"vhost\tname\tstate\tleader\tmessages_dlx\tmessage_bytes_dlx\toldest_age_seconds\twhy\tmembers\n/\torders\trunning\tn1\t12\t34\t61.5\ttarget dead is full\tn1 n2\n" +
				"gone\texchange x\tdown\t\t0\t0\t0.0\ttoo few of its replicas run\tn3\n",
		},
		{[]string{"list_closing_queues", "--silent", "why", "name"}, "target dead is full\torders\ntoo few of its replicas run\texchange x\n"},
	} {
		if code, out, failure := run(t, says(200, list), tc.args...); code != ExitOK || out != tc.want {
			t.Errorf("%q: %d %q, want %q; %s", tc.args, code, out, tc.want, failure)
		}
	}
	if code, out, _ := run(t, says(200, "[]"), "list_closing_queues"); code != ExitOK || out != "Deleted queues that have not ended ...\n" {
		t.Errorf("%d %q", code, out)
	}
	if code, _, failure := run(t, says(200, "[]"), "list_closing_queues", "colour"); code == ExitOK {
		t.Errorf("an unknown column: %s", failure)
	}
}
