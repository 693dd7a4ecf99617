package group

import (
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// replica is what this package uses of a Raft instance; *raft.Raft has it.
type replica interface {
	State() raft.RaftState
	CurrentTerm() uint64
	LastIndex() uint64
	CommitIndex() uint64
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
	GetConfiguration() raft.ConfigurationFuture

	Apply(data []byte, timeout time.Duration) raft.ApplyFuture
	Barrier(timeout time.Duration) raft.Future
	VerifyLeader() raft.Future
	Snapshot() raft.SnapshotFuture
	ReloadableConfig() raft.ReloadableConfig
	ReloadConfig(raft.ReloadableConfig) error
	AddVoter(id raft.ServerID, address raft.ServerAddress, prevIndex uint64, timeout time.Duration) raft.IndexFuture
	AddNonvoter(id raft.ServerID, address raft.ServerAddress, prevIndex uint64, timeout time.Duration) raft.IndexFuture
	DemoteVoter(id raft.ServerID, prevIndex uint64, timeout time.Duration) raft.IndexFuture
	RemoveServer(id raft.ServerID, prevIndex uint64, timeout time.Duration) raft.IndexFuture
	Shutdown() raft.Future
}

// remains are what is kept of an instance that has ended because its replica sleeps: a tenth of its memory. It answers as the instance
// would after its end.
type remains struct {
	term, last, commit uint64
	servers            raft.Configuration
}

var _ replica = (*remains)(nil)

// remains takes the place of an instance that has ended.
func (in *instance) remains() *instance {
	r := &remains{term: in.raft.CurrentTerm(), last: in.raft.LastIndex(), commit: in.raft.CommitIndex()}
	if f := in.raft.GetConfiguration(); f.Error() == nil {
		r.servers = f.Configuration()
	}
	in.wire.over.Store(true)
	in.wire.raft.Store(nil)
	in.log.in.Store(nil)
	return &instance{raft: r, wire: in.wire, log: in.log}
}

func (r *remains) State() raft.RaftState                             { return raft.Shutdown }
func (r *remains) CurrentTerm() uint64                               { return r.term }
func (r *remains) LastIndex() uint64                                 { return r.last }
func (r *remains) CommitIndex() uint64                               { return r.commit }
func (r *remains) LeaderWithID() (raft.ServerAddress, raft.ServerID) { return "", "" }
func (r *remains) GetConfiguration() raft.ConfigurationFuture        { return knownServers{r.servers} }
func (r *remains) Apply([]byte, time.Duration) raft.ApplyFuture      { return ended{} }
func (r *remains) Barrier(time.Duration) raft.Future                 { return ended{} }
func (r *remains) VerifyLeader() raft.Future                         { return ended{} }
func (r *remains) Snapshot() raft.SnapshotFuture                     { return ended{} }
func (r *remains) ReloadableConfig() raft.ReloadableConfig           { return raft.ReloadableConfig{} }
func (r *remains) ReloadConfig(raft.ReloadableConfig) error          { return raft.ErrRaftShutdown }
func (r *remains) Shutdown() raft.Future                             { return over{} }

func (r *remains) AddVoter(raft.ServerID, raft.ServerAddress, uint64, time.Duration) raft.IndexFuture {
	return ended{}
}

func (r *remains) AddNonvoter(raft.ServerID, raft.ServerAddress, uint64, time.Duration) raft.IndexFuture {
	return ended{}
}

func (r *remains) DemoteVoter(raft.ServerID, uint64, time.Duration) raft.IndexFuture { return ended{} }

func (r *remains) RemoveServer(raft.ServerID, uint64, time.Duration) raft.IndexFuture {
	return ended{}
}

// ended is the future of whatever is asked of an instance that has ended.
type ended struct{}

func (ended) Error() error  { return raft.ErrRaftShutdown }
func (ended) Index() uint64 { return 0 }
func (ended) Response() any { return nil }
func (ended) Open() (*raft.SnapshotMeta, io.ReadCloser, error) {
	return nil, nil, raft.ErrRaftShutdown
}

// over is the future of a second end.
type over struct{}

func (over) Error() error { return nil }

// knownServers is the future of a configuration that is known.
type knownServers struct{ c raft.Configuration }

func (k knownServers) Error() error                      { return nil }
func (k knownServers) Index() uint64                     { return 0 }
func (k knownServers) Configuration() raft.Configuration { return k.c }
