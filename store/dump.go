package store

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

var kindNames = [...]string{
	kindOpen: "open", kindSwitch: "switch", kindEntry: "entry", kindPinned: "pinned", kindFirst: "first", kindTruncate: "truncate",
	kindStable: "stable", kindVote: "vote", kindManifest: "manifest", kindDeleted: "deleted", kindState: "state",
}

func (k kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Dump prints every segment of the store in dir, one line a record, without locking or changing anything. On a store in use it
// shows the records that were written when it came by. A damaged body is marked; the records of a segment
// end where no sound header stands.
func Dump(fs FS, dir string, w io.Writer) error {
	if err := checkVersion(fs, dir); err != nil {
		return fmt.Errorf("dump store %s: %w", dir, err)
	}
	names, err := fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("dump store %s: %w", dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		number, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		if err := dumpSegment(fs, filepath.Join(dir, name), number, w); err != nil {
			return fmt.Errorf("dump %s: %w", name, err)
		}
	}
	return nil
}

func dumpSegment(fs FS, path string, number uint32, w io.Writer) (err error) {
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	seg := &segment{number: number, file: f, path: path}
	what, _, err := seg.identify()
	if err != nil {
		return err
	}
	items, end, footed, err := seg.readFooter()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "segment %d: %d bytes, counts %v, cold %v, footer %v (%d records, end %d)\n",
		number, seg.size, what == fileSegment, seg.cold, footed, len(items), end); err != nil {
		return err
	}
	sc := seg.scanner()
	for off := int64(segmentHeadBytes); ; {
		r, ok, err := sc.at(off)
		if err != nil || !ok {
			return err
		}
		mark := ""
		if r.badBody {
			mark = " DAMAGED"
		}
		if _, err := fmt.Fprintf(w, "%10d %-8v group %d seq %d.%d index %d term %d bytes %d%s\n",
			off, r.kind, r.group, epochOf(r.seq), r.seq&(1<<epochShift-1), r.index, r.term, r.bodyBytes, mark); err != nil {
			return err
		}
		off += padded(r.bodyBytes)
	}
}
