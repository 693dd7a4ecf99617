package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// OSFS is the operating system's file system.
type OSFS struct{}

type osFile struct {
	*os.File

	mu       sync.Mutex
	direct   *os.File // the same file past the page cache, opened when it is first asked for
	indirect bool     // the file system has nothing like it
}

// MkdirAll creates dir and its parents.
func (OSFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o750) }

// Open implements FS.
func (OSFS) Open(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

// OpenToRead opens an existing file that is not written to.
func (OSFS) OpenToRead(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

// Create implements FS.
func (OSFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f}, nil
}

// ReadDir implements FS.
func (OSFS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Rename implements FS.
func (OSFS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OSFS) Remove(name string) error { return os.Remove(name) }

// SyncDir implements FS.
func (OSFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// Lock implements FS with flock, which the kernel gives up when the process ends.
func (OSFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", name, ErrLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// Free implements FS.
func (OSFS) Free(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// Fdatasync repeats after an interrupted call; every other failure is final.
func (f *osFile) Fdatasync() error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return err
		}
	}
}

// WriteDirect implements File with O_DIRECT, which takes a third of the processor time of a write through the page cache.
func (f *osFile) WriteDirect(b, tail []byte, off int64) error {
	d, err := f.past()
	if err != nil {
		return err
	}
	bufs := [][]byte{b, tail}
	for written := int64(0); len(bufs) > 0; {
		if len(bufs[0]) == 0 {
			bufs = bufs[1:]
			continue
		}
		n, err := unix.Pwritev(int(d.Fd()), bufs, off+written)
		switch {
		case err == unix.EINTR:
		case err == unix.EINVAL && written == 0:
			f.mu.Lock()
			f.indirect = true
			f.mu.Unlock()
			return errors.ErrUnsupported
		case err != nil:
			return &os.PathError{Op: "pwritev", Path: f.Name(), Err: err}
		case n == 0 || n%PageBytes != 0: // nothing that a file system does to whole pages
			return &os.PathError{Op: "pwritev", Path: f.Name(), Err: io.ErrShortWrite}
		}
		for n = max(n, 0); n > 0; {
			k := min(n, len(bufs[0]))
			bufs[0] = bufs[0][k:]
			if n, written = n-k, written+int64(k); len(bufs[0]) == 0 {
				bufs = bufs[1:]
			}
		}
	}
	return nil
}

// WillNeed has the kernel begin to read, and does not wait.
func (f *osFile) WillNeed(off, n int64) {
	_ = unix.Fadvise(int(f.Fd()), off, n, unix.FADV_WILLNEED) // advice
}

// past opens the file a second time: a flag of the first one would be for readers, too.
func (f *osFile) past() (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.direct == nil && !f.indirect {
		d, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR|unix.O_DIRECT, 0) // its name may have changed
		f.direct, f.indirect = d, err != nil
	}
	if f.indirect {
		return nil, errors.ErrUnsupported
	}
	return f.direct, nil
}

// Close closes the file.
func (f *osFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.direct != nil {
		err = f.direct.Close()
	}
	return errors.Join(err, f.File.Close())
}

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Allocate implements File with fallocate.
func (f *osFile) Allocate(size int64) error {
	for {
		switch err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err {
		case syscall.EINTR:
		case syscall.EOPNOTSUPP, syscall.ENOSYS:
			return errors.ErrUnsupported
		default:
			return err
		}
	}
}

// pause blocks the calling thread. time.Sleep rounds to a millisecond on an idle scheduler, which
// is longer than the sync that the linger is meant to shorten.
func pause(d time.Duration) {
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&ts, nil)
}
