package catalog

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// TestFirstConfigurationNeverChanges has the numbers of voters that members of every version write into their own logs, at a founding and in a restored
// folder. Of two programs that differed, each could elect a leader of its own.
func TestFirstConfigurationNeverChanges(t *testing.T) {
	for n, want := range []int{0, 1, 2, 3, 3, 3, 3, 5, 5, 5} {
		var members []NodeID
		for i := range n {
			members = append(members, NodeID(fmt.Sprintf("n%d/s", i)))
		}
		for i, s := range foundingServers(members) {
			if votes := s.Suffrage == raft.Voter; votes != (i < want) || NodeID(s.ID) != members[i] {
				t.Errorf("of %d members, number %d is %+v", n, i, s)
			}
		}
	}
}
