package process

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// permissionMatrix is rightsMatrix for a user of the catalog.
func permissionMatrix(r *usersRig) {
	user := r.user("matrix", `\.[qxcwr]*c`, `\.[qxcwr]*w`, `\.[qxcwr]*r`)
	mustCtl(r.T, r.nodes[0], "set_user_tags", user, "management")
	rightsMatrix(r, user, passwordFirst, func(exchange string) string {
		mustCtl(r.T, r.nodes[0], "set_topic_permissions", user, exchange, "^a", "^b")
		return passwordFirst
	})
}

// rightsMatrix has a user do everything that needs a permission, without one that it needs, over AMQP, HTTP and gRPC: all refuse with the
// same words. With all of them all do it. The names tell what the user may do: c configure, w write, r read. What byKeys gives is the password of one who
// may use an exchange's keys that begin with a to publish, and with b to bind.
func rightsMatrix(r *usersRig, user, password string, byKeys func(exchange string) string) {
	r.Helper()
	conn, rpc := r.enter(1, user, password), rpcAt(r.T, r.nodes[1], user, password)
	q := func(rights string) string { return r.queue("q"+rights, nil) }
	x := func(rights, kind string) string { return r.exchange("x"+rights, kind, nil) }
	qcwr, qcw, qcr, qwr, qr, qw := q("cwr"), q("cw"), q("cr"), q("wr"), q("r"), q("w")
	xcwr, xcr, xcw, xwr, xw, xr := x("cwr", "topic"), x("cr", "topic"), x("cw", "topic"), x("wr", "topic"), x("w", "topic"), x("r", "topic")
	none, nonex := r.name("q"), r.name("x")
	may := func(what, kind, name string) string {
		return what + " access to " + kind + " '" + name + "' in vhost '/' refused for user '" + user + "'"
	}
	declare := func(name string, args amqp.Table) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(name, true, false, false, false, args)
			return err
		}
	}
	declareX := func(name string, args amqp.Table) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(name, "topic", true, false, false, false, args)
		}
	}
	passive := func(name string) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			return err
		}
	}
	passiveX := func(name string) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(name, "topic", true, false, false, false, nil)
		}
	}
	bind := func(queue, exchange string) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error { return ch.QueueBind(queue, "k", exchange, false, nil) }
	}
	bindX := func(to, from string) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error { return ch.ExchangeBind(to, "k", from, false, nil) }
	}
	at := func(parts ...string) string {
		for i := range parts {
			parts[i] = url.PathEscape(parts[i])
		}
		return "/api/" + strings.Join(parts, "/")
	}
	const publish = `{"properties":{},"routing_key":"k","payload":"p","payload_encoding":"string"}`
	const get = `{"count":1,"ackmode":"ack_requeue_true","encoding":"auto"}`
	dlx := func(name string) string {
		return `{"durable":true,"arguments":{"x-dead-letter-exchange":"` + name + `"}}`
	}
	ae := func(name string) string {
		return `{"type":"topic","durable":true,"arguments":{"alternate-exchange":"` + name + `"}}`
	}
	for _, tc := range []struct {
		what               string
		amqp               func(*amqp.Channel) error
		method, path, body string
		refusal            string // "": it is done
	}{
		{"declare exchange", declareX(nonex, nil), "PUT", at("exchanges", "/", nonex), `{"type":"topic","durable":true}`, may("configure", "exchange", nonex)},
		{"delete exchange", func(ch *amqp.Channel) error { return ch.ExchangeDelete(xwr, false, false) }, "DELETE", at("exchanges", "/", xwr), "", may("configure", "exchange", xwr)},
		{"alternate without read", declareX(r.name("xccw"), amqp.Table{"alternate-exchange": xw}), "PUT", at("exchanges", "/", r.name("xccw")), ae(xw), may("read", "exchange", r.name("xccw"))},
		{"alternate without write", declareX(r.name("xccr"), amqp.Table{"alternate-exchange": xr}), "PUT", at("exchanges", "/", r.name("xccr")), ae(xr), may("write", "exchange", xr)},
		{"declare queue", declare(none, nil), "PUT", at("queues", "/", none), `{"durable":true}`, may("configure", "queue", none)},
		{"delete queue", func(ch *amqp.Channel) error { _, err := ch.QueueDelete(qwr, false, false, false); return err }, "DELETE", at("queues", "/", qwr), "", may("configure", "queue", qwr)},
		{"dead letters without read", declare(r.name("qccw"), amqp.Table{"x-dead-letter-exchange": xw}), "PUT", at("queues", "/", r.name("qccw")), dlx(xw), may("read", "queue", r.name("qccw"))},
		{"dead letters without write", declare(r.name("qccr"), amqp.Table{"x-dead-letter-exchange": xr}), "PUT", at("queues", "/", r.name("qccr")), dlx(xr), may("write", "exchange", xr)},
		{"bind without write", bind(qcr, xcwr), "POST", at("bindings", "/", "e", xcwr, "q", qcr), `{"routing_key":"k"}`, may("write", "queue", qcr)},
		{"bind without read", bind(qcwr, xcw), "POST", at("bindings", "/", "e", xcw, "q", qcwr), `{"routing_key":"k"}`, may("read", "exchange", xcw)},
		{"bind exchange without write", bindX(xcr, xcwr), "POST", at("bindings", "/", "e", xcwr, "e", xcr), `{"routing_key":"k"}`, may("write", "exchange", xcr)},
		{"bind exchange without read", bindX(xcwr, xcw), "POST", at("bindings", "/", "e", xcw, "e", xcwr), `{"routing_key":"k"}`, may("read", "exchange", xcw)},
		{"bind", bind(qw, xr), "POST", at("bindings", "/", "e", xr, "q", qw), `{"routing_key":"k"}`, ""},
		{"bind exchange", bindX(xw, xr), "POST", at("bindings", "/", "e", xr, "e", xw), `{"routing_key":"k"}`, ""},
		{"publish", publishOn(xcr, "k", message("m")), "POST", at("exchanges", "/", xcr, "publish"), publish, may("write", "exchange", xcr)},
		{"publish by the default exchange", publishOn("", qcwr, message("m")), "POST", at("exchanges", "/", "amq.default", "publish"), publish, may("write", "exchange", "amq.default")},
		{"get", func(ch *amqp.Channel) error { _, _, err := ch.Get(qcw, true); return err }, "POST", at("queues", "/", qcw, "get"), get, may("read", "queue", qcw)},
		{"get allowed", func(ch *amqp.Channel) error { _, _, err := ch.Get(qr, true); return err }, "POST", at("queues", "/", qr, "get"), get, ""},
		{"look at messages", nil, "GET", at("warren", "queues", "/", qcw, "messages"), "", may("read", "queue", qcw)},
		{"look at messages allowed", nil, "GET", at("warren", "queues", "/", qr, "messages"), "", ""},
		{"purge", func(ch *amqp.Channel) error { _, err := ch.QueuePurge(qcw, false); return err }, "DELETE", at("queues", "/", qcw, "contents"), "", may("read", "queue", qcw)},
		{"purge allowed", func(ch *amqp.Channel) error { _, err := ch.QueuePurge(qr, false); return err }, "DELETE", at("queues", "/", qr, "contents"), "", ""},
		{"declare queue allowed", declare(qcwr, nil), "PUT", at("queues", "/", qcwr), `{"durable":true}`, ""},
		{"look for queue", passive(q("")), "", "", "", may("configure", "queue", r.name("q"))},
		{"look for queue that is not there", passive(r.name("none")), "", "", "", may("configure", "queue", r.name("none"))},
		{"look for queue allowed", passive(qw), "", "", "", ""},
		{"look for exchange", passiveX(x("", "topic")), "", "", "", may("configure", "exchange", r.name("x"))},
		{"look for exchange that is not there", passiveX(r.name("none")), "", "", "", may("configure", "exchange", r.name("none"))},
		{"look for exchange allowed", passiveX(xw), "", "", "", ""},
		{"unbind without write", func(ch *amqp.Channel) error { return ch.QueueUnbind(qcr, "k", xcwr, nil) }, "", "", "", may("write", "queue", qcr)},
		{"unbind", func(ch *amqp.Channel) error { return ch.QueueUnbind(qw, "other", xr, nil) }, "DELETE", at("bindings", "/", "e", xr, "q", qw, "k"), "", ""},
	} {
		switch {
		case tc.amqp == nil: // AMQP does not have it
		case tc.refusal == "":
			r.allowed(conn, func(ch *amqp.Channel) error {
				if strings.HasPrefix(tc.what, "publish") {
					if err := ch.Confirm(false); err != nil {
						return err
					}
				}
				return tc.amqp(ch)
			})
		default:
			r.refused(conn, tc.refusal, tc.amqp)
		}
		if tc.method == "" {
			continue
		}
		status, reason := r.over(user, password, tc.method, tc.path, tc.body)
		if tc.refusal == "" && status/100 != 2 || tc.refusal != "" && (status != http.StatusUnauthorized || reason != tc.refusal) {
			r.Errorf("%s over HTTP: %d %q, want %q", tc.what, status, reason, tc.refusal)
		}
		r.sameByRPC(rpc, tc.what, tc.method, tc.path, tc.body, tc.refusal)
	}
	// G06 over HTTP and gRPC: keys, those of CC and BCC too, and binding keys.
	password = byKeys(xcwr)
	rpc = rpcAt(r.T, r.nodes[1], user, password)
	for _, tc := range []struct{ path, body, refusal string }{
		{at("exchanges", "/", xcwr, "publish"), `{"properties":{"headers":{"CC":["a.2"]}},"routing_key":"a.1","payload":"p","payload_encoding":"string"}`, ""},
		{at("exchanges", "/", xcwr, "publish"), `{"properties":{},"routing_key":"x.1","payload":"p","payload_encoding":"string"}`, "write access to topic 'x.1' in exchange"},
		{at("exchanges", "/", xcwr, "publish"), `{"properties":{"headers":{"CC":["x.2"]}},"routing_key":"a.1","payload":"p","payload_encoding":"string"}`, "write access to topic 'x.2' in exchange"},
		{at("exchanges", "/", xcwr, "publish"), `{"properties":{"headers":{"BCC":["x.2"]}},"routing_key":"a.1","payload":"p","payload_encoding":"string"}`, "write access to topic 'x.2' in exchange"},
		{at("bindings", "/", "e", xcwr, "q", qcwr), `{"routing_key":"b.1"}`, ""},
		{at("bindings", "/", "e", xcwr, "q", qcwr), `{"routing_key":"x.1"}`, "read access to topic 'x.1' in exchange"},
	} {
		status, reason := r.over(user, password, http.MethodPost, tc.path, tc.body)
		if tc.refusal == "" && status/100 != 2 || tc.refusal != "" && (status != http.StatusUnauthorized || !strings.HasPrefix(reason, tc.refusal)) {
			r.Errorf("%s %s: %d %q, want %q", tc.path, tc.body, status, reason, tc.refusal)
		}
		r.sameByRPC(rpc, tc.path, http.MethodPost, tc.path, tc.body, tc.refusal)
	}
}

// over sends a request as a user to the second node.
func (r *usersRig) over(user, password, method, path, body string) (status int, reason string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.nodes[1].HTTP()+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	var refusal struct{ Reason string }
	_ = json.Unmarshal(raw, &refusal) // an answer that is no refusal has no reason
	return resp.StatusCode, refusal.Reason
}
