//go:build !failpoints

package store

// unpin is not in this build.
func (g *Group) unpin(*published) {}
