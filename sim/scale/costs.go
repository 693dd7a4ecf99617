package scale

import (
	"time"

	"github.com/warrenmq/warren/cluster/group"
)

// Costs are what the model multiplies with. Those said to be measured are of TestMeasure on the machine of
// docs/scaling.md, processor time of both ends together unless said.
type Costs struct {
	// Links and disks: parameters.
	OneWay    time.Duration // of a link
	LinkBytes float64       // bytes a second of a node's network
	Sync      time.Duration // one fdatasync
	Cores     int           // of a node
	Replicas  int

	PingCPU       time.Duration // one ping with its answer, the detector's looks with it; measured
	PingBytes     int           // of both on the wire without TCP and IP; measured
	GossipCPU     time.Duration // one packet of memberlist sent and received; assumed like half a ping
	BeatCPU       time.Duration // one empty append with its answer, where there are many; measured
	BeatBytes     int           // measured
	ElectionCPU   time.Duration // an injected election with its question, votes and first entry, all nodes; measured
	StartCPU      time.Duration // one replica of a new group is started; measured
	ReplicaBytes  int           // resident memory of an idle replica: measured with 10,000 on each of three real nodes; raft's part is 45 KiB
	RollCPU       time.Duration // one question of a new leader to one node with its answer; assumed
	ElectionsMax  int           // group.HostConfig.ElectionsMax
	MovesASecond  int           // group.HostConfig.MovesPerSecond as cmd/node sets it
	Snapshots     int           // transport.Config.Snapshots
	ApplyCPU      time.Duration // the catalog's machine applies one declaration, at each node; measured
	DeclareCPU    time.Duration // a catalog entry at proposer and leader, alone, without followers; measured
	CatalogCPU    time.Duration // a catalog entry and the word that it is committed for one follower, alone, both ends; measured
	EntryBytes    int           // the same, on the wire with answers; measured
	CatalogBytes  int           // memory of a queue in the catalog, without bindings, all indexes; measured
	TrackBytes    int           // memory of a queue on every node beside the catalog: counts, who leads it; estimated
	BeatsPerQueue float64       // empty appends a second from a leader to each follower; of the profile
	CatalogBeats  float64       // the same for the catalog
}

// DefaultCosts are those of docs/scaling.md.
func DefaultCosts() Costs {
	return Costs{
		OneWay: 250 * time.Microsecond, LinkBytes: 125e6, Sync: time.Second / 4000, Cores: 2, Replicas: 3,
		PingCPU: 85 * time.Microsecond, PingBytes: 75, GossipCPU: 42 * time.Microsecond,
		BeatCPU: 88 * time.Microsecond, BeatBytes: 48,
		ElectionCPU: 370 * time.Microsecond, StartCPU: 300 * time.Microsecond, ReplicaBytes: 56 << 10, RollCPU: 20 * time.Microsecond,
		ElectionsMax: 256, MovesASecond: 10, Snapshots: 2,
		ApplyCPU: 30 * time.Microsecond, DeclareCPU: 190 * time.Microsecond, CatalogCPU: 415 * time.Microsecond, EntryBytes: 480,
		CatalogBytes: 1250, TrackBytes: 150,
		BeatsPerQueue: beats(group.QueueProfile().Heartbeat, group.QueueProfile().Commit),
		CatalogBeats:  beats(5*time.Second, 500*time.Millisecond), // catalog.Config's defaults
	}
}

// beats is how often a second an idle leader of hashicorp/raft v1.8.0 appends nothing to a follower: heartbeats
// after one to two tenths of the heartbeat timeout, and after one to two commit timeouts.
func beats(heartbeat, commit time.Duration) float64 {
	return 1/(1.5*heartbeat.Seconds()/10) + 1/(1.5*commit.Seconds())
}
