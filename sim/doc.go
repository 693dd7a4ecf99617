// Package sim runs several nodes of the queue path in one process and virtual
// time: real brokers, streams, leaders, machines and movers over a simulated
// network, simulated Raft groups and a simulated catalog log, while a nemesis
// crashes nodes, cuts links, moves leaders, fails proposals and deletes queues. An
// oracle applies every committed entry once more and checks the promises of
// DESIGN §1 and §7 as they are kept or broken.
//
// It is used by tests only. A run is started inside a testing/synctest bubble:
//
//	err := sim.Run(sim.Config{Seed: 1, ...})
//
// A seed fixes the schedule of faults and delays but not the order in which the
// scheduler runs goroutines that wake at the same instant, so that a failing seed
// may need a few repetitions (go test ./sim -run Seeds -sim.seed=N -count=20).
package sim
