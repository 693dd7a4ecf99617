// Package deep runs the lower half of a node in virtual time, all of it real: hashicorp/raft under
// cluster/group, cluster/detector, the gRPC mesh of transport and the segment log of store. Only
// the ends are simulated: connections are made of memory, with links that are cut, slow or one-way, and the
// disk is store/crashfs, which forgets at a crash what was not synced. Package sim has the upper half over
// simulated groups; see docs/adr/0012-simulation-of-the-lower-half.md.
//
// A nemesis crashes nodes, cuts links, slows and breaks disks, and damages replicas. An oracle sees every entry
// that any replica applies, every answer to a proposal and every leadership, and keeps the promises of DESIGN §4 and §5:
// one leader a term, one entry an index, nothing confirmed lost, nothing refused present, nothing
// applied twice, all replicas equal after healing, and a leader again in time.
//
// It is used by tests only, inside a testing/synctest bubble:
//
//	report, err := deep.Run(deep.Config{Seed: 1, Load: time.Minute})
//
// `go test ./sim/deep` runs a sample. More of them, one of them, or hours:
//
//	go test ./sim/deep -tags invariants -run Seeds -deep.first=1000 -deep.seeds=50 -deep.load=2m -timeout=1h
//	go test ./sim/deep -tags invariants -run Seeds -deep.seed=281 -count=20 [-deep.log]
//	make sim-long SIMTIME=3h SIMFLAGS=-deep.virtual=10000m
//
// A seed fixes the schedule of faults and delays, not the order of goroutines that wake at one instant, so
// that a failing seed may need some repetitions. A failing run prints the trace of its events.
package deep
