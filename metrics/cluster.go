package metrics

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
