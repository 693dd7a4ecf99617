// Package repair decides where the replicas of queues should go when they cannot stay where they are, and which members should lead
// so that nodes lead alike.
//
// It is pure: [Next] is told what is known of nodes and queues and says what to plan now; nothing is kept between two
// calls. Who calls it enters the plans into the catalog, and the leaders of the groups carry them out (package cluster/group). Package
// steward is that caller.
//
// A member is replaced
//
//   - at once, if its node's storage was replaced by a newer one: what it had is gone. The newer storage gets the replica if it is
//     alive and no zone is lost by it;
//   - if its node leaves the cluster;
//   - if its node has been down for longer than [Policy.After], unless the replicas would be in fewer zones then: such
//     a node may still come back with all it has.
//
// A queue that misses members, because there were too few nodes for them when it was declared or because it has lost its majority and goes on from one
// replica, gets them as soon as there are nodes.
//
// Nothing is planned for a queue without a living majority: no change of its members can be committed, and
// forcing one is a person's decision. Nor for one of which another plan is under way, unless a node which that plan adds has been lost
// meanwhile. Otherwise the number of members stays. What nobody can take stays where it is.
package repair
