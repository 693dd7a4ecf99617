package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rabbitmqadmin is RabbitMQ's own command line client of the management API (Debian's, of 3.10). test/clients/install.sh brings it.
const rabbitmqadmin = "../clients/rabbitmqadmin/rabbitmqadmin"

// timeoutAdmin bounds one run of it.
const timeoutAdmin = 30 * time.Second

// TestRabbitmqadmin has RabbitMQ's own tool declare, list, publish, get, export and delete, with three nodes.
func TestRabbitmqadmin(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	address, err := url.Parse(c.Node(2).HTTP())
	if err != nil {
		t.Fatal(err)
	}
	s := at(t, c.Node(0))
	as := func(user string) func(want string, args ...string) string {
		return func(want string, args ...string) string {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), timeoutAdmin)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/usr/bin/python3", append([]string{
				rabbitmqadmin, "--host", address.Hostname(), "--port", address.Port(), "--username", user, "--password", user, "--format", "raw_json",
			}, args...)...)
			out := new(bytes.Buffer)
			cmd.Stdout, cmd.Stderr = out, out
			err := cmd.Run()
			if refused := strings.HasPrefix(want, "***"); (err != nil) != refused || !strings.Contains(out.String(), strings.TrimPrefix(want, "***")) {
				t.Fatalf("rabbitmqadmin %s: %v\n%s\nwant %s", strings.Join(args, " "), err, out, want)
			}
			return out.String()
		}
	}
	admin := as("guest")
	q, x, user, vhost := s.name("q"), s.name("x"), s.name("u"), s.name("v")
	admin("exchange declared", "declare", "exchange", "name="+x, "type=topic")
	admin("queue declared", "declare", "queue", "name="+q, "queue_type=quorum", `arguments={"x-max-length":3}`)
	admin("queue declared", "declare", "queue", "name="+q, "durable=true", `arguments={"x-queue-type":"quorum","x-max-length":3}`)
	admin("***inequivalent arg 'durable'", "declare", "queue", "name="+q, "durable=false", `arguments={"x-queue-type":"quorum","x-max-length":3}`)
	admin("binding declared", "declare", "binding", "source="+x, "destination="+q, "routing_key=a.#")
	admin("Message published", "publish", "exchange="+x, "routing_key=a.b", "payload=hello", `properties={"delivery_mode":2,"headers":{"n":1}}`)
	admin("NOT routed", "publish", "exchange="+x, "routing_key=b", "payload=lost")
	s.ready(q, 1)
	admin(`"payload":"hello"`, "get", "queue="+q)
	admin(`"redelivered":true`, "get", "queue="+q, "ackmode=reject_requeue_true", "count=5")
	file := filepath.Join(t.TempDir(), "payload")
	admin("", "get", "queue="+q, "ackmode=ack_requeue_false", "payload_file="+file)
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "hello" {
		t.Errorf("payload %q %v", raw, err)
	}
	admin("Message published", "publish", "routing_key="+q, "payload=again")
	admin("queue purged", "purge", "queue", "name="+q)
	s.ready(q, 0)

	for what, want := range map[string]string{
		"exchanges": x, "queues": q, "users": "guest", "vhosts": "/", "permissions": "guest", "nodes": "node1", "connections": "guest", "bindings": "a.#", "channels": "[", "consumers": "[", "parameters": "[",
	} {
		admin(want, "list", what)
	}
	admin("rabbitmq_version", "show", "overview")
	admin(q, "--vhost=/", "list", "queues", "name", "messages", "type")

	admin("vhost declared", "declare", "vhost", "name="+vhost)
	admin("user declared", "declare", "user", "name="+user, "password="+user, "tags=management")
	admin("permission declared", "declare", "permission", "vhost="+vhost, "user="+user, "configure=^mine", "write=.*", "read=.*")
	theirs := as(user)
	theirs("queue declared", "--vhost="+vhost, "declare", "queue", "name=mine")
	theirs("***Access refused", "--vhost="+vhost, "declare", "queue", "name=other")
	theirs("***Access refused", "declare", "queue", "name=mine")
	admin("policy declared", "--vhost="+vhost, "declare", "policy", "name=p", "pattern=^mine", `definition={"max-length":7}`, "priority=2", "apply-to=queues")
	admin(`"policy":"p"`, "--vhost="+vhost, "list", "queues")
	admin(`"max-length":7`, "--vhost="+vhost, "list", "policies")
	admin("operator_policy declared", "--vhost="+vhost, "declare", "operator_policy", "name=o", "pattern=^mine", `definition={"max-length":5}`)
	admin(`"max-length":5`, "--vhost="+vhost, "list", "operator_policies")
	admin("vhost_limit declared", "declare", "vhost_limit", "vhost="+vhost, "name=max-queues", "value=1")
	admin(`"max-queues":1`, "list", "vhost_limits")
	admin("***queue limit in vhost '"+vhost+"' (1) is reached", "--vhost="+vhost, "declare", "queue", "name=second")
	admin("vhost_limit deleted", "delete", "vhost_limit", "vhost="+vhost, "name=max-queues")

	file = filepath.Join(t.TempDir(), "definitions.json")
	admin("Exported definitions", "export", file)
	raw, err := os.ReadFile(file)
	var definitions struct {
		Queues []struct{ Name string }
	}
	if err == nil {
		err = json.Unmarshal(raw, &definitions)
	}
	if err != nil || !strings.Contains(string(raw), q) || len(definitions.Queues) == 0 {
		t.Errorf("definitions: %v %s", err, raw)
	}
	// All of them would bring back what other tests, which use these nodes too, have deleted meanwhile.
	mine := fmt.Appendf(nil, `{"queues":[{"name":%q,"vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"quorum","x-max-length":3}}]}`, q)
	if err := os.WriteFile(file, mine, 0o600); err != nil {
		t.Fatal(err)
	}
	admin("Uploaded definitions", "import", file)
	admin("Exported definitions", "--vhost="+vhost, "export", file)
	admin("Uploaded definitions", "--vhost="+vhost, "import", file)

	admin("operator_policy deleted", "--vhost="+vhost, "delete", "operator_policy", "name=o")
	admin("policy deleted", "--vhost="+vhost, "delete", "policy", "name=p")
	admin("permission deleted", "delete", "permission", "vhost="+vhost, "user="+user)
	admin("user deleted", "delete", "user", "name="+user)
	admin("vhost deleted", "delete", "vhost", "name="+vhost)
	admin("binding deleted", "delete", "binding", "source="+x, "destination_type=queue", "destination="+q, "properties_key=a.%23")
	admin("exchange deleted", "delete", "exchange", "name="+x)
	admin("queue deleted", "delete", "queue", "name="+q)
	admin("***Not found", "delete", "queue", "name="+q)
}
