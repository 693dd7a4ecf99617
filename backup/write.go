package backup

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Names of the parts.
const (
	headerName  = "warren-backup.json"
	catalogName = "catalog"
	queuePrefix = "queues/"
	endName     = "end.json"
)

func queueName(id uint64) string { return queuePrefix + strconv.FormatUint(id, 10) }

// end is the last part: checksums of those before it, the header's first.
type end struct {
	Version int      `json:"version"`
	ID      string   `json:"id"`
	SHA256  []string `json:"sha256"`
}

// Writer writes one archive. It belongs to one goroutine.
type Writer struct {
	h    Header
	gz   *gzip.Writer
	tar  *tar.Writer
	sums []string
}

// NewWriter writes the header. The parts follow: the catalog, then each queue of the header in its order, then Close.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	h.Version = Version
	if h.Queues == nil {
		h.Queues = []Queue{} // a list, whoever reads it
	}
	if err := h.validate(); err != nil {
		return nil, err
	}
	gz, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := &Writer{h: h, gz: gz, tar: tar.NewWriter(gz)}
	raw, err := json.MarshalIndent(&h, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode the backup's header: %w", err)
	}
	if len(raw) > headerBytesMax {
		return nil, fmt.Errorf("the backup's header has %d bytes, the maximum is %d", len(raw), headerBytesMax)
	}
	return w, w.json(headerName, raw)
}

// Catalog writes the catalog's part.
func (w *Writer) Catalog(r io.Reader) error { return w.part(catalogName, w.h.CatalogBytes, r) }

// Queue writes the part of the next queue, which has exactly as many bytes as the header says.
func (w *Writer) Queue(r io.Reader) error {
	i := len(w.sums) - 2
	if i < 0 || i >= len(w.h.Queues) {
		return fmt.Errorf("part %d of a backup of %d queues", len(w.sums), len(w.h.Queues))
	}
	q := &w.h.Queues[i]
	return w.part(queueName(q.ID), q.Bytes, r)
}

// Close writes the checksums, without which no reader takes the archive for whole.
func (w *Writer) Close() error {
	if len(w.sums) != len(w.h.Queues)+2 {
		return fmt.Errorf("%d parts of a backup of %d queues", len(w.sums), len(w.h.Queues))
	}
	raw, err := json.Marshal(end{Version: Version, ID: w.h.ID, SHA256: w.sums})
	if err != nil {
		return fmt.Errorf("encode the backup's end: %w", err)
	}
	if err := w.json(endName, raw); err != nil {
		return err
	}
	if err := w.tar.Close(); err != nil {
		return fmt.Errorf("end the backup: %w", err)
	}
	return w.gz.Close()
}

func (w *Writer) json(name string, raw []byte) error {
	if err := w.begin(name, int64(len(raw))); err != nil {
		return err
	}
	sum := sha256.Sum256(raw)
	w.sums = append(w.sums, hex.EncodeToString(sum[:]))
	_, err := w.tar.Write(raw)
	return err
}

func (w *Writer) begin(name string, size int64) error {
	err := w.tar.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: w.h.Made.Truncate(1e9), Typeflag: tar.TypeReg})
	if err != nil {
		return fmt.Errorf("write the head of %s: %w", name, err)
	}
	return nil
}

func (w *Writer) part(name string, size int64, r io.Reader) error {
	if err := w.begin(name, size); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w.tar, sum), r)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes, %d were announced", n, size)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	w.sums = append(w.sums, hex.EncodeToString(sum.Sum(nil)))
	return nil
}
