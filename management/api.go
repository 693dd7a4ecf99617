package management

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// Bounds of a request.
const (
	// timeoutPeers bounds what other nodes may take to answer.
	timeoutPeers = 3 * time.Second
	// requestBytesMax bounds a request's body.
	requestBytesMax = 1 << 20
	// timeoutLargeBody bounds reading a body that may be larger, in place of what the server gives to all.
	timeoutLargeBody = 5 * time.Minute
)

// Config is what the API is made of. All fields are required but LoginByCertificate, LoginByToken and Renew.
type Config struct {
	// Login checks a user's password; from is the client's address and port. Any error is a refusal, a *HeldUp or *Busy one for now.
	Login func(ctx context.Context, user, password, from string) (User, error)
	// LoginByCertificate finds the user that a verified certificate names, for requests over TLS
	// that show one and no password. Nil: there are none.
	LoginByCertificate func(ctx context.Context, c *x509.Certificate, from string) (User, error)
	// LoginByToken finds the user that a bearer token names.
	LoginByToken func(ctx context.Context, token, from string) (User, error)
	// Renew gives a user that has logged in the tags of now; the error is that of one who was deleted. Nil: users stay what they were.
	Renew func(broker.User) (broker.User, error)
	// HashPassword hashes a new password. The error is a *Busy, or says what is wrong with the password.
	HashPassword func(ctx context.Context, password, from string) (auth.PasswordHash, error)
	// Broker changes what is the cluster's, and tells of it.
	Broker Broker
	// HoldUp waits while publishers are held up by an alarm; reason is that of one that lasts until ctx ends, "" otherwise.
	HoldUp func(ctx context.Context) (reason string)
	// Health tells of this node's.
	Health Health
	// Replicas changes where queues' replicas are.
	Replicas Replicas
	// Shovels are those that the node runs.
	Shovels ShovelCrew
	// Steward lets nodes leave, and balances leaders.
	Steward Steward
	// Local is what concerns this node alone.
	Local Local
	// GossipKeys tells of the local node's keys.
	GossipKeys func() GossipKeys
	// Connections are the local node's client connections.
	Connections Connections
	// Cluster tells of the nodes and changes what they are.
	Cluster Cluster
	// Backups takes backups of the cluster.
	Backups backups
	// Definitions exports and imports them.
	Definitions definitionsService
	// Peers are the ids of the other nodes that are not known to be dead.
	Peers func() []string
	// Call asks another node: its API answers with [API.Answer].
	Call func(ctx context.Context, node string, req []byte) ([]byte, error)
	// Product names the program and its version to clients.
	Product func() (name, version string)
	// Churn tells what came and went on this node, as one object of the kind Churn.
	Churn stats.Source
	// Sampler has samples of what this node counts.
	Sampler *stats.Sampler
	Logger  *slog.Logger
}

// API serves the management API of one node. It is safe for concurrent use.
type API struct {
	cfg Config
	mux *http.ServeMux
	// patterns are those that mux has.
	patterns []string
	// bodyMax bounds the bodies of requests for a pattern, if it is not requestBytesMax.
	bodyMax map[string]int64
	tables  tables
	streams streams
	room    *room
	fetches *room // of messages that are taken from queues
	bodies  *room // of larger requests

	incomingSeen incomingSeen
	now          func() time.Time
}

// New returns the API.
func New(cfg Config) *API {
	a := newAPI(cfg)
	a.routeConnections()
	a.routeGossip()
	a.routeQueues()
	a.routeOverview()
	a.routeEvents()
	a.routeChannels()
	a.routeConsumers()
	a.routeQueueActions()
	a.routeExchanges()
	a.routeBindings()
	a.routeSmall()
	a.routeOpenAPI()
	a.routeLogins()
	a.routeParameters()
	a.routeShovels()
	a.routeOutboxes()
	a.routeClosings()
	a.routeMessages()
	a.routeLimits()
	a.routePublish()
	a.routeRoute()
	a.routeLocal()
	a.routeMemory()
	a.routeRedrives()
	a.routeDeadLetters()
	a.routePolicies()
	a.routePreviews()
	a.routeUsers()
	a.routePermissions()
	a.routeVhosts()
	a.routeMaintenance()
	a.routeBackups()
	a.routeDefinitions()
	a.routeRecovery()
	a.routeFlags()
	a.routeNodes()
	a.routeReplicas()
	a.routeReplicaStatus()
	a.routeGrow()
	a.routeHealth()
	a.routeSteward()
	return a
}

func newAPI(cfg Config) *API {
	return &API{cfg: cfg, mux: http.NewServeMux(), bodyMax: map[string]int64{}, room: newRoom(answersMade, 0), fetches: newRoom(answersFetched, fetchBytesMax), bodies: newBodies(), now: time.Now}
}

// NewStarting returns what a node answers that has only begun to start: what concerns its process alone. It knows no users, so that only
// requests AsOperator are answered.
func NewStarting(local Local, log *slog.Logger) *API {
	a := newAPI(Config{Local: local, Logger: log, Login: func(context.Context, string, string, string) (User, error) { return User{}, errNoLogin }})
	a.routeLocal()
	return a
}

// Knows tells whether there is an answer to a request's method and path.
func (a *API) Knows(r *http.Request) bool {
	_, pattern := a.mux.Handler(r)
	return pattern != ""
}

// ServeHTTP answers a request for a path under /api/.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := sameOrigin(r); err != nil {
		a.refuse(w, err)
		return
	}
	if Unclean(r) || isMarked(r) {
		a.refuse(w, errNotFound)
		return
	}
	r = trimSlash(markSlashes(r))
	h, pattern := a.mux.Handler(r)
	if pattern == "" {
		// The mux knows whether the path or only the method is wrong; the words
		// are ours.
		v := verdict{header: w.Header()}
		if h.ServeHTTP(&v, r); v.status == http.StatusMethodNotAllowed {
			a.refuse(w, errMethod)
			return
		}
		a.refuse(w, errNotFound)
		return
	}
	most := int64(requestBytesMax)
	if n, ok := a.bodyMax[pattern]; ok {
		most = n
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	a.mux.ServeHTTP(w, r)
}

// slashMark stands for a part of a path that is "%2F", the name of the default
// vhost: the mux takes it for the slash at the end of a path.
const slashMark = "\x00"

// Unclean tells whether the path has parts that are empty, "." or "..", in place of which a mux would send the client on to another
// path: that of another object, if a name was not escaped.
func Unclean(r *http.Request) bool {
	parts := strings.Split(strings.TrimSuffix(r.URL.EscapedPath(), "/"), "/")
	return slices.ContainsFunc(parts[min(1, len(parts)):], func(p string) bool { return p == "" || p == "." || p == ".." })
}

// isMarked tells whether a part of the path is slashMark already: it would be taken for "/".
func isMarked(r *http.Request) bool {
	return slices.Contains(strings.Split(r.URL.EscapedPath(), "/"), url.PathEscape(slashMark))
}

// wildcard finds the names of a pattern's parts.
var wildcard = regexp.MustCompile(`\{(\w+)\}`)

// markSlashes returns the request with slashMark in place of each "%2F" that stands alone.
func markSlashes(r *http.Request) *http.Request {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	marked := false
	for i, p := range parts {
		if strings.EqualFold(p, "%2F") {
			parts[i], marked = url.PathEscape(slashMark), true
		}
	}
	if !marked {
		return r
	}
	raw := strings.Join(parts, "/")
	path, err := url.PathUnescape(raw)
	if err != nil {
		return r // it was escaped rightly before
	}
	changed, target := *r, *r.URL
	target.Path, target.RawPath = path, raw
	changed.URL = &target
	return &changed
}

// trimSlash returns the request without a slash at the end of its path: RabbitMQ means the same with and without, and some of its clients
// always write one. One that is escaped ends a name, which is another than that without.
func trimSlash(r *http.Request) *http.Request {
	escaped := r.URL.EscapedPath()
	if !strings.HasSuffix(escaped, "/") || len(escaped) <= len("/api/") {
		return r
	}
	changed, target := *r, *r.URL
	target.Path, target.RawPath = strings.TrimSuffix(target.Path, "/"), strings.TrimSuffix(target.RawPath, "/")
	changed.URL = &target
	return &changed
}

// verdict keeps the status and the header of an answer, not its body.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdict) WriteHeader(status int)      { v.status = status }

// handle registers f for authenticated users. f returns what is to be sent as JSON,
// or nil for 204, or an error.
func (a *API) handle(pattern string, f func(*http.Request, User) (any, error)) {
	seen, room := new(sizes), a.room
	if pattern == patternFetch {
		room = a.fetches
	}
	a.serve(pattern, func(w http.ResponseWriter, r *http.Request) {
		u, err := a.authenticate(r)
		if err != nil {
			a.refuse(w, err)
			return
		}
		turn, err := room.begin(r, seen)
		if err != nil {
			a.refuse(w, err)
			return
		}
		defer turn.end()
		if _, large := a.bodyMax[pattern]; large {
			_ = http.NewResponseController(w).SetReadDeadline(a.now().Add(timeoutLargeBody)) // a connection has one
		} else {
			done, err := a.makeRoom(w, r)
			if err != nil {
				a.refuse(w, err)
				return
			}
			defer done()
		}
		body, err := a.audited(pattern, r, u, f)
		if err == nil {
			body, err = narrowed(r, body)
		}
		if err != nil {
			a.refuse(w, err)
			return
		}
		a.answer(w, body, turn)
	})
}
