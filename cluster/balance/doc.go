// Package balance decides which leaders go home.
//
// Each group has a home: the node that its catalog entry names as the one to lead it. Homes
// are spread evenly when queues are declared (or put where the client asked for it), so leaders
// are where they should be when each leads at home. A failure moves them away; when the
// node is back, those who lead in its place give them back, slowly.
//
// The package is pure: [Plan] is told what one node leads and knows and says what it gives
// away now and when to ask again. Nodes need not agree on anything, because only the leader
// of a group decides about it, and a group that is at home stays there: the number of moves
// is the number of groups that are away. Package cluster/group carries the moves out.
package balance
