package member

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// book is the address book: the newest info about each node. One mutex guards it.
type book struct {
	path string // "" keeps it in memory only
	// keep tells whether a node belongs to the cluster; it is quick.
	keep func(NodeID) bool

	mu      sync.Mutex
	entries map[NodeID]bookEntry
	heard   uint64 // counts what was heard
	dirty   bool   // entries differ from the file
}

// bookEntry is an info with what b.heard was when it came last.
type bookEntry struct {
	Info
	heard uint64
}

const (
	bookVersion    = 1
	bookEntriesMax = 1024
	bookBytesMax   = 1 << 20
)

type bookFile struct {
	Version int    `json:"version"`
	Nodes   []Info `json:"nodes"`
}

// errBook reports a book that cannot be understood, as a power failure leaves one, since it is not synced. Nothing depends on it but finding others faster.
var errBook = errors.New("the address book cannot be understood")

// openBook reads the book. With errBook there is an empty one, too.
func openBook(path string, keep func(NodeID) bool) (*book, error) {
	b := &book{path: path, keep: keep, entries: make(map[NodeID]bookEntry)}
	if path == "" {
		return b, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the address book: %w", err)
	}
	nodes, err := decodeBook(raw)
	if err != nil {
		return b, fmt.Errorf("%w: %s: %w", errBook, path, err)
	}
	for _, i := range nodes {
		b.enter(i)
	}
	return b, nil
}

func decodeBook(raw []byte) ([]Info, error) {
	if len(raw) > bookBytesMax {
		return nil, fmt.Errorf("%d bytes, the maximum is %d", len(raw), bookBytesMax)
	}
	var f bookFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if f.Version != bookVersion {
		return nil, fmt.Errorf("version %d, want %d", f.Version, bookVersion)
	}
	for i := range f.Nodes {
		if err := f.Nodes[i].validate(); err != nil {
			return nil, err
		}
	}
	return f.Nodes, nil
}

// hear enters an info unless a newer one is there.
func (b *book) hear(i Info) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.entries[i.Node]
	if known && i.Boot < old.Boot || !known && len(b.entries) >= bookEntriesMax && !b.evict() {
		return
	}
	if known && i.Boot == old.Boot && i.ClusterID == "" && old.ClusterID != "" {
		return // told before the node knew its cluster
	}
	b.dirty = b.dirty || i != old.Info
	b.enter(i)
}

// enter makes an entry the newest; b.mu is held.
func (b *book) enter(i Info) {
	b.heard++
	b.entries[i.Node] = bookEntry{i, b.heard}
}

// evict makes room: of the nodes that do not belong to the cluster, the one that was not heard of for the longest time goes. Else one that begins with
// an empty disk again and again, each time as another node, would fill the book. b.mu is held.
func (b *book) evict() bool {
	var oldest *bookEntry
	for id, e := range b.entries {
		if (oldest == nil || e.heard < oldest.heard) && !b.keep(id) {
			oldest = &e
		}
	}
	if oldest != nil {
		delete(b.entries, oldest.Node)
	}
	return oldest != nil
}

func (b *book) lookup(id NodeID) (Info, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[id]
	return e.Info, ok
}

// all returns the entries of the given cluster, those heard of last at the end, so that the file has that order.
func (b *book) all(cluster string) []Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []bookEntry
	for _, e := range b.entries {
		if e.ClusterID == cluster {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(x, y bookEntry) int { return cmp.Compare(x.heard, y.heard) })
	out := make([]Info, len(found))
	for i, e := range found {
		out[i] = e.Info
	}
	return out
}

// save writes the entries of the given cluster if they have changed. After an error they have still.
func (b *book) save(cluster string) (err error) {
	b.mu.Lock()
	dirty := b.dirty
	b.dirty = false
	b.mu.Unlock()
	if !dirty || b.path == "" {
		return nil
	}
	defer func() {
		if err != nil {
			b.mu.Lock()
			b.dirty = true
			b.mu.Unlock()
		}
	}()
	raw, err := json.MarshalIndent(bookFile{bookVersion, b.all(cluster)}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the address book: %w", err)
	}
	// Renamed into place, so that a crash leaves the old one or the new. Not synced:
	// losing the newest addresses costs only time.
	tmp := b.path + ".tmp"
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return fmt.Errorf("write the address book: %w", err)
	}
	if err := os.Rename(tmp, b.path); err != nil {
		return fmt.Errorf("write the address book in %s: %w", filepath.Dir(b.path), err)
	}
	return nil
}
