package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/warrenmq/warren/transport"
)

// NodeID names one incarnation of a node's storage: "node-id/storage-uuid".
type NodeID = transport.NodeID

// Info is what a node tells about itself.
type Info struct {
	Node NodeID `json:"node"`
	// Boot counts the starts of the node's process. Of two infos about one node the one
	// with the larger Boot is the newer.
	Boot uint64 `json:"boot"`
	// ClusterAddr is where the node's mesh listens, GossipAddr where its gossip
	// does: host:port. A node bound to all interfaces tells no host; whoever hears of it
	// fills in where it heard it from.
	ClusterAddr string `json:"cluster_addr"`
	GossipAddr  string `json:"gossip_addr"`
	// ClusterID is "" while the node belongs to no cluster.
	ClusterID string `json:"cluster_id,omitempty"`
	// ClusterName is what operators call the cluster, "" if they did not say. It is told in the lobby only.
	ClusterName string `json:"cluster_name,omitempty"`
}

// Bounds of what another node may tell.
const (
	nodeIDBytesMax = 200
	addrBytesMax   = 255
	idBytesMax     = 64
)

// validate reports why an info from outside cannot be used.
func (i *Info) validate() error {
	name, storage, ok := strings.Cut(string(i.Node), "/")
	switch {
	case !ok || name == "" || storage == "" || len(i.Node) > nodeIDBytesMax:
		return fmt.Errorf("%.*q is no node id with a storage uuid", nodeIDBytesMax, i.Node)
	case len(i.ClusterID) > idBytesMax:
		return errors.New("cluster id is too long")
	case len(i.ClusterName) > addrBytesMax:
		return errors.New("cluster name is too long")
	}
	for _, a := range []string{i.ClusterAddr, i.GossipAddr} {
		if len(a) > addrBytesMax {
			return errors.New("address is too long")
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("address: %w", err)
		}
	}
	return nil
}

// Name returns the node id without the storage uuid.
func (i *Info) Name() string {
	name, _, _ := strings.Cut(string(i.Node), "/")
	return name
}

// seenAt fills in the hosts an info leaves open with the host it came from.
func (i Info) seenAt(host string) Info {
	i.ClusterAddr = withHost(i.ClusterAddr, host)
	i.GossipAddr = withHost(i.GossipAddr, host)
	return i
}

// withHost replaces an unspecified host in addr.
func withHost(addr, host string) string {
	h, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return addr
	}
	if ip := net.ParseIP(h); h == "" || ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort(host, port)
	}
	return addr
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}

// meta is the form of an Info in memberlist's metadata, which has little room. The
// version is the first thing in it.
type meta struct {
	Version int    `json:"v"`
	Node    NodeID `json:"n"`
	Boot    uint64 `json:"b"`
	Cluster string `json:"c"`
	Gossip  string `json:"g"`
	ID      string `json:"u"`
}

const metaVersion = 1

// encodeMeta returns the metadata of an info.
func encodeMeta(i Info) ([]byte, error) {
	b, err := json.Marshal(meta{metaVersion, i.Node, i.Boot, i.ClusterAddr, i.GossipAddr, i.ClusterID})
	if err != nil {
		return nil, fmt.Errorf("encode gossip metadata: %w", err)
	}
	if len(b) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("gossip metadata has %d bytes, the maximum is %d: node id or addresses are too long", len(b), memberlist.MetaMaxSize)
	}
	return b, nil
}

// decodeMeta reads the metadata of a member heard of at host.
func decodeMeta(b []byte, host string) (Info, error) {
	var m meta
	if err := json.Unmarshal(b, &m); err != nil {
		return Info{}, fmt.Errorf("gossip metadata: %w", err)
	}
	if m.Version != metaVersion {
		return Info{}, fmt.Errorf("gossip metadata of version %d, want %d", m.Version, metaVersion)
	}
	i := Info{Node: m.Node, Boot: m.Boot, ClusterAddr: m.Cluster, GossipAddr: m.Gossip, ClusterID: m.ID}
	if err := i.validate(); err != nil {
		return Info{}, fmt.Errorf("gossip metadata: %w", err)
	}
	return i.seenAt(host), nil
}
