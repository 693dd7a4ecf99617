package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// deed is something that an administrator does: a request.
type deed struct {
	method, path, body string
}

// deeds are those of administrators, each as it is meant.
var deeds = weighted[func(d dice) deed]{
	{12, func(d dice) deed {
		q := d.queue()
		return deed{http.MethodPut, fmt.Sprintf("queues/%s/%s", at(d), q.name), fmt.Sprintf(`{"durable":%v,"auto_delete":%v,"arguments":%s}`, q.durable, q.bits&bitAutoDelete != 0, q.asJSON)}
	}},
	{3, func(d dice) deed { return deed{http.MethodDelete, "queues/" + at(d) + "/" + d.queue().name, ""} }},
	{3, func(d dice) deed {
		return deed{http.MethodDelete, "queues/" + at(d) + "/" + d.queue().name + "/contents", ""}
	}},
	{6, func(d dice) deed {
		x := pick(d, exchanges...)
		return deed{http.MethodPut, "exchanges/" + at(d) + "/" + x.name, fmt.Sprintf(`{"type":%q,"durable":true,"arguments":%s}`, x.kind, x.asJSON)}
	}},
	{3, func(d dice) deed {
		return deed{http.MethodDelete, "exchanges/" + at(d) + "/" + pick(d, exchanges...).name, ""}
	}},
	{5, func(d dice) deed {
		return deed{http.MethodPost, "bindings/" + at(d) + "/e/" + pick(d, exchanges...).name + "/q/" + d.queue().name, `{"routing_key":"` + pick(d, "a.b", "#", "5", "q0") + `"}`}
	}},
	{5, func(d dice) deed {
		return deed{
			http.MethodPut, pick(d, "policies/", "policies/", "operator-policies/") + at(d) + "/" + pick(d, "p1", "p2"),
			fmt.Sprintf(`{"pattern":%q,"definition":%s,"priority":%d,"apply-to":%q}`, pick(d, ".*", "^t", "q0", "x-"), d.definition(), d.IntN(3), pick(d, "all", "queues", "exchanges", "quorum_queues")),
		}
	}},
	{8, func(d dice) deed {
		return deed{http.MethodDelete, pick(d, "policies/", "operator-policies/") + at(d) + "/" + pick(d, "p1", "p2"), ""}
	}},
	{6, func(d dice) deed {
		return deed{http.MethodPost, "queues/quorum/" + at(d) + "/" + d.queue().name + "/replicas/add?for=0", `{"node":"` + aNode(d) + `"}`}
	}},
	{6, func(d dice) deed {
		return deed{http.MethodDelete, "queues/quorum/" + at(d) + "/" + d.queue().name + "/replicas/delete?for=0", `{"node":"` + aNode(d) + `"}`}
	}},
	{6, func(d dice) deed {
		return deed{http.MethodPut, "warren/queues/" + at(d) + "/" + d.queue().name + "/leader", `{"node":"` + aNode(d) + `"}`}
	}},
	{1, func(dice) deed { return deed{http.MethodPost, "rebalance/queues", "{}"} }},
	{8, func(d dice) deed { // more often taken away than all at once
		p := func() string { return pick(d, ".*", ".*", ".*", "", "^x", "q0|two") }
		return deed{http.MethodPut, "permissions/" + at(d) + "/" + pick(d, changed...), fmt.Sprintf(`{"configure":%q,"write":%q,"read":%q}`, p(), p(), p())}
	}},
	{10, func(d dice) deed {
		return deed{http.MethodPut, "permissions/" + at(d) + "/" + pick(d, changed...), `{"configure":".*","write":".*","read":".*"}`}
	}},
	{2, func(d dice) deed {
		return deed{http.MethodDelete, "permissions/" + at(d) + "/" + pick(d, changed...), ""}
	}},
	{1, func(d dice) deed {
		return deed{http.MethodPut, "topic-permissions/" + at(d) + "/" + pick(d, changed...), `{"exchange":"x-topic","write":"^a","read":"` + pick(d, "", ".*") + `"}`}
	}},
	{1, func(d dice) deed {
		return deed{http.MethodDelete, "topic-permissions/" + at(d) + "/" + pick(d, changed...), ""}
	}},
	{1, func(dice) deed { return deed{http.MethodDelete, "users/" + lostUser, ""} }},
	{3, func(dice) deed { return putUser(lostUser) }},
	{1, func(d dice) deed { return deed{http.MethodDelete, "vhosts/" + pick(d, "v1", "v2"), ""} }},
	{3, func(d dice) deed { return deed{http.MethodPut, "vhosts/" + pick(d, "v1", "v2"), "{}"} }},
	{1, func(d dice) deed {
		return deed{http.MethodPut, "vhost-limits/" + at(d) + "/" + pick(d, "max-connections", "max-queues"), fmt.Sprintf(`{"value":%d}`, d.IntN(20))}
	}},
	{4, func(d dice) deed {
		return deed{http.MethodDelete, "vhost-limits/" + at(d) + "/" + pick(d, "max-connections", "max-queues"), ""}
	}},
	{1, func(d dice) deed {
		return deed{http.MethodPut, "user-limits/" + pick(d, changed...) + "/" + pick(d, "max-connections", "max-channels"), fmt.Sprintf(`{"value":%d}`, 3+d.IntN(20))}
	}},
	{4, func(d dice) deed {
		return deed{http.MethodDelete, "user-limits/" + pick(d, changed...) + "/" + pick(d, "max-connections", "max-channels"), ""}
	}},
	{1, func(d dice) deed { return deed{http.MethodDelete, "connections/username/" + pick(d, changed...), ""} }},
	{3, func(d dice) deed {
		return deed{http.MethodPost, "warren/queues/" + at(d) + "/" + d.queue().name + "/redrive", pick(d, `{}`, `{"to":"q0"}`, `{"queue":"two"}`, `{"discard":true}`, `{"rate":5}`)}
	}},
	{1, func(d dice) deed {
		return deed{http.MethodDelete, "warren/queues/" + at(d) + "/" + d.queue().name + "/redrive", ""}
	}},
	{2, func(d dice) deed {
		return deed{http.MethodPost, "queues/" + at(d) + "/" + d.queue().name + "/get", `{"count":2,"ackmode":"` + pick(d, "ack_requeue_true", "reject_requeue_false") + `","encoding":"auto"}`}
	}},
	{2, func(d dice) deed {
		return deed{http.MethodPost, "exchanges/" + at(d) + "/" + pick(d, exchanges...).name + "/publish", `{"routing_key":"` + pick(d, "a.b", "q0") + `","properties":{},"payload":"p","payload_encoding":"string"}`}
	}},
	{1, func(dice) deed { return deed{http.MethodGet, "definitions", ""} }},
	{1, func(dice) deed { return deed{http.MethodGet, "warren/backup", ""} }},
}

func at(d dice) string { return url.PathEscape(pick(d, vhosts...)) }

func aNode(d dice) string { return pick(d, "node1", "node2", "node3") }

func putUser(name string) deed {
	return deed{http.MethodPut, "users/" + name, `{"password":"` + password + `","tags":"administrator"}`}
}

// administrate does deed after deed until ctx ends.
func (w *world) administrate(ctx context.Context, number int) {
	d := newDice(w.cfg.Seed, uint64(4000+number))
	t := w.trace(fmt.Sprintf("admin%02d", number))
	for ctx.Err() == nil {
		if d.chance(.01) {
			w.closeOne(ctx, d, t)
		}
		n := w.node(d)
		w.does(ctx, t, n, deeds.pick(d)(d))
		time.Sleep(d.between(0, 60*time.Millisecond))
	}
}

// does carries out a deed.
func (w *world) does(ctx context.Context, t *trace, n *cluster.Node, do deed) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	t.say("%s: %s %s %s", n.Name, do.method, do.path, do.body)
	status, answer, err := w.ask(ctx, n, do.method, do.path, do.body)
	t.say("  %d %.200s %v", status, answer, err)
}

// closeOne closes some connection.
func (w *world) closeOne(ctx context.Context, d dice, t *trace) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n := w.node(d)
	_, answer, err := w.ask(ctx, n, http.MethodGet, "connections?columns=name", "")
	var list []struct{ Name string }
	if err != nil || json.Unmarshal(answer, &list) != nil || len(list) == 0 {
		return
	}
	w.does(ctx, t, n, deed{http.MethodDelete, "connections/" + url.PathEscape(pick(d, list...).Name), ""})
}

// found makes what clients begin with, and gives back at the end what was taken away.
func (w *world) found(ctx context.Context) error {
	n := w.cluster.Node(0)
	var list []deed
	for _, v := range []string{"v1", "v2"} {
		list = append(list, deed{http.MethodPut, "vhosts/" + v, "{}"})
	}
	for _, u := range users {
		list = append(list, putUser(u))
		for _, v := range []string{"%2F", "v1", "v2"} {
			list = append(list, deed{http.MethodPut, "permissions/" + v + "/" + u, `{"configure":".*","write":".*","read":".*"}`})
		}
	}
	for _, v := range []string{"%2F", "v1", "v2"} {
		list = append(list, deed{http.MethodPut, "permissions/" + v + "/guest", `{"configure":".*","write":".*","read":".*"}`})
	}
	return w.doAll(ctx, n, list)
}

// doAll carries out deeds, each of which is to succeed, or is for something that is not there.
func (w *world) doAll(ctx context.Context, n *cluster.Node, list []deed) error {
	for _, do := range list {
		var status int
		var answer []byte
		err := cluster.Poll(ctx, func() (bool, error) {
			var err error
			status, answer, err = w.ask(ctx, n, do.method, do.path, do.body)
			return err == nil && status < 300 || do.method == http.MethodDelete && status == http.StatusNotFound, nil
		})
		if err != nil {
			return fmt.Errorf("%s %s: %d %s: %w", do.method, do.path, status, answer, err)
		}
	}
	return nil
}
