package process

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/client"
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
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.Signed(signer).Claims(jwt.Claims{
			Subject: user, Issuer: issuer, Audience: jwt.Audience{"warren"}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return bearer(text)
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
