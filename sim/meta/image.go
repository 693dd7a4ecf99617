package meta

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// A sector is written or not; a page of several may be torn.
const sectorBytes = 512

// image writes what a disk may have when its process has ended to a folder: if it was killed, all that it has written, else what is durable, and of the rest
// what the disk got to, in any order.
func (d *disk) image(dir string, killed bool, r *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.MkdirAll(filepath.Join(dir, snapshotsFolder), 0o700); err != nil {
		return err
	}
	writes := d.pending
	if !killed {
		writes = survivors(d.pending, r)
	}
	if err := os.WriteFile(filepath.Join(dir, logFile), applied(slices.Clone(d.file), d.size, writes), 0o600); err != nil {
		return err
	}
	books := d.shelf.there
	if !killed {
		books = d.shelf.survivors(r)
	}
	if d.shelf.open > 0 {
		books["1-1-1.tmp"] = book{"meta.json": nil, "state.bin": make([]byte, r.IntN(64))}
	}
	for _, name := range slices.Sorted(maps.Keys(books)) {
		if err := books[name].write(filepath.Join(dir, snapshotsFolder, name)); err != nil {
			return err
		}
	}
	return nil
}

func (b book) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, data := range b {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// survivors are writes of a transaction that was not over. The page that refers to the others was not written before they were durable.
func survivors(pending []write, r *rand.Rand) (out []write) {
	whole := r.IntN(2) == 0
	for _, w := range pending {
		switch {
		case w.head && !whole:
			return out
		case whole && !w.head || r.IntN(4) == 0:
			out = append(out, w)
		default:
			for off := 0; off < len(w.data); off += sectorBytes {
				if r.IntN(2) == 0 {
					out = append(out, write{w.off + int64(off), w.data[off:min(off+sectorBytes, len(w.data))], w.head})
				}
			}
		}
	}
	return out
}

// survivors are the snapshots that the folder may list.
func (s *shelf) survivors(r *rand.Rand) map[string]book {
	books, removed := maps.Clone(s.durable), s.removed
	fresh := func(name string) bool { return s.durable[name] == nil }
	if slices.ContainsFunc(slices.Collect(maps.Keys(s.there)), fresh) && r.IntN(2) == 0 {
		// The newest one is durable, and what it made superfluous may be gone.
		next := *s
		next.synced()
		books, removed = maps.Clone(next.durable), next.removed
	}
	for _, name := range slices.Sorted(maps.Keys(removed)) {
		switch b := removed[name]; r.IntN(4) {
		case 0:
			books[name] = b
		case 1: // one of the files is gone
			books[name] = book{"meta.json": b["meta.json"]}
		case 2:
			books[name] = book{"state.bin": b["state.bin"]}
		}
	}
	return books
}
