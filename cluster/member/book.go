package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// book is the address book: the newest info about each node. One mutex guards it.
type book struct {
	path string // "" keeps it in memory only

	mu      sync.Mutex
	entries map[NodeID]Info
	dirty   bool // entries differ from the file
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

// openBook reads the book. A file that cannot be understood is an error: the caller may
// delete it, nothing depends on it but finding others faster.
func openBook(path string) (*book, error) {
	b := &book{path: path, entries: make(map[NodeID]Info)}
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
		return nil, fmt.Errorf("address book %s: %w", path, err)
	}
	for _, i := range nodes {
		b.entries[i.Node] = i
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
	if known && (i.Boot < old.Boot || i == old) || !known && len(b.entries) >= bookEntriesMax {
		return
	}
	if known && i.Boot == old.Boot && i.ClusterID == "" && old.ClusterID != "" {
		return // told before the node knew its cluster
	}
	b.entries[i.Node] = i
	b.dirty = true
}

func (b *book) lookup(id NodeID) (Info, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.entries[id]
	return i, ok
}

// all returns the entries of the given cluster.
func (b *book) all(cluster string) []Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Info
	for _, i := range b.entries {
		if i.ClusterID == cluster {
			out = append(out, i)
		}
	}
	return out
}

// save writes the entries of the given cluster if they have changed.
func (b *book) save(cluster string) error {
	b.mu.Lock()
	dirty := b.dirty
	b.dirty = false
	b.mu.Unlock()
	if !dirty || b.path == "" {
		return nil
	}
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
