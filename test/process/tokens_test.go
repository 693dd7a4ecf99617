package process

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth/tokens"
	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
)

// bearer is a token that calls carry.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// tokenKey is a key of an issuer.
func tokenKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
}

// issueToken makes a token of an issuer's for a user, until exp.
func issueToken(t *testing.T, key jose.JSONWebKey, user, issuer string, exp time.Time) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(jwt.Claims{
		Subject: user, Issuer: issuer, Audience: jwt.Audience{"warren"}, Expiry: jwt.NewNumericDate(exp),
	}).Claims(map[string]any{"padding": strings.Repeat("x", 4<<10)}).Serialize() // those of Keycloak and Entra are as long
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTokens: clients of gRPC log in with tokens of an issuer whose keys the node has; they may do what the user may; keys rotate while it runs.
func TestTokens(t *testing.T) {
	t.Parallel()
	first, second := tokenKey(t, "first"), tokenKey(t, "second")
	file := filepath.Join(t.TempDir(), "keys.json")
	write := func(keys ...jose.JSONWebKey) {
		t.Helper()
		text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
		if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(first.Public())
	c := newCluster(t, 1)
	c.Node(0).SetEnv("WARREN_TOKEN_KEYS_FILE="+file, "WARREN_TOKEN_ISSUER=https://login.example")
	start(t, c.Node(0))
	token := func(key jose.JSONWebKey, user, issuer string) bearer {
		t.Helper()
		return bearer(issueToken(t, key, user, issuer, time.Now().Add(time.Hour)))
	}
	const issuer = "https://login.example"
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	user := r.user("token", "", `\.q$`, "")
	mustCtl(t, c.Node(0), "clear_password", user)
	q := plainQueue(r.session, r.name("q"), nil)
	publish := func(b bearer) error {
		rpc := rpcWith(t, c.Node(0), grpc.WithPerRPCCredentials(b))
		_, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue(q, "m")})
		return err
	}
	r.noError("publish with a token", publish(token(first, "guest", issuer)))
	wantCode(t, publish(token(first, user, issuer)), codes.PermissionDenied, "ACCESS_REFUSED") // to the default exchange, which is not named so
	wantCode(t, publish(token(first, r.name("nobody"), issuer)), codes.Unauthenticated, "LOGIN_REFUSED")
	wantCode(t, publish(token(first, user, issuer+".org")), codes.Unauthenticated, "LOGIN_REFUSED")
	wantCode(t, publish(token(second, "guest", issuer)), codes.Unauthenticated, "LOGIN_REFUSED")
	wantCode(t, publish("no.such.token"), codes.Unauthenticated, "LOGIN_REFUSED")
	// The Go client asks for a token each time.
	current := token(first, "guest", issuer)
	cl, err := client.Dial(t.Context(), client.Config{Addrs: []string{c.Node(0).GRPCAddr()}, Token: func(context.Context) (string, error) { return string(current), nil }})
	r.noError("dial with a token", err)
	p, err := cl.Publisher(client.PublisherConfig{})
	r.noError("publisher", err)
	r.noError("publish by the Go client", p.Publish(t.Context(), &client.Message{RoutingKey: q, Mandatory: true}))
	current = token(second, "guest", issuer)
	if _, err := cl.LookQueue(t.Context(), q); !errors.Is(err, client.ErrLoginRefused) {
		t.Errorf("a key that is not there yet: %v", err)
	}
	r.noError("close", cl.Close(t.Context()))
	write(second.Public())
	eventually(t, func() error { return publish(token(second, "guest", issuer)) })
	if err := publish(token(first, "guest", issuer)); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a key that is gone: %v", err)
	}
	r.ready(q, 3)
}

// askAs is what a node answers to who the client is, after the status.
func askAs(t *testing.T, n *cluster.Node, login func(*http.Request)) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.HTTP()+"/api/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	login(req)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, answer)
}

// TestTokensAsPasswords: RabbitMQ's clients send a token as their password, over AMQP and HTTP; HTTP knows Bearer, too. A connection ends with its token, unless
// connection.update-secret brings another one in time.
func TestTokensAsPasswords(t *testing.T) {
	t.Parallel()
	needWarren(t)
	key := tokenKey(t, "only")
	file := filepath.Join(t.TempDir(), "keys.json")
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1)
	n := c.Node(0)
	n.SetEnv("WARREN_TOKEN_KEYS_FILE=" + file)
	start(t, n)
	mustCtl(t, n, "add_user", "ann", "secret")
	mustCtl(t, n, "set_user_tags", "ann", "monitoring")
	mustCtl(t, n, "set_permissions", "ann", ".*", ".*", ".*")
	token := func(user string, left time.Duration) string { // that counts for so long
		return issueToken(t, key, user, "", time.Now().Add(left-tokens.Leeway))
	}
	login := func(auth amqp.Authentication) (*amqp.Connection, error) {
		return amqp.DialConfig(n.URL(), amqp.Config{SASL: []amqp.Authentication{auth}, Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(timeoutReply)})
	}
	for name, auth := range map[string]amqp.Authentication{
		"PLAIN":              &amqp.PlainAuth{Username: "ann", Password: token("ann", time.Hour)},
		"no name":            &amqp.PlainAuth{Password: token("ann", time.Hour)},
		"a name of no user":  &amqp.PlainAuth{Username: "oauth", Password: token("ann", time.Hour)},
		"AMQPLAIN":           &amqp.AMQPlainAuth{Username: "ann", Password: token("ann", time.Hour)},
		"a password as ever": &amqp.PlainAuth{Username: "ann", Password: "secret"},
	} {
		conn, err := login(auth)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := field(look(t, n, "/api/connections").([]any)[0], "user"); got != "ann" {
			t.Errorf("%s: the connection is %v's", name, got)
		}
		conn.Close()
		await(t, timeoutReply, "the connection is gone", func() bool { return len(peers(t, n)) == 0 })
	}
	for name, auth := range map[string]amqp.Authentication{
		"of nobody":         &amqp.PlainAuth{Password: token("nobody", time.Hour)},
		"ended":             &amqp.PlainAuth{Password: token("ann", -time.Second)},
		"of another issuer": &amqp.PlainAuth{Username: "ann", Password: issueToken(t, tokenKey(t, "only"), "ann", "", time.Now().Add(time.Hour))},
		"no user's name":    &amqp.PlainAuth{Password: "secret"},
	} {
		if conn, err := login(auth); err == nil {
			t.Errorf("%s: was let in", name)
			conn.Close()
		}
	}
	for range 20 { // more than of wrong passwords before their user waits
		if answer := askAs(t, n, func(r *http.Request) { r.SetBasicAuth("ann", token("ann", -time.Second)) }); !strings.HasPrefix(answer, "401") {
			t.Fatalf("a token that has ended: %s", answer)
		}
	}

	conn, err := login(&amqp.PlainAuth{Password: token("ann", 4*time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ended := conn.NotifyClose(make(chan *amqp.Error, 1))
	if err := conn.UpdateSecret(token("ann", 12*time.Second), "renewed"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	select {
	case e := <-ended:
		if took := time.Since(begun); e == nil || e.Code != 320 || e.Reason != "CONNECTION_FORCED - credential expired" || took < 8*time.Second {
			t.Errorf("after %v: %v", took, e)
		}
	case <-time.After(timeoutReply):
		t.Error("the connection goes on without a token that counts")
	}
	conn, err = login(&amqp.PlainAuth{Password: token("ann", time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.UpdateSecret(token("guest", time.Hour), "of another user"); err == nil {
		t.Error("the token of another user was taken")
	}

	for name, tc := range map[string]struct {
		set  func(*http.Request)
		want string
	}{
		"Bearer":       {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token("ann", time.Hour)) }, `200 {"name":"ann"`},
		"Basic":        {func(r *http.Request) { r.SetBasicAuth("", token("ann", time.Hour)) }, `200 {"name":"ann"`},
		"Bearer, over": {func(r *http.Request) { r.Header.Set("Authorization", "bearer "+token("ann", -time.Second)) }, "401 "},
		"no token":     {func(r *http.Request) { r.Header.Set("Authorization", "Bearer") }, "401 "},
	} {
		if answer := askAs(t, n, tc.set); !strings.HasPrefix(answer, tc.want) {
			t.Errorf("%s: %s", name, answer)
		}
	}
}
