package process

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth/tokens"
	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
)

// scopesRig is a cluster in which the scopes of an issuer's tokens are permissions.
type scopesRig struct {
	t   *testing.T
	c   *cluster.Cluster
	key jose.JSONWebKey
	// there tells that the issuer answers.
	there atomic.Bool
}

func newScopesRig(t *testing.T, nodes int) *scopesRig {
	t.Helper()
	needWarren(t)
	r := &scopesRig{t: t, key: tokenKey(t, "only")}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{r.key.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	issuer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !r.there.Load() {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(keys)
	}))
	t.Cleanup(issuer.Close)
	dir := t.TempDir()
	ca, aliases := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "aliases.json")
	err = errors.Join(
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw}), 0o600),
		os.WriteFile(aliases, []byte(`{"operator": "warren.tag:administrator warren.read:*/*"}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	r.c = newCluster(t, nodes)
	for _, n := range r.c.Nodes() {
		n.SetEnv("WARREN_TOKEN_KEYS_URL="+issuer.URL, "WARREN_TOKEN_KEYS_CA_FILE="+ca, "WARREN_TOKEN_SCOPES=on", "WARREN_TOKEN_USER_CLAIMS=preferred_username,sub",
			"WARREN_TOKEN_SCOPE_CLAIMS=realm_access.roles", "WARREN_TOKEN_SCOPE_ALIASES_FILE="+aliases)
	}
	return r
}

// token is one of the issuer's that counts for so long, with scopes and what other claims say.
func (r *scopesRig) token(user string, left time.Duration, scopes string, claims ...map[string]any) string {
	r.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: r.key}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	b := jwt.Signed(signer).Claims(map[string]any{
		"preferred_username": user, "sub": "e0a1", "aud": []string{"account", "warren"}, "exp": time.Now().Add(left - tokens.Leeway).Unix(), "scope": scopes,
	})
	for _, more := range claims {
		b = b.Claims(more)
	}
	text, err := b.Serialize()
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

func (r *scopesRig) dial(node int, token string) (*amqp.Connection, error) {
	conn, err := amqp.DialConfig(r.c.Node(node).URL(), amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Password: token}}, Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(timeoutReply)})
	if err == nil {
		r.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// enter is dial for whoever is let in.
func (r *scopesRig) enter(node int, token string) *amqp.Connection {
	r.t.Helper()
	conn, err := r.dial(node, token)
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// does what a client asks for on a channel of its own, and checks the refusal, "" if it is to be allowed.
func (r *scopesRig) does(what string, conn *amqp.Connection, refusal string, do func(ch *amqp.Channel) error) {
	r.t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
	defer ch.Close()
	err = do(ch)
	switch e, _ := errors.AsType[*amqp.Error](err); {
	case refusal == "" && err != nil, refusal != "" && (e == nil || e.Code != amqp.AccessRefused || !strings.Contains(e.Reason, refusal)):
		r.t.Errorf("%s: %v, wanted refusal %q", what, err, refusal)
	}
}

// published publishes, and waits until that was done or refused.
func published(exchange, key string, p amqp.Publishing) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		if err := ch.Confirm(false); err != nil {
			return err
		}
		c, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, p)
		if err != nil {
			return err
		}
		select {
		case <-c.Done():
			return nil
		case e := <-closed:
			return e
		case <-time.After(timeoutReply):
			return errors.New("no answer")
		}
	}
}

func declared(queue string, args amqp.Table) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	}
}

const allScopes = "warren.configure:*/* warren.write:*/*/* warren.read:*/*/*"

// TestTokenScopes: what a login by token may do is what its scopes say, through every node and over every protocol, without a user in the cluster. The nodes fetch
// the issuer's keys, and start without them.
func TestTokenScopes(t *testing.T) {
	t.Parallel()
	r := newScopesRig(t, 3)
	startAll(t, r.c)
	if _, err := r.dial(0, r.token("ann", time.Hour, allScopes)); err == nil {
		t.Error("a token counts without keys")
	}
	r.there.Store(true)
	for i := range r.c.Nodes() {
		await(t, timeoutStart, "the issuer's keys", func() bool { _, err := r.dial(i, r.token("ann", time.Hour, allScopes)); return err == nil })
	}
	owner := r.enter(0, r.token("ann", time.Hour, allScopes))
	r.does("declare", owner, "", declared("orders", amqp.Table{"x-queue-type": "quorum"}))
	r.does("declare an exchange", owner, "", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("top", "topic", true, false, false, false, nil)
	})
	r.does("bind", owner, "", func(ch *amqp.Channel) error { return ch.QueueBind("orders", "all.#", "top", false, nil) })
	t.Run("AMQP", r.overAMQP)
	t.Run("every permission, over AMQP, HTTP and gRPC", r.everything)
	t.Run("update-secret", r.updates)
	t.Run("a user of the name", r.besideUsers)
	t.Run("HTTP", r.overHTTP)
	t.Run("gRPC", r.overRPC)
}

func (r *scopesRig) overAMQP(t *testing.T) {
	r.t = t
	conn := r.enter(1, r.token("bob", time.Hour, "openid warren.configure:%2F/{preferred_username}-* warren.write:%2F/{preferred_username}-* warren.read:%2F/{preferred_username}-* "+
		"warren.write:%2F/top/eu.* warren.read:%2F/top/eu.* warren.write:%2F/amq.default warren.configure:other/*"))
	topic := func(key string) func(ch *amqp.Channel) error {
		return func(ch *amqp.Channel) error { return ch.QueueBind("bob-q", key, "top", false, nil) }
	}
	text := func(action, kind, name string) string {
		return fmt.Sprintf("ACCESS_REFUSED - %s access to %s '%s' in vhost '/' refused for user 'bob'", action, kind, name)
	}
	byKey := func(action, key string) string { return text(action, "topic", key+"' in exchange 'top") }
	for _, c := range []struct {
		what, refusal string
		do            func(*amqp.Channel) error
	}{
		{"declare one's own", "", declared("bob-q", nil)},
		{"declare another", text("configure", "queue", "orders"), declared("orders", nil)},
		{"declare with dead letters elsewhere", text("write", "exchange", "amq.fanout"), declared("bob-dead", amqp.Table{"x-dead-letter-exchange": "amq.fanout"})},
		{"declare with dead letters to one's own", "", declared("bob-dead", amqp.Table{"x-dead-letter-exchange": "bob-x"})},
		{"get another", text("read", "queue", "orders"), func(ch *amqp.Channel) error { _, _, err := ch.Get("orders", true); return err }},
		{"purge another", text("read", "queue", "orders"), func(ch *amqp.Channel) error { _, err := ch.QueuePurge("orders", false); return err }},
		{"consume another", text("read", "queue", "orders"), func(ch *amqp.Channel) error {
			_, err := ch.Consume("orders", "", true, false, false, false, nil)
			return err
		}},
		{"delete another", text("configure", "queue", "orders"), func(ch *amqp.Channel) error { _, err := ch.QueueDelete("orders", false, false, false); return err }},
		{"see another", text("configure", "queue", "orders"), func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive("orders", true, false, false, false, nil)
			return err
		}},
		{"publish to a queue", "", published("", "bob-q", amqp.Publishing{})},
		{"publish to an exchange", text("write", "exchange", "amq.direct"), published("amq.direct", "x", amqp.Publishing{})},
		{"publish by a key", "", published("top", "eu.1", amqp.Publishing{})},
		{"publish by another", byKey("write", "us.1"), published("top", "us.1", amqp.Publishing{})},
		{"publish by another in CC", byKey("write", "us.1"), published("top", "eu.1", amqp.Publishing{Headers: amqp.Table{"CC": []any{"us.1"}}})},
		{"bind a key", "", topic("eu.2")},
		{"bind another", byKey("read", "#"), topic("#")},
		{"bind another's queue", text("write", "queue", "orders"), func(ch *amqp.Channel) error { return ch.QueueBind("orders", "eu.1", "top", false, nil) }},
		{"bind an exchange", "", func(ch *amqp.Channel) error {
			return errors.Join(ch.ExchangeDeclare("bob-x", "fanout", true, false, false, false, nil), ch.ExchangeBind("bob-x", "eu.3", "top", false, nil))
		}},
		{"bind another's exchange", text("write", "exchange", "amq.fanout"), func(ch *amqp.Channel) error { return ch.ExchangeBind("amq.fanout", "eu.3", "top", false, nil) }},
	} {
		r.does(c.what, conn, c.refusal, c.do)
	}
	// PRECONDITION_FAILED.
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := published("", "bob-q", amqp.Publishing{UserId: "ann"})(ch); err == nil || !strings.Contains(err.Error(), "user_id property set to 'ann' but authenticated user was 'bob'") {
		t.Errorf("in the name of somebody else: %v", err)
	}
	for what, scopes := range map[string]string{"no scopes": "", "another virtual host": "warren.read:other/*", "another prefix": "rabbitmq.read:*/*", "only a tag": "warren.tag:administrator"} {
		if _, err := r.dial(2, r.token("bob", time.Hour, scopes)); err == nil {
			t.Errorf("%s: was let into '/'", what)
		}
	}
	if _, err := r.dial(2, r.token("", time.Hour, allScopes, map[string]any{"sub": ""})); err == nil {
		t.Error("a token of nobody was let in")
	}
	r.does("by the name in another claim", r.enter(2, r.token("", time.Hour, "warren.configure:%2F/*")), "user 'e0a1'", func(ch *amqp.Channel) error { _, _, err := ch.Get("orders", true); return err })
	r.does("impersonate", r.enter(2, r.token("eve", time.Hour, "warren.tag:impersonator warren.write:%2F/amq.default")), "", published("", "bob-q", amqp.Publishing{UserId: "ann"}))
}

// everything: each permission that anything needs is asked of the token, over each protocol.
func (r *scopesRig) everything(t *testing.T) {
	r.t = t
	u := &usersRig{at(t, r.c.Node(0)), r.c.Nodes()}
	named := func(pattern string) string { return strings.ReplaceAll(url.QueryEscape(u.name(pattern)), "%2A", "*") }
	scopes := fmt.Sprintf("warren.tag:management warren.configure:%%2F/%s warren.write:%%2F/%s warren.read:%%2F/%s", named("*c*"), named("*w*"), named("*r*"))
	rightsMatrix(u, "ida", r.token("ida", time.Hour, fmt.Sprintf("%s warren.write:%%2F/%s/* warren.read:%%2F/%s/*", scopes, named("*w*"), named("*r*"))), func(exchange string) string {
		on := url.QueryEscape(exchange)
		return r.token("ida", time.Hour, fmt.Sprintf("%s warren.write:%%2F/%s/a* warren.read:%%2F/%s/b*", scopes, on, on))
	})
}

// updates: another token of the same user counts at once, whatever it takes away.
func (r *scopesRig) updates(t *testing.T) {
	r.t = t
	conn := r.enter(2, r.token("cat", time.Hour, allScopes))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	r.does("declare", conn, "", declared("cat-q", nil))
	if _, err := ch.Consume("cat-q", "c", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	cancelled := ch.NotifyCancel(make(chan string, 1))
	writer, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := published("", "cat-q", amqp.Publishing{})(writer); err != nil {
		t.Fatal(err)
	}
	if err := conn.UpdateSecret(r.token("cat", time.Hour, "warren.read:%2F/other"), "narrower"); err != nil {
		t.Fatal(err)
	}
	select {
	case tag := <-cancelled:
		if tag != "c" {
			t.Errorf("consumer %q was cancelled", tag)
		}
	case <-time.After(timeoutReply):
		t.Error("the consumer goes on")
	}
	if err := published("", "cat-q", amqp.Publishing{})(writer); err == nil || !strings.Contains(err.Error(), "write access to exchange 'amq.default'") {
		t.Errorf("publish on a channel that did before: %v", err)
	}
	if err := conn.UpdateSecret(r.token("cat", time.Hour, allScopes), "wider"); err != nil {
		t.Fatal(err)
	}
	r.does("publish again", conn, "", published("", "cat-q", amqp.Publishing{}))
	for what, secret := range map[string]string{
		"another user's": r.token("ann", time.Hour, allScopes), "one that has ended": r.token("cat", -time.Second, allScopes), "one for another virtual host": r.token("cat", time.Hour, "warren.read:other/*"),
	} {
		conn := r.enter(2, r.token("cat", time.Hour, allScopes))
		err := conn.UpdateSecret(secret, what)
		if e, _ := errors.AsType[*amqp.Error](err); e == nil || e.Code != amqp.NotAllowed {
			t.Errorf("%s: %v", what, err)
		}
	}
	conn = r.enter(2, r.token("cat", 2*time.Second, allScopes))
	select {
	case e := <-conn.NotifyClose(make(chan *amqp.Error, 1)):
		if e == nil || e.Code != 320 || e.Reason != "CONNECTION_FORCED - credential expired" {
			t.Errorf("the token ended: %v", e)
		}
	case <-time.After(timeoutReply):
		t.Error("the connection goes on without a token that counts")
	}
}

// besideUsers: of a user of the token's name the limits count, and nothing else.
func (r *scopesRig) besideUsers(t *testing.T) {
	r.t = t
	n := r.c.Node(0)
	mustCtl(t, n, "add_user", "dan", "secret")
	mustCtl(t, n, "set_user_tags", "dan", "administrator")
	mustCtl(t, n, "set_permissions", "dan", ".*", ".*", ".*")
	token := r.token("dan", time.Hour, "warren.read:%2F/dan warren.tag:management")
	conn := r.enter(1, token)
	r.does("declare", conn, "configure access", declared("dan", nil))
	if answer := askAs(t, n, func(req *http.Request) { req.SetBasicAuth("", token) }); !strings.HasPrefix(answer, `200 {"name":"dan","tags":["management"]`) {
		t.Errorf("by token: %s", answer)
	}
	byPassword, err := amqp.Dial(strings.Replace(n.URL(), "guest:guest", "dan:secret", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer byPassword.Close()
	r.does("declare by password", byPassword, "", declared("dan", nil))
	if err := byPassword.UpdateSecret(token, "of another kind"); err == nil {
		t.Error("a token's scopes took the place of a user's permissions")
	}
	mustCtl(t, n, "set_user_limits", "dan", `{"max-connections": 0}`)
	if _, err := r.dial(2, token); err == nil {
		t.Error("the limit of the name does not count")
	}
	mustCtl(t, n, "delete_user", "dan")
	r.does("without the user", conn, "configure access", declared("dan", nil)) // and not a closed connection
}

func (r *scopesRig) overHTTP(t *testing.T) {
	r.t = t
	n := r.c.Node(1)
	mustCtl(t, n, "add_vhost", "hidden")
	ask := func(token, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, n.HTTP()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(answer)
	}
	some := r.token("fay", time.Hour, "warren.tag:management warren.configure:%2F/fay* warren.read:%2F/fay*")
	policies := r.token("fay", time.Hour, "warren.tag:policymaker warren.read:%2F/*")
	roles := r.token("gus", time.Hour, "openid", map[string]any{"realm_access": map[string]any{"roles": []string{"operator", "other"}}})
	untagged := r.token("fay", time.Hour, allScopes)
	const policy = `{"pattern": "^fay$", "definition": {"max-length": 5}, "apply-to": "queues"}`
	for _, c := range []struct {
		what, token, method, path, body string
		status                          int
		in, not                         string
	}{
		{"without a tag", untagged, "GET", "/api/queues", "", 401, "", ""},
		{"who", some, "GET", "/api/whoami", "", 200, `"tags":["management"]`, ""},
		{"virtual hosts", some, "GET", "/api/vhosts", "", 200, `"/"`, "hidden"},
		{"one's own queue", some, "PUT", "/api/queues/%2F/fay", `{"durable": true}`, 201, "", ""},
		{"another queue", some, "PUT", "/api/queues/%2F/other", `{"durable": true}`, 401, "configure access to queue 'other'", ""},
		{"one's own messages", some, "POST", "/api/queues/%2F/fay/get", `{"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}`, 200, "[]", ""},
		{"another's messages", some, "POST", "/api/queues/%2F/orders/get", `{"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}`, 401, "read access to queue 'orders'", ""},
		{"another's dead letters", some, "GET", "/api/warren/queues/%2F/orders/dead-letters", "", 401, "read access to queue 'orders'", ""},
		{"publish", some, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties": {}, "routing_key": "fay", "payload": "", "payload_encoding": "string"}`, 401, "write access to exchange 'amq.default'", ""},
		{"in a hidden place", some, "GET", "/api/queues/hidden", "", 401, "", ""},
		{"a policy", some, "PUT", "/api/policies/%2F/p", policy, 401, "", ""},
		{"a policy by its maker", policies, "PUT", "/api/policies/%2F/p", policy, 201, "", ""},
		{"a policy in a hidden place", policies, "PUT", "/api/policies/hidden/p", policy, 401, "", ""},
		{"users", some, "GET", "/api/users", "", 401, "", ""},
		{"users, by an alias in a role", roles, "GET", "/api/users", "", 200, `"guest"`, "gus"},
		{"a virtual host", roles, "PUT", "/api/vhosts/made", "", 201, "", ""},
		{"permissions of nobody", roles, "GET", "/api/permissions", "", 200, "guest", "gus"},
	} {
		if status, answer := ask(c.token, c.method, c.path, c.body); status != c.status || !strings.Contains(answer, c.in) || c.not != "" && strings.Contains(answer, c.not) {
			t.Errorf("%s: %d %.300s", c.what, status, answer)
		}
	}
}

func (r *scopesRig) overRPC(t *testing.T) {
	r.t = t
	n := r.c.Node(2)
	with := func(token string) *rpcClient { return rpcWith(t, n, grpc.WithPerRPCCredentials(bearer(token))) }
	some := with(r.token("hal", time.Hour, "warren.tag:management warren.write:%2F/amq.default warren.configure:%2F/hal warren.read:%2F/hal warren.write:%2F/top/eu.*"))
	publish := func(rpc *rpcClient, p *warrenv1.Publication) error {
		_, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: p})
		return err
	}
	_, err := some.topology.DeclareQueue(some.ctx, &warrenv1.DeclareQueueRequest{Queue: &warrenv1.QueueDeclaration{Name: "hal", Durable: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := publish(some, forQueue("hal", "m")); err != nil {
		t.Error(err)
	}
	byKey := func(key string) *warrenv1.Publication {
		p := forQueue(key, "m")
		p.Message.Exchange = "top"
		return p
	}
	if err := publish(some, byKey("eu.2")); err != nil {
		t.Error(err)
	}
	wantCode(t, publish(some, byKey("us.1")), codes.PermissionDenied, "ACCESS_REFUSED")
	wantCode(t, publish(with(r.token("hal", time.Hour, "warren.read:%2F/*")), forQueue("hal", "m")), codes.PermissionDenied, "ACCESS_REFUSED")
	wantCode(t, publish(with(r.token("hal", time.Hour, "warren.write:other/*")), forQueue("hal", "m")), codes.PermissionDenied, "NOT_ALLOWED")
	messages := warrenv1.NewMessageServiceClient(some.conn)
	if _, err := messages.Peek(some.ctx, &warrenv1.PeekRequest{Queue: "hal"}); err != nil {
		t.Error(err)
	}
	_, err = messages.Peek(some.ctx, &warrenv1.PeekRequest{Queue: "orders"})
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	users := func(rpc *rpcClient) error {
		_, err := warrenv1.NewAdminServiceClient(rpc.conn).ListUsers(rpc.ctx, &warrenv1.ListUsersRequest{})
		return err
	}
	wantCode(t, users(some), codes.PermissionDenied, "ACCESS_REFUSED")
	if err := users(with(r.token("hal", time.Hour, "warren.tag:administrator"))); err != nil {
		t.Error(err)
	}
	// A stream ends with its token: there is no user that could be deleted to end it.
	short := with(r.token("hal", 3*time.Second, "warren.read:%2F/hal")).consumer(&warrenv1.ConsumeOpen{Queue: "hal"}, 10)
	for err = nil; err == nil; {
		_, err = short.stream.Recv()
	}
	wantCode(t, err, codes.Unavailable, "CONNECTION_FORCED")
	// The Go client goes on with another token.
	var asked atomic.Int32
	cl, err := client.Dial(t.Context(), client.Config{Addrs: []string{n.GRPCAddr()}, Token: func(context.Context) (string, error) {
		asked.Add(1)
		return r.token("hal", 3*time.Second, "warren.read:%2F/hal warren.write:%2F/amq.default"), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, ended := make(chan string, 100), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		ended <- cl.Consume(ctx, "hal", client.ConsumerConfig{}, func(_ context.Context, d *client.Delivery) error {
			got <- string(d.Body)
			return nil
		})
	}()
	await(t, timeoutStart, "streams by other tokens", func() bool { return asked.Load() >= 4 })
	if err := publish(some, forQueue("hal", "late")); err != nil {
		t.Error(err)
	}
	for late := false; !late; {
		select {
		case body := <-got:
			late = body == "late"
		case err := <-ended:
			t.Fatalf("the consumer has ended: %v", err)
		case <-time.After(timeoutReply):
			t.Fatal("the consumer does not go on")
		}
	}
	stop()
	<-ended
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
