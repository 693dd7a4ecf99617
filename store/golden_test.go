package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares got with a file of hex lines.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(hex.Dump(got)), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if hex.Dump(got) != string(want) {
		t.Errorf("%s: the format has changed:\n%s", name, hex.Dump(got))
	}
}

// TestGoldenFormats holds version 1 of the formats still. A change here needs a new version and a reader for the old one.
func TestGoldenFormats(t *testing.T) {
	r := sampleRecord()
	rec := make([]byte, padded(r.bodyBytes))
	r.put(rec, 4, 4096)
	m := meta{
		first: 3, born: 2, voteTerm: 7, voteCand: []byte("node"), keys: map[string][]byte{"CurrentTerm": {7, 0, 0, 0, 0, 0, 0, 0}},
		base: base{index: 2, term: 1, installation: 5, seq: 6, config: []byte{1}}, cuts: []truncation{{4, 5}}, alive: true,
	}
	p := published{version: 1, entries: 3, bodyBytes: 99, configIndex: 1, config: testConfig, pins: []Range{{1, 2}, {4, 4}}, installed: true, manifest: 8}
	var all []byte
	for _, part := range [][]byte{
		segmentHead{number: 4, cold: true}.encode()[:24], rec, m.encode(), p.encode(),
		encodeFooter([]item{{off: 4096, bodyBytes: 8, kind: kindEntry, group: 1, seq: 2, index: 3, aux: 4}}), encodeLocator(4, 4168, 64)[:32],
	} {
		all = append(append(all, part...), bytes.Repeat([]byte{0xee}, 16)...)
	}
	golden(t, "records-1.hex", all)
	golden(t, "stream-1.hex", sampleStream(t))
}

// TestDump prints a store while it is open.
func TestDump(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(5)
	fill(t, g, 1, 2, 1)
	if err := errors.Join(snapshot(g, 2, 1, "m"), g.DeleteRange(1, 1), g.SetUint64([]byte("CurrentTerm"), 1)); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Dump(s.fs, s.o.Dir, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"segment 1: 1048576 bytes, counts true, cold false", "open     group 0", "entry    group 5 seq 1.2 index 2 term 1 bytes 9\n",
		"manifest group 5", "first    group 5", "stable   group 5",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if err := Dump(s.fs, t.TempDir(), &b); err == nil {
		t.Error("an empty directory was dumped")
	}
}

// TestUsage follows a group through compaction.
func TestUsage(t *testing.T) {
	g := openTest(t, Options{Dir: t.TempDir()}).Group(1)
	fill(t, g, 1, 9, 1)
	if err := errors.Join(snapshot(g, 8, 1, "m", Range{2, 3}), g.DeleteRange(1, 8)); err != nil {
		t.Fatal(err)
	}
	u, one := g.Usage(), uint64(len(body(1)))
	if want := (Usage{1, one, 2, 2 * one, 8, u.SnapshotBytes}); u != want || u.SnapshotBytes < int64(2*one) {
		t.Errorf("usage %+v, want %+v", u, want)
	}
	if err := g.StoreLog(&raft.Log{Index: 3}); !errors.Is(err, ErrLogRange) {
		t.Errorf("entry below the log: %v", err)
	}
}
