package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// workloads are all there are.
var workloads = map[string]func(Options) Workload{
	"policy":     newPolicy,
	"priority":   newPriority,
	"queue":      newQueue,
	"single":     newSingle,
	"tx":         newTx,
	"churn":      newChurn,
	"deadletter": newDeadletter,
	"delayed":    newDelayed,
	"mutex":      newMutex,
}

// portable are the workloads that need nothing which RabbitMQ does not have.
var portable = []string{"queue", "deadletter"}

// Names returns the names of all workloads.
func Names() []string { return slices.Sorted(maps.Keys(workloads)) }

// New returns the workload of that name.
func New(name string, opts Options) (Workload, error) {
	newWorkload, known := workloads[name]
	if !known {
		return nil, fmt.Errorf("no workload %q: there are %s", name, strings.Join(Names(), ", "))
	}
	if opts.Quorum && !slices.Contains(portable, name) {
		return nil, fmt.Errorf("workload %q is not for this system: there are %s", name, strings.Join(portable, ", "))
	}
	return newWorkload(opts), nil
}
