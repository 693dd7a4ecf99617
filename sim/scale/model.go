package scale

import "time"

// Size is a cluster: so many nodes and queues.
type Size struct{ Nodes, Queues int }

// Sizes are those of the tables.
func Sizes() (all []Size) {
	for _, n := range []int{5, 10, 20, 50, 100} {
		for _, q := range []int{1_000, 10_000, 100_000, 1_000_000} {
			all = append(all, Size{n, q})
		}
	}
	return all
}

// load is what one part does at one node in a second.
type load struct {
	messages float64       // sent
	bytes    float64       // sent
	cpu      time.Duration // of the node
}

func (l load) plus(o load) load {
	return load{l.messages + o.messages, l.bytes + o.bytes, l.cpu + o.cpu}
}

// exchanges is the load of a node that begins so many exchanges of two messages a second and answers as many.
func exchanges(rate float64, cpu time.Duration, bytes int) load {
	// Half of the processor time and one message of two are at the other side, and as much of the others' here.
	return load{messages: 2 * rate, bytes: rate * float64(bytes), cpu: time.Duration(rate * float64(cpu))}
}

// steady is what an idle cluster does: of the busiest kind of node where nodes differ.
type steady struct {
	gossip, pings, beats load
	catalog              load // at the node that leads it
	memory               float64
	replicas             float64 // of a node
}

func (s steady) total() load { return s.gossip.plus(s.pings).plus(s.beats).plus(s.catalog) }

func (c Costs) steady(s Size, l *layout) steady {
	n, w := float64(s.Nodes), float64(l.weight)
	var out steady
	packets, pulls := gossipFormula(s.Nodes)
	// 113 bytes a packet, and what TestGossip has for a pull: 230 bytes a member, each way.
	out.gossip = load{messages: packets + 2*pulls, bytes: packets*113 + pulls*2*230*n, cpu: time.Duration(packets * float64(c.GossipCPU))}
	out.pings = exchanges(4*(n-1), c.PingCPU, c.PingBytes)
	leads, holds := 0.0, 0.0
	for i := range l.leads {
		leads, holds = max(leads, w*float64(l.leads[i])), max(holds, w*float64(l.holds[i]))
	}
	out.beats = exchanges(leads*float64(c.Replicas-1)*c.BeatsPerQueue, c.BeatCPU, c.BeatBytes)
	// The leader begins all of these exchanges: half of their cost is its.
	asked := (n - 1) * c.CatalogBeats
	out.catalog = load{messages: asked, bytes: asked * float64(c.BeatBytes) / 2, cpu: time.Duration(asked * float64(c.BeatCPU) / 2)}
	out.replicas = holds
	out.memory = holds*float64(c.ReplicaBytes) + float64(s.Queues)*float64(c.CatalogBytes+c.TrackBytes)
	return out
}

// declares is the most declarations a second that the catalog's part of the work allows, and what bounds them.
func (c Costs) declares(s Size) (rate float64, bound string) {
	followers := float64(s.Nodes - 1)
	perLeader := float64(c.ApplyCPU) + float64(c.DeclareCPU) + followers*float64(c.CatalogCPU)/2
	cpu := float64(c.Cores) * float64(time.Second) / perLeader
	network := c.LinkBytes / (followers * float64(c.EntryBytes))
	rate, bound = cpu, "processor of the catalog's leader"
	if network < rate {
		rate, bound = network, "network of the catalog's leader"
	}
	return rate, bound
}

// rebalancing is what it takes until leaders and replicas are even again.
type rebalancing struct {
	homes     int           // leaders that go home to a node that is back
	homesTime time.Duration // at the rate of the nodes that lead instead
	moves     int           // replicas that a new node gets to be as full as the others
	moveBytes float64
	movesTime time.Duration // by the number of snapshots at a time and the network
}

// queueBytes is the log of a queue that is moved: a parameter.
const queueBytes = 1 << 20

// perSnapshot is the time that a snapshot takes besides its bytes: a membership change before and two after it, each a
// commit, and a commit of the catalog.
func (c Costs) perSnapshot() time.Duration { return 4 * (2*c.OneWay + 2*c.Sync) }

func (c Costs) rebalance(s Size, l *layout) (r rebalancing) {
	back := s.Nodes - 1
	given := make([]int, s.Nodes) // by each node that leads instead
	for q, p := range l.queues {
		if int(p[0]) == back {
			given[successor(q, p, func(n uint8) bool { return int(n) != back })] += l.weight
			r.homes += l.weight
		}
	}
	most := 0
	for _, g := range given {
		most = max(most, g)
	}
	r.homesTime = 10*time.Second + time.Duration(float64(most)/float64(c.MovesASecond)*float64(time.Second)) // balance.Default().Settle
	r.moves = c.Replicas * s.Queues / (s.Nodes + 1)
	r.moveBytes = float64(r.moves) * queueBytes
	network := r.moveBytes / c.LinkBytes
	turns := float64(r.moves) / float64(c.Snapshots) * (c.perSnapshot().Seconds() + queueBytes/c.LinkBytes)
	r.movesTime = time.Duration(max(network, turns) * float64(time.Second))
	return r
}

// successor is the member that is elected when the first is gone: an order by hash, as in cluster/group, so that
// the queues of a lost node are spread.
func successor(q int, p place, alive func(uint8) bool) uint8 {
	best, weight := p[0], uint64(0)
	for _, m := range p {
		if !alive(m) {
			continue
		}
		if h := mix(uint64(q)<<8 | uint64(m)); h >= weight {
			best, weight = m, h
		}
	}
	return best
}

// mix is the finalizer of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
