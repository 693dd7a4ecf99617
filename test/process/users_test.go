package process

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// usersRig is the shared cluster of three: its first node makes users, clients come to the others.
type usersRig struct {
	*session
	nodes []*cluster.Node
}

const passwordFirst = "first pass"

func TestUsers(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	for _, sc := range []struct {
		name string
		run  func(*usersRig)
	}{
		{"D15 the publisher may not write to the dead-letter exchange", publisherWithoutDLX},
		{"G05 declaring a queue with a dead-letter exchange", declareWithoutDLX},
		{"G05 and G06 every permission, over AMQP, HTTP and gRPC", permissionMatrix},
		{"G06 topic permissions", topicRefusals},
		{"G07 passwords, over AMQP, HTTP and gRPC", passwordChanges},
		{"G07 a deleted user, over AMQP, HTTP and gRPC", deletedUser},
		{"G08 vhosts, over AMQP and gRPC", vhostLife},
		{"answers of ctl", userAnswers},
		{"management API", usersOverHTTP},
		{"policies are seen by who may look around", policiesSeen},
		{"a request that is kept back, over HTTP", httpKeptBack},
	} {
		t.Run(sc.name, func(t *testing.T) {
			sc.run(&usersRig{at(t, c.Node(0)), c.Nodes()})
		})
	}
}

// user makes a user with permissions in the default vhost.
func (r *usersRig) user(label, configure, write, read string) string {
	r.Helper()
	name := r.name(label)
	mustCtl(r.T, r.nodes[0], "add_user", name, passwordFirst)
	r.Cleanup(func() { _, _, _ = ctl(r.T, r.nodes[0], "delete_user", name) }) // it may be gone
	mustCtl(r.T, r.nodes[0], "set_permissions", name, configure, write, read)
	return name
}

func login(n *cluster.Node, user, password, vhost string) (*amqp.Connection, error) {
	return connectWith("amqp://"+n.AMQPAddr()+"/", amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}}, Vhost: vhost, Heartbeat: 10 * time.Second,
	})
}

// enter opens a connection of a user through a node.
func (r *usersRig) enter(node int, user, password string) *amqp.Connection {
	r.Helper()
	conn, err := login(r.nodes[node], user, password, "/")
	if err != nil {
		r.Fatalf("%s at node %d: %v", user, node, err)
	}
	r.Cleanup(func() { conn.Close() })
	return conn
}

// knock tells why a user is not let in through a node.
func (r *usersRig) knock(node int, user, password string) error {
	conn, err := login(r.nodes[node], user, password, "/")
	if err == nil {
		conn.Close()
	}
	return err
}

// refused wants an operation on a new channel to end that with 403 and a text.
func (r *usersRig) refused(conn *amqp.Connection, text string, do func(*amqp.Channel) error) {
	r.Helper()
	ch := r.channel(conn)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	_ = do(ch) // the server's word counts
	select {
	case e := <-closed:
		if want := "ACCESS_REFUSED - " + text; e == nil || e.Code != 403 || e.Reason != want {
			r.Errorf("%v, want 403 %q", e, want)
		}
	case <-time.After(timeoutReply):
		r.Errorf("not refused; want %q", text)
	}
}

// allowed wants an operation on a new channel to be done.
func (r *usersRig) allowed(conn *amqp.Connection, do func(*amqp.Channel) error) {
	r.Helper()
	ch := r.channel(conn)
	defer ch.Close()
	r.noError("allowed operation", do(ch))
}

func publishOn(exchange, key string, m amqp.Publishing) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		confirm, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, m)
		if err != nil {
			return err
		}
		select {
		case <-confirm.Done():
		case <-time.After(timeoutReply):
		}
		if !confirm.Acked() {
			return fmt.Errorf("%s with %s: not confirmed", exchange, key)
		}
		return nil
	}
}

// publisherWithoutDLX: nobody's permissions are asked for when a message moves.
func publisherWithoutDLX(r *usersRig) {
	dlx := r.exchange("dlx", "fanout", nil)
	x := r.exchange("x", "fanout", nil)
	dead := r.queue("dead", nil)
	r.bind(dead, "", dlx, nil)
	user := r.user("publisher", "", "^"+x+"$", "")
	conn := r.enter(1, user, passwordFirst)
	reader := at(r.T, r.nodes[2])
	for _, typ := range []string{"classic", "quorum"} {
		q := r.queue(typ, amqp.Table{"x-queue-type": typ, "x-dead-letter-exchange": dlx})
		r.bind(q, "", x, nil)
		r.allowed(conn, publishOn(x, "", message(typ)))
		r.refused(conn, fmt.Sprintf("write access to exchange '%s' in vhost '/' refused for user '%s'", dlx, user), publishOn(dlx, "", message("direct")))
		_, deliveries := reader.consume(q, 1)
		reader.noError("reject", reader.next(deliveries).Reject(false))
		r.until("the dead letter", func() bool {
			letter, ok, err := r.ch.Get(dead, true)
			if err == nil && ok && (string(letter.Body) != typ || letter.Headers["x-first-death-reason"] != "rejected") {
				r.Errorf("the letter is %s %v", letter.Body, letter.Headers)
			}
			return err == nil && ok
		})
		r.noError("unbind", r.ch.QueueUnbind(q, "", x, nil))
	}
	r.ready(dead, 0)
}

// declareWithoutDLX: who makes a queue needs the right to read it and to write to its
// dead-letter exchange; who declares one that is there does not.
func declareWithoutDLX(r *usersRig) {
	dlx, q := r.exchange("dlx", "fanout", nil), r.name("q")
	user := r.user("maker", "^"+q, "", "^"+q)
	conn := r.enter(1, user, passwordFirst)
	declare := func(args amqp.Table) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, args)
			return err
		}
	}
	letters := amqp.Table{"x-dead-letter-exchange": dlx}
	grant := func(write, read string) { mustCtl(r.T, r.nodes[2], "set_permissions", user, "^"+q, write, read) }
	toDLX := fmt.Sprintf("write access to exchange '%s' in vhost '/' refused for user '%s'", dlx, user)
	r.refused(conn, toDLX, declare(letters))
	r.refused(conn, strings.Replace(toDLX, dlx, "amq.default", 1), declare(amqp.Table{"x-dead-letter-exchange": ""}))
	grant("^"+dlx, "")
	r.refused(conn, fmt.Sprintf("read access to queue '%s' in vhost '/' refused for user '%s'", q, user), declare(letters))
	grant("^"+dlx, "^"+q)
	r.allowed(conn, declare(letters))
	r.Cleanup(func() {
		r.cleanup(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(q, false, false, false)
			return err
		})
	})
	grant("", "")
	r.allowed(conn, declare(letters))
}

func topicRefusals(r *usersRig) {
	x := r.exchange("topic", "topic", nil)
	q := r.queue("q", nil)
	r.bind(q, "#", x, nil)
	user := r.user("publisher", "", ".*", "")
	mustCtl(r.T, r.nodes[2], "set_topic_permissions", user, x, "^a", "")
	conn := r.enter(1, user, passwordFirst)
	withCC := func(kind, key string) amqp.Publishing {
		m := message(kind)
		m.Headers = amqp.Table{kind: []any{key}}
		return m
	}
	toTopic := func(key string) string {
		return fmt.Sprintf("write access to topic '%s' in exchange '%s' in vhost '/' refused for user '%s'", key, x, user)
	}
	r.allowed(conn, publishOn(x, "a.1", withCC("CC", "a.2")))
	r.refused(conn, toTopic("x.1"), publishOn(x, "x.1", message("")))
	r.refused(conn, toTopic("x.2"), publishOn(x, "a.1", withCC("CC", "x.2")))
	r.refused(conn, toTopic("x.3"), publishOn(x, "a.1", withCC("BCC", "x.3")))
	if out := mustCtl(r.T, r.nodes[1], "-q", "list_user_topic_permissions", user); out != "vhost\texchange\twrite\tread\n/\t"+x+"\t^a\t\n" {
		r.Errorf("%q", out)
	}
	mustCtl(r.T, r.nodes[0], "clear_topic_permissions", user, x)
	r.allowed(conn, publishOn(x, "x.1", message("cleared")))
	r.ready(q, 2)
}

// passwordChanges: a new password counts for new connections, on every node at once. Those that
// are open stay.
func passwordChanges(r *usersRig) {
	user := r.user("changing", "", "", "")
	open := r.enter(1, user, passwordFirst)
	works := func(password string) {
		r.Helper()
		var wg sync.WaitGroup // a refusal takes a second
		for i := range r.nodes {
			for _, try := range []string{passwordFirst, "second", "test12", ""} {
				wg.Go(func() {
					err := r.knock(i, user, try)
					if ok := err == nil; ok != (try == password && try != "") {
						r.Errorf("the password is %q: at node %d %q gives %v", password, i, try, err)
					}
				})
			}
		}
		wg.Wait()
		code, _, _ := ctl(r.T, r.nodes[2], "authenticate_user", user, password)
		if want := map[bool]int{true: 0, false: 65}[password != ""]; code != want {
			r.Errorf("authenticate_user with %q: exit code %d", password, code)
		}
	}
	works(passwordFirst)
	mustCtl(r.T, r.nodes[0], "set_user_tags", user, "management")
	r.wantEnters(r.nodes[2], user, map[string]bool{passwordFirst: true})
	mustCtl(r.T, r.nodes[0], "change_password", user, "second")
	works("second")
	r.wantEnters(r.nodes[2], user, map[string]bool{passwordFirst: false, "second": true})
	// Made apart from this code; see TestPasswords of auth.
	mustCtl(r.T, r.nodes[0], "change_password", user, "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "--pre-hashed-password")
	works("test12")
	mustCtl(r.T, r.nodes[0], "clear_password", user)
	works("")
	r.allowed(open, func(*amqp.Channel) error { return nil })
}

// forced wants a connection to be closed by the server.
func (r *usersRig) forced(closed <-chan *amqp.Error, text string) {
	r.Helper()
	select {
	case e := <-closed:
		if want := "CONNECTION_FORCED - " + text; e == nil || e.Code != 320 || e.Reason != want {
			r.Errorf("%v, want 320 %q", e, want)
		}
	case <-time.After(timeoutReply):
		r.Errorf("the connection stays: %s", text)
	}
}

func deletedUser(r *usersRig) {
	user, other := r.user("going", "", ".*", ".*"), r.user("staying", "", "", "")
	stays := r.enter(1, other, passwordFirst)
	streams := r.rpcStreams(r.nodes[1], user, "/", r.queue("q", nil))
	var closed []<-chan *amqp.Error
	for i := range r.nodes {
		closed = append(closed, r.enter(i, user, passwordFirst).NotifyClose(make(chan *amqp.Error, 1)))
	}
	mustCtl(r.T, r.nodes[0], "delete_user", user)
	for _, c := range closed {
		r.forced(c, "user '"+user+"' is deleted")
	}
	streams("user '" + user + "' is deleted")
	r.wantEnters(r.nodes[1], user, map[string]bool{passwordFirst: false})
	var wg sync.WaitGroup
	for i := range r.nodes {
		wg.Go(func() {
			if r.knock(i, user, passwordFirst) == nil {
				r.Errorf("node %d lets the deleted user in", i)
			}
		})
	}
	wg.Wait()
	r.allowed(stays, func(*amqp.Channel) error { return nil })
}

// vhostLife: a vhost is closed to users without permissions, and ends with its connections.
func vhostLife(r *usersRig) {
	user, vhost := r.user("guest", "", "", ""), r.name("v/h")
	mustCtl(r.T, r.nodes[0], "add_vhost", vhost, "--default-queue-type", "quorum")
	r.Cleanup(func() { _, _, _ = ctl(r.T, r.nodes[0], "delete_vhost", vhost) }) // it may be gone
	refused := func(text string) {
		r.Helper()
		for _, n := range r.nodes {
			w := dialWire(r.T, target{name: n.Name, url: n.URL(), warren: true})
			w.greet("PLAIN", "\x00"+user+"\x00"+passwordFirst, nil)
			w.tune(100, 131072)
			w.send(method(0, 10, 40, vhost, "", byte(0)))
			w.expectClose(530, "NOT_ALLOWED - "+text, 10, 40)
		}
	}
	refused(fmt.Sprintf("access to vhost '%s' refused for user '%s'", vhost, user))
	mustCtl(r.T, r.nodes[0], "set_permissions", "-p", vhost, user, ".*", ".*", ".*")
	var closed []<-chan *amqp.Error
	for i, n := range r.nodes {
		conn, err := login(n, user, passwordFirst, vhost)
		r.noError("open the vhost", err)
		r.Cleanup(func() { conn.Close() })
		closed = append(closed, conn.NotifyClose(make(chan *amqp.Error, 1)))
		r.allowed(conn, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(fmt.Sprint("q", i), true, false, false, false, nil)
			return errors.Join(err, publishOn("", "q0", message("kept"))(ch))
		})
	}
	untilSays(r.T, r.nodes[2], "q0\t3\tquorum\n", "-q", "list_queues", "-p", vhost, "name", "messages", "type")
	streams := r.rpcStreams(r.nodes[2], user, vhost, "q1")
	mustCtl(r.T, r.nodes[0], "delete_vhost", vhost)
	for _, c := range closed {
		r.forced(c, "vhost '"+vhost+"' is deleted")
	}
	streams("vhost '" + vhost + "' is deleted")
	rpc := rpcAt(r.T, r.nodes[1], user, passwordFirst)
	_, err := rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Vhost: vhost, Queue: "q1"})
	wantCode(r.T, err, codes.PermissionDenied, "NOT_ALLOWED")
	refused(fmt.Sprintf("vhost %s not found", vhost))
	mustCtl(r.T, r.nodes[1], "add_vhost", vhost)
	if out := mustCtl(r.T, r.nodes[2], "-q", "list_queues", "-p", vhost) + mustCtl(r.T, r.nodes[2], "-q", "list_permissions", "-p", vhost); out != "" {
		r.Errorf("the new vhost has %q", out)
	}
}

// userAnswers: each node gives the same answers.
func userAnswers(r *usersRig) {
	user := r.user("u/1", "^c", "^w", "")
	mustCtl(r.T, r.nodes[1], "set_user_tags", user, "monitoring", "own")
	for i, n := range r.nodes {
		for _, tc := range []struct {
			args []string
			want string
		}{
			{[]string{"list_users"}, user + "\t[monitoring, own]\n"},
			{[]string{"list_permissions"}, user + "\t^c\t^w\t\n"},
			{[]string{"list_user_permissions", user}, "/\t^c\t^w\t\n"},
			{[]string{"list_vhosts", "name", "description"}, "/\tDefault virtual host\n"},
		} {
			untilSays(r.T, n, tc.want, append(tc.args, "-q")...)
		}
		if code, _, failure := ctl(r.T, n, "list_users", "--user", user, "--password", passwordFirst); code != 77 || !strings.Contains(failure, "Not administrator user") {
			r.Errorf("node %d: %d %q", i, code, failure)
		}
	}
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"add_user", user, "x"}, 70},
		{[]string{"add_user", r.name("nobody")}, 65}, // standard input is empty
		{[]string{"delete_user", r.name("nobody")}, 67},
		{[]string{"set_permissions", r.name("nobody"), "", "", ""}, 67},
		{[]string{"set_permissions", "-p", r.name("nowhere"), user, "", "", ""}, 65},
		{[]string{"set_permissions", user, "(", "", ""}, 70},
		{[]string{"clear_permissions", user, "-p", r.name("nowhere")}, 65},
		{[]string{"delete_vhost", r.name("nowhere")}, 65},
		{[]string{"add_vhost", r.name("streams"), "--default-queue-type", "stream"}, 70},
		{[]string{"clear_permissions", user}, 0},
		{[]string{"clear_permissions", user}, 0},
	} {
		if code, _, failure := ctl(r.T, r.nodes[0], tc.args...); code != tc.code || (failure == "") != (code == 0) {
			r.Errorf("%q: exit code %d, want %d: %q", tc.args, code, tc.code, failure)
		}
	}
}

// declaredBy: every node knows which queues a user has declared, and those only.
func declaredBy(r *usersRig, vhost, user string) {
	r.Helper()
	for name, login := range map[string][2]string{"mine": {user, "second"}, "other": {"guest", "guest"}} {
		conn, err := connectWith("amqp://"+r.nodes[0].AMQPAddr()+"/", amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: login[0], Password: login[1]}}, Vhost: vhost})
		r.noError("log in", err)
		ch, err := conn.Channel()
		r.noError("open a channel", err)
		_, err = ch.QueueDeclare(name, true, false, false, false, nil)
		r.noError("declare", err)
		conn.Close()
	}
	for _, n := range r.nodes {
		eventually(r.T, func() error {
			got := fmt.Sprint(look(r.T, n, "/api/users/"+user+"/queues?columns=name,vhost"))
			if want := fmt.Sprintf("[map[name:mine vhost:%s]]", vhost); got != want {
				return fmt.Errorf("queues of the user: %s, want %s", got, want)
			}
			return nil
		})
	}
}

// usersOverHTTP: what is made through one node works at the others, and who makes a vhost may
// enter it.
func usersOverHTTP(r *usersRig) {
	user, vhost := r.name("http"), r.name("vhost")
	limitAPI(r.T, r.nodes[1], "users/"+user, `{"password":"pw","tags":"administrator"}`, 201)
	limitAPI(r.T, r.nodes[2], "users/"+user, `{"password":"second","tags":["management"]}`, 204)
	limitAPI(r.T, r.nodes[0], "users/"+user, `{"tags":["management"],"password_hash":"x"}`, 400)
	limitAPI(r.T, r.nodes[1], "vhosts/"+vhost, `{}`, 201)
	limitAPI(r.T, r.nodes[2], "vhosts/"+vhost, `{"description":"d"}`, 204)
	limitAPI(r.T, r.nodes[0], "permissions/"+vhost+"/"+user, `{"configure":"","write":"","read":""}`, 201)
	limitAPI(r.T, r.nodes[1], "permissions/"+vhost+"/"+user, `{"configure":".*","write":"","read":""}`, 204)
	limitAPI(r.T, r.nodes[1], "permissions/"+vhost+"/"+r.name("nobody"), `{"configure":".*","write":"","read":""}`, 400)
	for name, password := range map[string]string{user: "second", "guest": "guest"} {
		conn, err := login(r.nodes[0], name, password, vhost)
		r.noError("open the vhost", err)
		conn.Close()
	}
	declaredBy(r, vhost, user)
	limitAPI(r.T, r.nodes[0], "permissions/"+vhost+"/"+user, "", 204)
	limitAPI(r.T, r.nodes[0], "permissions/"+vhost+"/"+user, "", 404)
	limitAPI(r.T, r.nodes[2], "vhosts/"+vhost, "", 204)
	limitAPI(r.T, r.nodes[1], "users/"+user, "", 204)
	limitAPI(r.T, r.nodes[2], "users/"+user, "", 404)
}

// policiesSeen: who may look around sees which policies apply, as with RabbitMQ, and changes none.
func policiesSeen(r *usersRig) {
	policy, user := r.name("policy"), r.user("looks", "", "", "")
	mustCtl(r.T, r.nodes[0], "set_policy", policy, "^nothing$", `{"max-length":1}`)
	mustCtl(r.T, r.nodes[0], "set_operator_policy", policy, "^nothing$", `{"expires":1000}`)
	for _, tag := range []string{"management", "monitoring", "policymaker"} {
		mustCtl(r.T, r.nodes[0], "set_user_tags", user, tag)
		hole, err := rabbithole.NewClient(r.nodes[1].HTTP(), user, passwordFirst)
		r.noError("client", err)
		policies, err := hole.ListPolicies()
		r.noError(tag+" lists policies", err)
		if !slices.ContainsFunc(policies, func(p rabbithole.Policy) bool { return p.Name == policy }) {
			r.Errorf("%s: policies %v", tag, policies)
		}
		capped, err := hole.ListOperatorPolicies()
		r.noError(tag+" lists operator policies", err)
		if !slices.ContainsFunc(capped, func(p rabbithole.OperatorPolicy) bool { return p.Name == policy }) {
			r.Errorf("%s: operator policies %v", tag, capped)
		}
		if _, err := hole.DeleteOperatorPolicy("/", policy); err == nil {
			r.Errorf("%s: an operator policy is deleted", tag)
		}
	}
	mustCtl(r.T, r.nodes[2], "clear_policy", policy)
	mustCtl(r.T, r.nodes[2], "clear_operator_policy", policy)
}
