//go:build !invariants

package group

import "github.com/hashicorp/raft"

// checkCommitted is not in this build.
func (*Group) checkCommitted([]*raft.Log) {}
