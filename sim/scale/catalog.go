package scale

import (
	"fmt"
	"runtime"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/placement"
)

// catalogRun is what the real machine of the catalog costs with so many queues.
type catalogRun struct {
	Queues int
	Apply  time.Duration // processor time of one declaration at this size, encoding and decoding included
	Look   time.Duration // of a queue looked up by name
	Route  time.Duration // of one message routed by the default exchange
	Bytes  float64       // heap of a queue
}

// runCatalog declares queues as a cluster of so many nodes would, up to the last of sizes, which rise.
func runCatalog(nodes int, sizes []int) ([]catalogRun, error) {
	c := catalog.NewCopy()
	index := uint64(0)
	apply := func(cmd catalog.Command) error {
		index++
		_, err := c.Apply(index, cmd)
		return err
	}
	if err := apply(&catalog.Found{ClusterID: rigCluster}); err != nil {
		return nil, err
	}
	var members []catalog.NodeID
	for i := range nodes {
		members = append(members, nodeName(i))
		if err := apply(&catalog.RegisterNode{ID: nodeName(i), ClusterAddr: "10.0.0.1:5681", AMQPAddr: "10.0.0.1:5672"}); err != nil {
			return nil, err
		}
	}
	before := heapBytes()
	done := 0
	var runs []catalogRun
	for _, size := range sizes {
		last := max(done, size-min(size/2, 20_000)) // what is timed: the last ones
		var began time.Duration
		for ; done < size; done++ {
			if done == last {
				began = processorTime()
			}
			m := done % nodes
			three := []catalog.NodeID{members[m], members[(m+1)%nodes], members[(m+2)%nodes]}
			if err := apply(&catalog.DeclareQueue{Queue: catalog.Queue{
				Vhost: "/", Name: queueName(done), Durable: true, Kind: catalog.Replicated, Members: three, Preferred: three[0],
			}}); err != nil {
				return nil, err
			}
		}
		r := catalogRun{Queues: size, Apply: (processorTime() - began) / time.Duration(size-last)}
		r.Bytes = float64(heapBytes()-before) / float64(size)
		r.measureReads(c.View())
		runs = append(runs, r)
	}
	runtime.KeepAlive(c)
	return runs, nil
}

func (r *catalogRun) measureReads(v *catalog.View) {
	const times = 20_000
	names := make([]string, times)
	for i := range names {
		names[i] = queueName(i * 7919 % r.Queues)
	}
	began := processorTime()
	for _, name := range names {
		if v.Queue("/", name) == nil {
			panic("a declared queue is not there")
		}
	}
	r.Look = (processorTime() - began) / times
	began = processorTime()
	var dst []*catalog.Queue
	for _, name := range names {
		dst, _ = v.Route("/", "", []string{name}, nil, dst[:0]) // the default exchange is always there
	}
	r.Route = (processorTime() - began) / times
}

func queueName(i int) string { return fmt.Sprintf("orders.%07d", i) }

func heapBytes() uint64 {
	// Twice, for what the first one has only unlinked, as pools.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// layout is where the queues of a cluster live.
type layout struct {
	zones  []int // of each node
	queues []place
	// each of them stands for so many, so that a million queues are not placed one by one.
	weight int
	holds  []int // of each node, of queues
	leads  []int
}

// place is one queue: its members, the one that should lead it first.
type place [3]uint8

// placedMax is how many queues are placed; see layout.weight.
const placedMax = 100_000

// lay places queues with package placement: declared at all nodes in turn, by nodes whose counts are as old as late
// declarations.
func lay(s Size, zones, late int) *layout {
	l := &layout{weight: max(1, s.Queues/placedMax), holds: make([]int, s.Nodes), leads: make([]int, s.Nodes)}
	known := make([]placement.Node, s.Nodes)
	at := map[string]uint8{}
	for i := range known {
		l.zones = append(l.zones, i%zones)
		known[i] = placement.Node{ID: string(nodeName(i)), Zone: fmt.Sprint(i % zones)}
		at[known[i].ID] = uint8(i)
	}
	l.queues = make([]place, s.Queues/l.weight)
	for q := range l.queues {
		if q%late == 0 {
			for i := range known {
				known[i].Holds, known[i].Leads = l.holds[i], l.leads[i]
			}
		}
		c := placement.Choose(placement.Request{Nodes: known, Local: known[q%s.Nodes].ID, Size: 3, Seed: uint64(q)})
		for i, m := range c.Members {
			l.queues[q][i] = at[m]
			l.holds[at[m]]++
		}
		l.leads[at[c.Preferred]]++
	}
	return l
}
