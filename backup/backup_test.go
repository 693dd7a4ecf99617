package backup

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
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

// FuzzOpen reads whatever there is, within bounds.
func FuzzOpen(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, parts, err := readAll(bytes.NewReader(raw), true)
		if err == nil && len(parts) == 0 {
			t.Error("whole, and without a catalog")
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	})
}
