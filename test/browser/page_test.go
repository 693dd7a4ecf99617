package browser

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestQueues: somebody logs in, declares a queue, publishes to it, looks at the message without taking it, and deletes the queue.
func TestQueues(t *testing.T) {
	p := open(t)
	p.login("guest", "wrong")
	p.shows("Wrong user or password")
	p.silent("401")
	p.picture("login")
	p.accessible("login")
	p.login("guest", "guest")
	p.click("Declare a queue")
	p.fill("Name", "page/orders")
	p.fill("Arguments (JSON)", `{"x-max-length": 1000}`)
	p.accessible("a dialog")
	p.picture("declare")
	p.click("Declare")
	p.shows("Queue page/orders is declared.")
	p.await("the queue's page", `document.querySelector("h1").innerText === "page/orders"`)

	p.click("Publish")
	p.fill("Body", `{"order": 12345678901234567890, "lines": [{"sku": "A-1", "n": 2}]}`)
	p.fill("Content type", "application/json")
	p.fill("Headers (JSON)", `{"tenant": "north"}`)
	p.fill("Times", "3")
	p.click("Publish")
	p.shows("3 confirmed")
	p.picture("publish")
	p.click("Close")
	p.await("three ready messages", `[...document.querySelectorAll(".figure")].some((f) => f.innerText.startsWith("Ready") && f.innerText.includes("3"))`)
	p.looks("queue")

	p.click("Pause")
	p.shows("The queue is paused: it takes messages and gives none to consumers until it is resumed.")
	p.looks("paused")
	p.click("Resume")
	p.shows("Queue page/orders is resumed.")
	p.await("it runs", `document.querySelector("h1").parentElement.innerText.includes("running") && [...document.querySelectorAll("button")].some((b) => b.innerText === "Pause")`)

	p.click("Messages")
	p.await("three messages", `document.querySelectorAll(".messages > li").length === 3`)
	p.run(`document.querySelector(".message-button").click()`)
	p.shows("12345678901234567890") // as it was sent, not as a float
	p.shows("tenant")
	p.looks("message")
	p.click("Hex")
	p.shows("000000  7b 22 6f 72")

	p.click("Settings")
	p.shows("max-length")
	p.click("Replicas")
	p.await("three replicas", `document.querySelectorAll("tbody tr").length === 3`)
	p.looks("replicas")

	p.visit("#/queues?name=^page/&regex=1&sort=messages&desc=1")
	p.await("the queue in the list", `[...document.querySelectorAll("tbody th a")].some((a) => a.innerText === "page/orders")`)
	p.looks("queues")
	p.rig.declare(t, "page%2Flater", nil)
	p.await("a queue that another client declares", `[...document.querySelectorAll("tbody th a")].some((a) => a.innerText === "page/later")`)
	p.visit("#/queues/%2F/page%2Forders")
	p.click("Delete")
	p.await("a button that waits", `[...document.querySelectorAll("dialog button")].find((b) => b.innerText === "Delete").disabled`)
	p.fill("Type the name", "page/orders")
	p.click("Delete")
	p.shows("Queue page/orders is deleted.")

	p.click("Log out")
	p.await("the login", `document.querySelector("input[type=password]")`)
	p.silent("404") // the queue's page asked for it once more, perhaps
}

// TestOverview: what the cluster is and does, and the keyboard.
func TestOverview(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "over.flow", fields{"x-max-length": 10})
	conn, err := amqp.Dial(p.rig.cluster.Node(2).URL())
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { // some fifty messages a second
		for {
			if err := ch.PublishWithContext(t.Context(), "", "over.flow", false, false, amqp.Publishing{Body: []byte("tick")}); err != nil {
				done <- err
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/")
	p.shows("No alarms")
	p.await("three nodes", `document.querySelectorAll("tbody tr").length >= 3`)
	p.await("the stream of events", `document.querySelector(".live")`)
	p.await("a rate", `/Publish\s*[1-9][0-9.]*\/s/.test(document.body.innerText)`)
	p.looks("overview")
	p.run(`for (const key of "gq") dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }))`)
	p.await("the queues by keyboard", `document.querySelector("h1").innerText === "Queues"`)
	p.await("a field to search in", `document.querySelector("[data-search]")`)
	p.run(`dispatchEvent(new KeyboardEvent("keydown", { key: "/" }))`)
	p.await("the focus in it", `document.activeElement === document.querySelector("[data-search]")`)

	p.click("Log out") // ends the stream of events in the middle
	p.await("the login", `document.querySelector("input[type=password]")`)
	eval[bool](p, `new Promise((done) => setTimeout(() => done(true), 300))`) // what nobody caught is told after a task or two
	p.silent()
}
