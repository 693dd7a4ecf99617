package backup

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Version is that of the archives this program writes, and the only one it reads.
const Version = 1

// ErrMalformed tells that an archive is damaged, cut off or none at all.
var ErrMalformed = errors.New("backup cannot be used")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMalformed, fmt.Errorf(format, args...))
}

// Header is the first part of an archive: it tells of all others.
type Header struct {
	Version int `json:"version"`
	// ID is the backup's own uuid.
	ID      string    `json:"id"`
	Made    time.Time `json:"made"`    // when the cut was asked for, by the clock of the node that was asked
	Program string    `json:"program"` // version of the program that wrote it
	// Level is that of the cluster (package cluster/level), ClusterID its uuid.
	Level     int    `json:"level"`
	ClusterID string `json:"cluster_id"`
	// Revision is that of the catalog in it; nothing in the queues is newer.
	Revision uint64 `json:"revision"`
	// StandstillMillis is how long dead letters did not move between queues.
	StandstillMillis int64 `json:"standstill_ms"`
	// CatalogBytes is the length of the catalog's part, Queues are the other parts, by ID.
	CatalogBytes int64   `json:"catalog_bytes"`
	Queues       []Queue `json:"queues"`
}

// Queue is a replicated queue in an archive.
type Queue struct {
	ID    uint64 `json:"id"`
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	// Index and Term are those of the newest entry of its log that the state has, or of a later term.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Bytes is the length of its part: a snapshot's stream (docs/formats/snapshot-stream.md).
	Bytes int64 `json:"bytes"`
	// Node led the queue then.
	Node string `json:"node"`
}

// Bytes is the length of all parts before compression.
func (h *Header) Bytes() int64 {
	n := h.CatalogBytes
	for i := range h.Queues {
		n += h.Queues[i].Bytes
	}
	return n
}

// Bounds of what an archive may say.
const (
	headerBytesMax  = 256 << 20
	catalogBytesMax = 1 << 30
	partBytesMax    = 1 << 50
)

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// validate reports why a header cannot be one that was written.
func (h *Header) validate() error {
	switch {
	case h.Version != Version:
		return malformed("version %d, this program knows version %d", h.Version, Version)
	case !uuidPattern.MatchString(h.ID) || !uuidPattern.MatchString(h.ClusterID):
		return malformed("id %.64q of cluster %.64q: want uuids", h.ID, h.ClusterID)
	case h.Level < 1 || h.Revision == 0 || h.CatalogBytes <= 0 || h.CatalogBytes > catalogBytesMax:
		return malformed("level %d, revision %d, a catalog of %d bytes", h.Level, h.Revision, h.CatalogBytes)
	}
	last := uint64(0)
	for i := range h.Queues {
		q := &h.Queues[i]
		if q.ID <= last || q.ID > h.Revision || q.Index == 0 || q.Index == ^uint64(0) || q.Term == 0 || q.Term == ^uint64(0) || q.Bytes <= 0 || q.Bytes > partBytesMax {
			return malformed("queue %d behind %d: index %d, term %d, %d bytes", q.ID, last, q.Index, q.Term, q.Bytes)
		}
		last = q.ID
	}
	return nil
}
