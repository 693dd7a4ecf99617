package backup

import (
	"archive/tar"
	"bufio"
	"compress/flate"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
)

// Reader reads one archive. It belongs to one goroutine. Its errors match ErrMalformed if the archive is to blame.
type Reader struct {
	Header Header

	in   *bufio.Reader
	gz   *gzip.Reader
	tar  *tar.Reader
	sum  hash.Hash // of the part that is being read; nil: none is
	sums []string
}

// Part is a part of an archive.
type Part struct {
	// Queue is nil for the catalog.
	Queue *Queue
	// Reader gives its bytes; what is left when Next is called is skipped.
	io.Reader
}

// Open reads the header.
func Open(from io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(from, 1<<16)}
	var err error
	if r.gz, err = gzip.NewReader(r.in); err != nil {
		return nil, fault("this is no backup", err)
	}
	r.gz.Multistream(false)
	r.tar = tar.NewReader(r.gz)
	err = r.json(headerName, headerBytesMax, func(from io.Reader) (err error) {
		r.Header, err = readHeader(from)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// fault wraps an error that the archive's bytes or the reading of them have caused.
func fault(what string, err error) error {
	_, flawed := errors.AsType[flate.CorruptInputError](err)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("%s: it is cut off", what)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.Is(err, tar.ErrHeader), flawed:
		return malformed("%s: %w", what, err)
	}
	return fmt.Errorf("read the backup: %s: %w", what, err)
}

// Next returns the next part: the catalog, then the queues as the header lists them. io.EOF tells that the archive is whole, and
// every part was what it was when it was written.
func (r *Reader) Next() (*Part, error) {
	if err := r.finish(); err != nil {
		return nil, err
	}
	i := len(r.sums) - 2 // the header, the catalog
	name, size := catalogName, r.Header.CatalogBytes
	p := &Part{}
	switch {
	case i == len(r.Header.Queues):
		return nil, r.end()
	case i >= 0:
		p.Queue = &r.Header.Queues[i]
		name, size = queueName(p.Queue.ID), p.Queue.Bytes
	}
	if err := r.begin(name, size, size); err != nil {
		return nil, err
	}
	r.sum = sha256.New()
	p.Reader = partReader{r, name}
	return p, nil
}

// partReader reads the present part.
type partReader struct {
	r    *Reader
	name string
}

func (p partReader) Read(b []byte) (int, error) {
	n, err := p.r.tar.Read(b)
	if p.r.sum != nil {
		p.r.sum.Write(b[:n])
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fault(p.name, err)
	}
	return n, err
}

// finish reads what is left of the present part.
func (r *Reader) finish() error {
	if r.sum == nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, partReader{r, "a part"}); err != nil {
		return err
	}
	r.sums = append(r.sums, hex.EncodeToString(r.sum.Sum(nil)))
	r.sum = nil
	return nil
}

// begin goes to the next part, which has that name and size.
func (r *Reader) begin(name string, sizeMin, sizeMax int64) error {
	h, err := r.tar.Next()
	if err != nil {
		return fault("before "+name, err)
	}
	if h.Name != name || h.Typeflag != tar.TypeReg || h.Size < sizeMin || h.Size > sizeMax {
		return malformed("%.200q of %d bytes stands where %s should", h.Name, h.Size, name)
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") { // its holes would be zeros without an end
			return malformed("%s is a sparse file", name)
		}
	}
	return nil
}

// json reads a part by decode, whose errors are the archive's unless reading failed.
func (r *Reader) json(name string, bytesMax int64, decode func(io.Reader) error) error {
	if err := r.begin(name, 1, bytesMax); err != nil {
		return err
	}
	r.sum = sha256.New()
	in := &remembering{r: partReader{r, name}}
	err := decode(in)
	switch {
	case in.err != nil:
		return in.err
	case err != nil && !errors.Is(err, ErrMalformed):
		return malformed("%s: %w", name, err)
	case err != nil:
		return err
	}
	return r.finish()
}

// remembering remembers the error of a reader that is not its end.
type remembering struct {
	r   io.Reader
	err error
}

func (r *remembering) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// end compares the checksums; io.EOF means that all is well.
func (r *Reader) end() error {
	sums := slices.Clone(r.sums)
	var e end
	err := r.json(endName, restBytesMax+sumBytesMax*int64(len(sums)), func(from io.Reader) error {
		return json.NewDecoder(from).Decode(&e)
	})
	if err != nil {
		return err
	}
	r.sums = sums
	if e.Version != Version || e.ID != r.Header.ID {
		return malformed("the end is of version %d and of backup %.64q", e.Version, e.ID)
	}
	if len(e.SHA256) != len(sums) {
		return malformed("checksums of %d parts, %d are there", len(e.SHA256), len(sums))
	}
	for i := range sums {
		if sums[i] != e.SHA256[i] {
			return malformed("part %d does not match its checksum", i)
		}
	}
	if h, err := r.tar.Next(); err == nil {
		return malformed("%.200q stands behind the end", h.Name)
	} else if !errors.Is(err, io.EOF) {
		return fault("behind the end", err)
	}
	// The checksum of the compression stands behind the last byte.
	if n, err := io.Copy(io.Discard, io.LimitReader(r.gz, 1<<20)); err != nil {
		return fault("behind the end", err)
	} else if n == 1<<20 {
		return malformed("a megabyte stands behind the end")
	}
	if _, err := r.in.Peek(1); !errors.Is(err, io.EOF) {
		return malformed("something stands behind the end")
	}
	return io.EOF
}
