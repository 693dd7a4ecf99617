package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

const (
	lockName       = "LOCK"
	versionName    = "VERSION"
	versionContent = "warren store 1\n"
	// ownerName is a file that whoever owns the directory may put there.
	ownerName = "OWNER"
)

// Whole returns nil if dir holds what a store has from the end of its first Open on, else what
// is missing. It changes nothing.
func Whole(fs FS, dir string) error {
	names, err := fs.ReadDir(dir)
	if err != nil {
		return err
	}
	if !slices.Contains(names, versionName) {
		return fmt.Errorf("no file %s", versionName)
	}
	s := &Store{fs: fs, looksOnly: true}
	empty := ""
	for _, name := range names {
		number, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		seg, what, _, err := s.openSegment(filepath.Join(dir, name), number)
		if err != nil {
			return err
		}
		if what == fileSegment {
			return seg.file.Close()
		}
		empty = name
	}
	if empty != "" {
		return fmt.Errorf("nothing in %s", empty)
	}
	return errors.New("no segment")
}

// openDir locks dir and makes sure it is a store of our version, creating one in an empty directory. A directory
// whose creation was interrupted counts as empty.
func openDir(fs FS, dir string) (io.Closer, error) {
	if err := fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	fresh := !slices.Contains(names, versionName)
	if fresh {
		for _, n := range names {
			if n != lockName && n != ownerName && n != ownerName+tempSuffix && n != versionName+tempSuffix && n != "lost+found" {
				return nil, fmt.Errorf("%q: %w", n, ErrForeignDirectory)
			}
		}
	}
	lock, err := fs.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	if fresh {
		err = writeVersion(fs, dir)
	} else {
		err = checkVersion(fs, dir)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func writeVersion(fs FS, dir string) error {
	temp := filepath.Join(dir, versionName+tempSuffix)
	f, err := fs.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(versionContent), 0)
	if err == nil {
		err = f.Fdatasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(temp, filepath.Join(dir, versionName)); err != nil {
		return err
	}
	return fs.SyncDir(dir)
}

func checkVersion(fs FS, dir string) error {
	f, err := fs.Open(filepath.Join(dir, versionName))
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 64)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if got := string(b[:n]); got != versionContent {
		if strings.HasPrefix(got, "warren store ") {
			return fmt.Errorf("%q: %w", strings.TrimSpace(got), ErrVersion)
		}
		return fmt.Errorf("%s holds %q: %w", versionName, got, ErrForeignDirectory)
	}
	return nil
}
