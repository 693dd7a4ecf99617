package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warrenmq/warren/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oracle is a server of logins that writes down what it is asked.
type oracle struct {
	*httptest.Server

	answer atomic.Value // func(w http.ResponseWriter, path, form string)
	mu     sync.Mutex
	asked  []string
}

func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	form, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet {
		form = []byte(r.URL.RawQuery)
	}
	path := strings.TrimPrefix(r.URL.Path, "/auth/")
	o.mu.Lock()
	o.asked = append(o.asked, r.Method+" "+path+" "+string(form)+" "+r.Header.Get("Content-Type"))
	o.mu.Unlock()
	o.answer.Load().(func(http.ResponseWriter, string, string))(w, path, string(form))
}

// says has all questions answered with a text.
func (o *oracle) says(code int, text string) {
	o.answer.Store(func(w http.ResponseWriter, _, _ string) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	})
}

// questions returns what was asked since the last call.
func (o *oracle) questions() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.asked
	o.asked = nil
	return list
}

// ask returns an oracle that allows everything, and a server that asks it.
func ask(t *testing.T, change func(*Config)) (*Server, *oracle) {
	t.Helper()
	o := &oracle{}
	o.says(200, "allow")
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return dial(t, o.URL, change), o
}

func dial(t *testing.T, url string, change func(*Config)) *Server {
	t.Helper()
	cfg := Config{Timeout: 10 * time.Second, TTL: time.Hour, RefusalTTL: time.Hour, Parallel: 4, Waiting: 64, Log: slog.New(slog.DiscardHandler)}
	for p := range paths {
		cfg.URLs[p] = url + "/auth/" + p.String()
	}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func attempt(user, password string) auth.Attempt {
	return auth.Attempt{Credentials: auth.Credentials{User: user, Password: auth.Secret(password)}, Source: "s", Address: "127.0.0.1"}
}

func logIn(t *testing.T, s *Server) auth.Patient {
	t.Helper()
	got, err := s.LogIn(t.Context(), attempt("ann", "pw"))
	if err != nil {
		t.Fatal(err)
	}
	return got.Rights.(auth.Patient)
}

// TestQuestions: they are those that RabbitMQ 4.3.6 was seen to send, to the letter.
func TestQuestions(t *testing.T) {
	for _, post := range []bool{false, true} {
		s, o := ask(t, func(c *Config) { c.Post = post })
		o.says(200, "allow management Policymaker")
		got, err := s.LogIn(t.Context(), attempt("a b&ü", "p+w%=&x"))
		if err != nil || !slices.Equal(got.Tags, []string{"management", "policymaker"}) {
			t.Fatalf("%v, %v", got, err)
		}
		o.says(200, "allow")
		verified := auth.Attempt{Credentials: auth.Credentials{User: "CN=ann"}, Verified: true}
		if _, err := s.LogIn(t.Context(), verified); err != nil {
			t.Fatal(err)
		}
		r := got.Rights
		for what, ok := range map[string]bool{
			"enter": r.Enters("/"), "declare": r.Allows("/", auth.Configure, auth.Queue, "q1"), "publish": r.Allows("/", auth.Write, auth.Exchange, ""),
			"read": r.Allows("v w", auth.Read, auth.Exchange, "tx"), "key": r.Keys("/", "tx").Allows(auth.Write, "a.b"), "bind": r.Keys("/", "tx").Allows(auth.Read, "a b"),
		} {
			if !ok {
				t.Errorf("may not %s", what)
			}
		}
		method, end := "GET", " "
		if post {
			method, end = "POST", " application/x-www-form-urlencoded"
		}
		const user, tags = "username=a+b%26%C3%BC", "tags=management+policymaker"
		want := []string{
			"user " + user + "&password=p%2Bw%25%3D%26x",
			"user username=CN%3Dann",
			"vhost " + user + "&vhost=%2F&ip=127.0.0.1&" + tags,
			"resource " + user + "&vhost=%2F&resource=queue&name=q1&permission=configure&" + tags,
			"resource " + user + "&vhost=%2F&resource=exchange&name=amq.default&permission=write&" + tags,
			"resource " + user + "&vhost=v+w&resource=exchange&name=tx&permission=read&" + tags,
			"topic " + user + "&vhost=%2F&resource=topic&name=tx&permission=write&" + tags + "&routing_key=a.b&variable_map.username=a+b%26%C3%BC&variable_map.vhost=%2F",
			"topic " + user + "&vhost=%2F&resource=topic&name=tx&permission=read&" + tags + "&routing_key=a+b&variable_map.username=a+b%26%C3%BC&variable_map.vhost=%2F",
		}
		for i := range want {
			want[i] = method + " " + want[i] + end
		}
		if got := o.questions(); !slices.Equal(got, want) {
			t.Errorf("asked:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestAnswersCount: who is let in, with a server that answers well, badly, or not.
func TestAnswersCount(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  int
		text  string
		login error // of a login
		away  bool  // a permission that was given before counts on
	}{
		{"allow", 200, "allow", nil, false},
		{"created", 201, "allow", nil, false},
		{"deny", 200, "deny", auth.ErrLogin, false},
		{"nonsense", 200, "nonsense", auth.ErrAway, false},
		{"nothing", 204, "", auth.ErrAway, false},
		{"elsewhere", 302, "allow", auth.ErrAway, false},
		{"unauthorised", 401, "allow", auth.ErrAway, false},
		{"not found", 404, "allow", auth.ErrAway, false},
		{"too many", 429, "allow", auth.ErrAway, true},
		{"broken", 500, "allow", auth.ErrAway, true},
		{"long", 200, "allow" + strings.Repeat(" x", answerBytesMax), auth.ErrAway, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, o := ask(t, func(cfg *Config) { cfg.TTL, cfg.RefusalTTL = 0, 0 })
			before := logIn(t, s)
			reads := func(queue string) bool { return before.Allows("/", auth.Read, auth.Queue, queue) }
			if !before.Enters("/") || !reads("q") {
				t.Fatal("may not enter, or not read")
			}
			o.says(c.code, c.text)
			if _, err := s.LogIn(t.Context(), attempt("bob", "pw")); !errors.Is(err, c.login) {
				t.Errorf("a login: %v, want %v", err, c.login)
			}
			if got, want := reads("q"), c.login == nil || c.away; got != want {
				t.Errorf("what was allowed before: %v", got)
			}
			if got, want := reads("other"), c.login == nil; got != want {
				t.Errorf("what was never asked: %v", got)
			}
			if got, want := before.Enters("/"), c.login == nil; got != want {
				t.Errorf("a virtual host that was open before: %v", got)
			}
			if s.Figures().Away != c.away {
				t.Error("wrong about whether the server is away")
			}
		})
	}
}

// TestPasswordsAreKept: neither errors nor logs have passwords in them, which the URL of a GET has.
func TestPasswordsAreKept(t *testing.T) {
	var text strings.Builder
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	s := dial(t, "http://"+nobody.Addr().String(), func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	_, err = s.LogIn(t.Context(), attempt("ann", "geheim"))
	if !errors.Is(err, auth.ErrAway) || strings.Contains(err.Error()+text.String(), "geheim") || text.Len() == 0 {
		t.Errorf("%v, log %s", err, &text)
	}
}

// TestRemembered: an answer counts for its time, a refusal for its own, and passwords are told apart.
func TestRemembered(t *testing.T) {
	const ttl = 200 * time.Millisecond
	s, o := ask(t, func(c *Config) { c.TTL, c.RefusalTTL = ttl, 0 })
	r := logIn(t, s)
	for range 3 {
		if logIn(t, s); !r.Enters("/") || !logIn(t, s).Enters("/") {
			t.Fatal("may not enter")
		}
	}
	if got := o.questions(); len(got) != 2 {
		t.Errorf("asked %q", got)
	}
	if _, err := s.LogIn(t.Context(), attempt("ann", "other")); err != nil || len(o.questions()) != 1 {
		t.Errorf("another password is not asked about: %v", err)
	}
	if _, err := s.LogIn(t.Context(), auth.Attempt{Credentials: auth.Credentials{User: "ann"}, Verified: true}); err != nil || len(o.questions()) != 1 {
		t.Errorf("a certificate is not asked about: %v", err)
	}
	o.says(200, "deny")
	time.Sleep(ttl)
	for range 2 {
		if _, err := s.LogIn(t.Context(), attempt("ann", "pw")); !errors.Is(err, auth.ErrLogin) {
			t.Errorf("denied now: %v", err)
		}
		if r.Enters("/") {
			t.Error("enters what is denied now")
		}
	}
	if got := o.questions(); len(got) != 4 {
		t.Errorf("refusals that are not remembered: asked %q", got)
	}
	o.says(200, "allow")
	if !r.Enters("/") {
		t.Error("may not enter again")
	}
}

// TestRefusalsRemembered: they are for as long as they are to be.
func TestRefusalsRemembered(t *testing.T) {
	s, o := ask(t, nil)
	r := logIn(t, s)
	o.questions()
	o.says(200, "deny")
	for range 3 {
		if r.Enters("/") {
			t.Error("enters what is denied")
		}
	}
	if got := o.questions(); len(got) != 1 {
		t.Errorf("asked %q", got)
	}
}

// TestAskedOnce: many who want to know the same wait for one request, and one whose turn is spent without it leaves it to the next.
func TestAskedOnce(t *testing.T) {
	s, o := ask(t, func(c *Config) { c.Parallel = 1 })
	held, begun := make(chan struct{}), make(chan struct{}, 8)
	o.answer.Store(func(w http.ResponseWriter, _, _ string) {
		begun <- struct{}{}
		<-held
		_, _ = io.WriteString(w, "allow")
	})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { _, _ = s.LogIn(context.Background(), attempt("first", "pw")) })
	}
	<-begun
	no := errors.New("no")
	lost := make(chan error, 1)
	go func() { // waits for a turn, which it does not use; ends with it
		a := attempt("ann", "pw")
		a.Still = func() error { return no }
		_, err := s.LogIn(context.Background(), a)
		lost <- err
	}()
	for range 50 {
		all.Go(func() {
			if _, err := s.LogIn(context.Background(), attempt("ann", "pw")); err != nil && !errors.Is(err, no) {
				t.Error(err)
			}
		})
	}
	close(held)
	all.Wait()
	if err := <-lost; err != nil && !errors.Is(err, no) { // it may have waited for another's
		t.Error(err)
	}
	if got := o.questions(); len(got) != 2 {
		t.Errorf("asked %q", got)
	}
}

// TestBounded: no more than so many ask at a time, one more where it waits, and who has no turn is told in time.
func TestBounded(t *testing.T) {
	s, o := ask(t, func(c *Config) { c.Parallel, c.Waiting, c.Timeout = 2, 1, 300*time.Millisecond })
	held := make(chan struct{})
	o.answer.Store(func(http.ResponseWriter, string, string) { <-held })
	t.Cleanup(func() { close(held) })
	began := time.Now()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := s.LogIn(context.Background(), attempt("user"+string(rune('a'+i)), "pw")); !errors.Is(err, auth.ErrAway) {
				t.Errorf("a server that hangs: %v", err)
			}
		})
	}
	all.Wait()
	f := s.Figures()
	if took := time.Since(began); took > 5*time.Second || len(o.questions()) > 3 || f.Busy < 17 {
		t.Errorf("took %v, figures %+v", took, f)
	}
}

// TestAway: while the server hangs, what it has allowed before is there at once, also when it is old, and the server is tried in the background.
func TestAway(t *testing.T) {
	s, o := ask(t, func(c *Config) { c.TTL, c.Timeout = 0, 500*time.Millisecond })
	r := logIn(t, s)
	waits := 0
	r = r.Waiting(func() { waits++ }).(auth.Patient)
	k := r.Keys("/", "tx")
	if !k.Allows(auth.Write, "a") || waits != 1 {
		t.Fatalf("not allowed, or waited %d times", waits)
	}
	held := make(chan struct{})
	hangs := func(http.ResponseWriter, string, string) { <-held }
	o.answer.Store(hangs)
	if !k.Allows(auth.Write, "a") { // finds out that it is away
		t.Error("what was allowed before is not any more")
	}
	for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
		at := time.Now()
		if !k.Allows(auth.Write, "a") || time.Since(at) > 300*time.Millisecond {
			t.Fatalf("what was allowed before took %v", time.Since(at))
		}
	}
	if k.Allows(auth.Write, "b") {
		t.Error("what was never asked is allowed")
	}
	f := s.Figures()
	if got := len(o.questions()); !f.Away || f.Counts[Topic].Old < 10 || got < 4 || got > 8 {
		t.Errorf("asked %d times, %+v", got, f)
	}
	close(held)
	o.says(200, "deny")
	for began := time.Now(); k.Allows(auth.Write, "a"); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the server is back and denies, and nobody asks")
		}
	}
	if s.Figures().Away {
		t.Error("still away")
	}
}

// TestClose: who waits is told, and nothing stays.
func TestClose(t *testing.T) {
	s, o := ask(t, func(c *Config) { c.Timeout = time.Hour })
	held, begun := make(chan struct{}), make(chan struct{}, 1)
	o.answer.Store(func(http.ResponseWriter, string, string) {
		begun <- struct{}{}
		<-held
	})
	t.Cleanup(func() { close(held) })
	ended := make(chan error, 1)
	go func() { // ends with Close
		_, err := s.LogIn(context.Background(), attempt("ann", "pw"))
		ended <- err
	}()
	<-begun
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, auth.ErrAway) {
		t.Error(err)
	}
}

// TestTLS: the server is verified, shown a certificate if there is one, and files that cannot be read are told of.
func TestTLS(t *testing.T) {
	o := &oracle{}
	o.says(200, "allow")
	o.Server = httptest.NewUnstartedServer(o)
	o.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	o.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	o.StartTLS()
	t.Cleanup(o.Close)
	dir := t.TempDir()
	ca, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")
	own := o.TLS.Certificates[0]

	for file, text := range map[string][]byte{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}), key: testKey(t, own)} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"unknown authority": {func(c *Config) { c.CertFile, c.KeyFile = ca, key }, auth.ErrAway},
		"no certificate":    {func(c *Config) { c.CAFile = ca }, auth.ErrAway},
		"both":              {func(c *Config) { c.CAFile, c.CertFile, c.KeyFile = ca, ca, key }, nil},
	} {
		if _, err := dial(t, o.URL, c.change).LogIn(t.Context(), attempt("ann", "pw")); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, cfg := range map[string]Config{"no file": {CAFile: ca + "x"}, "no certificate": {CAFile: key}, "no key": {CertFile: ca, KeyFile: key + "x"}} {
		cfg.Parallel = 1
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestServerClosesConnections: a question is asked again if the server has closed the connection in between.
func TestServerClosesConnections(t *testing.T) {
	for _, post := range []bool{false, true} {
		s, o := ask(t, func(c *Config) { c.TTL, c.Post = 0, post })
		r := logIn(t, s)
		for i := range 20 {
			o.CloseClientConnections()
			if !r.Enters("/") || s.Figures().Counts[Vhost].Failed > 0 {
				t.Fatalf("POST %v, connection %d: %+v", post, i, s.Figures())
			}
		}
	}
}

// testKey is the private key of a certificate, as PEM.
func testKey(t *testing.T, c tls.Certificate) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
