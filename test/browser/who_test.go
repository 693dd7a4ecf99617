package browser

import (
	"context"
	"testing"
)

// TestOneVhost: a user who may enter one virtual host, and has the least tag, sees that one on every page that it is offered, without refusals. When the user
// is deleted its session ends.
func TestOneVhost(t *testing.T) {
	p := open(t)
	p.rig.api(t, "PUT", "vhosts/only", fields{}, nil)
	p.rig.api(t, "PUT", "users/least", fields{"password": "least", "tags": "management"}, nil)
	t.Cleanup(func() {
		p.rig.drop("vhosts/only")
		p.rig.drop("users/least")
	})
	p.rig.api(t, "PUT", "permissions/only/least", fields{"configure": ".*", "write": ".*", "read": ".*"}, nil)
	p.rig.api(t, "PUT", "queues/only/mine", fields{"durable": true, "arguments": fields{"x-queue-type": "quorum", "x-dead-letter-exchange": "amq.topic"}}, nil)
	p.rig.declare(t, "theirs", nil)
	p.login("least", "least")
	p.shows("Log out")
	const queue, exchange = "#/queues/only/mine", "#/exchanges/only/amq.topic"
	for page, there := range map[string]string{
		"#/": `document.querySelectorAll(".figure").length > 3`, "#/queues": `document.querySelector("tbody th a").innerText === "mine" && document.querySelectorAll("tbody tr").length === 1`,
		"#/dead-letters": `document.querySelectorAll("main .empty").length === 2`, "#/exchanges": `document.querySelectorAll("tbody tr").length === 7`,
		"#/topology": `document.querySelectorAll(".shape").length === 2`, "#/connections": `document.querySelector(".empty")`, "#/channels": `document.querySelector(".empty")`,
		"#/consumers": `document.querySelector(".empty")`, "#/raft": `document.querySelectorAll("tbody tr").length === 1`,
		queue: `document.querySelector(".figure")`, queue + "?tab=messages": `document.querySelector("main .empty")`, queue + "?tab=bindings": `document.querySelectorAll("tbody tr").length === 1`,
		queue + "?tab=settings": `document.querySelectorAll("tbody tr").length > 1`, queue + "?tab=replicas": `document.querySelectorAll("tbody tr").length === 3`,
		"#/dead-letters/only/mine": `document.body.innerText.includes("The queue is empty")`, exchange: `document.body.innerText.includes("Nothing is bound")`,
	} {
		p.visit(page)
		p.await(page, there)
		if text := p.text("main"); text == "" {
			t.Errorf("%s is empty", page)
		}
	}
	offered := eval[[]string](p, `[...document.querySelectorAll(".rail a[href^='#']")].map((a) => a.innerText)`)
	if len(offered) != 9 {
		t.Errorf("it is offered %q", offered)
	}
	p.silent()
	p.rig.drop("users/least")
	p.await("the login", `document.querySelector("input[type=password]")`)
	p.silent("401", "503")
}

// TestNodeIsAway: while the node does not answer the page says so and keeps what it showed; what it could not be told at its beginning it asks for again.
func TestNodeIsAway(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "away", nil)
	p.login("guest", "guest")
	p.await("the queue", `[...document.querySelectorAll("tbody th a")].some((a) => a.innerText === "away")`)
	// In place of a node that refuses connections, which would take all tests' nodes with it: the browser does not reach it.
	p.run(`window.reach = window.fetch; window.fetch = () => Promise.reject(new TypeError("no connection"));`)
	p.shows("The node does not answer. What is shown may be old; the page keeps trying.")
	p.await("the queue still", `[...document.querySelectorAll("tbody th a")].some((a) => a.innerText === "away")`)
	p.run(`window.fetch = window.reach`)
	p.await("no more of it", `!document.body.innerText.includes("The node does not answer")`)

	// The frame is drawn anew while the node is not ready: who looks, and with that which pages there are, is asked for until there is an answer.
	p.click("Log out")
	p.run(`window.refused = 0; window.fetch = (to, how) => to.endsWith("/whoami") && window.refused++ > 0 && window.refused < 4
		? Promise.resolve(new Response(JSON.stringify({ error: "not_ready", reason: "the node is not ready" }), { status: 503 })) : window.reach(to, how)`)
	p.fill("User", "guest")
	p.fill("Password", "guest")
	p.click("Log in")
	p.await("a refusal", "window.refused > 1")
	p.await("the pages of an administrator", `[...document.querySelectorAll(".rail a")].some((a) => a.innerText === "Users")`)
	p.silent()
}

// TestKeysAreKept: a page is left by g and a letter, although the frame is drawn anew between the two.
func TestKeysAreKept(t *testing.T) {
	p := open(t)
	p.login("guest", "guest")
	p.shows("Log out")
	p.run(`dispatchEvent(new KeyboardEvent("keydown", { key: "g" }))`)
	p.run(`document.querySelector("[aria-label^=Colours]").click(); document.querySelector("[aria-label^=Colours]").click()`) // which draws it
	eval[bool](p, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
	p.run(`dispatchEvent(new KeyboardEvent("keydown", { key: "e" }))`)
	p.await("the exchanges", `document.querySelector("h1").innerText === "Exchanges"`)
	// What is typed into a filter is not for the page that is gone to before it is asked for.
	p.visit("#/queues")
	p.await("the filter", `document.querySelector("h1").innerText === "Queues" && document.querySelector("[data-search]")`)
	p.run(`(() => { const f = document.querySelector("[data-search]"); f.value = "typed"; f.dispatchEvent(new Event("input", { bubbles: true })); location.hash = "#/exchanges"; })()`)
	p.await("the exchanges", `document.querySelector("h1").innerText === "Exchanges" && document.querySelectorAll("tbody tr").length >= 7`)
	eval[bool](p, `new Promise((done) => setTimeout(() => done(true), 400))`) // the filter would be asked for after 250 ms
	if hash := eval[string](p, "location.hash"); hash != "#/exchanges" {
		t.Errorf("the address is %s", hash)
	}
	p.silent()
}

// TestNoMajority: of a queue that has lost its majority no page says that it is empty.
func TestNoMajority(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "mute", nil)
	p.rig.publish(t, "mute", "still here", nil)
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/queues/%2F/mute")
	p.await("the message", `/Ready\s*1/.test(document.querySelector(".figures")?.innerText ?? "")`)
	t.Cleanup(func() {
		for _, n := range []int{1, 2} {
			if err := p.rig.cluster.Node(n).Launch(); err != nil {
				t.Error(err)
			}
		}
		for n := range 3 {
			if err := p.rig.cluster.Node(n).WaitReady(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	for _, n := range []int{1, 2} {
		if err := p.rig.cluster.Node(n).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	p.shows("Too few replicas answer")
	p.await("no counts", `/Ready\s*–/.test(document.querySelector(".figures").innerText) && /Total\s*–/.test(document.querySelector(".figures").innerText)`)
	p.click("Delete")
	p.shows("with all its messages, whose number is not known")
	p.click("Cancel")
	p.looks("no-majority")
	p.visit("#/queues?name=mute")
	p.await("no counts in the list", `/minority\s+–\s+–\s+–\s+–/.test(document.querySelector("tbody tr")?.innerText ?? "")`)
	p.visit("#/dead-letters")
	p.shows("1 queue without a leader: what is in it, or on its way from it, is not known")
	p.silent()
}
