package browser

import (
	"fmt"
	"testing"
	"time"
)

// TestDeadLetterDesk: somebody finds dead letters, sees why one died, sends it back, then the rest of its group with a limit on the
// rate, and sees how far that is.
func TestDeadLetterDesk(t *testing.T) {
	p := open(t)
	dead := fields{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "desk.dead"}
	p.rig.declare(t, "desk.dead", nil)
	p.rig.declare(t, "desk.orders", dead)
	p.rig.declare(t, "desk.mails", fields{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "desk.dead", "x-message-ttl": 1})
	for i := range 40 {
		p.rig.publish(t, "desk.orders", fmt.Sprintf(`{"order":%d,"total":"12.50"}`, i), fields{"content_type": "application/json", "headers": fields{"tenant": "north"}})
	}
	p.rig.reject(t, "desk.orders", 40)
	for i := range 3 {
		p.rig.publish(t, "desk.mails", fmt.Sprintf("mail %d", i), nil)
	}
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/dead-letters")
	p.await("the queue with dead letters", `[...document.querySelectorAll("tbody a")].some((a) => a.innerText === "desk.dead")`)
	p.looks("dead-letters")
	p.visit("#/dead-letters/%2F/desk.dead")
	p.await("two groups", `document.querySelectorAll(".ledger tbody tr").length === 2`)
	p.shows("a consumer rejected it")
	p.shows("its time to live was over")
	p.await("43 messages, paged", `document.querySelectorAll(".messages > li").length === 43`)
	p.looks("desk")

	p.click("desk.orders") // the group
	p.await("its messages", `document.querySelectorAll(".messages > li").length === 40`)
	p.run(`document.querySelector(".message-button").click()`)
	p.await("the history", `document.querySelector(".timeline")?.innerText.includes("rejected in desk.orders")`)
	p.shows(`"order": 0`)
	p.looks("death")
	p.click("Retry this one…")
	p.await("the preview", `document.querySelector(".preview").innerText.includes("1 to desk.orders")`)
	p.accessible("the retry's dialog")
	p.picture("retry")
	p.click("Retry")
	p.await("one back", `document.querySelector(".progress")?.textContent.includes("1 sent back")`)
	p.await("39 left", `document.querySelectorAll(".messages > li").length === 39`)
	p.rig.reject(t, "desk.orders", 1) // it comes again, and is told from the others
	p.click("Look again")
	p.await("one that was retried", `document.querySelectorAll(".messages > li").length === 40 && document.querySelectorAll(".messages > li .message-button [title^='sent back before, and died 1 time']").length === 1`)
	p.run(`[...document.querySelectorAll(".message-button")].at(-1).click()`)
	p.await("the retry in its history", `/Retried here: sent back before it died again[^]*rejected in desk.orders 2 times 1 before the retry/.test(document.querySelector(".timeline")?.innerText.replace(/\s+/g, " ") ?? "")`)
	p.looks("retried")
	p.await("the group", `document.querySelector(".ledger tbody tr td:nth-child(4)").innerText === "1"`)
	p.click("Never retried")
	p.await("the 39 others", `document.querySelectorAll(".messages > li").length === 39`)

	p.click("Retry these…")
	p.fill("At most so many a second", "15")
	p.await("the preview", `document.querySelector(".preview").innerText.includes("39 to desk.orders")`)
	p.click("Retry")
	p.await("progress", `/Retry is under way[^]*at most 15 a second/.test(document.querySelector(".progress")?.textContent ?? "")`)
	p.picture("progress")
	p.await("its end", `/Retry is done[^]*39 sent back/.test(document.querySelector(".progress")?.textContent ?? "")`)
	p.await("an empty group", `document.body.innerText.includes("No message here is of this group")`)
	var q struct {
		Messages int `json:"messages"`
	}
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // figures may be some seconds old
		if p.rig.api(t, "GET", "queues/%2F/desk.orders", nil, &q); q.Messages == 39 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("desk.orders has %d messages, want 39", q.Messages)
		}
	}

	p.click("Show all")
	p.click("Drop…")
	p.await("what would go", `document.querySelector(".preview").innerText.includes("4 messages would be removed")`)
	p.fill("Type the queue's name", "desk.dead")
	p.click("Drop")
	p.await("its end", `/Drop is done[^]*4 dropped/.test(document.querySelector(".progress")?.textContent ?? "")`)
	p.silent()
}

// TestParked: a dead letter without a way is explained, and let go when there is one.
func TestParked(t *testing.T) {
	p := open(t)
	p.rig.declare(t, "desk.parked", fields{"x-dead-letter-exchange": "amq.fanout", "x-dead-letter-strategy": "at-least-once"})
	p.rig.publish(t, "desk.parked", "nowhere to go", nil)
	p.rig.reject(t, "desk.parked", 1)
	p.login("guest", "guest")
	p.visit("#/dead-letters")
	p.shows("1 are parked: nothing is bound that takes them")
	p.looks("parked")
	p.click("Look for a way again")
	p.shows("1 parked letter of desk.parked is looked at again.")
	p.visit("#/queues/%2F/desk.parked?tab=messages&state=parked")
	p.await("the letter", `document.querySelectorAll(".messages > li").length === 1`)
	p.silent()
}
