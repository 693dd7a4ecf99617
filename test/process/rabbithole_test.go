package process

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
	amqp "github.com/rabbitmq/amqp091-go"
)

// hole is rabbit-hole, the Go client of RabbitMQ's management API, on one node.
type hole struct {
	*session
	*rabbithole.Client
}

// ok wants a request to be answered with a status.
func (h *hole) ok(want int, res *http.Response, err error) *http.Response {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
	if res.Body != nil {
		_ = res.Body.Close()
	}
	if res.StatusCode != want {
		h.Fatalf("%s %s: %d, want %d", res.Request.Method, res.Request.URL, res.StatusCode, want)
	}
	return res
}

// refused wants a refusal with words of AMQP's.
func (h *hole) refused(status int, words string, err error) {
	h.Helper()
	e, ok := errors.AsType[rabbithole.ErrorResponse](err)
	if !ok || e.StatusCode != status || !strings.Contains(e.Reason, words) {
		h.Errorf("got %v, want %d %q", err, status, words)
	}
}

// listed is find in what nodes are asked for: one that does not answer in time is left out.
func listed[T any](h *hole, list func() ([]T, error), is func(*T) bool) (found *T) {
	h.Helper()
	eventually(h.T, func() error {
		all, err := list()
		for i := range all {
			if is(&all[i]) {
				found = &all[i]
				return nil
			}
		}
		return errors.Join(errors.New("it is not listed"), err)
	})
	return found
}

// find wants something of a list.
func find[T any](h *hole, list []T, err error, is func(*T) bool) *T {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
	i := slices.IndexFunc(list, func(x T) bool { return is(&x) })
	if i < 0 {
		h.Fatalf("not in the list: %+v", list)
	}
	return &list[i]
}

// TestRabbitHole has a client library for RabbitMQ's management API do what operators do with it, against three nodes.
func TestRabbitHole(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t, 3)
	for _, tc := range []struct {
		name string
		run  func(*hole)
	}{
		{"exchanges", holeExchanges},
		{"queues", holeQueues},
		{"bindings", holeBindings},
		{"users", holeUsers},
		{"vhosts and limits", holeVhosts},
		{"policies", holePolicies},
		{"definitions", holeDefinitions},
		{"connections", holeConnections},
		{"nodes and checks", holeNodes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, err := rabbithole.NewClient(c.Node(1).HTTP(), "guest", "guest")
			if err != nil {
				t.Fatal(err)
			}
			client.SetTimeout(timeoutReply)
			tc.run(&hole{at(t, c.Node(0)), client})
		})
	}
}

func holeExchanges(h *hole) {
	name := h.name("x/1 ~") // what has to be escaped
	settings := rabbithole.ExchangeSettings{Type: "topic", Durable: true, Arguments: map[string]any{"alternate-exchange": "amq.fanout"}}
	res, err := h.DeclareExchange("/", name, settings)
	h.ok(201, res, err)
	h.Cleanup(func() { h.cleanup(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) }) })
	res, err = h.DeclareExchange("/", name, settings)
	h.ok(204, res, err)
	// A client sees it at once, of any node.
	if err := h.ch.ExchangeDeclarePassive(name, "topic", true, false, false, false, nil); err != nil {
		h.Error(err)
	}
	settings.Type = "direct"
	_, err = h.DeclareExchange("/", name, settings)
	h.refused(400, "inequivalent arg 'type' for exchange '"+name+"' in vhost '/': received 'direct' but current is 'topic'", err)
	_, err = h.DeclareExchange("/", "amq.mine", settings)
	if err == nil || !strings.Contains(err.Error(), "401") {
		h.Errorf("reserved name: %v", err)
	}
	x, err := h.GetExchange("/", name)
	if err != nil || x.Type != "topic" || !x.Durable || x.Arguments["alternate-exchange"] != "amq.fanout" {
		h.Errorf("%+v %v", x, err)
	}
	_, err = h.GetExchange("/", "none")
	h.refused(404, "Not Found", err)
	is := func(x *rabbithole.ExchangeInfo) bool { return x.Name == name && x.Vhost == "/" }
	list, err := h.ListExchanges()
	find(h, list, err, is)
	list, err = h.ListExchangesIn("/")
	find(h, list, err, is)
	res, err = h.DeleteExchange("/", name)
	h.ok(204, res, err)
	res, err = h.DeleteExchange("/", name)
	h.ok(404, res, err)
}

func holeQueues(h *hole) {
	name := h.name("q/1")
	settings := rabbithole.QueueSettings{Type: "quorum", Durable: true, Arguments: map[string]any{"x-max-length": 10}}
	res, err := h.DeclareQueue("/", name, settings)
	h.ok(201, res, err)
	h.Cleanup(func() {
		h.cleanup(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(name, false, false, false); return err })
	})
	res, err = h.DeclareQueue("/", name, settings)
	h.ok(204, res, err)
	settings.Durable = false
	_, err = h.DeclareQueue("/", name, settings)
	h.refused(400, "", err)
	_, err = h.DeclareQueue("/", h.name("wrong"), rabbithole.QueueSettings{Durable: true, Arguments: map[string]any{"x-message-ttl": "soon"}})
	h.refused(400, "invalid arg 'x-message-ttl'", err)

	h.fill(name, "a", "b", "c")
	q, err := h.GetQueue("/", name)
	if err != nil || q.Messages != 3 || q.MessagesReady != 3 || !q.Durable || q.Type != "quorum" || q.Arguments["x-max-length"] != 10.0 || len(q.Members) != 3 || q.Status != "running" {
		h.Errorf("%+v %v", q, err)
	}
	is := func(q *rabbithole.QueueInfo) bool { return q.Name == name && q.Messages == 3 }
	list, err := h.ListQueues()
	find(h, list, err, is)
	list, err = h.ListQueuesIn("/")
	find(h, list, err, is)
	page, err := h.PagedListQueuesWithParameters(url.Values{"page": {"1"}, "page_size": {"1"}, "name": {name}})
	if err != nil || page.FilteredCount != 1 || page.TotalCount < 1 || len(page.Items) != 1 || page.Items[0].Name != name {
		h.Errorf("%+v %v", page, err)
	}
	_, err = h.DeleteQueue("/", name, rabbithole.QueueDeleteOptions{IfEmpty: true})
	h.refused(400, "queue '"+name+"' in vhost '/' not empty", err)
	res, err = h.PurgeQueue("/", name)
	h.ok(204, res, err)
	res, err = h.SyncQueue("/", name)
	h.ok(204, res, err)
	h.ready(name, 0)
	ch, _ := h.consume(name, 1)
	_, err = h.DeleteQueue("/", name, rabbithole.QueueDeleteOptions{IfUnused: true})
	h.refused(400, "in use", err)
	h.noError("close", ch.Close())
	h.until("deleted once it is unused", func() bool {
		res, err = h.DeleteQueue("/", name, rabbithole.QueueDeleteOptions{IfUnused: true, IfEmpty: true})
		return err == nil
	})
	h.ok(204, res, err)
	_, err = h.GetQueue("/", name)
	h.refused(404, "Not Found", err)
}

func holeBindings(h *hole) {
	q, x, y := h.queue("q", nil), h.exchange("x", "topic", nil), h.exchange("y", "headers", nil)
	for _, b := range []rabbithole.BindingInfo{
		{Source: x, Destination: q, DestinationType: "queue", RoutingKey: "a.*.ü/~%2F #"},
		{Source: x, Destination: q, DestinationType: "queue"},
		{Source: y, Destination: q, DestinationType: "queue", RoutingKey: "k", Arguments: map[string]any{"x-match": "any", "n": 1}},
		{Source: y, Destination: x, DestinationType: "exchange", RoutingKey: "e", Arguments: map[string]any{"a": "b"}},
	} {
		res, err := h.DeclareBinding("/", b)
		if at := h.ok(201, res, err).Header.Get("Location"); at == "" {
			h.Error("no Location")
		}
		is := func(i *rabbithole.BindingInfo) bool {
			return i.Source == b.Source && i.Destination == b.Destination && i.RoutingKey == b.RoutingKey && len(i.Arguments) == len(b.Arguments)
		}
		all, err := h.ListBindings()
		find(h, all, err, is)
		all, err = h.ListBindingsIn("/")
		find(h, all, err, is)
		all, err = h.ListExchangeBindingsWithSource("/", b.Source)
		found := find(h, all, err, is)
		if b.DestinationType == "queue" {
			all, err = h.ListQueueBindings("/", q)
			find(h, all, err, is)
			all, err = h.ListQueueBindingsBetween("/", b.Source, q)
		} else {
			all, err = h.ListExchangeBindingsWithDestination("/", b.Destination)
			find(h, all, err, is)
			all, err = h.ListExchangeBindingsBetween("/", b.Source, b.Destination)
		}
		find(h, all, err, is)
		before := len(all)
		res, err = h.DeleteBinding("/", *found)
		h.ok(204, res, err)
		if all, err = h.ListExchangeBindingsWithSource("/", b.Source); err != nil || slices.ContainsFunc(all, func(i rabbithole.BindingInfo) bool { return is(&i) }) || before == 0 {
			h.Errorf("still bound: %+v %v", all, err)
		}
	}
	_, err := h.DeclareBinding("/", rabbithole.BindingInfo{Source: x, Destination: "none", DestinationType: "queue"})
	h.refused(404, "", err)
}

func holeUsers(h *hole) {
	name := h.name("user")
	res, err := h.PutUser(name, rabbithole.UserSettings{Password: "pw", Tags: rabbithole.UserTags{"management", "own"}})
	h.ok(201, res, err)
	defer func() {
		res, err := h.DeleteUser(name)
		h.ok(204, res, err)
	}()
	u, err := h.GetUser(name)
	if err != nil || u.PasswordHash == "" || !slices.Equal(u.Tags, rabbithole.UserTags{"management", "own"}) {
		h.Errorf("%+v %v", u, err)
	}
	users, err := h.ListUsers()
	find(h, users, err, func(u *rabbithole.UserInfo) bool { return u.Name == name })
	who, err := h.Whoami()
	if err != nil || who.Name != "guest" {
		h.Errorf("%+v %v", who, err)
	}
	res, err = h.UpdatePermissionsIn("/", name, rabbithole.Permissions{Configure: "^c", Write: "^w", Read: "^r"})
	h.ok(201, res, err)
	p, err := h.GetPermissionsIn("/", name)
	if err != nil || p.Configure != "^c" || p.Write != "^w" || p.Read != "^r" {
		h.Errorf("%+v %v", p, err)
	}
	list, err := h.ListPermissionsOf(name)
	find(h, list, err, func(p *rabbithole.PermissionInfo) bool { return p.Vhost == "/" })
	list, err = h.ListPermissions()
	find(h, list, err, func(p *rabbithole.PermissionInfo) bool { return p.User == name })
	res, err = h.UpdateTopicPermissionsIn("/", name, rabbithole.TopicPermissions{Exchange: "amq.topic", Write: "^w", Read: "^r"})
	h.ok(201, res, err)
	topics, err := h.GetTopicPermissionsIn("/", name)
	find(h, topics, err, func(p *rabbithole.TopicPermissionInfo) bool { return p.Exchange == "amq.topic" && p.Read == "^r" })
	res, err = h.DeleteTopicPermissionsIn("/", name, "amq.topic")
	h.ok(204, res, err)

	// The user's own requests are let in, and refused what a client of theirs would be.
	theirs, err := rabbithole.NewClient(h.Endpoint, name, "pw")
	if err != nil {
		h.Fatal(err)
	}
	mine := h.name("w")
	if _, err := theirs.DeclareQueue("/", mine, rabbithole.QueueSettings{Durable: true}); err == nil || !strings.Contains(err.Error(), "401") {
		h.Errorf("a foreign queue: %v", err)
	}
	res, err = theirs.DeclareQueue("/", "c"+mine, rabbithole.QueueSettings{})
	h.ok(201, res, err)
	res, err = theirs.DeleteQueue("/", "c"+mine)
	h.ok(204, res, err)
	if _, err := theirs.ListUsers(); err == nil {
		h.Error("users listed by one who may not")
	}
	res, err = h.PutUserLimits(name, rabbithole.UserLimitsValues{"max-connections": 0})
	h.ok(204, res, err)
	if _, err := theirs.DeclareQueue("/", "c"+mine, rabbithole.QueueSettings{}); err == nil {
		h.Error("a queue beyond the user's limit of connections")
	}
	limits, err := h.GetUserLimits(name)
	find(h, limits, err, func(l *rabbithole.UserLimitsInfo) bool { return l.Value["max-connections"] == 0 })
	res, err = h.DeleteUserLimits(name, rabbithole.UserLimits{"max-connections"})
	h.ok(204, res, err)
	res, err = h.ClearPermissionsIn("/", name)
	h.ok(204, res, err)
}

func holeVhosts(h *hole) {
	name := h.name("v/1")
	res, err := h.PutVhost(name, rabbithole.VhostSettings{Description: "d", Tags: rabbithole.VhostTags{"one", "two"}})
	h.ok(201, res, err)
	v, err := h.GetVhost(name)
	if err != nil || v.Description != "d" || !slices.Equal(v.Tags, rabbithole.VhostTags{"one", "two"}) {
		h.Errorf("%+v %v", v, err)
	}
	list, err := h.ListVhosts()
	find(h, list, err, func(v *rabbithole.VhostInfo) bool { return v.Name == name })
	res, err = h.PutVhostLimits(name, rabbithole.VhostLimitsValues{"max-queues": 1})
	h.ok(204, res, err)
	limits, err := h.GetVhostLimits(name)
	find(h, limits, err, func(l *rabbithole.VhostLimitsInfo) bool { return l.Value["max-queues"] == 1 })
	res, err = h.DeclareQueue(name, "one", rabbithole.QueueSettings{Durable: true})
	h.ok(201, res, err)
	_, err = h.DeclareQueue(name, "two", rabbithole.QueueSettings{Durable: true})
	h.refused(400, "cannot declare queue 'two': queue limit in vhost '"+name+"' (1) is reached", err)
	all, err := h.GetAllVhostLimits()
	find(h, all, err, func(l *rabbithole.VhostLimitsInfo) bool { return l.Vhost == name })
	res, err = h.DeleteVhostLimits(name, rabbithole.VhostLimits{"max-queues"})
	h.ok(204, res, err)
	res, err = h.DeleteVhost(name)
	h.ok(204, res, err)
	_, err = h.ListQueuesIn(name)
	h.refused(404, "Not Found", err)
}

func holePolicies(h *hole) {
	name := h.name("policy")
	p := rabbithole.Policy{Pattern: "^" + h.id, ApplyTo: "queues", Priority: 3, Definition: rabbithole.PolicyDefinition{"max-length": 5}}
	res, err := h.PutPolicy("/", name, p)
	h.ok(201, res, err)
	q := h.queue("q", nil)
	got, err := h.GetQueue("/", q)
	if err != nil || got.Policy != name {
		h.Errorf("%+v %v", got, err)
	}
	policies, err := h.ListPoliciesIn("/")
	find(h, policies, err, func(p *rabbithole.Policy) bool {
		return p.Name == name && p.Priority == 3 && p.Definition["max-length"] == 5.0
	})
	_, err = h.PutPolicy("/", name, rabbithole.Policy{Pattern: "(", Definition: p.Definition})
	h.refused(400, "", err)
	res, err = h.PutOperatorPolicy("/", name, rabbithole.OperatorPolicy{Pattern: p.Pattern, ApplyTo: "queues", Definition: rabbithole.PolicyDefinition{"max-length": 2}})
	h.ok(201, res, err)
	operators, err := h.ListOperatorPolicies()
	find(h, operators, err, func(p *rabbithole.OperatorPolicy) bool { return p.Name == name })
	res, err = h.DeleteOperatorPolicy("/", name)
	h.ok(204, res, err)
	res, err = h.DeletePolicy("/", name)
	h.ok(204, res, err)
	_, err = h.GetPolicy("/", name)
	h.refused(404, "Not Found", err)
}

func holeDefinitions(h *hole) {
	q := h.queue("kept", nil)
	all, err := h.ListDefinitions()
	if err != nil || all.Queues == nil {
		h.Fatalf("%+v %v", all, err)
	}
	find(h, *all.Queues, err, func(d *rabbithole.QueueInfo) bool { return d.Name == q && d.Vhost == "/" })
	of, err := h.ListVhostDefinitions("/")
	if err != nil || of.Queues == nil {
		h.Fatalf("%+v %v", of, err)
	}
	find(h, *of.Queues, err, func(d *rabbithole.QueueInfo) bool { return d.Name == q })
	name := h.name("imported")
	res, err := h.UploadDefinitions(&rabbithole.ExportedDefinitions{Queues: &[]rabbithole.QueueInfo{{Name: name, Vhost: "/", Durable: true, Arguments: map[string]any{}}}})
	h.ok(204, res, err)
	res, err = h.DeleteQueue("/", name)
	h.ok(204, res, err)
}

func holeConnections(h *hole) {
	conn := h.dial()
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	local := conn.LocalAddr().String()
	found := listed(h, h.ListConnections, func(c *rabbithole.ConnectionInfo) bool { return strings.HasPrefix(c.Name, local+" ") })
	one, err := h.GetConnection(found.Name)
	if err != nil || one.User != "guest" || one.Vhost != "/" || one.Protocol != "AMQP 0-9-1" {
		h.Errorf("%+v %v", one, err)
	}
	queue := h.queue("consumed", nil)
	ch := h.channel(conn)
	if _, err := ch.Consume(queue, "tagged", false, false, false, false, nil); err != nil {
		h.Fatal(err)
	}
	listed(h, h.ListChannels, func(c *rabbithole.ChannelInfo) bool {
		return c.ConnectionDetails.Name == found.Name && c.ConsumerCount == 1
	})
	listed(h, func() ([]rabbithole.ConsumerInfo, error) { return h.ListConsumersIn("/") }, func(c *rabbithole.ConsumerInfo) bool { return c.ConsumerTag == "tagged" && c.Queue.Name == queue })
	listed(h, func() ([]rabbithole.ConnectionInfo, error) { return h.ListVhostConnections("/") }, func(c *rabbithole.ConnectionInfo) bool { return c.Name == found.Name })
	res, err := h.CloseConnection(found.Name)
	h.ok(204, res, err)
	select {
	case e := <-closed:
		if e == nil || e.Code != 320 {
			h.Errorf("closed with %v", e)
		}
	case <-time.After(timeoutReply):
		h.Error("the connection is open")
	}
}

func holeShovel(h *hole) {
	_, err := h.DeclareShovel("/", "s", rabbithole.ShovelDefinition{SourceURI: rabbithole.URISet{"amqp://"}, DestinationURI: rabbithole.URISet{"amqp://"}})
	h.refused(400, "Must specify 'src-exchange' or 'src-queue'", err)
	src, dst := h.queue("shovel.src", nil), h.queue("shovel.dst", nil)
	_, err = h.DeclareShovel("/", src, rabbithole.ShovelDefinition{
		SourceURI: rabbithole.URISet{"amqp://"}, SourceQueue: src, SourceDeleteAfter: "never", PrefetchCount: 5, AckMode: "on-confirm", AddForwardHeaders: true,
		DestinationURI: rabbithole.URISet{"amqp://", "amqp:///%2F"}, DestinationQueue: dst, ReconnectDelay: 2,
	})
	h.noError("declare", err)
	h.fill(src, "m")
	h.ready(dst, 1)
	info, err := h.GetShovel("/", src)
	if err != nil || info.Definition.DestinationQueue != dst || len(info.Definition.DestinationURI) != 2 || info.Definition.PrefetchCount != 5 {
		h.Errorf("%+v %v", info, err)
	}
	all, err := h.ListShovels()
	find(h, all, err, func(s *rabbithole.ShovelInfo) bool { return s.Name == src && s.Vhost == "/" })
	states, err := h.ListShovelStatus("/")
	find(h, states, err, func(s *rabbithole.ShovelStatus) bool {
		return s.Name == src && s.State == "running" && s.Type == "dynamic" && s.Timestamp != ""
	})
	_, err = h.DeleteShovel("/", src)
	h.noError("delete", err)
	if _, err := h.GetShovel("/", src); err == nil {
		h.Error("the shovel is still there")
	}
}

func holeNodes(h *hole) {
	nodes, err := h.ListNodes()
	if err != nil || len(nodes) != 3 {
		h.Fatalf("%+v %v", nodes, err)
	}
	n, err := h.GetNode(nodes[0].Name)
	if err != nil || !n.IsRunning {
		h.Errorf("%+v %v", n, err)
	}
	o, err := h.Overview()
	if err != nil || o.RabbitMQVersion == "" || o.Node == "" || o.ObjectTotals.Exchanges < 7 || len(o.ExchangeTypes) < 4 {
		h.Errorf("%+v %v", o, err)
	}
	globals, err := h.ListGlobalParameters()
	find(h, globals, err, func(p *rabbithole.GlobalRuntimeParameter) bool { return p.Name == "cluster_name" })
	if params, err := h.ListRuntimeParameters(); err != nil {
		h.Errorf("%+v %v", params, err)
	}
	holeShovel(h)
	name, err := h.GetClusterName()
	if err != nil || name.Name == "" {
		h.Errorf("%+v %v", name, err)
	}
	flags, err := h.ListFeatureFlags()
	if err != nil || len(flags) == 0 {
		h.Errorf("%+v %v", flags, err)
	}
	for what, check := range map[string]func() (rabbithole.HealthCheckStatus, error){
		"vhosts": h.HealthCheckVirtualHosts, "critical": h.HealthCheckNodeIsQuorumCritical,
	} {
		eventually(h.T, func() error { // a replica that is late for a moment is missed
			got, err := check()
			if err == nil && got.Status != "ok" {
				err = fmt.Errorf("%s: %+v", what, got)
			}
			return err
		})
	}
	if got, err := h.HealthCheckAlarms(); err != nil || got.Status != "ok" {
		h.Errorf("%+v %v", got, err)
	}
	if got, err := h.HealthCheckProtocolListener(rabbithole.AMQP); err != nil || got.Status != "ok" {
		h.Errorf("%+v %v", got, err)
	}
}
