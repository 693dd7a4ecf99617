package inspect

import (
	"path/filepath"

	"github.com/warrenmq/warren/catalog"
)

// Catalog is what a stopped node's folder has of the catalog. What is above SnapshotIndex is not known to be committed.
type Catalog struct {
	ClusterID     string         `json:"cluster_id"`
	Revision      uint64         `json:"revision"`
	SnapshotIndex uint64         `json:"snapshot_index"`
	SnapshotTerm  uint64         `json:"snapshot_term"`
	First         uint64         `json:"log_first"`
	Last          uint64         `json:"log_last"`
	LastTerm      uint64         `json:"log_last_term"`
	Term          uint64         `json:"term"`
	VoteTerm      uint64         `json:"vote_term"`
	VotedFor      string         `json:"voted_for"`
	Servers       []Server       `json:"servers"`
	Nodes         []CatalogNode  `json:"nodes"`
	VHosts        []string       `json:"vhosts"`
	Users         []string       `json:"users"`
	Queues        []CatalogQueue `json:"queues"`
}

// CatalogNode is a node as it last registered.
type CatalogNode struct {
	ID          string `json:"id"`
	Number      uint32 `json:"number"`
	Incarnation uint64 `json:"incarnation"`
	ClusterAddr string `json:"cluster_addr"`
	Superseded  bool   `json:"superseded"`
}

// CatalogQueue is a queue and where its replicas are.
type CatalogQueue struct {
	ID        uint64   `json:"id"`
	VHost     string   `json:"vhost"`
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	State     string   `json:"state"`
	Members   []string `json:"members"`
	Preferred string   `json:"preferred"`
}

// ReadCatalog reads the catalog of the data folder dir. It is catalog.ErrInUse while a node runs there.
func ReadCatalog(dir string) (*Catalog, error) {
	in, err := catalog.Inspect(filepath.Join(dir, catalogFolder))
	if err != nil {
		return nil, err
	}
	v := in.View
	c := &Catalog{
		ClusterID: v.ClusterID(), Revision: v.Revision(), SnapshotIndex: in.Snapshot, SnapshotTerm: in.SnapshotTerm,
		First: in.First, Last: in.Last, LastTerm: in.LastTerm, Term: in.Term, VoteTerm: in.VoteTerm, VotedFor: in.VotedFor,
	}
	for _, s := range in.Servers {
		c.Servers = append(c.Servers, Server{string(s.ID), s.Suffrage.String()})
	}
	for n := range v.Nodes() {
		c.Nodes = append(c.Nodes, CatalogNode{string(n.ID), n.Number, n.Incarnation, n.ClusterAddr, n.Superseded})
	}
	for h := range v.Vhosts() {
		c.VHosts = append(c.VHosts, h.Name)
	}
	for u := range v.Users() {
		c.Users = append(c.Users, u.Name)
	}
	for q := range v.AllQueues() {
		x := CatalogQueue{ID: q.ID, VHost: q.Vhost, Name: q.Name, Kind: "transient", State: "running", Preferred: string(q.Preferred)}
		if q.Kind == catalog.Replicated {
			x.Kind = "replicated"
		}
		if q.Paused {
			x.State = "paused"
		}
		if q.State == catalog.Closing {
			x.State = "closing"
		}
		for _, m := range q.Members {
			x.Members = append(x.Members, string(m))
		}
		c.Queues = append(c.Queues, x)
	}
	return c, nil
}
