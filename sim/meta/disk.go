package meta

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// logFile and snapshotsFolder are what a catalog has in its folder.
const (
	logFile         = "log.db"
	snapshotsFolder = "snapshots"
)

// disk is what one process of a node writes its catalog to: a folder of real files, and beside it what of them is durable. bbolt writes a transaction's
// pages, syncs them, writes the page that refers to them and syncs that; here each write is seen (see writer), and the syncs are known to
// be where bbolt has them: no write waits longer than until its transaction is over.
type disk struct {
	dir  string
	die  func(why error) // ends the process
	tell func(stored []*raft.Log, from, to uint64)
	turn chan struct{} // held by who writes to the log: bbolt would have it wait for a mutex

	mu     sync.Mutex // guards the rest; never held while time passes
	rnd    *rand.Rand
	slow   time.Duration // most that a sync takes, beside what it always takes
	healed chan struct{} // closed when the disk does not hang any more; nil: it does not
	broken *fault
	lies   bool // nothing of the log becomes durable

	// over: the process has ended. What it still does is done to its own files, and changes nothing of what follows.
	over bool

	file    []byte  // the log's file, as far as it is durable
	pending []write // what was written to it since
	size    int64   // of the file

	shelf shelf
}

// write is one of bbolt's. head: it is of one of the two pages that say which the others are.
type write struct {
	off  int64
	data []byte
	head bool
}

// fault is how a disk fails. after is how many more writes succeed.
type fault struct {
	how   error
	what  place
	after int
}

type place string

const (
	atWrite    place = "a write to the log"
	atSync     place = "a sync of the log"
	atSnapshot place = "a snapshot"
	atPublish  place = "what follows a snapshot"
)

var pageSize = int64(os.Getpagesize())

// lag passes the time that a sync takes.
func (d *disk) lag() {
	d.mu.Lock()
	t := 50*time.Microsecond + time.Duration(d.rnd.Int64N(int64(time.Millisecond)))
	if d.slow > 0 {
		t += time.Duration(d.rnd.Int64N(int64(d.slow)))
	}
	healed := d.healed
	d.mu.Unlock()
	time.Sleep(t)
	if healed != nil {
		<-healed
	}
}

// hang has every write wait until heal.
func (d *disk) hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.healed == nil && !d.over {
		d.healed = make(chan struct{})
	}
}

// heal ends what is wrong with the disk.
func (d *disk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow, d.broken = 0, nil
	if d.healed != nil {
		close(d.healed)
		d.healed = nil
	}
}

// end takes the disk from its process.
func (d *disk) end() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.heal()
}

// Log implements catalog.Disk.
func (d *disk) Log(file *raftboltdb.BoltStore) interface {
	raft.LogStore
	raft.StableStore
} {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Opening it has written, and synced, a transaction.
	b, err := os.ReadFile(filepath.Join(d.dir, logFile))
	if err != nil {
		panic(err)
	}
	d.file, d.size = b, int64(len(b))
	at := writer(file)
	inner := *at
	*at = func(b []byte, off int64) (int, error) { return d.writeAt(inner, b, off) }
	return &logOnDisk{BoltStore: file, d: d}
}

// writer is where bbolt keeps the function that writes to its file, for tests: it tells it by no other way.
func writer(file *raftboltdb.BoltStore) *func([]byte, int64) (int, error) {
	db := (*bbolt.DB)(reflect.ValueOf(file).Elem().FieldByName("conn").UnsafePointer())
	at := reflect.ValueOf(db).Elem().FieldByName("ops").FieldByName("writeAt")
	return reflect.NewAt(at.Type(), at.Addr().UnsafePointer()).Interface().(*func([]byte, int64) (int, error))
}

// writeAt is what bbolt writes by. mu is held by update.
func (d *disk) writeAt(inner func([]byte, int64) (int, error), b []byte, off int64) (int, error) {
	if d.over {
		return inner(b, off)
	}
	var failed error
	if f := d.broken; f != nil && f.what == atWrite {
		if f.after--; f.after < 0 {
			failed = f.how
			b = b[:d.rnd.IntN(len(b))]
		}
	}
	d.pending = append(d.pending, write{off, append([]byte(nil), b...), off < 2*pageSize})
	n, err := inner(b, off)
	return n, errors.Join(err, failed)
}

// update makes one change of the log's file. A process whose disk fails is over at that moment; so that the goroutines that it leaves behind come to
// their end, they are told that it was well, and it is.
func (d *disk) update(change func() error) error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	d.lag()
	err := d.write(change)
	if err == nil {
		d.lag() // the crash may come between a write and its sync
		err = d.sync()
	}
	if err == nil {
		return nil
	}
	d.mu.Lock()
	over := d.over
	d.mu.Unlock()
	if over {
		return err
	}
	d.die(err)
	if errors.Is(err, errNotSynced) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return change()
}

// errNotSynced is that of a sync that fails.
var errNotSynced = errors.New("what was written may be there or not")

func (d *disk) write(change func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := change()
	if d.over {
		return err
	}
	st, e := os.Stat(filepath.Join(d.dir, logFile))
	if e != nil {
		return e
	}
	d.size = st.Size() // it grows, durably, before the first write
	return err
}

func (d *disk) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return nil
	}
	if f := d.broken; f != nil && f.what == atSync {
		if f.after--; f.after < 0 {
			return fmt.Errorf("%w: %w", errNotSynced, f.how)
		}
	}
	if !d.lies {
		d.file, d.pending = applied(d.file, d.size, d.pending), nil
	}
	return nil
}

// applied is a file with writes.
func applied(file []byte, size int64, writes []write) []byte {
	if more := size - int64(len(file)); more > 0 {
		file = append(file, make([]byte, more)...)
	}
	for _, w := range writes {
		copy(file[w.off:], w.data)
	}
	return file
}

// logOnDisk is a catalog's log and votes on such a disk.
type logOnDisk struct {
	*raftboltdb.BoltStore
	d *disk
}

func (l *logOnDisk) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *logOnDisk) StoreLogs(e []*raft.Log) error {
	return l.d.update(func() error {
		err := l.BoltStore.StoreLogs(e)
		if err == nil && !l.d.over {
			l.d.tell(e, 0, 0)
		}
		return err
	})
}

func (l *logOnDisk) DeleteRange(from, to uint64) error {
	return l.d.update(func() error {
		err := l.BoltStore.DeleteRange(from, to)
		if err == nil && !l.d.over {
			l.d.tell(nil, from, to)
		}
		return err
	})
}

func (l *logOnDisk) Set(k, v []byte) error {
	return l.d.update(func() error { return l.BoltStore.Set(k, v) })
}

func (l *logOnDisk) SetUint64(k []byte, v uint64) error {
	return l.d.update(func() error { return l.BoltStore.SetUint64(k, v) })
}

// fail breaks the disk.
func (d *disk) fail(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = &f
}

// faults are those that are drawn from.
var faults = []fault{
	{syscall.EIO, atWrite, 0},
	{syscall.ENOSPC, atWrite, 1},
	{syscall.EIO, atWrite, 3},
	{syscall.EIO, atSync, 0},
	{syscall.ENOSPC, atSync, 1},
	{syscall.ENOSPC, atSnapshot, 0},
	{syscall.EIO, atSnapshot, 0},
	{syscall.EIO, atPublish, 0},
}
