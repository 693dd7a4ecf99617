// Package crashfs is a file system in memory that can show what a disk may hold after a crash.
//
// It keeps a journal of every operation. Image rebuilds, from any prefix of the journal, a disk that respects exactly what was
// promised: contents synced by Fdatasync and names synced by SyncDir are there; of everything later any subset of
// sectors and any subset of name changes may be. Killed is what a process finds that follows one which was killed: all that was written, and still
// nothing more on the disk. It also refuses operations on request, for tests of a full or broken disk.
//
// It is for tests of package store and never part of the product.
package crashfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"

	"github.com/warrenmq/warren/store"
)

// SectorBytes is the unit a disk writes whole or not at all.
const SectorBytes = 512

// Op names an operation for Fail.
type Op string

// The operations that Fail is asked about.
const (
	OpCreate   Op = "create"
	OpWrite    Op = "write"
	OpSync     Op = "sync"
	OpTruncate Op = "truncate"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpSyncDir  Op = "syncdir"

	// opForgotten stands for a sync that failed: the kernel counts what was written before as clean, so that no later sync writes it.
	opForgotten Op = "forgotten"
)

// step is one line of the journal.
type step struct {
	op   Op
	ino  int
	name string // create, rename (to), remove
	from string // rename
	off  int64  // write; size of truncate
	data []byte // write
}

// FS implements store.FS. It may be used from several goroutines.
type FS struct {
	mu      sync.Mutex
	start   *disk // before the journal's first step
	now     *disk
	journal []step
	locked  map[string]bool
	fail    func(Op) error
	free    uint64
}

// disk is the contents of a file system: names and files. Files are shared between copies until written.
type disk struct {
	names  map[string]int
	files  map[int][]byte
	shared map[int]bool // files of which the bytes are another disk's too
	next   int
}

// clone copies a disk. Both share the files' bytes until one of them changes them.
func (d *disk) clone() *disk {
	c := &disk{names: maps.Clone(d.names), files: maps.Clone(d.files), shared: make(map[int]bool, len(d.files)), next: d.next}
	for i := range d.files {
		d.shared[i], c.shared[i] = true, true
	}
	return c
}

// own returns a file's bytes for a change.
func (d *disk) own(ino int) []byte {
	b := d.files[ino]
	if d.shared[ino] {
		b = slices.Clone(b)
		d.files[ino] = b
		delete(d.shared, ino)
	}
	return b
}

// sweep forgets the files without a name, which nobody can reach on a disk that is started afresh.
func (d *disk) sweep() {
	named := make(map[int]bool, len(d.names))
	for _, i := range d.names {
		named[i] = true
	}
	maps.DeleteFunc(d.files, func(i int, _ []byte) bool { return !named[i] })
	maps.DeleteFunc(d.shared, func(i int, _ bool) bool { return !named[i] })
}

// New returns an empty file system with plenty of space.
func New() *FS {
	return from(&disk{names: make(map[string]int), files: make(map[int][]byte), shared: make(map[int]bool), next: 1})
}

func from(d *disk) *FS {
	return &FS{start: d.clone(), now: d, locked: make(map[string]bool), free: 1 << 40}
}

// Len is the number of operations so far; every call that has returned is among them.
func (f *FS) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.journal)
}

// Fail makes fn decide about every later operation; an error is returned in its place. nil ends it.
func (f *FS) Fail(fn func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fn
}

// SetFree sets what Free answers.
func (f *FS) SetFree(bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = bytes
}

// Corrupt changes one byte of a file, as a decaying disk would.
func (f *FS) Corrupt(name string, off int64, change byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ino, ok := f.now.names[name]
	if !ok || off < 0 || off >= int64(len(f.now.files[ino])) {
		return fmt.Errorf("corrupt %s at %d: %w", name, off, fs.ErrNotExist)
	}
	f.now.own(ino)[off] ^= change
	return nil
}

// do journals a step and carries it out.
func (f *FS) do(s step) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail(s.op); err != nil {
			return err
		}
	}
	f.journal = append(f.journal, s)
	f.now.apply(s)
	return nil
}

// apply carries out a step as the running system sees it.
func (d *disk) apply(s step) {
	switch s.op {
	case OpCreate:
		d.names[s.name] = s.ino
		d.files[s.ino] = nil
		delete(d.shared, s.ino)
	case OpWrite:
		d.write(s.ino, s.off, s.data)
	case OpTruncate:
		b := d.own(s.ino)
		if int64(len(b)) > s.off {
			d.files[s.ino] = b[:s.off]
		} else {
			d.files[s.ino] = append(b, make([]byte, s.off-int64(len(b)))...)
		}
	case OpRename:
		d.names[s.name] = d.names[s.from]
		delete(d.names, s.from)
	case OpRemove:
		delete(d.names, s.name)
	}
}

func (d *disk) write(ino int, off int64, data []byte) {
	b := d.own(ino)
	if need := off + int64(len(data)); int64(len(b)) < need {
		b = append(b, make([]byte, need-int64(len(b)))...)
	}
	copy(b[off:], data)
	d.files[ino] = b
}

// Image builds a disk that a crash right before operation n may leave; r chooses which of the allowed ones. The new
// file system has an empty journal. n is at most Len.
func (f *FS) Image(n int, r *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.start.clone()
	loose := make(map[int][]step) // writes not synced, by file
	var names []step              // name changes not synced
	for _, s := range f.journal[:n] {
		switch s.op {
		case OpWrite, OpTruncate:
			loose[s.ino] = append(loose[s.ino], s)
		case OpSync:
			for _, w := range loose[s.ino] {
				d.apply(w)
			}
			delete(loose, s.ino)
		case opForgotten:
			mood := r.IntN(4)
			for i, w := range loose[s.ino] {
				d.tear(w, mood, i == len(loose[s.ino])-1, r)
			}
			delete(loose, s.ino)
		case OpSyncDir:
			for _, c := range names {
				d.name(c)
			}
			names = nil
		default:
			names = append(names, s)
		}
		d.next = max(d.next, s.ino+1)
	}
	mood := r.IntN(4)
	for _, c := range names {
		if keep(mood, r) {
			d.name(c)
		}
	}
	for _, ino := range slices.Sorted(keys(loose)) {
		for i, w := range loose[ino] {
			d.tear(w, mood, i == len(loose[ino])-1, r)
		}
	}
	d.sweep()
	return from(d)
}

// Killed is the file system that a process finds when the one before was killed right before operation n: it sees everything that was written,
// and an Image may lack what neither has synced. n is at most Len.
func (f *FS) Killed(n int) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := &FS{start: f.start.clone(), now: f.start.clone(), journal: slices.Clone(f.journal[:n]), locked: make(map[string]bool), free: f.free}
	for _, s := range k.journal {
		k.now.apply(s)
		k.now.next = max(k.now.next, s.ino+1)
	}
	return k
}

// name applies a name change to a durable disk. Unlike apply it keeps contents: they have their own sync.
func (d *disk) name(s step) {
	switch s.op {
	case OpCreate:
		d.names[s.name] = s.ino
		if d.files[s.ino] == nil {
			d.files[s.ino] = []byte{}
		}
	case OpRename:
		// An entry of a folder names its file: whatever else has had the former name, on this disk too, does not get the new one.
		if _, ok := d.names[s.from]; ok {
			d.names[s.name] = s.ino
			delete(d.names, s.from)
			if d.files[s.ino] == nil {
				d.files[s.ino] = []byte{}
			}
		}
	case OpRemove:
		delete(d.names, s.name)
	}
}

// keep decides about one unsynced change: all, none, or any.
func keep(mood int, r *rand.Rand) bool {
	switch mood {
	case 0:
		return true
	case 1:
		return false
	}
	return r.IntN(2) == 0
}

// tear applies some sectors of an unsynced write: all or none of it, any subset, or, of the last one, a prefix.
func (d *disk) tear(s step, mood int, last bool, r *rand.Rand) {
	if s.op == OpTruncate {
		if keep(mood, r) {
			d.apply(s)
		}
		return
	}
	if mood == 2 && last {
		cut := r.Int64N(int64(len(s.data))/SectorBytes+2) * SectorBytes
		cut -= s.off % SectorBytes
		if cut > 0 {
			d.write(s.ino, s.off, s.data[:min(cut, int64(len(s.data)))])
		}
		return
	}
	if mood < 3 {
		if keep(mood, r) {
			d.apply(s)
		}
		return
	}
	for at := int64(0); at < int64(len(s.data)); {
		end := min(at+SectorBytes-(s.off+at)%SectorBytes, int64(len(s.data)))
		if r.IntN(2) == 0 {
			d.write(s.ino, s.off+at, s.data[at:end])
		}
		at = end
	}
}

func keys(m map[int][]step) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// MkdirAll implements store.FS; every directory exists.
func (f *FS) MkdirAll(string) error { return nil }

// Open implements store.FS.
func (f *FS) Open(name string) (store.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ino, ok := f.now.names[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{f, ino}, nil
}

// Create implements store.FS. An existing name gets a new, empty file.
func (f *FS) Create(name string) (store.File, error) {
	f.mu.Lock()
	ino := f.now.next
	f.now.next++
	f.mu.Unlock()
	if err := f.do(step{op: OpCreate, ino: ino, name: name}); err != nil {
		return nil, err
	}
	return &file{f, ino}, nil
}

// ReadDir implements store.FS.
func (f *FS) ReadDir(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for n := range f.now.names {
		if path.Dir(n) == path.Clean(dir) {
			out = append(out, path.Base(n))
		}
	}
	return out, nil
}

// Rename implements store.FS.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	ino, ok := f.now.names[from]
	f.mu.Unlock()
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	return f.do(step{op: OpRename, ino: ino, from: from, name: to})
}

// Remove implements store.FS.
func (f *FS) Remove(name string) error {
	f.mu.Lock()
	_, ok := f.now.names[name]
	f.mu.Unlock()
	if !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	return f.do(step{op: OpRemove, name: name})
}

// SyncDir implements store.FS.
func (f *FS) SyncDir(string) error { return f.do(step{op: OpSyncDir}) }

// Free implements store.FS.
func (f *FS) Free(string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.free, nil
}

// Lock implements store.FS. A crash gives all locks up.
func (f *FS) Lock(name string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locked[name] {
		return nil, fmt.Errorf("%s: %w", name, store.ErrLocked)
	}
	f.locked[name] = true
	return unlock{f, name}, nil
}

type unlock struct {
	f    *FS
	name string
}

func (u unlock) Close() error {
	u.f.mu.Lock()
	defer u.f.mu.Unlock()
	delete(u.f.locked, u.name)
	return nil
}

// file is one open file.
type file struct {
	f   *FS
	ino int
}

func (o *file) ReadAt(b []byte, off int64) (int, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	data := o.f.now.files[o.ino]
	if off >= int64(len(data)) {
		return 0, io.EOF
	}
	n := copy(b, data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (o *file) WriteAt(b []byte, off int64) (int, error) {
	if err := o.f.do(step{op: OpWrite, ino: o.ino, off: off, data: slices.Clone(b)}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteDirect is a write like any other: a disk may keep any of its sectors.
func (o *file) WriteDirect(b, tail []byte, off int64) error {
	if off%store.PageBytes != 0 || len(b)%store.PageBytes != 0 || len(tail)%store.PageBytes != 0 {
		panic(fmt.Sprintf("direct write of %d and %d bytes at %d", len(b), len(tail), off))
	}
	return o.f.do(step{op: OpWrite, ino: o.ino, off: off, data: slices.Concat(b, tail)})
}

func (o *file) Fdatasync() error {
	err := o.f.do(step{op: OpSync, ino: o.ino})
	if err != nil {
		o.f.mu.Lock()
		defer o.f.mu.Unlock()
		o.f.journal = append(o.f.journal, step{op: opForgotten, ino: o.ino})
	}
	return err
}

func (o *file) Truncate(size int64) error {
	return o.f.do(step{op: OpTruncate, ino: o.ino, off: size})
}

// Allocate reserves nothing; a later write may still be refused.
func (o *file) Allocate(size int64) error { return o.Truncate(size) }

func (o *file) Size() (int64, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	return int64(len(o.f.now.files[o.ino])), nil
}

func (o *file) Close() error { return nil }
