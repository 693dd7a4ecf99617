package process

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// Times of a cluster that asks a server about logins.
const (
	loginTTL     = 300 * time.Millisecond
	loginTimeout = 2 * time.Second
)

// httpLogins is a server that says who may log in, and a cluster that asks it.
type httpLogins struct {
	*httptest.Server

	t *testing.T
	c *cluster.Cluster

	mu sync.Mutex
	// users are passwords and tags, by name: "pw management"; rules decide about everything else, the last first.
	users map[string]string
	rules []func(path string, q url.Values) (allowed, known bool)
	// code is what it answers with, 0: as it should; hang holds all requests.
	code int
	hang chan struct{}
}

func newHTTPLogins(t *testing.T, nodes int, backends string) *httpLogins {
	t.Helper()
	needWarren(t)
	s := &httpLogins{t: t, users: map[string]string{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	s.c = newCluster(t, nodes)
	s.backends(backends)
	return s
}

// backends sets where the nodes look for logins from their next start on.
func (s *httpLogins) backends(names string) {
	env := []string{
		"WARREN_AUTH_BACKENDS=" + names, "WARREN_AUTH_HTTP_METHOD=post", "WARREN_AUTH_HTTP_TTL=" + loginTTL.String(), "WARREN_AUTH_HTTP_REFUSAL_TTL=0s",
		"WARREN_AUTH_HTTP_TIMEOUT=" + loginTimeout.String(),
	}
	for _, path := range []string{"USER", "VHOST", "RESOURCE", "TOPIC"} {
		env = append(env, "WARREN_AUTH_HTTP_"+path+"_URL="+s.URL+"/auth/"+strings.ToLower(path))
	}
	for _, n := range s.c.Nodes() {
		n.SetEnv(env...)
	}
}

// ServeHTTP answers as the users and the rules say: what no rule knows is allowed.
func (s *httpLogins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q, err := url.ParseQuery(string(body))
	path := strings.TrimPrefix(r.URL.Path, "/auth/")
	s.mu.Lock()
	answer, code, hang := s.answer(path, q), s.code, s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if err != nil || code != 0 {
		w.WriteHeader(max(code, http.StatusBadRequest))
	}
	_, _ = io.WriteString(w, answer)
}

func (s *httpLogins) answer(path string, q url.Values) string {
	if path == "user" {
		password, tags, _ := strings.Cut(s.users[q.Get("username")], " ")
		if password == "" || password != q.Get("password") {
			return "deny"
		}
		return strings.TrimSpace("allow " + tags)
	}
	for _, rule := range slices.Backward(s.rules) {
		if allowed, known := rule(path, q); known && !allowed {
			return "deny this is not for clients"
		} else if known {
			break
		}
	}
	return "allow"
}

// change changes what the server says, and waits until nobody remembers what it said before.
func (s *httpLogins) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	time.Sleep(loginTTL + 50*time.Millisecond)
}

func (s *httpLogins) user(name, passwordAndTags string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[name] = passwordAndTags
}

// rule adds one for a user.
func (s *httpLogins) rule(user string, f func(path string, q url.Values) bool) {
	s.change(func() {
		s.rules = append(s.rules, func(path string, q url.Values) (bool, bool) {
			if q.Get("username") != user {
				return false, false
			}
			return f(path, q), true
		})
	})
}

func (s *httpLogins) enter(t *testing.T, node int, user, password string) *amqp.Connection {
	t.Helper()
	conn, err := login(s.c.Node(node), user, password, "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func inConfirms(t *testing.T, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func refusedWith(t *testing.T, what string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q", what, err, text)
	}
}

// confirmedOn publishes one message on a channel in confirm mode.
func confirmedOn(ch *amqp.Channel, exchange, key string) error {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	c, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
	if err != nil {
		return err
	}
	select {
	case <-c.Done():
		if !c.Acked() {
			return fmt.Errorf("message %d was refused", c.DeliveryTag)
		}
		return nil
	case e := <-closed:
		return e
	case <-time.After(timeoutReply):
		return fmt.Errorf("message %d has no answer", c.DeliveryTag)
	}
}

// loginRefusal is what amqp091-go makes of a refused login.
const loginRefusal = "username or password not allowed"

// TestLoginsByHTTP: a server of logins decides who comes in and who may do what, through every node and over every protocol, and its users are in no catalog.
func TestLoginsByHTTP(t *testing.T) {
	t.Parallel()
	s := newHTTPLogins(t, 3, "internal,http")
	startAll(t, s.c)
	t.Run("AMQP", s.overAMQP)
	t.Run("every permission, over AMQP, HTTP and gRPC", s.everything)
	t.Run("HTTP", s.overHTTP)
	t.Run("later", s.later)
	t.Run("a user of the name", s.besideUsers)
	t.Run("pika", func(t *testing.T) {
		s.user("pika", "zaubertrank administrator")
		runClient(t, append(foreignClients["pika"][:2:2], strings.Replace(s.c.Node(2).URL(), "guest:guest", "pika:zaubertrank", 1)), nil)
	})
	t.Run("away", s.away)
}

func (s *httpLogins) overAMQP(t *testing.T) {
	s.user("ann", "zaubertrank")
	s.rule("ann", func(path string, q url.Values) bool {
		switch path {
		case "vhost":
			return q.Get("vhost") == "/" && q.Get("ip") == "127.0.0.1"
		case "topic":
			return strings.HasPrefix(q.Get("routing_key"), "eu.")
		}
		return strings.HasPrefix(q.Get("name"), "ann") || q.Get("name") == "amq.topic"
	})
	for node := range 3 {
		_, err := login(s.c.Node(node), "ann", "wrong", "/")
		refusedWith(t, "a wrong password", err, loginRefusal)
		_, err = login(s.c.Node(node), "nobody", "zaubertrank", "/")
		refusedWith(t, "an unknown user", err, loginRefusal)
		s.enter(t, node, "guest", "guest") // of the catalog
		conn := s.enter(t, node, "ann", "zaubertrank")
		queue := fmt.Sprintf("ann-%d", node)
		for what, do := range map[string]func(*amqp.Channel) error{
			"": declared(queue, amqp.Table{"x-queue-type": "quorum"}),
			"configure access to queue 'other' in vhost '/' refused for user 'ann'": declared("other", nil),
			"write access to exchange 'amq.direct' in vhost '/' refused":            published("amq.direct", "x", amqp.Publishing{}),
			"write access to topic 'us.1' in exchange 'amq.topic' in vhost '/'":     published("amq.topic", "us.1", amqp.Publishing{}),
			"user_id property set to 'bob' but authenticated user was 'ann'":        published("amq.topic", "eu.1", amqp.Publishing{UserId: "bob"}),
		} {
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			if err = do(ch); what != "" {
				refusedWith(t, "not allowed", err, what)
			} else if err != nil {
				t.Errorf("allowed: %v", err)
			}
		}
		if err := published("amq.topic", "eu.1", amqp.Publishing{UserId: "ann"})(inConfirms(t, conn)); err != nil {
			t.Error(err)
		}
	}
	mustCtl(t, s.c.Node(0), "add_vhost", "hidden")
	_, err := login(s.c.Node(1), "ann", "zaubertrank", "hidden")
	refusedWith(t, "a virtual host", err, "no access to this vhost")
	_, err = login(s.c.Node(1), "ann", "zaubertrank", "none")
	refusedWith(t, "no virtual host", err, "no access to this vhost")
	conn := s.enter(t, 0, "ann", "zaubertrank")
	if err := conn.UpdateSecret("zaubertrank", "again"); err != nil {
		t.Error(err)
	}
	refusedWith(t, "a wrong secret", conn.UpdateSecret("wrong", "again"), "New secret was refused by one of the backends")
}

// everything: each permission that anything needs is asked of the server, over each protocol.
func (s *httpLogins) everything(t *testing.T) {
	s.user("ida", "zaubertrank management")
	u := &usersRig{at(t, s.c.Node(0)), s.c.Nodes()}
	may := map[string]*regexp.Regexp{}
	for action, letter := range map[string]string{"configure": "c", "write": "w", "read": "r"} {
		may[action] = regexp.MustCompile(`\.[qxcwr]*` + letter)
	}
	var restricted string // a topic exchange with few keys
	s.rule("ida", func(path string, q url.Values) bool {
		switch path {
		case "vhost":
			return q.Get("tags") == "management"
		case "topic":
			return q.Get("name") != restricted || strings.HasPrefix(q.Get("routing_key"), map[string]string{"write": "a", "read": "b"}[q.Get("permission")])
		}
		return may[q.Get("permission")].MatchString(q.Get("name"))
	})
	rightsMatrix(u, "ida", "zaubertrank", func(exchange string) string {
		s.change(func() { restricted = exchange })
		return "zaubertrank"
	})
}

func (s *httpLogins) overHTTP(t *testing.T) {
	n := s.c.Node(1)
	for name, tags := range map[string]string{"mon": "monitoring", "adm": "Administrator", "none": ""} {
		s.user(name, strings.TrimSpace("zaubertrank "+tags))
	}
	as := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	for user, want := range map[string]string{
		"mon": `200 {"name":"mon","tags":["monitoring"]`, "adm": `200 {"name":"adm","tags":["administrator"]`,
		"none": `401 {"error":"not_authorised","reason":"Not management user"`, "nobody": "401 ",
	} {
		if got := askAs(t, n, as(user, "zaubertrank")); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", user, got)
		}
	}
	out := mustCtl(t, n, "list_users")
	if strings.Contains(out, "adm\t") || !strings.Contains(out, "guest") {
		t.Errorf("users are %s", out)
	}
}

// later: what the server says now counts for connections that are open.
func (s *httpLogins) later(t *testing.T) {
	s.user("cat", "zaubertrank")
	conn := s.enter(t, 1, "cat", "zaubertrank")
	ch := inConfirms(t, conn)
	if _, err := ch.QueueDeclare("cat", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("cat", "#", "amq.topic", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := confirmedOn(ch, "amq.topic", "k"); err != nil {
		t.Fatal(err)
	}
	allowed := false
	s.rule("cat", func(path string, _ url.Values) bool { return path != "topic" || allowed })
	refusedWith(t, "a key that is not allowed any more", confirmedOn(ch, "amq.topic", "k"), "write access to topic 'k' in exchange 'amq.topic'")
	s.change(func() { allowed = true })
	if err := confirmedOn(inConfirms(t, conn), "amq.topic", "k"); err != nil {
		t.Errorf("allowed again: %v", err)
	}
	s.change(func() { delete(s.users, "cat") })
	_, err := login(s.c.Node(1), "cat", "zaubertrank", "/")
	refusedWith(t, "a user who is not there any more", err, loginRefusal)
}

// besideUsers: of a user of the catalog with the same name the limits count, and nothing else.
func (s *httpLogins) besideUsers(t *testing.T) {
	n := s.c.Node(0)
	s.user("dan", "outside")
	s.rule("dan", func(path string, q url.Values) bool { return path == "vhost" || q.Get("name") == "dan" })
	mustCtl(t, n, "add_user", "dan", "inside")
	mustCtl(t, n, "set_permissions", "dan", ".*", ".*", ".*")
	inside, outside := s.enter(t, 1, "dan", "inside"), s.enter(t, 1, "dan", "outside")
	for _, c := range []struct {
		conn          *amqp.Connection
		name, refusal string
	}{{inside, "other", ""}, {outside, "dan", ""}, {outside, "another", "configure access to queue 'another'"}} {
		ch, err := c.conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if err = declared(c.name, nil)(ch); c.refusal != "" {
			refusedWith(t, c.name, err, c.refusal)
		} else if err != nil {
			t.Error(err)
		}
	}
	refusedWith(t, "a password of another backend", outside.UpdateSecret("inside", "other"), "New secret was refused")
	mustCtl(t, n, "set_user_limits", "dan", `{"max-connections": 0}`)
	for _, password := range []string{"inside", "outside"} {
		if _, err := login(s.c.Node(2), "dan", password, "/"); err == nil {
			t.Errorf("%s: the limit of the name does not count", password)
		}
	}
	mustCtl(t, n, "clear_user_limits", "dan", "max-connections")
	outside = s.enter(t, 2, "dan", "outside")
	mustCtl(t, n, "delete_user", "dan")
	if _, err := inside.Channel(); err == nil {
		await(t, timeoutReply, "the end of the connection of a deleted user", inside.IsClosed)
	}
	if _, err := outside.Channel(); err != nil {
		t.Errorf("who is known outside: %v", err)
	}
}

// away: while the server does not answer connections go on, and with them one node less; nobody logs in anew, others do, and nothing that was confirmed is lost.
func (s *httpLogins) away(t *testing.T) {
	s.user("eve", "zaubertrank management")
	conn := s.enter(t, 1, "eve", "zaubertrank")
	ch := inConfirms(t, conn)
	if _, err := ch.QueueDeclare("eve", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("eve", "#", "amq.topic", false, nil); err != nil {
		t.Fatal(err)
	}
	sent := 0
	publish := func() time.Duration {
		t.Helper()
		began := time.Now()
		if err := confirmedOn(ch, "amq.topic", "k"); err != nil {
			t.Fatal(err)
		}
		sent++
		return time.Since(began)
	}
	publish()
	for _, broken := range []string{"hangs", "fails"} {
		hang := make(chan struct{})
		s.change(func() {
			if s.code = http.StatusInternalServerError; broken == "hangs" {
				s.code, s.hang = 0, hang
			}
		})
		publish() // finds out, and may wait
		if broken == "fails" {
			if err := s.c.Node(0).Kill(); err != nil {
				t.Fatal(err)
			}
		}
		other := inConfirms(t, s.enter(t, 1, "guest", "guest"))
		if broken == "hangs" {
			s.oneWaits(t, other)
		}
		for range 20 {
			took := publish()
			if broken == "hangs" && took > loginTimeout/2 {
				t.Errorf("the server %s, and a publish takes %v", broken, took)
			}
			if err := confirmedOn(other, "amq.topic", "k"); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		for range 3 {
			_, err := login(s.c.Node(1), "eve", "zaubertrank", "/")
			refusedWith(t, "a login while the server "+broken, err, loginRefusal)
		}
		if got := askAs(t, s.c.Node(1), func(r *http.Request) { r.SetBasicAuth("eve", "zaubertrank") }); !strings.HasPrefix(got, "503 ") {
			t.Errorf("HTTP while the server %s: %s", broken, got)
		}
		rpc := rpcAt(t, s.c.Node(1), "eve", "zaubertrank")
		if _, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue("eve", "m")}); status.Code(err) != codes.Unavailable {
			t.Errorf("gRPC while the server %s: %v", broken, err)
		}
		s.enter(t, 1, "guest", "guest")
		if metrics, err := s.c.Node(1).Fetch(t.Context(), "/metrics"); err != nil || !strings.Contains(string(metrics), "warren_auth_http_away 1") {
			t.Errorf("the server %s, and the metrics do not say so: %v", broken, err)
		}
		s.change(func() { s.code, s.hang = 0, nil })
		close(hang)
		s.enter(t, 2, "eve", "zaubertrank") // and is not held up
	}
	got := 0
	consumer, err := s.enter(t, 2, "eve", "zaubertrank").Channel()
	if err != nil {
		t.Fatal(err)
	}
	await(t, timeoutStart, "all messages", func() bool {
		_, ok, err := consumer.Get("eve", true)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			got++
		}
		return got == sent
	})
	for _, n := range s.c.Nodes() {
		if text := n.LogTail(); strings.Contains(text, "zaubertrank") {
			t.Errorf("a password is in the log: %s", text)
		}
	}
}

// oneWaits: a channel that waits for the server holds up neither what the same connection is sent nor its heartbeats, and is refused in the end.
func (s *httpLogins) oneWaits(t *testing.T, other *amqp.Channel) {
	t.Helper()
	if _, err := other.QueueDeclare("for-fay", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	hang := s.hang
	s.users["fay"], s.hang = "zaubertrank", nil
	s.mu.Unlock()
	conn, err := connectWith("amqp://"+s.c.Node(1).AMQPAddr()+"/", amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "fay", Password: "zaubertrank"}}, Heartbeat: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reads, asks := inConfirms(t, conn), inConfirms(t, conn)
	messages, err := reads.Consume("for-fay", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.change(func() { s.hang = hang })
	refused := make(chan error, 1)
	go func() { refused <- declared("never-asked", nil)(asks) }() // ends with the timeout of the question
	for began, n := time.Now(), 0; ; n++ {
		at := time.Now()
		if err := confirmedOn(other, "", "for-fay"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-messages:
			if took := time.Since(at); took > loginTimeout/2 {
				t.Errorf("a message for a connection that waits takes %v", took)
			}
		case <-time.After(timeoutReply):
			t.Fatal("no message")
		}
		select {
		case err := <-refused:
			refusedWith(t, "what was never asked", err, "configure access to queue 'never-asked'")
			if took := time.Since(began); took < loginTimeout/2 || took > 3*loginTimeout || n < 5 {
				t.Errorf("refused after %v and %d messages", took, n)
			}
			if conn.IsClosed() {
				t.Error("the connection is closed")
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestLoginsByHTTPAlone: without internal the users of the catalog do not log in, and with http/internal they do by the server's passwords.
func TestLoginsByHTTPAlone(t *testing.T) {
	t.Parallel()
	s := newHTTPLogins(t, 1, "http")
	s.user("ann", "zaubertrank administrator")
	startAll(t, s.c)
	n := s.c.Node(0)
	if _, err := login(n, "guest", "guest", "/"); err == nil {
		t.Error("guest of the catalog is let in")
	}
	s.enter(t, 0, "ann", "zaubertrank")
	mustCtl(t, n, "--user", "ann", "--password", "zaubertrank", "add_user", "ann", "inside")
	mustCtl(t, n, "--user", "ann", "--password", "zaubertrank", "set_permissions", "ann", "^ann", "^ann", "^ann")
	stopAll(t, s.c)
	s.backends("http/internal")
	startAll(t, s.c)
	s.user("bob", "zaubertrank administrator")
	for user, password := range map[string]string{"ann": "inside", "bob": "zaubertrank"} {
		if _, err := login(n, user, password, "/"); err == nil {
			t.Errorf("%s is let in by the password %s", user, password)
		}
	}
	conn := s.enter(t, 0, "ann", "zaubertrank")
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := declared("ann", nil)(ch); err != nil {
		t.Error(err)
	}
	refusedWith(t, "beyond the permissions of the catalog", declared("other", nil)(ch), "configure access to queue 'other'")
	if got := askAs(t, n, func(r *http.Request) { r.SetBasicAuth("ann", "zaubertrank") }); !strings.HasPrefix(got, `200 {"name":"ann","tags":["administrator"]`) {
		t.Error(got)
	}
}
