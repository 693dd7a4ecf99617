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
// `go test ./sim` runs a few seeds. More of them, one of them, or a longer one:
//
//	go test ./sim -run Seeds -sim.first=1000 -sim.seeds=500 -sim.load=3s -timeout=1h
//	go test ./sim -run Seeds -sim.seed=281 -sim.load=3s -count=20 [-sim.log]
//
// Virtual time makes a second of a seed's life cost about a tenth of one; a seed that
// takes more than ten seconds spins at one instant.
//
// A seed fixes the schedule of faults and delays but not the order in which the
// scheduler runs goroutines that wake at the same instant, so that a failing seed
// may need a few repetitions.
package sim
