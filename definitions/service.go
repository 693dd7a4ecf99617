package definitions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
)

// LevelNoted is the level of the cluster from which on it knows which definitions were loaded last.
const LevelNoted = 2

// Node is what a [Service] works on, a *[broker.Broker].
type Node interface {
	Cluster
	// Fresh is the catalog with everything that was committed when the call was made.
	Fresh(ctx context.Context) (*catalog.View, error)
}

// Service exports and imports definitions through one node, one import at a time. It is safe for concurrent use.
type Service struct {
	node        Node
	source      func() Source
	defaultUser string
	hashing     auth.Hashing
	log         *slog.Logger
	busy        chan struct{} // holds a token while an import is under way
}

// NewService returns a service. source tells where exports come from; the user of that name stays as it is; passwords in the clear
// are hashed by hashing.
func NewService(node Node, source func() Source, defaultUser string, hashing auth.Hashing, log *slog.Logger) *Service {
	return &Service{node: node, source: source, defaultUser: defaultUser, hashing: hashing, log: log, busy: make(chan struct{}, 1)}
}

// Export returns what the cluster has, or one virtual host of it; nil if there is no such.
func (s *Service) Export(ctx context.Context, vhost string) (*Document, error) {
	view, err := s.node.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	if vhost != "" && view.Vhost(vhost) == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	d := Export(view, vhost, s.source())
	if n := len(d.Altered); n > 0 {
		s.log.Warn("exported definitions have other arguments than there are: bytes that are not UTF-8 are replaced", "objects", n, "first", d.Altered[0])
	}
	return d, nil
}

// Request is what an import is asked for.
type Request struct {
	// VHost, if not empty, takes everything. It exists.
	VHost string
	// User imports; empty: the default user, as when a node loads a file.
	User string
	// DryRun changes nothing. SkipUnsupported is [Options.SkipUnsupported].
	DryRun, SkipUnsupported bool
	// SkipUnchanged does not look at what was loaded last in this way, and notes what is loaded now.
	SkipUnchanged bool
}

// Hash names the text of a document.
func Hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Import imports a document and tells what became of it, and the virtual hosts whose policies it has changed. The error is
// [*Invalid], or a [*broker.Error] if something failed on the way.
func (s *Service) Import(ctx context.Context, raw []byte, req Request) (r Report, policies []string, err error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return Report{}, nil, ctx.Err()
	}
	view, err := s.node.Fresh(ctx)
	if err != nil {
		return Report{}, nil, err
	}
	hash := Hash(raw)
	if req.SkipUnchanged && view.DefinitionsHash() == hash {
		return Report{DryRun: req.DryRun, Unchanged: true, Counts: map[Kind]Count{}, Changes: []Change{}, Skipped: []Note{}}, nil, nil
	}
	d, err := Parse(raw)
	if err != nil {
		return Report{}, nil, err
	}
	opt := Options{VHost: req.VHost, DefaultUser: s.defaultUser, User: cmp.Or(req.User, s.defaultUser), Hashing: s.hashing, SkipUnsupported: req.SkipUnsupported}
	p, err := Make(d, view, opt)
	if err != nil {
		return Report{}, nil, err
	}
	if req.DryRun {
		return p.Preview(), nil, nil
	}
	if r, policies, err = s.run(ctx, d, p, opt); err == nil && req.SkipUnchanged && req.VHost == "" && view.Level() >= LevelNoted {
		_, err = s.node.Define(ctx, &catalog.NoteDefinitions{Hash: hash})
	}
	s.log.Info("definitions imported", "vhost", req.VHost, "result", r.Summary(), "err", err)
	for _, n := range r.Skipped {
		s.log.Warn("left out of an import of definitions", "what", n.String(), "why", n.Reason)
	}
	for _, n := range r.Failed {
		s.log.Error("not imported", "what", n.String(), "why", n.Reason)
	}
	return r, policies, err
}

// plansMax bounds how often an import is planned.
const plansMax = 5

// run runs a plan. If somebody has deleted what it was to change, or what that needs, it goes on with a plan for what is there now: the document says what is to be
// made. Users may come and go all the time, as where passwords are leased.
func (s *Service) run(ctx context.Context, d *Document, p *Plan, opt Options) (r Report, policies []string, err error) {
	for plans := 1; ; plans++ {
		before := r
		r, err = p.Run(ctx, s.node)
		r.behind(&before)
		for _, name := range p.Vhosts() {
			if !slices.Contains(policies, name) {
				policies = append(policies, name)
			}
		}
		if e, ok := errors.AsType[*broker.Error](err); !ok || e.Kind != broker.NotFound || plans == plansMax {
			return r, policies, err
		}
		view, stale := s.node.Fresh(ctx)
		if stale != nil {
			return r, policies, err
		}
		next, invalid := Make(d, view, opt)
		if invalid != nil { // it was valid; the error says what has gone
			return r, policies, err
		}
		p = next
	}
}

// Check tells what of a document a cluster refuses that has nothing but its default user. The error is [*Invalid].
func Check(raw []byte, defaultUser string) error {
	d, err := Parse(raw)
	if err != nil {
		return err
	}
	empty := catalog.NewCopy()
	if _, err := empty.Apply(1, &catalog.Found{ClusterID: "new", Admin: auth.User{Name: defaultUser}}); err != nil {
		return err
	}
	_, err = Make(d, empty.View(), Options{DefaultUser: defaultUser})
	return err
}
