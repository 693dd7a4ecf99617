package browser

import "testing"

// TestShovels: somebody adds a shovel, sees it work, has it log in where nobody is, sees why that fails, starts it anew and deletes it; others see and may do what
// their tags are for.
func TestShovels(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "shovel.from", nil)
	p.rig.declare(t, "shovel.to", nil)
	for name, tags := range map[string]string{"shovel.maker": "policymaker", "shovel.monitor": "monitoring"} {
		p.rig.api(t, "PUT", "users/"+name, fields{"password": name, "tags": tags}, nil)
		p.rig.api(t, "PUT", "permissions/%2F/"+name, fields{"configure": ".*", "write": ".*", "read": ".*"}, nil)
	}
	t.Cleanup(func() {
		for _, path := range []string{"shovels/vhost/%2F/page%2Fmover", "users/shovel.maker", "users/shovel.monitor"} {
			p.rig.drop(path)
		}
	})
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/admin/shovels")
	p.shows("None yet.")
	p.click("Add a shovel")
	p.fill("Name", "page/mover")
	p.fill("Source: name", "shovel.from")
	p.fill("Destination: name", "shovel.to")
	p.fill("Other settings (JSON)", `{"ack-mode": "sometimes"}`)
	p.accessible("the shovel's dialog")
	p.click("Save")
	p.shows("Validation failed")
	p.silent("400", "404") // the page asks whether there is such a shovel before it adds one
	p.fill("Other settings (JSON)", `{"dest-add-timestamp-header": true}`)
	p.picture("shovel")
	p.click("Save")
	p.shows("Shovel page/mover is added.")
	for range 3 {
		p.rig.publish(t, "shovel.from", "m", nil)
	}
	p.await("three messages", `/page\/mover\s+\/\s+running on node\d\s+queue shovel.from .*queue shovel.to .*\s+3\s+0\s/.test(document.querySelector("table")?.innerText ?? "")`)
	p.looks("shovels")

	p.click("page/mover")
	p.fill("Destination: URI", "amqp://ann:secret@127.0.0.1:1/v")
	p.fill("Tries again after (s)", "1")
	p.click("Save")
	p.shows("Shovel page/mover is changed.")
	p.await("why it does not run", `(() => { const text = document.querySelector("table")?.innerText ?? ""; return /terminated.*refused/.test(text) && !text.includes("secret"); })()`)
	p.click("Restart")
	p.shows("Shovel page/mover connects anew.")
	p.click("page/mover")
	p.await("what was set", `[...document.querySelectorAll("dialog input")].some((i) => i.value === "amqp://ann:secret@127.0.0.1:1/v") && document.querySelector("dialog textarea").value.includes("timestamp-header")`)
	p.click("Cancel")

	p.click("Log out")
	p.login("shovel.monitor", "shovel.monitor")
	p.shows("Log out")
	p.visit("#/admin/shovels")
	p.await("its state, and nothing to change", `document.querySelector("table")?.innerText.includes("terminated") && document.querySelectorAll("main button:not(.sort)").length === 0`)
	p.click("Log out")
	p.login("shovel.maker", "shovel.maker")
	p.shows("Log out")
	p.visit("#/admin/shovels")
	p.await("what it is to do, and no state", `(() => { const text = document.querySelector("table")?.innerText ?? ""; return /page\/mover\s+\/\s+queue shovel.from/.test(text) && text.includes("amqp://ann:…@127.0.0.1:1/v") && !text.includes("terminated"); })()`)
	p.click("Delete…")
	p.fill("Type the name", "page/mover")
	p.click("Delete")
	p.shows("None yet.")
	p.silent("404")
}
