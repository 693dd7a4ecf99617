package meta

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

// shelf is what is known of a folder of snapshots, by their names. hashicorp/raft syncs a snapshot's files, publishes them by a rename, syncs the folder and
// removes the oldest; that these are gone is durable with the next one only.
type shelf struct {
	there   map[string]book // as a process sees it
	durable map[string]book
	removed map[string]book // durably there or not
	open    int             // being written
}

// book is a snapshot: its files by their names.
type book map[string][]byte

// scan reads the snapshots that are published in a folder.
func scan(dir string) map[string]book {
	all := make(map[string]book)
	folders, _ := os.ReadDir(filepath.Join(dir, snapshotsFolder))
	for _, f := range folders {
		if !strings.HasSuffix(f.Name(), ".tmp") {
			all[f.Name()] = readBook(filepath.Join(dir, snapshotsFolder, f.Name()))
		}
	}
	return all
}

func readBook(dir string) book {
	b := make(book)
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if data, err := os.ReadFile(filepath.Join(dir, f.Name())); err == nil {
			b[f.Name()] = data
		}
	}
	return b
}

// Snapshots implements catalog.Disk. Opening a catalog syncs the folder.
func (d *disk) Snapshots(folder raft.SnapshotStore) raft.SnapshotStore {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shelf = shelf{there: scan(d.dir)}
	d.shelf.durable = maps.Clone(d.shelf.there)
	return &snapshotsOnDisk{folder, d}
}

type snapshotsOnDisk struct {
	raft.SnapshotStore
	d *disk
}

func (s *snapshotsOnDisk) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64, t raft.Transport) (raft.SnapshotSink, error) {
	s.d.lag()
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	sink, err := s.SnapshotStore.Create(v, index, term, c, at, t)
	if err != nil {
		return nil, err
	}
	s.d.shelf.open++
	return &sinkOnDisk{SnapshotSink: sink, d: s.d}, nil
}

// Open implements raft.SnapshotStore. The folder may be read while one is published.
func (s *snapshotsOnDisk) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return s.SnapshotStore.Open(id)
}

type sinkOnDisk struct {
	raft.SnapshotSink
	d      *disk
	closed bool
}

func (k *sinkOnDisk) Write(b []byte) (int, error) {
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	if err := k.d.snapshotFails(); err != nil {
		return 0, err
	}
	return k.SnapshotSink.Write(b)
}

// snapshotFails is the fault that a snapshot meets now. mu is held.
func (d *disk) snapshotFails() error {
	if f := d.broken; f != nil && f.what == atSnapshot && !d.over && d.rnd.IntN(2) == 0 {
		return f.how
	}
	return nil
}

func (k *sinkOnDisk) shut() {
	if !k.closed {
		k.closed = true
		k.d.shelf.open--
	}
}

func (k *sinkOnDisk) Close() error {
	k.d.lag()
	if err := k.publish(); err != nil {
		return err
	}
	k.d.lag()
	if k.ends() {
		k.d.die(errPublished)
	}
	return nil
}

// errPublished ends a process behind a snapshot, before it changes its log because of that.
var errPublished = errors.New("a snapshot is there, and nothing more is written")

// ends makes a snapshot that was published durable, and tells whether the process is to end.
func (k *sinkOnDisk) ends() bool {
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	if k.d.over {
		return false
	}
	k.d.shelf.synced()
	return k.d.broken != nil && k.d.broken.what == atPublish
}

func (k *sinkOnDisk) publish() error {
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	k.shut()
	if err := k.d.snapshotFails(); err != nil {
		return errors.Join(err, k.SnapshotSink.Cancel())
	}
	if err := k.SnapshotSink.Close(); err != nil {
		return err
	}
	if !k.d.over {
		k.d.shelf.there = scan(k.d.dir)
	}
	return nil
}

func (k *sinkOnDisk) Cancel() error {
	k.d.mu.Lock()
	defer k.d.mu.Unlock()
	k.shut()
	return k.SnapshotSink.Cancel()
}

// synced notes that the folder was synced when the newest had come and the oldest had not gone yet.
func (s *shelf) synced() {
	s.removed = make(map[string]book)
	for name, b := range s.durable {
		if s.there[name] == nil {
			s.removed[name] = b
		}
	}
	s.durable = maps.Clone(s.there)
}
