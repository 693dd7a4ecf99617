package group

import "github.com/warrenmq/warren/transport"

// OverMesh makes a mesh the network of a host.
func OverMesh(m *transport.Mesh) Network { return overMesh{m} }

type overMesh struct{ *transport.Mesh }

func (m overMesh) Raft(g transport.GroupID) RaftTransport { return m.Mesh.Raft(g) }
