package deep

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
	"github.com/warrenmq/warren/transport"
)

// disk is a crashfs whose syncs take time.
type disk struct {
	*crashfs.FS
	slow atomic.Int64 // most that a sync takes, beside what it always takes
	lies bool         // syncs do nothing

	mu  sync.Mutex
	rnd *rand.Rand
}

func newDisk(fs *crashfs.FS, seed uint64) *disk {
	return &disk{FS: fs, rnd: rand.New(rand.NewPCG(seed, 3))}
}

// lag sleeps as long as a sync takes.
func (d *disk) lag() {
	d.mu.Lock()
	t := 200*time.Microsecond + time.Duration(d.rnd.Int64N(int64(2*time.Millisecond)))
	if s := d.slow.Load(); s > 0 {
		t += time.Duration(d.rnd.Int64N(s))
	}
	d.mu.Unlock()
	time.Sleep(t)
}

// breakSome makes every later operation of one kind fail, of syncs most of the times. It tells which, and how.
func (d *disk) breakSome(r *rand.Rand) (broken crashfs.Op, how error) {
	broken, how = crashfs.OpSync, syscall.EIO
	if ops := [...]crashfs.Op{crashfs.OpCreate, crashfs.OpWrite, crashfs.OpRename, crashfs.OpRemove, crashfs.OpSyncDir}; r.IntN(2) == 0 {
		broken = ops[r.IntN(len(ops))]
	}
	if r.IntN(3) == 0 {
		how = syscall.ENOSPC
	}
	d.Fail(func(op crashfs.Op) error {
		if op == broken {
			return how
		}
		return nil
	})
	return broken, how
}

func (d *disk) wrap(f store.File, err error) (store.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, d}, nil
}

func (d *disk) Open(name string) (store.File, error)   { return d.wrap(d.FS.Open(name)) }
func (d *disk) Create(name string) (store.File, error) { return d.wrap(d.FS.Create(name)) }

func (d *disk) SyncDir(dir string) error {
	d.lag()
	return d.FS.SyncDir(dir)
}

type slowFile struct {
	store.File
	d *disk
}

func (f slowFile) Fdatasync() error {
	f.d.lag()
	if f.d.lies {
		return nil
	}
	return f.File.Fdatasync()
}

// afterlife is a node's storage whose stable half refuses nothing any more once the node is dead: raft panics when a
// term cannot be stored, and a process that is over must not take the others of the simulation with it.
type afterlife struct {
	group.Storage
	n *life
}

func (a afterlife) Group(id transport.GroupID) group.Log {
	return ghostLog{a.n.st.Group(store.GroupID(id)), a.n}
}

// Inherit passes on what a group that goes on from another one begins with.
func (a afterlife) Inherit(to, from transport.GroupID, index, term uint64, config raft.Configuration, manifest []byte, pins []store.Range) error {
	return a.n.st.Group(storeID(to)).Inherit(a.n.st.Group(storeID(from)), index, term, config, manifest, pins)
}

// ghostLog is a group of the segment log, with all that cluster/group asks it for beside what raft does: it stages entries, takes their data from where they
// arrived, and begins without a wait for the disk, as in a node.
type ghostLog struct {
	*store.Group
	n *life
}

// Durable lies if it is to.
func (g ghostLog) Durable(index uint64, then func(error)) (bool, error) {
	if g.n.w.cfg.Lie == LieAnswer {
		return true, nil
	}
	return g.Group.Durable(index, then)
}

func (g ghostLog) forgive(err error) error {
	if err != nil && g.n.dead.Load() {
		return nil
	}
	return err
}

func (g ghostLog) Set(k, v []byte) error { return g.forgive(g.Group.Set(k, v)) }

func (g ghostLog) SetUint64(k []byte, v uint64) error {
	if g.n.w.cfg.Lie == LieTerm && string(k) == "CurrentTerm" {
		return nil
	}
	return g.forgive(g.Group.SetUint64(k, v))
}

// damaged tells whether a replica has bytes that do not match their checksums, by reading all of it.
func damaged(s *store.Store, id transport.GroupID) error {
	g := s.Group(store.GroupID(id))
	if err := g.Err(); err != nil {
		return err
	}
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	for i := first; i <= last && last > 0; i++ {
		var l raft.Log
		if err := g.GetLog(i, &l); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
			return err
		}
	}
	list, err := g.Snapshots().List()
	if err != nil || len(list) == 0 {
		return err
	}
	_, r, err := g.Snapshots().Open(list[0].ID)
	if err != nil {
		return err
	}
	defer r.Close()
	return drain(r)
}
