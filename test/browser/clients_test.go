package browser

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestWhatClientsWrite: numbers, times and bodies that clients write, whatever they are, are shown as they are and break no page; what is copied is the same.
func TestWhatClientsWrite(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "written", nil)
	conn, err := amqp.Dial(p.rig.cluster.Node(0).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	const exact, nanoseconds = 9007199254740993, 1700000000000000000 // more than a number of JavaScript holds, and no time that a browser knows
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for _, m := range []amqp.Publishing{
		{Body: []byte("number"), Headers: amqp.Table{"exact": int64(exact)}, Timestamp: time.Unix(nanoseconds, 0)},
		{Body: []byte(deep)},
		{Body: []byte(strings.Repeat("long ", 20_000))},
	} {
		if err := ch.PublishWithContext(t.Context(), "", "written", false, false, m); err != nil {
			t.Fatal(err)
		}
	}
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/queues/%2F/written?tab=messages")
	message := func(n string) {
		p.await("the message", `(() => { const b = document.querySelectorAll(".message-button")[`+n+`]; b?.click(); return b; })()`)
	}
	message("0")
	p.shows("9007199254740993")
	p.shows("1700000000000000000")
	p.click("Publish a copy…")
	p.click("Publish")
	p.shows("1 confirmed")
	p.click("Close")
	message("1")
	p.await("the brackets", `document.querySelector("pre.body")?.innerText.startsWith("[\n")`)
	message("2")
	p.shows("Only the first part of the body is here")
	p.await("a button for the part", control("Download the first part"))
	if eval[bool](p, "Boolean("+control("Publish a copy…")+")") {
		t.Error("half a message can be published as a copy")
	}
	for n := range 4 {
		var m amqp.Delivery
		for ok, end := false, time.Now().Add(patience); !ok && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if m, ok, err = ch.Get("written", true); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.Headers["exact"]; n == 3 && (got != int64(exact) || m.Timestamp.Unix() != nanoseconds) {
			t.Errorf("the copy has %v and %v", got, m.Timestamp.Unix())
		}
	}

	// What a client says of itself may be anything.
	p.run(`window.reach = window.fetch; window.fetch = async (to, how) => {
		const answer = await window.reach(to, how);
		if (!/connections\/[^/]+$/.test(to.split("?")[0])) return answer;
		return new Response(JSON.stringify({ ...await answer.json(), client_properties: { capabilities: null, product: { a: 1 } } }));
	}`)
	p.visit("#/connections")
	p.await("the connection", `(() => { const a = document.querySelector("tbody th a"); a?.click(); return a; })()`)
	p.shows("Largest frame")
	p.silent()
}

// TestLateNode: of a node that takes requests and answers none the page says so, and what it shows is not taken for new. It asks again.
func TestLateNode(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "late", nil)
	p.login("guest", "guest")
	p.await("the queue", `[...document.querySelectorAll("tbody th a")].some((a) => a.innerText === "late")`)
	p.run(`window.reach = window.fetch; window.fetch = (to, how) => new Promise((_, fail) => how.signal?.addEventListener("abort", () => fail(new DOMException("", "AbortError"))))`)
	p.shows("The node has not answered for 15 s. What is shown may be old")
	p.run(`window.fetch = window.reach; document.dispatchEvent(new Event("visibilitychange"))`)
	p.await("no more of it", `!document.body.innerText.includes("has not answered")`)
	p.silent()
}

// TestSlowList: a list that takes longer than changes are apart is shown all the same.
func TestSlowList(t *testing.T) {
	p := open(t)
	p.login("guest", "guest")
	p.shows("Log out")
	p.await("the stream of events", `document.querySelector(".live")`)
	p.run(`window.reach = window.fetch; window.fetch = async (to, how) => {
		const answer = await window.reach(to, how);
		if (/queues\?/.test(to)) await new Promise((done, fail) => { setTimeout(done, 4000); how.signal?.addEventListener("abort", () => fail(new DOMException("", "AbortError"))); });
		return answer;
	}`)
	p.rig.declare(t, "slow.list", nil)
	p.run(`window.churns = true; window.churn = (async () => {
		const headers = { Authorization: "Basic " + sessionStorage.getItem("warren.login"), "Content-Type": "application/json" };
		while (window.churns) {
			await window.reach("api/queues/%2F/slow.comes", { method: "PUT", headers, body: JSON.stringify({ durable: true, arguments: { "x-queue-type": "quorum" } }) });
			await window.reach("api/queues/%2F/slow.comes", { method: "DELETE", headers });
			await new Promise((done) => setTimeout(done, 500));
		}
		return true;
	})()`)
	t.Cleanup(func() { p.rig.drop("queues/%2F/slow.comes") })
	p.await("the queue in the list", `[...document.querySelectorAll("tbody th a")].some((a) => a.innerText === "slow.list")`)
	eval[bool](p, "window.churns = false, window.churn") // or the queue may be made once more behind its clean-up
}

// TestNothingIsReplaced: who adds something that is there already is told so, a description leaves the rest as it was, and who logs out leaves nothing of
// what was published.
func TestNothingIsReplaced(t *testing.T) {
	p := open(t)
	p.rig.api(t, "PUT", "users/there", fields{"password": "secret", "tags": "monitoring"}, nil)
	p.rig.api(t, "PUT", "vhosts/there", fields{}, nil)
	p.rig.api(t, "PUT", "policies/%2F/there", fields{"pattern": "^there", "definition": fields{"max-length": 5}}, nil)
	p.rig.declare(t, "there", nil)
	t.Cleanup(func() { p.rig.drop("users/there"); p.rig.drop("vhosts/there"); p.rig.drop("policies/%2F/there") })
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/admin/users")
	p.click("Add a user")
	p.fill("Name", "there")
	p.fill("Password", "other")
	p.click("Add")
	p.shows("There is a user there already.")
	p.click("Cancel")
	p.visit("#/admin/vhosts")
	p.click("Add a virtual host")
	p.fill("Name", "there")
	p.click("Add")
	p.shows("There is a virtual host there already.")
	p.click("Cancel")
	p.visit("#/admin/policies")
	p.click("Add a policy")
	p.fill("Name", "there")
	p.fill("Names that match", "^x")
	p.fill("Definition (JSON)", `{"max-length": 7}`)
	p.click("Save")
	p.shows("There is a policy there in / already.")
	p.click("Cancel")
	var before, after struct {
		Type string `json:"default_queue_type"`
	}
	p.rig.api(t, "GET", "vhosts/there", nil, &before)
	p.visit("#/admin/vhosts/there")
	p.click("Change…")
	p.fill("Description", "described")
	p.click("Save")
	p.shows("there is changed.")
	p.rig.api(t, "GET", "vhosts/there", nil, &after)
	if after != before {
		t.Errorf("queues without a type are %q, they were %q", after.Type, before.Type)
	}
	p.visit("#/queues/%2F/there")
	p.click("Publish")
	p.fill("Body", "a secret")
	p.click("Publish")
	p.shows("1 confirmed")
	p.click("Close")
	p.click("Log out")
	p.await("the login", `document.querySelector("input[type=password]")`)
	if kept := eval[string](p, "JSON.stringify(sessionStorage)"); strings.Contains(kept, "secret") {
		t.Errorf("the tab still has %s", kept)
	}
	p.silent("404")
}
