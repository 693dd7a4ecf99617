package metrics

import (
	"maps"
	"slices"
)

// Cluster is what a node sees of its cluster.
type Cluster struct {
	// Running are nodes that this one can ask and has not found dead, itself among them, Down are the others. Leaving are neither: they are being
	// removed, and may run.
	Running, Down, Leaving int
	// Voters are those of the catalog, down or not.
	Voters int
}

// cluster puts the nodes of the cluster. Who counts those that are scraped sees by it which are not.
func (s *scrape) cluster() {
	if s.cfg.Cluster == nil {
		return
	}
	c := s.cfg.Cluster()
	s.count(clusterNodes, uint64(max(0, c.Running)), "running")
	s.count(clusterNodes, uint64(max(0, c.Down)), "down")
	s.count(clusterNodes, uint64(max(0, c.Leaving)), "leaving")
	s.count(unreachablePeers, uint64(max(0, c.Down)))
	s.count(catalogVoters, uint64(max(0, c.Voters)))
}

// Shovels are figures of the shovels that the node runs.
type Shovels struct {
	States             map[string]int
	Forwarded, Waiting uint64
}

func (s *scrape) shovels() {
	if s.cfg.Shovels == nil {
		return
	}
	f := s.cfg.Shovels()
	for _, state := range slices.Sorted(maps.Keys(f.States)) {
		s.count(shovels, uint64(max(0, f.States[state])), state)
	}
	s.count(shovelForwarded, f.Forwarded)
	s.count(shovelWaiting, f.Waiting)
}
