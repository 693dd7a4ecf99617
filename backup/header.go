package backup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	queuesMax       = 1 << 20
	restBytesMax    = 1 << 20 // of the header, without the queues
	valueBytesMax   = 1 << 20 // of one queue in it, or of one other field
	sumBytesMax     = 80      // of one checksum at the end
	catalogBytesMax = 1 << 30
	partBytesMax    = 1 << 50
)

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// validate reports why a header cannot be one that was written.
func (h *Header) validate() error {
	if err := h.validateRest(); err != nil {
		return err
	}
	if len(h.Queues) > queuesMax {
		return malformed("%d queues, the maximum is %d", len(h.Queues), queuesMax)
	}
	last := uint64(0)
	for i := range h.Queues {
		if err := h.Queues[i].validate(last); err != nil {
			return err
		}
		last = h.Queues[i].ID
	}
	if last > h.Revision {
		return malformed("queue %d in a catalog of revision %d", last, h.Revision)
	}
	return nil
}

// validateRest looks at all but the queues.
func (h *Header) validateRest() error {
	switch {
	case h.Version != Version:
		return malformed("version %d, this program knows version %d", h.Version, Version)
	case !uuidPattern.MatchString(h.ID) || !uuidPattern.MatchString(h.ClusterID):
		return malformed("id %.64q of cluster %.64q: want uuids", h.ID, h.ClusterID)
	case h.Level < 1 || h.Revision == 0 || h.CatalogBytes <= 0 || h.CatalogBytes > catalogBytesMax:
		return malformed("level %d, revision %d, a catalog of %d bytes", h.Level, h.Revision, h.CatalogBytes)
	}
	return nil
}

// validate looks at a queue that stands behind the one with the id last.
func (q *Queue) validate(last uint64) error {
	if q.ID <= last || q.Index == 0 || q.Index == ^uint64(0) || q.Term == 0 || q.Term == ^uint64(0) || q.Bytes <= 0 || q.Bytes > partBytesMax {
		return malformed("queue %d behind %d: index %d, term %d, %d bytes", q.ID, last, q.Index, q.Term, q.Bytes)
	}
	return nil
}

// readHeader reads a header to its end. It holds no more than the queues that have come and are in order: a small file can unpack
// to a quarter of a gigabyte of brackets, each of which would be a queue.
func readHeader(from io.Reader) (h Header, err error) {
	in := &paced{r: from}
	d := &decoder{json.NewDecoder(in), in}
	fields := map[string]json.RawMessage{}
	rest := 0
	if err := d.delim('{'); err != nil {
		return h, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return h, err
		}
		name, _ := key.(string) // in an object it is nothing else
		if name == "queues" {
			if h.Queues, err = readQueues(d, h.Queues); err != nil {
				return h, err
			}
			continue
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return h, err
		}
		if rest += len(name) + len(raw); rest > restBytesMax {
			return h, malformed("header of more than %d bytes beside its queues", restBytesMax)
		}
		fields[name] = raw
	}
	if err := d.delim('}'); err != nil {
		return h, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return h, cmp.Or(err, malformed("something stands behind the header"))
	}
	raw, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(raw, &h)
	}
	if err != nil {
		return h, err
	}
	return h, h.validate()
}

// readQueues reads a list of queues, in order, behind those that were read. Backups of a cluster without queues, by programs that made the format's
// first ones, have null in place of a list.
func readQueues(d *decoder, list []Queue) ([]Queue, error) {
	d.in.upTo = d.InputOffset() + valueBytesMax
	switch t, err := d.Token(); {
	case err != nil:
		return nil, err
	case t == nil:
		return list, nil
	case t != json.Delim('['):
		return nil, malformed("%.64v stands where the list of queues should", t)
	}
	last := uint64(0)
	for d.More() {
		var q Queue
		if err := d.Decode(&q); err != nil {
			return nil, err
		}
		if n := len(list); n == queuesMax {
			return nil, malformed("more than %d queues", queuesMax)
		} else if n > 0 {
			last = list[n-1].ID
		}
		if err := q.validate(last); err != nil {
			return nil, err
		}
		list = append(list, q)
	}
	return list, d.delim(']')
}

// decoder is a json.Decoder that never holds more than valueBytesMax of what it has not given yet.
type decoder struct {
	*json.Decoder
	in *paced
}

// More tells whether another value follows; it allows for that one.
func (d *decoder) More() bool {
	d.in.upTo = d.InputOffset() + valueBytesMax
	return d.Decoder.More()
}

// delim takes one bracket.
func (d *decoder) delim(want json.Delim) error {
	d.in.upTo = d.InputOffset() + valueBytesMax
	t, err := d.Token()
	if err == nil && t != want {
		err = malformed("%.64v stands where %v should", t, want)
	}
	return err
}

// paced reads up to a place.
type paced struct {
	r          io.Reader
	read, upTo int64
}

func (p *paced) Read(b []byte) (int, error) {
	if p.read >= p.upTo {
		return 0, malformed("a value of more than %d bytes in the header", valueBytesMax)
	}
	n, err := p.r.Read(b[:min(int64(len(b)), p.upTo-p.read)])
	p.read += int64(n)
	return n, err
}
