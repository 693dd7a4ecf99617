// Package faultfs is a file system that a test breaks while a node runs on it: it can be
// full, fail, be slow to sync, and forget at a kill what was not synced.
//
// A process that is killed loses nothing that it wrote: the kernel has it. A machine that loses
// power does. With Options.Forget the file system keeps what is not synced in the memory of
// the process, so that SIGKILL does to a node what a loss of power does to a machine: contents not
// synced by Fdatasync, and names not synced by SyncDir, may be gone. Some of both are written at
// once, at random, for a disk may also have kept them.
//
// It is compiled into builds with the tag `failpoints` alone. Package crashfs is its cousin for tests
// inside one process, which enumerates the images of a crash.
package faultfs

import (
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/warrenmq/warren/store"
)

// Options of a file system.
type Options struct {
	// Forget keeps what is not synced in memory.
	Forget bool
	// KeepPercent is the share of writes and names that reach the disk unsynced.
	KeepPercent int
}

// Faults are what is wrong with the disk now.
type Faults struct {
	// Full: nothing grows any more, and Free answers 0.
	Full bool
	// Failing: writes and syncs fail with EIO.
	Failing bool
	// Unreadable: reads fail with EIO.
	Unreadable bool
	// SyncDelay is added to each Fdatasync.
	SyncDelay time.Duration
}

// hidden begins the names of files that the directory does not show after a crash.
const hidden = ".unsynced-"

// dirtyBytesMax bounds what is kept in memory for one file; beyond it a write goes to the disk at once.
const dirtyBytesMax = 64 << 20

// FS implements store.FS over another one. It may be used from several goroutines.
type FS struct {
	base   store.FS
	opt    Options
	faults atomic.Pointer[Faults]

	mu      sync.Mutex
	inodes  map[string]*inode    // by name as the store knows it
	place   map[string]string    // of names that are elsewhere on the disk, "" if they are gone
	pending map[string][]nameOps // by directory: to be done at SyncDir, in this order
	count   uint64
}

// nameOps is a change of names that is not on the disk yet; a removal has no to.
type nameOps struct{ from, to string }

// New returns a file system over base.
func New(base store.FS, opt Options) *FS {
	f := &FS{base: base, opt: opt, inodes: map[string]*inode{}, place: map[string]string{}, pending: map[string][]nameOps{}}
	f.faults.Store(&Faults{})
	return f
}

// Set changes what is wrong from now on.
func (f *FS) Set(x Faults) { f.faults.Store(&x) }

// Faults are what is wrong now.
func (f *FS) Faults() Faults { return *f.faults.Load() }

func (f *FS) failing() error {
	if f.Faults().Failing {
		return syscall.EIO
	}
	return nil
}

// keeps tells whether a change reaches the disk although it is not synced.
func (f *FS) keeps() bool { return !f.opt.Forget || rand.IntN(100) < f.opt.KeepPercent }

// at is where a name is on the disk; false if it was removed.
func (f *FS) at(name string) (string, bool) {
	p, moved := f.place[name]
	if !moved {
		return name, true
	}
	return p, p != ""
}

// MkdirAll implements store.FS.
func (f *FS) MkdirAll(dir string) error { return f.base.MkdirAll(dir) }

// Open implements store.FS.
func (f *FS) Open(name string) (store.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.at(name)
	if !ok {
		return nil, syscall.ENOENT
	}
	b, err := f.base.Open(at)
	if err != nil {
		return nil, err
	}
	return f.file(name, b)
}

// Create implements store.FS.
func (f *FS) Create(name string) (store.File, error) {
	if err := f.failing(); err != nil {
		return nil, err
	}
	if f.Faults().Full {
		return nil, syscall.ENOSPC
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := name
	dir := filepath.Dir(name)
	if !f.keeps() || len(f.pending[dir]) > 0 {
		f.count++
		at = filepath.Join(dir, hidden+filepath.Base(name)+"-"+decimal(f.count))
	}
	b, err := f.base.Create(at)
	if err != nil {
		return nil, err
	}
	if at != name {
		f.place[name] = at
		f.pending[dir] = append(f.pending[dir], nameOps{at, name})
	}
	delete(f.inodes, name)
	return f.file(name, b)
}

func (f *FS) file(name string, b store.File) (store.File, error) {
	n := f.inodes[name]
	if n == nil {
		n = &inode{}
		f.inodes[name] = n
	}
	return &file{fs: f, inode: n, base: b}, nil
}

// ReadDir implements store.FS. What a crash has made nameless is removed.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, err := f.base.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	inUse := map[string]bool{}
	for _, at := range f.place {
		inUse[at] = true
	}
	list := names[:0]
	for _, n := range names {
		full := filepath.Join(dir, n)
		if strings.HasPrefix(n, hidden) {
			if !inUse[full] {
				if err := f.base.Remove(full); err != nil {
					return nil, err
				}
			}
			continue
		}
		if _, moved := f.place[full]; !moved {
			list = append(list, n)
		}
	}
	for n, at := range f.place {
		if at != "" && filepath.Dir(n) == filepath.Clean(dir) {
			list = append(list, filepath.Base(n))
		}
	}
	return list, nil
}

// Rename implements store.FS.
func (f *FS) Rename(from, to string) error {
	if err := f.failing(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.at(from)
	if !ok {
		return syscall.ENOENT
	}
	if n := f.inodes[from]; n != nil {
		f.inodes[to] = n
		delete(f.inodes, from)
	} else {
		delete(f.inodes, to)
	}
	dir := filepath.Dir(to)
	if f.keeps() && len(f.pending[dir]) == 0 {
		return f.base.Rename(from, to)
	}
	f.place[to], f.place[from] = at, ""
	f.pending[dir] = append(f.pending[dir], nameOps{from, to})
	return nil
}

// Remove implements store.FS.
func (f *FS) Remove(name string) error {
	if err := f.failing(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.at(name); !ok {
		return syscall.ENOENT
	}
	delete(f.inodes, name)
	dir := filepath.Dir(name)
	if f.keeps() && len(f.pending[dir]) == 0 {
		return f.base.Remove(name)
	}
	f.place[name] = ""
	f.pending[dir] = append(f.pending[dir], nameOps{name, ""})
	return nil
}

// SyncDir implements store.FS.
func (f *FS) SyncDir(dir string) error {
	if err := f.failing(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = filepath.Clean(dir)
	for len(f.pending[dir]) > 0 {
		op := f.pending[dir][0]
		var err error
		if op.to == "" {
			err = f.base.Remove(op.from)
		} else {
			err = f.base.Rename(op.from, op.to)
		}
		if err != nil {
			return err
		}
		f.pending[dir] = f.pending[dir][1:]
	}
	for n := range f.place {
		if filepath.Dir(n) == dir {
			delete(f.place, n)
		}
	}
	return f.base.SyncDir(dir)
}

// Lock implements store.FS.
func (f *FS) Lock(name string) (io.Closer, error) { return f.base.Lock(name) }

// Free implements store.FS.
func (f *FS) Free(dir string) (uint64, error) {
	if f.Faults().Full {
		return 0, nil
	}
	return f.base.Free(dir)
}
