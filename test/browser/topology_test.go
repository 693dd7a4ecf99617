package browser

import "testing"

// TestTopology: an exchange is declared and bound, a key tried, the picture drawn, the binding and the exchange taken away.
func TestTopology(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "topo.dead", nil)
	p.rig.declare(t, "topo.orders", fields{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "topo.dead"})
	p.rig.declare(t, "topo.audit", fields{"x-dead-letter-exchange": "topo.events"})
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/exchanges")
	p.click("Declare an exchange")
	p.fill("Name", "topo.events")
	p.click("Declare")
	p.await("the exchange's page", `document.querySelector("h1").innerText === "topo.events"`)
	for queue, key := range map[string]string{"topo.orders": "order.*", "topo.audit": "#"} {
		p.click("Bind")
		p.fill("Its name", queue)
		p.fill("Routing key", key)
		p.click("Bind")
		p.shows(queue + " is bound to topo.events.")
	}
	p.await("two bindings", `document.querySelectorAll("tbody tr").length === 2`)
	p.fill("Routing key to try", "order.new")
	p.click("Try")
	p.await("two queues", `/order.new goes to topo.audit, topo.orders|order.new goes to topo.orders, topo.audit/.test(document.body.innerText)`)
	p.fill("Routing key to try", "mail")
	p.click("Try")
	p.shows("mail goes to topo.audit.")
	p.looks("exchange")
	p.visit("#/exchanges?name=topo")
	p.await("the exchange in the list", `document.querySelectorAll("tbody tr").length === 1`)
	p.looks("exchanges")

	p.visit("#/topology?name=topo")
	p.await("the picture", `document.querySelectorAll(".shape").length === 4 && document.querySelectorAll(".way").length === 4`)
	p.await("dead letters in it", `document.querySelectorAll(".way.dead").length === 2`)
	p.looks("topology")

	p.visit("#/exchanges/%2F/topo.events")
	p.click("Unbind")
	p.await("one binding", `document.querySelectorAll("tbody tr").length === 1`)
	p.click("Delete")
	p.fill("Type the name", "topo.events")
	p.click("Delete")
	p.shows("Exchange topo.events is deleted.")
	p.silent("404")
}
