package remote

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/gate"
)

const (
	// loginsKnown is how many logins are remembered, and answersKnown how many answers with each of them.
	loginsKnown, answersKnown = 4096, 256
	// askedAgain is how often a server is tried that does not answer.
	askedAgain = time.Second
)

// Config says what to ask where. All fields but those of files, Log, TTL and RefusalTTL are required.
type Config struct {
	// URLs are where the questions are asked, by [Path]. Those for permissions may be empty if nobody is to be asked about them.
	URLs [4]string
	// Post sends the parameters as a form; otherwise they are in the query of GET.
	Post bool
	// CAFile has the certificates (PEM) that a server of https is verified with; empty: those of the system. CertFile and KeyFile are what is shown to it, empty:
	// nothing. They are read for each connection.
	CAFile, CertFile, KeyFile string
	// Timeout is for an answer, with the wait for a turn to ask. It should be less than clients wait for a handshake, which is ten seconds.
	Timeout time.Duration
	// TTL is how long an answer counts without being asked for again, RefusalTTL the same if it is no. 0: not at all, but for those who ask at the same time.
	TTL, RefusalTTL time.Duration
	// Parallel is how many requests are under way at a time, and Waiting how many more wait for a turn.
	Parallel, Waiting int
	// Log is told when the server does not answer, and when it does again. Nil: the default one.
	Log *slog.Logger
}

// Server asks. It is safe for concurrent use. Close ends what it has under way.
type Server struct {
	cfg    Config
	key    [sha256.Size]byte
	client *http.Client
	gate   *gate.Gate
	logins *memory[mark]
	counts counts

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	tries sync.WaitGroup // requests in the background, of which there is one at a time

	mu     sync.Mutex
	away   error     // why the last request had no answer, nil if it had one
	next   time.Time // a server that is away is not tried before
	trying bool      // the request in the background is under way
}

// mark stands for a user and a password.
type mark [sha256.Size]byte

// login is what somebody has been let in with, and what they may do: the same for all connections with it.
type login struct {
	user string
	tags []string
	text string // the tags in questions
	// answers are what was asked about the login.
	answers *memory[question]
}

// New returns a server that nobody has been asked at yet. The error says which file cannot be used.
func New(cfg Config) (*Server, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	s := &Server{cfg: cfg, gate: gate.New(cfg.Parallel, cfg.Waiting), logins: newMemory[mark](loginsKnown)}
	if _, err := s.tlsConfig(); err != nil {
		return nil, err
	}
	_, _ = rand.Read(s.key[:]) // never fails, by its documentation
	s.client = s.newClient()
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends all requests; who waits for one is told that the server is away. It may be called more than once.
func (s *Server) Close() error {
	s.stop()
	s.tries.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// LogIn asks who may log in. The error wraps [auth.ErrLogin] or [auth.ErrAway], which what is no answer counts as, or is that of the attempt's Still. It takes no
// longer than the timeout, whatever becomes of ctx, and not long after Close.
func (s *Server) LogIn(_ context.Context, a auth.Attempt) (auth.Admission, error) {
	got, l, err := s.whether(a)
	switch {
	case errors.Is(err, errUnusable):
		return auth.Admission{}, fmt.Errorf("%w: %w", auth.ErrAway, err)
	case err != nil:
		return auth.Admission{}, err
	case !got.allowed:
		return auth.Admission{}, fmt.Errorf("%w: the server of logins denies user '%s'", auth.ErrLogin, a.User)
	}
	return auth.Admission{Tags: l.tags, Rights: Rights{s: s, l: l, ip: a.Address}}, nil
}

// whether returns what the server says of an attempt, or has said a moment ago.
func (s *Server) whether(a auth.Attempt) (answer, *login, error) {
	k := s.mark(a)
	if got, l, ok := s.logins.fresh(k, time.Now()); ok {
		s.counts.remember(User)
		return got, l, nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Timeout)
	defer cancel()
	for {
		under, mine, before := s.logins.begin(k)
		if mine {
			s.askLogin(ctx, k, under, before, a)
		}
		select {
		case <-under.ended:
		case <-ctx.Done():
			return answer{}, nil, fmt.Errorf("%w: %w", auth.ErrAway, ctx.Err())
		}
		if mine || !under.skipped {
			return under.got, under.login, under.err
		}
	}
}

// askLogin asks about a login for all who wait for that.
func (s *Server) askLogin(ctx context.Context, k mark, under *asking, before *login, a auth.Attempt) {
	defer func() { s.logins.end(k, under, s.until(under.got)) }()
	under.got, under.skipped, under.err = s.ask(ctx, User, encodeUser(a), a.Source, a.Still)
	if under.err != nil || !under.got.allowed {
		return
	}
	under.login = before // with what it has been told
	if before == nil || !slices.Equal(before.tags, under.got.tags) {
		under.login = &login{user: a.User, tags: under.got.tags, text: strings.Join(under.got.tags, " "), answers: newMemory[question](answersKnown)}
	}
}

// until is how long an answer of now counts.
func (s *Server) until(a answer) time.Time {
	if a.allowed {
		return time.Now().Add(s.cfg.TTL)
	}
	return time.Now().Add(s.cfg.RefusalTTL)
}

// about asks something about a login, once for all who want to know it now.
func (s *Server) about(l *login, q question) (answer, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Timeout)
	defer cancel()
	under, mine, _ := l.answers.begin(q)
	if mine {
		s.askAbout(ctx, l, q, under)
	}
	select {
	case <-under.ended:
		return under.got, under.err
	case <-ctx.Done():
		return answer{}, fmt.Errorf("%w: %w", auth.ErrAway, ctx.Err())
	}
}

func (s *Server) askAbout(ctx context.Context, l *login, q question, under *asking) {
	defer func() { l.answers.end(q, under, s.until(under.got)) }()
	under.got, _, under.err = s.ask(ctx, q.path, q.encode(l.user, l.text), "user "+l.user, nil)
}

// isAway tells whether the last request had no answer. If so and it is time, the same is asked again in the background.
func (s *Server) isAway(l *login, q question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil {
		return false
	}
	if !s.trying && !time.Now().Before(s.next) && s.ctx.Err() == nil {
		s.trying = true
		s.tries.Go(func() { // ends with the timeout, or Close, which waits for it
			_, _ = s.about(l, q) // what was remembered counts, or what this has found
			s.mu.Lock()
			defer s.mu.Unlock()
			s.trying = false
		})
	}
	return true
}

// answered notes whether a request had an answer.
func (s *Server) answered(err error) {
	s.mu.Lock()
	was := s.away
	if s.away = nil; errors.Is(err, auth.ErrAway) {
		s.away, s.next = err, time.Now().Add(askedAgain)
	}
	now := s.away
	s.mu.Unlock()
	switch {
	case now != nil && was == nil && s.ctx.Err() == nil:
		s.cfg.Log.Warn("the server of logins does not answer: nobody is let in by it anew, and what it has permitted counts on", "err", err)
	case now == nil && was != nil:
		s.cfg.Log.Info("the server of logins answers again")
	}
}

func (s *Server) mark(a auth.Attempt) (m mark) {
	h := hmac.New(sha256.New, s.key[:])
	for _, text := range []string{a.User, string(a.Password)} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = h.Write(n[:]) // never fails
		_, _ = h.Write([]byte(text))
	}
	if a.Verified {
		_, _ = h.Write([]byte{1})
	}
	h.Sum(m[:0])
	return m
}
