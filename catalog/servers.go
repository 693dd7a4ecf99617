package catalog

// HasServer tells whether a node belongs to the catalog's group in its newest configuration, as a voter or not.
func (c *Catalog) HasServer(id NodeID) bool {
	future := c.raft.GetConfiguration()
	if future.Error() != nil {
		return true // not known
	}
	for _, s := range future.Configuration().Servers {
		if NodeID(s.ID) == id {
			return true
		}
	}
	return false
}
