// Package scale answers how Warren's own work, without any message of a client, grows with nodes and queues: membership,
// pings, heartbeats, the catalog, the failure of a node and of a zone, leaders that go home, replicas that are moved.
//
// Real code runs where it decides or costs: catalog.Copy applies the declarations of up to a million queues,
// cluster/placement places them, cluster/detector and memberlist run on simulated networks in virtual time (in a
// testing/synctest bubble), cluster/balance says which leaders go home, and a [rig] of real nodes in this process
// is what constants are measured with. Disks, links and processors of a whole cluster are modelled, see [Costs]:
// each number says where it comes from.
//
// It is used by tests only. The tables of docs/scaling.md, and what is measured anew for them:
//
//	make scale
//	go test ./sim/scale -run TestMeasure -v -scale.measure
package scale
