package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const (
	testID      = "11111111-2222-4333-8444-555555555555"
	testCluster = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
)

func testHeader(queues ...Queue) Header {
	return Header{
		ID: testID, Made: time.Unix(1_800_000_000, 5).UTC(), Program: "test", Level: 2, ClusterID: testCluster, Revision: 100,
		CatalogBytes: 7, Queues: queues,
	}
}

// sample is an archive of two queues.
func sample(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, testHeader(Queue{ID: 3, VHost: "/", Name: "a", Index: 9, Term: 2, Bytes: 5}, Queue{ID: 90, VHost: "/", Name: "b", Index: 4, Term: 7, Bytes: 1}))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Catalog(strings.NewReader("catalog")), w.Queue(strings.NewReader("queue")), w.Queue(strings.NewReader("q")), w.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// readAll returns the parts of an archive that is whole.
func readAll(from io.Reader, skip bool) (h Header, parts []string, err error) {
	r, err := Open(from)
	if err != nil {
		return h, nil, err
	}
	for {
		p, err := r.Next()
		if err == io.EOF {
			return r.Header, parts, nil
		}
		if err != nil {
			return h, nil, err
		}
		if (p.Queue == nil) != (len(parts) == 0) {
			return h, nil, errors.New("the catalog is not the first part")
		}
		text := []byte("skipped")
		if !skip {
			if text, err = io.ReadAll(p); err != nil {
				return h, nil, err
			}
		}
		parts = append(parts, string(text))
	}
}

func TestRoundTrip(t *testing.T) {
	raw := sample(t)
	h, parts, err := readAll(bytes.NewReader(raw), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(parts, " "); got != "catalog queue q" {
		t.Errorf("parts %q", got)
	}
	if h.ID != testID || h.Queues[1].Term != 7 || h.Bytes() != 13 || !h.Made.Equal(time.Unix(1_800_000_000, 5)) {
		t.Errorf("header %+v", h)
	}
	if _, parts, err = readAll(bytes.NewReader(raw), true); err != nil || len(parts) != 3 {
		t.Errorf("skipping: %d parts, %v", len(parts), err)
	}
}

// TestNoQueues has the archive of a cluster without queues, as it is written and as it was by the first programs.
func TestNoQueues(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Catalog(strings.NewReader("catalog")), w.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h, parts, err := readAll(&b, false)
	if err != nil || h.ID != testID || len(h.Queues) != 0 || strings.Join(parts, " ") != "catalog" {
		t.Errorf("%+v with parts %q: %v", h, parts, err)
	}
	old := testHeader()
	old.Version = Version
	raw, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(raw, []byte(`"queues":null`)) {
		t.Fatalf("%s has a list", raw)
	}
	if h, err := readHeader(bytes.NewReader(raw)); err != nil || h.ID != testID || len(h.Queues) != 0 {
		t.Errorf("%+v: %v", h, err)
	}
	if _, err := readHeader(bytes.NewReader(bytes.Replace(raw, []byte(`"queues":null`), []byte(`"queues":7`), 1))); !errors.Is(err, ErrMalformed) {
		t.Errorf("a number in place of the list: %v", err)
	}
}

// TestDamage cuts the archive off everywhere, changes each byte, and adds to it.
func TestDamage(t *testing.T) {
	raw := sample(t)
	for i := range raw {
		if _, _, err := readAll(bytes.NewReader(raw[:i]), i%2 == 0); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut off after %d of %d bytes: %v", i, len(raw), err)
		}
		bad := bytes.Clone(raw)
		bad[i] ^= 0x10
		h, parts, err := readAll(bytes.NewReader(bad), false)
		// A few bytes of the compression mean nothing: its time, its system.
		if err == nil && (h.ID != testID || strings.Join(parts, " ") != "catalog queue q") || err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("byte %d changed: %q, %v", i, parts, err)
		}
	}
	if _, _, err := readAll(bytes.NewReader(append(bytes.Clone(raw), 0)), false); !errors.Is(err, ErrMalformed) {
		t.Errorf("with a byte behind it: %v", err)
	}
	if _, _, err := readAll(bytes.NewReader(append(bytes.Clone(raw), raw...)), false); !errors.Is(err, ErrMalformed) {
		t.Errorf("twice: %v", err)
	}
}

// TestFailingReader passes errors of the disk on as what they are.
func TestFailingReader(t *testing.T) {
	raw, broken := sample(t), errors.New("broken disk")
	for i := range raw {
		_, _, err := readAll(io.MultiReader(bytes.NewReader(raw[:i]), failing{broken}), false)
		if !errors.Is(err, broken) || errors.Is(err, ErrMalformed) {
			t.Fatalf("after %d bytes: %v", i, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestWriterUse(t *testing.T) {
	one := Queue{ID: 3, Index: 9, Term: 2, Bytes: 5}
	for name, h := range map[string]Header{
		"no id":              {ClusterID: testCluster, Level: 2, Revision: 9, CatalogBytes: 1},
		"no catalog":         {ID: testID, ClusterID: testCluster, Level: 2, Revision: 9},
		"queues in a row":    testHeader(one, one),
		"a queue too new":    testHeader(Queue{ID: 101, Index: 9, Term: 2, Bytes: 5}),
		"an empty queue":     testHeader(Queue{ID: 1, Index: 9, Term: 2}),
		"a queue at nothing": testHeader(Queue{ID: 1, Term: 2, Bytes: 1}),
	} {
		if _, err := NewWriter(io.Discard, h); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, use := range map[string]func(w *Writer) error{
		"a queue before the catalog": func(w *Writer) error { return w.Queue(strings.NewReader("queue")) },
		"too short":                  func(w *Writer) error { return w.Catalog(strings.NewReader("cat")) },
		"too long":                   func(w *Writer) error { return w.Catalog(strings.NewReader("catalogue")) },
		"closed too early":           func(w *Writer) error { return errors.Join(w.Catalog(strings.NewReader("catalog")), w.Close()) },
		"failing":                    func(w *Writer) error { return w.Catalog(failing{errors.New("gone")}) },
	} {
		w, err := NewWriter(io.Discard, testHeader(one))
		if err != nil {
			t.Fatal(err)
		}
		if err := use(w); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// packed is an archive of files, whatever is in them.
func packed(t testing.TB, level int, files ...func(w *tar.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	gz, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(gz)
	for _, f := range files {
		if err := f(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repeated is a file of size bytes that repeats part behind head.
func repeated(name, head, part string, size int64) func(w *tar.Writer) error {
	return func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: size, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		piece := []byte(head + strings.Repeat(part, 1+(1<<20)/len(part)))
		for size > 0 {
			piece = piece[:min(int64(len(piece)), size)]
			if _, err := w.Write(piece); err != nil {
				return err
			}
			size -= int64(len(piece))
			piece = []byte(strings.Repeat(part, 1+(1<<20)/len(part)))
		}
		return nil
	}
}

// TestSmallFilesThatUnpackToMuch: what a crafted archive costs is bounded by what can be right in it.
func TestSmallFilesThatUnpackToMuch(t *testing.T) {
	const much = 32 << 20
	good := fmt.Sprintf(`{"version":1,"id":%q,"cluster_id":%q,"level":2,"revision":9,"catalog_bytes":1}`, testID, testCluster)
	for name, raw := range map[string][]byte{
		"queues that are none": packed(t, gzip.BestSpeed, repeated(headerName, `{"queues":[`, `{},`, much)),
		"a queue with a name":  packed(t, gzip.BestSpeed, repeated(headerName, `{"queues":[{"id":1,"index":1,"term":1,"bytes":1,"name":"`, `a`, much)),
		"brackets":             packed(t, gzip.BestSpeed, repeated(headerName, `{"version":`, `[`, much)),
		"one field":            packed(t, gzip.BestSpeed, repeated(headerName, `{"program":"`, `a`, much)),
		"many fields":          packed(t, gzip.BestSpeed, repeated(headerName, `{"a":1`, `,"abcdefgh":"abcdefgh"`, much)),
		"blanks":               packed(t, gzip.BestSpeed, repeated(headerName, `{`, ` `, much)),
		"checksums":            packed(t, gzip.BestSpeed, repeated(headerName, good, ``+" ", int64(len(good))), repeated(catalogName, "c", "c", 1), repeated(endName, `{"sha256":[`, `"",`, much)),
		"a sparse file":        sparse(t, headerName, much),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := readAll(bytes.NewReader(raw), true)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%d bytes are read: %v", len(raw), err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 24<<20 {
				t.Errorf("%d bytes took %d bytes of memory: %v", len(raw), took, err)
			}
			t.Log(err)
		})
	}
}

// sparse is an archive of one file that is a hole of that size: what tar.Writer does not write by itself.
func sparse(t *testing.T, name string, size int64) []byte {
	t.Helper()
	var raw bytes.Buffer
	add := func(typ byte, content string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err = errors.Join(err, w.Flush()); err != nil {
			t.Fatal(err)
		}
		block := b.Bytes()
		block[156] = typ
		copy(block[148:], "        ")
		sum := 0
		for _, c := range block[:512] {
			sum += int(c)
		}
		copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
		raw.Write(block)
	}
	records := ""
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=" + name, fmt.Sprint("GNU.sparse.realsize=", size)} {
		records += fmt.Sprintf("%d %s\n", len(r)+4, r) // its length, with two digits, a blank and the end
	}
	add(tar.TypeXHeader, records)
	add(tar.TypeReg, "0\n"+strings.Repeat("\x00", 510)) // no data
	raw.Write(make([]byte, 1024))
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	_, err := gz.Write(raw.Bytes())
	if err = errors.Join(err, gz.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestLongHeader reads more queues than fit into one step of the decoder.
func TestLongHeader(t *testing.T) {
	var list []Queue
	for i := range uint64(20_000) {
		list = append(list, Queue{ID: i + 1, VHost: "/", Name: fmt.Sprint("queue-", i), Index: 9, Term: 2, Bytes: 1, Node: "n"})
	}
	h := testHeader(list...)
	h.Revision = 30_000
	var b bytes.Buffer
	if _, err := NewWriter(&b, h); err != nil {
		t.Fatal(err)
	}
	h.Version = Version
	raw, err := json.MarshalIndent(&h, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got, err := readHeader(iotest.OneByteReader(bytes.NewReader(raw)))
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("%d queues, %v", len(got.Queues), err)
	}
}

// FuzzOpen reads whatever there is, within bounds.
func FuzzOpen(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) { readAnything(t, raw) })
}

// FuzzParts reads what is packed as an archive is: what is in it is not as anybody has written it.
func FuzzParts(f *testing.F) {
	gz, err := gzip.NewReader(bytes.NewReader(sample(f)))
	if err != nil {
		f.Fatal(err)
	}
	raw, err := io.ReadAll(gz)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var b bytes.Buffer
		gz, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gz.Write(raw); err != nil {
			t.Fatal(err)
		}
		if err := gz.Close(); err != nil {
			t.Fatal(err)
		}
		readAnything(t, b.Bytes())
	})
}

func readAnything(t *testing.T, raw []byte) {
	_, parts, err := readAll(bytes.NewReader(raw), true)
	if err == nil && len(parts) == 0 {
		t.Error("whole, and without a catalog")
	}
	if err != nil && !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}
