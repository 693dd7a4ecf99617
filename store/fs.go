package store

import "io"

// FS is the file system the store runs on. The real one is OSFS; package crashfs has one that
// can produce every disk image a crash may leave. Names are paths as given in Options.Dir.
type FS interface {
	MkdirAll(dir string) error
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Create makes an empty file or empties an existing one, open for reading and writing.
	Create(name string) (File, error)
	// ReadDir returns the base names in dir, in any order.
	ReadDir(dir string) ([]string, error)
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock tied to name, creating it; ErrLocked if somebody has it.
	Lock(name string) (io.Closer, error)
	// Free returns the bytes an unprivileged process may still write in dir.
	Free(dir string) (uint64, error)
}

// PageBytes is the unit of File.WriteDirect.
const PageBytes = 4096

// File is one open file. ReadAt and WriteAt may be called at once from several goroutines.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteDirect writes b and behind it tail past the page cache; errors.ErrUnsupported says that it cannot and wrote nothing. off, both
	// lengths and the places of both in memory are multiples of PageBytes. What it returned from is for Fdatasync like any write.
	WriteDirect(b, tail []byte, off int64) error
	// Fdatasync returns when the file's contents and length are durable.
	Fdatasync() error
	Truncate(size int64) error
	// Allocate reserves space up to size, which reads as zeroes, without writing it; errors.ErrUnsupported if it cannot.
	Allocate(size int64) error
	Size() (int64, error)
}

// aheadReader is a File that can begin to read what will be asked for.
type aheadReader interface {
	WillNeed(off, n int64)
}
