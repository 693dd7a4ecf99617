package browser

import (
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestNames: whatever things are called and described as, the pages show it as text, no wider than the screen, and ask for it and nothing else.
func TestNames(t *testing.T) {
	p := open(t)
	const vhost = `v/<b>"ö" &%2F`
	v := url.PathEscape(vhost)
	p.rig.api(t, "PUT", "vhosts/"+v, fields{"description": strings.Repeat("described", 40)}, nil)
	t.Cleanup(func() { p.rig.drop("vhosts/" + v) })
	names := []string{strings.Repeat("ü", 127), `<script>window.hit=1</script><img src=x onerror="window.hit=1">"'&`, `a/b/../c%2F?x=1#y+z &=`, " two  spaces ", "очередь-☃-🐇-\u202egnp"}
	for _, n := range names {
		e := url.PathEscape(n)
		p.rig.api(t, "PUT", "queues/"+v+"/"+e, fields{"durable": true, "arguments": fields{"x-queue-type": "quorum", "x-dead-letter-exchange": n}}, nil)
		p.rig.api(t, "PUT", "exchanges/"+v+"/"+e, fields{"durable": true, "type": "topic"}, nil)
		p.rig.api(t, "POST", "bindings/"+v+"/e/"+e+"/q/"+e, fields{"routing_key": n, "arguments": fields{n: n}}, nil)
		p.rig.api(t, "POST", "exchanges/"+v+"/"+e+"/publish", fields{"properties": fields{"headers": fields{n: n}, "type": n}, "routing_key": n, "payload": n, "payload_encoding": "string"}, nil)
	}
	p.login("guest", "guest")
	p.shows("Log out")
	pages := []string{"#/queues", "#/exchanges", "#/topology?vhost=" + url.QueryEscape(vhost), "#/raft", "#/admin/vhosts", "#/admin/vhosts/" + v}
	titles := map[string]string{}
	for _, n := range names {
		e := url.PathEscape(n)
		for _, page := range []string{"queues/" + v + "/" + e, "queues/" + v + "/" + e + "?tab=messages", "queues/" + v + "/" + e + "?tab=bindings", "exchanges/" + v + "/" + e, "dead-letters/" + v + "/" + e} {
			pages = append(pages, "#/"+page)
			titles["#/"+page] = n
		}
	}
	for _, page := range pages {
		p.visit(page)
		p.await("the name as title of "+page, `document.querySelector("h1").textContent.includes(`+quote(titles[page])+`) && document.querySelector("main table, main svg, main .figures, main .empty, main .messages")`)
		for _, width := range []int64{390, 1360} {
			p.size(width, 900)
			p.await(page+" to be no wider than the screen", "document.documentElement.scrollWidth <= innerWidth + 1")
		}
	}
	if eval[bool](p, "Boolean(window.hit)") {
		t.Error("a name was taken for a script")
	}
	p.silent()
}

// TestNamesThatLookLikeOne: two queues whose virtual host and name make the same text when they are put together are two.
func TestNamesThatLookLikeOne(t *testing.T) {
	p := open(t)
	for vhost, name := range map[string]string{"like": "one/alike", "like/one": "alike"} {
		v := url.PathEscape(vhost)
		p.rig.api(t, "PUT", "vhosts/"+v, fields{}, nil)
		t.Cleanup(func() { p.rig.drop("vhosts/" + v) })
		p.rig.api(t, "PUT", "queues/"+v+"/"+url.PathEscape(name), fields{"durable": true}, nil)
	}
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/raft?name=alike")
	p.await("both", `document.querySelectorAll("tbody tr").length === 2`)
	p.click("Show")
	p.await("the logs of one", `document.querySelectorAll("tbody [aria-expanded=true]").length === 1`)
	p.silent()
}

// TestDots: addresses cannot have "." and ".." as names, and browsers make the address of something else of it. The page asks for nothing, says so, and goes on.
func TestDots(t *testing.T) {
	p := open(t)
	conn, err := amqp.Dial(p.rig.cluster.Node(0).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	p.login("guest", "guest")
	for _, name := range []string{".", ".."} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				t.Error(err)
			}
		}()
		p.click(name) // in the list
		p.shows(`A browser cannot ask for anything that is called "` + name + `"`)
		p.visit("#/queues/%2F/" + name + "?tab=settings")
		p.shows(`A browser cannot ask for anything that is called "` + name + `"`)
		p.visit("#/queues")
		p.await("the list", `[...document.querySelectorAll("tbody th a")].some((a) => a.innerText === `+quote(name)+`)`)
	}
	p.silent()
}

// TestShorterList: who looks at a page of a list that has become shorter, or was never so long, comes to one that it has.
func TestShorterList(t *testing.T) {
	p := open(t)
	for _, name := range []string{"shorter.1", "shorter.2", "shorter.3"} {
		p.rig.declare(t, name, nil)
	}
	p.login("guest", "guest")
	p.shows("Log out")
	p.visit("#/queues?name=shorter&size=2&page=2")
	p.await("the third queue", `document.querySelector("tbody th a")?.innerText === "shorter.3"`)
	p.rig.drop("queues/%2F/shorter.3")
	p.await("the others", `document.querySelectorAll("tbody tr").length === 2`)
	p.visit("#/queues?name=shorter&size=1&page=2")
	p.await("the second queue", `document.querySelector("tbody th a")?.innerText === "shorter.2"`)
	p.visit("#/queues?name=shorter&size=1&page=9")
	p.await("the first queue", `document.querySelector("tbody th a")?.innerText === "shorter.1"`)
	p.silent("400")
}
