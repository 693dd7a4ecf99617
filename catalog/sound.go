package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// ErrDamaged is returned for a folder whose bytes are not those that were written, or of which a part is missing.
var ErrDamaged = errors.New("the catalog on this disk is damaged")

// checkPages reads every page of the file of log and votes that is in use. bbolt takes pages for sound and ends the process at one that is not, partly in
// goroutines of its own; here it is read only, by this goroutine, where that can be told from a bug.
func checkPages(path string) (err error) {
	if st, err := os.Stat(path); err != nil || st.Size() == 0 {
		return nil //nolint:nilerr // there is nothing to check
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a page beyond the end of the file
	defer func() {
		switch r := recover().(type) {
		case nil:
		case runtime.Error:
			err = fmt.Errorf("%w: %s: a page in use is not in the file", ErrDamaged, path)
		default:
			err = fmt.Errorf("%w: %s: %v", ErrDamaged, path, r)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err != nil {
		return err // who opens it says so, too
	}
	sum := uint32(0)
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				sum = crc32.Update(crc32.Update(sum, crcTable, k), crcTable, v) // touches all of it
				return nil
			})
		})
	})
	return errors.Join(err, db.Close())
}

// sumMark begins what an entry has in Extensions on disk: the mark, and CRC-32C of its index, term, type and data. bbolt has no checksums
// of what is in its pages. Entries of older programs have none.
const sumMark = "WSUM"

// snapshotsDir is the folder in which hashicorp/raft keeps snapshots.
const snapshotsDir = "snapshots"

var crcTable = crc32.MakeTable(crc32.Castagnoli)

func sumOf(l *raft.Log) []byte {
	head := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, l.Index), l.Term)
	sum := crc32.Update(crc32.Checksum(append(head, byte(l.Type)), crcTable), crcTable, l.Data)
	return binary.BigEndian.AppendUint32([]byte(sumMark), sum)
}

// withSums are entries as they are kept.
func withSums(logs []*raft.Log) []*raft.Log {
	kept := make([]*raft.Log, len(logs))
	for i, l := range logs {
		if len(l.Extensions) > 0 && !bytes.HasPrefix(l.Extensions, []byte(sumMark)) {
			kept[i] = l
			continue
		}
		c := *l
		c.Extensions = sumOf(l)
		kept[i] = &c
	}
	return kept
}

// takeSum checks an entry that was read and takes its checksum off.
func takeSum(l *raft.Log, i uint64) error {
	if l.Index != i {
		return fmt.Errorf("entry %d is in its place", l.Index)
	}
	if !bytes.HasPrefix(l.Extensions, []byte(sumMark)) {
		return nil
	}
	if !bytes.Equal(l.Extensions, sumOf(l)) {
		return errors.New("it does not match its checksum")
	}
	l.Extensions = nil
	return nil
}

// checkHistory makes sure that the log continues the newest snapshot that can be read, and that what is newer can be read. Raft ends the
// process where it does not, or begins with less. Below a snapshot that was installed the log may have holes: hole is the end of the last one, 0 if it has none.
func (s *guardedStore) checkHistory(dir string) (hole uint64, err error) {
	first, err := s.durable.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := s.durable.LastIndex()
	if err != nil {
		return 0, err
	}
	whole, lost, err := newestWhole(s.snapshots)
	if err != nil {
		return 0, err
	}
	at := uint64(0)
	if whole != nil {
		at = whole.Index
	}
	if lost > max(at, last) {
		return 0, fmt.Errorf("%w: the snapshot of entry %d in %s cannot be read, and the log ends with %d", ErrDamaged, lost, filepath.Join(dir, snapshotsDir), last)
	}
	if first > at+1 {
		return 0, fmt.Errorf("%w: the log begins with entry %d, and no snapshot that can be read in %s goes so far", ErrDamaged, first, filepath.Join(dir, snapshotsDir))
	}
	for i := max(first, 1); i <= last && last > 0; i++ {
		var l raft.Log
		err := s.durable.GetLog(i, &l)
		if err == nil {
			err = takeSum(&l, i)
		} else if errors.Is(err, raft.ErrLogNotFound) && i <= at {
			hole = i
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("%w: entry %d in %s: %w", ErrDamaged, i, filepath.Join(dir, logFile), err)
		}
	}
	return hole, nil
}

// newestWhole is the newest snapshot whose bytes are what was written, nil if there is none, and the index of the newest one of which they are not, 0 if there is none.
func newestWhole(snapshots raft.SnapshotStore) (whole *raft.SnapshotMeta, lost uint64, err error) {
	kept, err := snapshots.List()
	if err != nil {
		return nil, 0, fmt.Errorf("list the catalog's snapshots: %w", err)
	}
	for _, m := range kept {
		_, r, err := snapshots.Open(m.ID)
		if err == nil {
			return m, lost, r.Close()
		}
		lost = max(lost, m.Index) // the store has said why
	}
	return nil, lost, nil
}
