package recovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/transport"
)

// Methods of the mesh this package handles.
const (
	MethodSuccession uint8 = 0x60
	MethodSeed       uint8 = 0x61
)

// Bounds of what nodes tell each other.
const (
	messageVersion  = 1
	messageBytesMax = 1 << 20
	seedChunk       = 1 << 20
	seedBytesMax    = 1 << 30
)

// codeRefused is the code of what a node does not do.
const codeRefused = transport.CodeFirstFree + 110

// verb is what a node is asked for.
type verb string

const (
	doSurvey  verb = "survey"
	doPromise verb = "promise"
	doPrepare verb = "prepare"
	doFound   verb = "found"
	doAbandon verb = "abandon"
)

// message is a question of the node that conducts a recovery.
type message struct {
	Version    int                   `json:"version"`
	Do         verb                  `json:"do"`
	Lost       []string              `json:"lost,omitempty"`       // survey
	Succession *bootstrap.Succession `json:"succession,omitempty"` // promise
	ID         string                `json:"id,omitempty"`         // prepare, found, abandon
	Keep       *Survey               `json:"keep,omitempty"`       // prepare
	Offset     uint64                `json:"offset,omitempty"`     // of MethodSeed
}

// reply is the answer.
type reply struct {
	Version int     `json:"version"`
	Survey  *Survey `json:"survey,omitempty"` // survey, promise
	Sum     string  `json:"sum,omitempty"`    // prepare
}

// Copy is a node's replica of the catalog.
type Copy interface {
	Salvage() (*catalog.Salvaged, error)
	Freeze() error
	LeaderID() NodeID
}

// Local is a node's own part in recoveries. Its methods may be called at any time, by several.
type Local struct {
	Identity *bootstrap.Identity
	// Part is the catalog's folder in the data directory.
	Part string
	// Copy returns the node's replica, nil while it is not open.
	Copy func() Copy
	// Met are the nodes that gossip hears of, Linked tells whether there is a link to a node.
	Met    func() []NodeID
	Linked func(NodeID) bool
	// Call asks another node.
	Call func(ctx context.Context, n NodeID, method uint8, req []byte) ([]byte, error)
	// Renew has the node built anew from its folder, soon: its promise was taken back, or founded. It must not wait.
	Renew func(why string)

	mu     sync.Mutex // one step at a time
	seedMu sync.Mutex
	seed   []byte // what others fetch of this node
	seedID string // of the succession that it is for
}

var errNotOpen = errors.New("the node has not opened its copy of the catalog yet")

// Survey tells what this node has.
func (l *Local) Survey(lost []string) (*Survey, error) {
	c := l.Copy()
	if c == nil {
		return nil, errNotOpen
	}
	found, err := c.Salvage()
	if err != nil {
		return nil, err
	}
	return l.describe(c, found, lost), nil
}

func (l *Local) describe(c Copy, found *catalog.Salvaged, lost []string) *Survey {
	s := &Survey{
		Node: l.Identity.NodeID(), Cluster: l.Identity.ClusterID(), Term: found.LastTerm, Index: found.Last,
		Leader: c.LeaderID(), Met: l.Met(),
	}
	for _, server := range found.Servers {
		if server.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, NodeID(server.ID))
		}
	}
	for n := range found.View.Nodes() {
		if n.Superseded {
			s.Replaced = append(s.Replaced, n.ID)
		} else {
			s.Nodes = append(s.Nodes, n.ID)
		}
	}
	for _, n := range append(slices.Clone(s.Nodes), s.Met...) {
		if l.Linked(n) && !slices.Contains(s.Linked, n) {
			s.Linked = append(s.Linked, n)
		}
	}
	for q := range found.View.AllQueues() {
		if q.Kind != catalog.Replicated {
			continue
		}
		left := 0
		for _, m := range q.Members {
			if n := found.View.Node(m); n != nil && !n.Superseded && namedAs(m, lost) == "" {
				left++
			}
		}
		s.Queues.All++
		switch {
		case left == 0:
			s.Queues.Gone++
		case 2*left <= len(q.Members):
			s.Queues.Minority++
		}
	}
	return s
}

// Promise binds the node, and ends its part in the present catalog before it tells what that has.
func (l *Local) Promise(s *bootstrap.Succession) (*Survey, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, self := l.Copy(), l.Identity.NodeID()
	if c == nil {
		return nil, errNotOpen
	}
	if c.LeaderID() == self {
		return nil, errors.New("it leads the catalog")
	}
	had, err := c.Salvage()
	if err != nil {
		return nil, err
	}
	for _, n := range s.Lost {
		// One with an empty folder that waits to be let in was asked by who conducts this: it has nothing.
		if l.Linked(n) && knows(had, n) {
			return nil, fmt.Errorf("it is linked to node '%s', which is named as lost", n)
		}
	}
	for _, n := range l.Met() {
		if !slices.Contains(s.Members, n) && !slices.Contains(s.Lost, n) {
			return nil, fmt.Errorf("it hears of node '%s', which was not asked", n)
		}
	}
	if err := l.Identity.PromiseSuccession(*s); err != nil {
		return nil, err
	}
	if err := c.Freeze(); err != nil {
		return nil, err
	}
	found, err := c.Salvage()
	if err != nil {
		return nil, err
	}
	return l.describe(c, found, texts(s.Lost)), nil
}

// knows tells whether a node is, or was, in a catalog.
func knows(s *catalog.Salvaged, n NodeID) bool {
	return s.View.Node(n) != nil || slices.ContainsFunc(s.Servers, func(v raft.Server) bool { return NodeID(v.ID) == n })
}

// Prepare makes what the node goes on from, durably, and returns its sum.
func (l *Local) Prepare(ctx context.Context, id string, keep *Survey) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.Identity.Succession()
	if s == nil || s.ID != id {
		return "", fmt.Errorf("this node has not promised itself to cluster %s", id)
	}
	raw, err := l.obtain(ctx, s, keep)
	if err != nil {
		return "", err
	}
	v, err := catalog.ReadSnapshot(bytes.NewReader(raw))
	if err != nil {
		return "", err
	}
	if lives := v.Lives(); v.ClusterID() != id || len(lives) == 0 || lives[len(lives)-1].ClusterID != s.Former || lives[len(lives)-1].Last != keep.Index {
		return "", fmt.Errorf("what it got is of cluster %s, not what was asked for", v.ClusterID())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), l.Identity.ReadySuccession(id, l.Part, func(dir string) error {
		return catalog.MakeSuccessor(dir, v, s.Members, keep.Term+1)
	})
}

// obtain makes the snapshot that the next life begins with, or fetches it.
func (l *Local) obtain(ctx context.Context, s *bootstrap.Succession, keep *Survey) ([]byte, error) {
	if keep.Node != l.Identity.NodeID() {
		return l.fetch(ctx, keep.Node, s.ID)
	}
	c := l.Copy()
	if c == nil { // it was started again since it promised
		return nil, errNotOpen
	}
	found, err := c.Salvage()
	if err != nil {
		return nil, err
	}
	if found.Last != keep.Index || found.LastTerm != keep.Term {
		return nil, fmt.Errorf("its copy ends at %d/%d, not at %d/%d", found.LastTerm, found.Last, keep.Term, keep.Index)
	}
	v, err := found.Succeed(catalog.Succession{ClusterID: s.ID, Lost: s.Lost})
	if err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	if err := v.WriteSnapshot(&raw); err != nil {
		return nil, err
	}
	l.seedMu.Lock()
	defer l.seedMu.Unlock()
	l.seed, l.seedID = raw.Bytes(), s.ID
	return raw.Bytes(), nil
}

// fetch gets the snapshot from the node that made it.
func (l *Local) fetch(ctx context.Context, from NodeID, id string) ([]byte, error) {
	var raw []byte
	for {
		req, err := json.Marshal(message{Version: messageVersion, ID: id, Offset: uint64(len(raw))})
		if err != nil {
			return nil, err
		}
		b, err := l.Call(ctx, from, MethodSeed, req)
		if err != nil {
			return nil, err
		}
		total, n := binary.Uvarint(b)
		if n <= 0 || total > seedBytesMax || len(b) == n || uint64(len(raw)+len(b)-n) > total {
			return nil, fmt.Errorf("node '%s' sent a part of %d bytes at %d of %d", from, len(b), len(raw), total)
		}
		if raw = append(raw, b[n:]...); uint64(len(raw)) == total {
			return raw, nil
		}
	}
}

// HandleSeed answers MethodSeed.
func (l *Local) HandleSeed(_ context.Context, _ NodeID, req []byte) ([]byte, error) {
	m, err := decodeMessage(req)
	if err != nil {
		return nil, refusal(err)
	}
	l.seedMu.Lock()
	defer l.seedMu.Unlock()
	if m.ID == "" || m.ID != l.seedID || m.Offset >= uint64(len(l.seed)) {
		return nil, refusal(fmt.Errorf("it has nothing of cluster %.64q at %d", m.ID, m.Offset))
	}
	part := l.seed[m.Offset:]
	return append(binary.AppendUvarint(nil, uint64(len(l.seed))), part[:min(len(part), seedChunk)]...), nil
}

// Found takes the node into the next life.
func (l *Local) Found(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Identity.FoundSuccession(id, l.Part)
}

// Abandon takes the promise back. The node is to be built anew if it was bound by that.
func (l *Local) Abandon(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.Identity.Succession()
	if s == nil || s.ID != id {
		return nil
	}
	if err := l.Identity.DropSuccession(id); err != nil {
		return err
	}
	l.Renew("the recovery of the catalog was given up")
	return nil
}

// Consider acts on what another node says of itself (bootstrap.MethodStatus), asked after promised was read. The error is not nil if this storage does not
// belong to the cluster any more.
func (l *Local) Consider(promised *bootstrap.Succession, answer []byte) (lost string, err error) {
	fate, id, why, err := l.Identity.Consider(promised, answer)
	if err != nil {
		return "", err
	}
	switch fate {
	case bootstrap.FateFounded:
		if err := l.Found(id); err != nil {
			return "", err
		}
		l.Renew("the cluster goes on in its next life: " + why)
	case bootstrap.FateAbandoned:
		return "", l.Abandon(id)
	case bootstrap.FateLost:
		return why, nil
	}
	return "", nil
}

// Handle answers MethodSuccession.
func (l *Local) Handle(ctx context.Context, _ NodeID, req []byte) ([]byte, error) {
	m, err := decodeMessage(req)
	if err != nil {
		return nil, refusal(err)
	}
	r := reply{Version: messageVersion}
	switch {
	case m.Do == doSurvey:
		r.Survey, err = l.Survey(m.Lost)
	case m.Do == doPromise && m.Succession != nil:
		r.Survey, err = l.Promise(m.Succession)
	case m.Do == doPrepare && m.Keep != nil:
		r.Sum, err = l.Prepare(ctx, m.ID, m.Keep)
	case m.Do == doFound:
		if err = l.Found(m.ID); err == nil {
			l.Renew("the cluster goes on in its next life")
		}
	case m.Do == doAbandon:
		err = l.Abandon(m.ID)
	default:
		err = fmt.Errorf("it does not know how to %.32q", m.Do)
	}
	if err != nil {
		return nil, refusal(err)
	}
	return json.Marshal(r)
}

func refusal(err error) error { return &transport.RemoteError{Code: codeRefused, Text: err.Error()} }

func decodeMessage(raw []byte) (*message, error) {
	m := new(message)
	if err := decode(raw, m, &m.Version); err != nil {
		return nil, err
	}
	if m.Succession != nil {
		if err := m.Succession.Validate(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func decode(raw []byte, to any, version *int) error {
	if len(raw) > messageBytesMax {
		return fmt.Errorf("message of %d bytes, the maximum is %d", len(raw), messageBytesMax)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode a message: there is more behind it")
	}
	if *version != messageVersion {
		return fmt.Errorf("message of version %d, this program knows version %d", *version, messageVersion)
	}
	return nil
}

// Party is this node with its way to the others, as Peers.
type Party struct{ *Local }

// Self implements Peers.
func (p Party) Self() NodeID { return p.Identity.NodeID() }

func (p Party) ask(ctx context.Context, n NodeID, m message) (*reply, error) {
	m.Version = messageVersion
	req, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	raw, err := p.Call(ctx, n, MethodSuccession, req)
	if err != nil {
		return nil, err
	}
	r := new(reply)
	return r, decode(raw, r, &r.Version)
}

func (p Party) askSurvey(ctx context.Context, n NodeID, m message) (*Survey, error) {
	r, err := p.ask(ctx, n, m)
	if err == nil && (r.Survey == nil || r.Survey.Node != n) {
		err = errors.New("its answer is not its own")
	}
	if err != nil {
		return nil, err
	}
	return r.Survey, nil
}

// Survey implements Peers.
func (p Party) Survey(ctx context.Context, n NodeID, lost []string) (*Survey, error) {
	if n == p.Self() {
		return p.Local.Survey(lost)
	}
	return p.askSurvey(ctx, n, message{Do: doSurvey, Lost: lost})
}

// Promise implements Peers.
func (p Party) Promise(ctx context.Context, n NodeID, s *bootstrap.Succession) (*Survey, error) {
	if n == p.Self() {
		return p.Local.Promise(s)
	}
	return p.askSurvey(ctx, n, message{Do: doPromise, Succession: s})
}

// Prepare implements Peers.
func (p Party) Prepare(ctx context.Context, n NodeID, id string, keep *Survey) (string, error) {
	if n == p.Self() {
		return p.Local.Prepare(ctx, id, keep)
	}
	r, err := p.ask(ctx, n, message{Do: doPrepare, ID: id, Keep: keep})
	if err != nil {
		return "", err
	}
	return r.Sum, nil
}

// Found implements Peers. This node is to be built anew by the caller, once the others were told.
func (p Party) Found(ctx context.Context, n NodeID, id string) error {
	if n == p.Self() {
		return p.Local.Found(id)
	}
	_, err := p.ask(ctx, n, message{Do: doFound, ID: id})
	return err
}

// Abandon implements Peers.
func (p Party) Abandon(ctx context.Context, n NodeID, id string) error {
	if n == p.Self() {
		return p.Local.Abandon(id)
	}
	_, err := p.ask(ctx, n, message{Do: doAbandon, ID: id})
	return err
}
