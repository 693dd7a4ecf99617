package crashfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warrenmq/warren/store"
)

func contents(t *testing.T, f *FS, name string) []byte {
	t.Helper()
	o, err := f.Open(name)
	if err != nil {
		return nil
	}
	n, err := o.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	if _, err := o.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b
}

// TestImagesKeepPromises: what was synced is in every image, what was not is in some and not in others, sector by sector.
func TestImagesKeepPromises(t *testing.T) {
	f := New()
	o, err := f.Create("/d/a")
	if err != nil {
		t.Fatal(err)
	}
	synced, loose := bytes.Repeat([]byte{1}, 2*SectorBytes), bytes.Repeat([]byte{2}, 2*SectorBytes)
	if _, err := o.WriteAt(synced, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.Fdatasync(), f.SyncDir("/d")); err != nil {
		t.Fatal(err)
	}
	if _, err := o.WriteAt(loose, SectorBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Create("/d/b"); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename("/d/a", "/d/c"); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	seen := make(map[string]bool)
	for range 400 {
		im := f.Image(f.Len(), r)
		names, err := im.ReadDir("/d")
		if err != nil {
			t.Fatal(err)
		}
		b := contents(t, im, "/d/a")
		if b == nil {
			b = contents(t, im, "/d/c")
			seen["renamed"] = true
		}
		if len(b) < 2*SectorBytes || !bytes.Equal(b[:SectorBytes], synced[:SectorBytes]) {
			t.Fatalf("synced bytes are gone: %d left of %v", len(b), names)
		}
		second := b[SectorBytes]
		third := byte(0)
		if len(b) > 2*SectorBytes {
			third = b[2*SectorBytes]
		}
		seen[string([]byte{'0' + second, '0' + third})] = true
		if len(names) == 1 {
			seen["not created"] = true
		}
	}
	for _, want := range []string{"10", "20", "12", "22", "renamed", "not created"} {
		if !seen[want] {
			t.Errorf("no image shows %q", want)
		}
	}
	if len(seen) != 6 {
		t.Errorf("images show %v", seen)
	}
	if contents(t, f.Image(0, r), "/d/a") != nil {
		t.Error("a file before its creation")
	}
}

// TestNamesAreOfFiles: a name that a file was given is never another one's, although that had the file's former name before it.
func TestNamesAreOfFiles(t *testing.T) {
	f := New()
	if _, err := f.Create("/d/new"); err != nil { // a process that is killed leaves it
		t.Fatal(err)
	}
	if err := f.Remove("/d/new"); err != nil {
		t.Fatal(err)
	}
	o, err := f.Create("/d/new")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.WriteAt(make([]byte, SectorBytes), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(o.Fdatasync(), f.Rename("/d/new", "/d/a")); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	named := 0
	for range 400 {
		names, err := f.Image(f.Len(), r).ReadDir("/d")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(names, "a") {
			continue
		}
		named++
		if b := contents(t, f.Image(f.Len(), r), "/d/a"); b != nil && len(b) != SectorBytes {
			t.Fatalf("the file has %d bytes", len(b))
		}
	}
	if named == 0 {
		t.Error("no image has the file")
	}
	if err := f.Rename("/d/none", "/d/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there has a name: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	f := New()
	broken := errors.New("broken")
	f.Fail(func(op Op) error {
		if op == OpSync {
			return broken
		}
		return nil
	})
	o, err := f.Create("/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Fdatasync(); err != broken {
		t.Errorf("sync: %v", err)
	}
	if err := o.Truncate(10); err != nil {
		t.Error(err)
	}
	if n, err := o.Size(); n != 10 || err != nil {
		t.Errorf("size %d, %v", n, err)
	}
	l, err := f.Lock("/l")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Lock("/l"); !errors.Is(err, store.ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Lock("/l"); err != nil {
		t.Errorf("lock after release: %v", err)
	}
	if err := f.Remove("/none"); err == nil {
		t.Error("removed what is not there")
	}
	if err := f.Corrupt("/x", 11, 1); err == nil {
		t.Error("changed a byte behind the end")
	}
}
