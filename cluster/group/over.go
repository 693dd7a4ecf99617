package group

import (
	"io"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// OverMesh makes a mesh the network of a host whose storage copies the entries that it is given, as OverStore does.
func OverMesh(m *transport.Mesh) Network { return overMesh{m} }

type overMesh struct{ *transport.Mesh }

func (m overMesh) Raft(g transport.GroupID, generation uint64) RaftTransport {
	rt := m.Mesh.Raft(g, generation)
	rt.CopiesEntries()
	return rt
}

// OverStore makes a segment log the storage of a host.
func OverStore(s *store.Store) Storage { return overStore{s} }

type overStore struct{ *store.Store }

func (s overStore) Group(id transport.GroupID) Log { return s.Store.Group(store.GroupID(id)) }

// onDamage has f told of replicas whose logs the store finds damaged by itself.
func (s overStore) onDamage(f func(transport.GroupID, error)) {
	s.OnDamage(func(id store.GroupID, c *store.CorruptError) { f(transport.GroupID(id), c) })
}

func (s overStore) DeleteGroup(id transport.GroupID) error {
	return s.Store.DeleteGroup(store.GroupID(id))
}

func (s overStore) Inherit(to, from transport.GroupID, index, term uint64, config raft.Configuration, manifest []byte, pins []store.Range) error {
	return s.Store.Group(store.GroupID(to)).Inherit(s.Store.Group(store.GroupID(from)), index, term, config, manifest, pins)
}

func (s overStore) ReadManifest(r io.Reader) ([]byte, error) { return store.ReadManifest(r) }
