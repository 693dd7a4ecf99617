package faultfs

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/warrenmq/warren/store"
)

// inode is what all handles of one file share: the writes that are not on the disk, oldest first.
type inode struct {
	mu    sync.RWMutex
	dirty []write
	bytes int
}

type write struct {
	off  int64
	data []byte
}

// file implements store.File.
type file struct {
	fs    *FS
	inode *inode
	base  store.File
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// ReadAt lays what is not on the disk over what is.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if f.fs.Faults().Unreadable {
		return 0, syscall.EIO
	}
	f.inode.mu.RLock()
	defer f.inode.mu.RUnlock()
	n, err := f.base.ReadAt(p, off)
	if len(f.inode.dirty) == 0 || err != nil && !errors.Is(err, io.EOF) {
		return n, err
	}
	clear(p[n:])
	for _, w := range f.inode.dirty {
		if from, to := max(off, w.off), min(off+int64(len(p)), w.off+int64(len(w.data))); from < to {
			copy(p[from-off:to-off], w.data[from-w.off:])
			n = max(n, int(to-off))
		}
	}
	if n == len(p) {
		return n, nil
	}
	return n, io.EOF
}

// WriteAt writes to memory, or to the disk.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	return len(p), f.write(p, off, func() error {
		_, err := f.base.WriteAt(p, off)
		return err
	})
}

// WriteDirect implements store.File.
func (f *file) WriteDirect(b, tail []byte, off int64) error {
	if !f.fs.opt.Forget {
		return f.write(nil, off+int64(len(b)+len(tail)), func() error { return f.base.WriteDirect(b, tail, off) })
	}
	p := slices.Concat(b, tail)
	return f.write(p, off, func() error {
		_, err := f.base.WriteAt(p, off)
		return err
	})
}

// write keeps p in memory or calls through, which brings it to the disk.
func (f *file) write(p []byte, off int64, through func() error) error {
	if err := f.fs.failing(); err != nil {
		return err
	}
	f.inode.mu.Lock()
	defer f.inode.mu.Unlock()
	if f.fs.Faults().Full {
		if size, err := f.base.Size(); err != nil || off+int64(len(p)) > size {
			return errors.Join(syscall.ENOSPC, err)
		}
	}
	over := f.inode.bytes+len(p) > dirtyBytesMax
	if f.inode.overlaps(off, int64(len(p))) || !over && !f.fs.keeps() {
		f.inode.dirty = append(f.inode.dirty, write{off, append([]byte(nil), p...)})
		f.inode.bytes += len(p)
		return nil
	}
	return through()
}

// overlaps tells whether a write would be older than one in memory that it replaces.
func (n *inode) overlaps(off, size int64) bool {
	for _, w := range n.dirty {
		if off < w.off+int64(len(w.data)) && w.off < off+size {
			return true
		}
	}
	return false
}

// flushLocked brings what is in memory to the disk.
func (f *file) flushLocked() error {
	for _, w := range f.inode.dirty {
		if _, err := f.base.WriteAt(w.data, w.off); err != nil {
			return err
		}
	}
	f.inode.dirty, f.inode.bytes = nil, 0
	return nil
}

// Fdatasync implements store.File.
func (f *file) Fdatasync() error {
	time.Sleep(f.fs.Faults().SyncDelay)
	if err := f.fs.failing(); err != nil {
		return err
	}
	f.inode.mu.Lock()
	err := f.flushLocked()
	f.inode.mu.Unlock()
	if err != nil {
		return err
	}
	return f.base.Fdatasync()
}

// Truncate implements store.File.
func (f *file) Truncate(size int64) error {
	if err := f.fs.failing(); err != nil {
		return err
	}
	f.inode.mu.Lock()
	defer f.inode.mu.Unlock()
	if err := f.flushLocked(); err != nil {
		return err
	}
	return f.base.Truncate(size)
}

// Allocate implements store.File.
func (f *file) Allocate(size int64) error {
	if err := f.fs.failing(); err != nil {
		return err
	}
	if f.fs.Faults().Full {
		return syscall.ENOSPC
	}
	return f.base.Allocate(size)
}

// Size implements store.File.
func (f *file) Size() (int64, error) {
	f.inode.mu.RLock()
	defer f.inode.mu.RUnlock()
	size, err := f.base.Size()
	for _, w := range f.inode.dirty {
		size = max(size, w.off+int64(len(w.data)))
	}
	return size, err
}

// Close implements store.File. What is not synced stays unsynced.
func (f *file) Close() error { return f.base.Close() }
