// Package level says which programs of a cluster may use what, while some of them are older than
// others.
//
// A cluster has one level, a number in the catalog. A program knows all levels up to [Now]. A cluster takes a
// level when every node of it has a program that knows it; from then on it may write what that level brought,
// and a program that does not know the level is refused. See docs/adr/0025-levels.md.
package level

import "fmt"

// First is the level of every cluster that has no other.
const First = 1

// Level is one step.
type Level struct {
	Number int
	// Name is what operators call it, as RabbitMQ's feature flags are called.
	Name string
	// Desc is one sentence.
	Desc string
}

// table has the levels in their order, from First on. What a level gates is never taken out of it.
var table = [...]Level{
	{1, "replicated_queues", "Queues that are Raft logs, and the catalog that places them"},
	{2, "managed_membership", "States of nodes, zones, and replicas that are moved: catalog commands from 30 on, catalog records from 13 on"},
}

// All returns the levels that this program knows.
func All() []Level { return table[:Now] }

// Name is the name of a level, "level_N" of one that this program does not know.
func Name(n int) string {
	if n < First || n > len(table) {
		return fmt.Sprintf("level_%d", n)
	}
	return table[n-First].Name
}

// Number is the level of a name; ok is false if this program knows none such.
func Number(name string) (n int, ok bool) {
	for _, l := range All() {
		if l.Name == name {
			return l.Number, true
		}
	}
	return 0, false
}

// Gate tells the level of the cluster at this moment.
type Gate func() int

// Must panics if this program does not know level n: it was about to write what it could not read.
func Must(n int) {
	if n > Now {
		panic(fmt.Sprintf("level: this program knows level %d and would write what belongs to level %d", Now, n))
	}
}
