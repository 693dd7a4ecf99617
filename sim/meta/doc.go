// Package meta runs the catalog's own Raft group in virtual time: package catalog as it is, with hashicorp/raft, the failure detector, the gRPC mesh of
// transport, raft-boltdb and raft's snapshots in files. Only the ends are simulated: connections are made of memory (sim/links), and disks forget
// at a crash what was not synced, tear pages, hang and fail.
//
// bbolt maps its file, so that the files are real ones. Beside each of them a [disk] keeps what of it is durable: it sees each write on its way from bbolt into the
// file and knows where bbolt syncs. A process that crashes leaves a folder behind that has what a disk may have had at that moment.
//
// A nemesis crashes nodes, cuts, delays and freezes links, hangs and breaks disks, deposes leaders, compacts logs all the time and replaces, adds and removes nodes.
// Clients write, read linearly and read what is there, at any node. An oracle sees each entry of each log, each answer and each view, and keeps the promises:
// what was answered is never lost and has the effect that was answered; a linear read has all that was committed anywhere when it was asked, and each read has the
// values of its revision; one entry an index and term; a log has, up to the view that its node shows, what was committed and nothing else; views of one revision
// are equal, and never go back; a process comes up again from whatever a crash left of its disk, and catalog.Inspect can read it; a healed cluster has a
// leader in time, its nodes become equal, and so many of them vote as should.
//
// It is used by tests only, inside a testing/synctest bubble:
//
//	report, err := meta.Run(meta.Config{Seed: 1, Load: time.Minute})
//
// `go test ./sim/meta` runs a sample. More of them, or one of them:
//
//	go test ./sim/meta -tags invariants -run Seeds -meta.first=1000 -meta.seeds=50 -meta.load=2m -timeout=1h
//	go test ./sim/meta -tags invariants -run Seeds -meta.seed=281 -count=20 [-meta.log]
//	make sim-catalog SIMTIME=3h
//
// A seed fixes the schedule of faults and delays, not the order of goroutines that wake at one instant, nor the numbers that the catalog draws, so
// that a failing seed may need some repetitions. A failing run prints the trace of its events.
package meta
