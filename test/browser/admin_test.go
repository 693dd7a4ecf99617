package browser

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// TestPolicies: somebody makes a policy after a look at what it would apply to, sees it in effect, changes and deletes it.
func TestPolicies(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "pol.a", nil)
	p.rig.declare(t, "pol.b", fields{"x-max-length": 50})
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/admin/policies")
	p.click("Add a policy")
	p.fill("Name", "short")
	p.fill("Names that match", "^pol[.]")
	p.fill("Definition (JSON)", `{"max-length": 100, "message-ttl"`)
	p.shows("Expected")
	p.fill("Definition (JSON)", `{"max-length": 100}`)
	p.await("both queues", `document.querySelector(".preview").innerText.includes("2 queues: pol.a, pol.b")`)
	p.accessible("the policy's dialog")
	p.picture("policy")
	p.click("Save")
	p.shows("Policy short is in effect.")
	p.looks("policies")
	p.visit("#/queues/%2F/pol.b?tab=settings")
	p.await("the smaller length", `/max-length\s+50\s+100\s+50/.test(document.querySelector("table")?.innerText ?? "")`)
	p.looks("settings")
	p.visit("#/admin/policies")
	p.click("short")
	p.fill("Definition (JSON)", `{"max-length": 10}`)
	p.click("Save")
	p.await("the change", `document.querySelector("table")?.innerText.includes("max-length: 10")`)
	p.visit("#/queues/%2F/pol.b?tab=settings")
	p.await("the policy's length", `/max-length\s+50\s+10\s+10/.test(document.querySelector("table")?.innerText ?? "")`)
	p.visit("#/admin/policies")
	p.click("Delete…")
	p.fill("Type the name", "short")
	p.click("Delete")
	p.shows("None yet.")
	p.silent("404") // the page asks whether there is such a policy before it adds one
}

// TestUsers: a user with permissions, tried, limited and deleted; a virtual host; definitions saved and loaded.
func TestUsers(t *testing.T) {
	p := open(t)
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/admin/users")
	p.click("Add a user")
	p.fill("Name", "ann")
	p.fill("Password", "secret")
	p.click("Add")
	p.shows("User ann is added.")
	p.looks("users")
	p.visit("#/admin/users/ann")
	p.click("Set…")
	p.fill("Read", "^ann-")
	p.click("Set")
	p.shows("The permissions of ann in / are set.")
	p.fill("Name to try", "bob-queue")
	p.click("Try")
	p.shows("No: read access to queue 'bob-queue' in vhost '/' refused for user 'ann'")
	p.fill("Name to try", "ann-queue")
	p.click("Try")
	p.shows("Yes: ann may read queue ann-queue in /.")
	p.looks("user")
	p.click("Delete")
	p.fill("Type the name", "ann")
	p.click("Delete")
	p.shows("User ann is deleted.")

	p.visit("#/admin/vhosts")
	p.click("Add a virtual host")
	p.fill("Name", "page/shop")
	p.fill("Tags", "a, b")
	p.click("Add")
	p.await("the virtual host", `[...document.querySelectorAll("tbody a")].some((a) => a.innerText === "page/shop")`)
	p.looks("vhosts")
	p.visit("#/admin/vhosts/page%2Fshop")
	p.shows("Who may enter")
	p.looks("vhost")
	p.click("Delete")
	p.fill("Type the name", "page/shop")
	p.click("Delete")
	p.shows("page/shop is deleted.")

	file := filepath.Join(t.TempDir(), "defs.json")
	if err := os.WriteFile(file, []byte(`{"vhosts":[{"name":"/"}],"queues":[{"name":"loaded","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"quorum"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.visit("#/admin/definitions")
	p.await("a field for a file", `document.querySelector("input[type=file]")`)
	p.do(chromedp.SetUploadFiles("input[type=file]", []string{file}))
	p.click("What would change?")
	p.shows("1 thing would change. Nothing has been changed yet.")
	p.looks("definitions")
	p.click("Load it")
	p.shows("Loaded: 1 change.")
	p.click("What would change?")
	p.shows("Nothing would change")
	p.rig.api(t, "DELETE", "queues/%2F/loaded", nil, nil)
	p.visit("#/admin/feature-flags")
	p.await("flags", `document.querySelectorAll("tbody tr").length >= 2`)
	p.looks("feature-flags")
	p.silent("404")
}

// TestClients: a connection with a channel and a consumer, seen and closed with a reason; and the page of the Raft groups.
func TestClients(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "cli.jobs", nil)
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("page-worker")
	conn, err := amqp.DialConfig(p.rig.cluster.Node(1).URL(), amqp.Config{Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Consume("cli.jobs", "", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	p.login("guest", "guest")
	p.shows("Log out")
	for page, cell := range map[string]string{"channels": ":", "consumers": "cli.jobs"} {
		p.visit("#/" + page)
		p.await(page, `[...document.querySelectorAll("tbody tr")].some((r) => r.innerText.includes(`+quote(cell)+`))`)
		p.looks(page)
	}
	p.visit("#/queues/%2F/cli.jobs?tab=consumers")
	p.await("the consumer", `document.querySelector("tbody tr")?.innerText.includes("active")`)
	p.looks("consumers-of-a-queue")
	p.visit("#/connections")
	p.click("page-worker")
	p.shows("Client")
	p.looks("connection")
	p.click("Close…")
	p.fill("Reason", "the page's test")
	p.click("Close it")
	p.shows("The connection is closed.")
	var why *amqp.Error
	select {
	case why = <-closed:
	case <-time.After(patience):
	}
	if why == nil || why.Code != amqp.ConnectionForced || why.Reason != "CONNECTION_FORCED - the page's test" {
		t.Errorf("the client is told %v", why)
	}
	p.looks("connections")
	p.visit("#/raft?name=cli")
	p.click("Show")
	p.await("three replicas", `[...document.querySelectorAll("tbody td")].filter((d) => d.innerText === "follower").length === 2`)
	p.looks("raft")
	p.silent("404")
}
