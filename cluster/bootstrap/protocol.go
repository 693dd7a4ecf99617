package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/transport"
)

// Methods of the mesh this package handles. They are called by address, by nodes that
// are in no cluster yet.
const (
	MethodStatus  uint8 = 0x18
	MethodPromise uint8 = 0x19
	MethodFound   uint8 = 0x1a
)

// OpenMethod reports whether a method may be called by nodes outside the cluster. It has the
// form of transport.Config.OpenCall.
func OpenMethod(method uint8) bool {
	return method == MethodStatus || method == MethodPromise || method == MethodFound
}

// Messages are JSON with a version.
const (
	messageVersion  = 1
	messageBytesMax = 64 << 10
)

// status is a node's answer to who it is.
type status struct {
	Version int     `json:"version"`
	Node    NodeID  `json:"node"`
	Expect  int     `json:"expect"`
	Promise *pledge `json:"promise,omitempty"`
	Cluster *pledge `json:"cluster,omitempty"`
	// Restored and Copy are those of the node's record.
	Restored *pledge `json:"restored,omitempty"`
	Copy     string  `json:"copy,omitempty"`
	// Succession is what the node has promised itself to while it belongs to Cluster; Former are the lives of that before.
	Succession *Succession `json:"succession,omitempty"`
	Former     []string    `json:"former,omitempty"`
}

// request asks for a promise, or tells that the cluster is founded.
type request struct {
	Version int    `json:"version"`
	From    NodeID `json:"from"`
	Pledge  pledge `json:"pledge"`
}

// codeRefused is the code of refused promises between nodes.
const codeRefused = transport.CodeFirstFree + 100

// errRefused reports that a node must not do what it was asked for.
var errRefused = errors.New("refused")

func decodeMessage(raw []byte, v any, version *int) error {
	if len(raw) > messageBytesMax {
		return fmt.Errorf("message of %d bytes, the maximum is %d", len(raw), messageBytesMax)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("decode a message: %w", err)
	}
	if *version != messageVersion {
		return fmt.Errorf("message of version %d, this program knows version %d", *version, messageVersion)
	}
	return nil
}

func decodeStatus(raw []byte) (*status, error) {
	s := new(status)
	if err := decodeMessage(raw, s, &s.Version); err != nil {
		return nil, err
	}
	for _, p := range []*pledge{s.Promise, s.Cluster, s.Restored} {
		if p != nil {
			if err := p.validate(); err != nil {
				return nil, err
			}
		}
	}
	if s.Restored != nil && !validUUID(s.Copy) {
		return nil, fmt.Errorf("a restored folder with the uuid %.64q", s.Copy)
	}
	if len(s.Former) > formerMax {
		return nil, fmt.Errorf("%d former lives, the maximum is %d", len(s.Former), formerMax)
	}
	return s, nil
}

func decodeRequest(raw []byte) (*request, error) {
	r := new(request)
	if err := decodeMessage(raw, r, &r.Version); err != nil {
		return nil, err
	}
	if err := r.Pledge.validate(); err != nil {
		return nil, err
	}
	if len(r.Pledge.Members) == 0 {
		return nil, errors.New("pledge without members")
	}
	return r, nil
}

// validate checks what came from outside: sorted, distinct node ids.
func (p *pledge) validate() error {
	if !validUUID(p.ClusterID) {
		return fmt.Errorf("cluster %.64q is no uuid", p.ClusterID)
	}
	if len(p.Members) > membersMax {
		return fmt.Errorf("%d members, the maximum is %d", len(p.Members), membersMax)
	}
	if p.Copies != nil && len(p.Copies) != len(p.Members) {
		return fmt.Errorf("%d folders of %d members", len(p.Copies), len(p.Members))
	}
	names := p.names()
	for i, m := range p.Members {
		name := names[i]
		if ValidateNodeName(name) != nil || !validUUID(string(m)[min(len(m), len(name)+1):]) {
			return fmt.Errorf("member %.200q is no node id with a storage uuid", m)
		}
		if i < len(p.Copies) && !validUUID(p.Copies[i]) {
			return fmt.Errorf("folder %.64q of a member is no uuid", p.Copies[i])
		}
		if i > 0 && p.Members[i-1] >= m || slices.Contains(names[:i], name) {
			return errors.New("members are not sorted, or a node id is there twice")
		}
	}
	return nil
}

// Handlers returns what the mesh is to call, by method. expect is the number of nodes this
// node was told to expect.
func (i *Identity) Handlers(expect int) map[uint8]func(context.Context, NodeID, []byte) ([]byte, error) {
	answer := func(f func(*request) error) func(context.Context, NodeID, []byte) ([]byte, error) {
		return func(_ context.Context, _ NodeID, raw []byte) ([]byte, error) {
			r, err := decodeRequest(raw)
			if err == nil {
				err = f(r)
			}
			if err != nil {
				return nil, &transport.RemoteError{Code: codeRefused, Text: err.Error()}
			}
			return nil, nil
		}
	}
	return map[uint8]func(context.Context, NodeID, []byte) ([]byte, error){
		MethodStatus:  func(context.Context, NodeID, []byte) ([]byte, error) { return json.Marshal(i.status(expect)) },
		MethodPromise: answer(func(r *request) error { return i.promise(r.Pledge, expect) }),
		MethodFound:   answer(func(r *request) error { return i.found(r.Pledge) }),
	}
}

func (i *Identity) status(expect int) *status {
	i.mu.Lock()
	defer i.mu.Unlock()
	return &status{
		Version: messageVersion, Node: NodeID(i.rec.Node + "/" + i.rec.Storage), Expect: expect,
		Promise: i.rec.Promise, Cluster: i.rec.Cluster, Restored: i.rec.Restored, Copy: i.rec.Copy, Succession: i.rec.Succession, Former: i.rec.Former,
	}
}

// promise binds the node to a cluster to be founded, unless it belongs to one. An
// earlier promise is replaced only by one among at least the same nodes: those who
// asked have seen that none of them has founded.
func (i *Identity) promise(p pledge, expect int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	self := NodeID(i.rec.Node + "/" + i.rec.Storage)
	switch {
	case i.rec.Cluster != nil:
		return fmt.Errorf("%w: node '%s' belongs to cluster %s", errRefused, self, i.rec.Cluster.ClusterID)
	case i.rec.Restored != nil && (!i.rec.Restored.sameCluster(&p) || p.copyOf(self) != i.rec.Copy):
		return fmt.Errorf("%w: node '%s' is restored for cluster %s, with folder %s", errRefused, self, i.rec.Restored.ClusterID, i.rec.Copy)
	case i.rec.Restored == nil && p.Copies != nil:
		return fmt.Errorf("%w: node '%s' is not restored", errRefused, self)
	case i.rec.Restored == nil && len(p.Members) != expect:
		return fmt.Errorf("%w: node '%s' expects %d nodes, not %d", errRefused, self, expect, len(p.Members))
	case !slices.Contains(p.Members, self):
		return fmt.Errorf("%w: node '%s' is not among the members", errRefused, self)
	case i.rec.Promise.equal(&p):
		return nil
	}
	if old := i.rec.Promise; old != nil {
		names := p.names()
		for _, n := range old.names() {
			if !slices.Contains(names, n) {
				return fmt.Errorf("%w: node '%s' has promised itself to a cluster with node '%s'", errRefused, self, n)
			}
		}
	}
	next := i.rec
	next.Promise = &p
	return i.store(next)
}

// found makes the node a member of the cluster it has promised itself to. Any other is
// refused.
func (i *Identity) found(p pledge) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.rec.Cluster.equal(&p):
		return nil
	case i.rec.Cluster != nil:
		return fmt.Errorf("%w: node belongs to cluster %s", errRefused, i.rec.Cluster.ClusterID)
	case !i.rec.Promise.equal(&p):
		return fmt.Errorf("%w: node has not promised itself to cluster %s", errRefused, p.ClusterID)
	}
	next := i.rec
	next.Promise, next.Restored, next.Cluster = nil, nil, &p
	return i.store(next)
}

// adopt makes the virgin node a member of a founded cluster: as a founding member if it is
// one of them, otherwise as one that has to join. A restored node becomes a member of its own cluster only, and only if that began with its folder.
// former are that cluster's former lives.
func (i *Identity) adopt(p pledge, former []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rec.Cluster != nil {
		if i.rec.Cluster.ClusterID == p.ClusterID {
			return nil
		}
		return fmt.Errorf("%w: node belongs to cluster %s", errRefused, i.rec.Cluster.ClusterID)
	}
	self := NodeID(i.rec.Node + "/" + i.rec.Storage)
	if r := i.rec.Restored; r != nil && (!r.sameCluster(&p) || p.copyOf(self) != i.rec.Copy) {
		return fmt.Errorf("%w: node is restored for cluster %s", errRefused, r.ClusterID)
	}
	if !slices.Contains(p.Members, self) {
		p.Members, p.Copies = nil, nil
	}
	next := i.rec
	next.Promise, next.Restored, next.Cluster, next.Former = nil, nil, &p, former
	return i.store(next)
}

// restored returns the cluster that this folder was restored for, and the folder's uuid; nil if it was not, or that has begun.
func (i *Identity) restored() (p *pledge, folder string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rec.Restored, i.rec.Copy
}
