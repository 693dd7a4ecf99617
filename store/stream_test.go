package store

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/hashicorp/raft"
)

// streamOf returns the stream of the newest snapshot.
func streamOf(t testing.TB, g *Group) []byte {
	t.Helper()
	m, err := g.Snapshots().List()
	if err != nil || len(m) != 1 {
		t.Fatalf("list: %v, %v", m, err)
	}
	_, r, err := g.Snapshots().Open(m[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(iotest.OneByteReader(r))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sampleStream is a small snapshot with extensions, an empty entry and a gap.
func sampleStream(t testing.TB) []byte {
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(1)
	logs := []*raft.Log{entry(1, 1, "one"), {Index: 2, Term: 1, Type: raft.LogNoop}, {Index: 4, Term: 2, Data: []byte("four"), Extensions: []byte("ext")}}
	if err := g.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
	if err := snapshot(g, 4, 2, "manifest", Range{1, 2}, Range{4, 4}); err != nil {
		t.Fatal(err)
	}
	return streamOf(t, g)
}

func create(t testing.TB, g *Group, index, term uint64) raft.SnapshotSink {
	t.Helper()
	k, err := g.Snapshots().Create(1, index, term, testConfig, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestStreamDamage changes each byte of a stream, and cuts it everywhere: nothing of it is ever published.
func TestStreamDamage(t *testing.T) {
	good := sampleStream(t)
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(1)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x20
		k := create(t, g, 4, 2)
		_, err := k.Write(bad)
		if err == nil {
			err = k.Close()
		}
		if !errors.Is(err, ErrSnapshotStream) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if err := k.Cancel(); err != nil {
			t.Fatal(err)
		}
		k = create(t, g, 4, 2)
		if _, err := k.Write(good[:i]); err != nil {
			t.Fatalf("first %d bytes: %v", i, err)
		}
		if err := k.Close(); !errors.Is(err, ErrSnapshotStream) {
			t.Fatalf("closed after %d bytes: %v", i, err)
		}
	}
	k := create(t, g, 4, 2)
	if _, err := k.Write(append(bytes.Clone(good), 0)); !errors.Is(err, ErrSnapshotStream) {
		t.Fatalf("byte after the end: %v", err)
	}
	if err := k.Cancel(); err != nil {
		t.Fatal(err)
	}
	if m, err := g.Snapshots().List(); err != nil || len(m) != 0 {
		t.Fatalf("snapshots %v, %v", m, err)
	}
	if n := s.Stats().LiveBytes; n != 0 {
		t.Fatalf("%d bytes alive after cancelled snapshots", n)
	}
	k = create(t, g, 4, 2)
	if _, err := k.Write(good); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if again := streamOf(t, g); !bytes.Equal(again, good) {
		t.Fatal("a received snapshot streams differently")
	}
	wantRead(t, g, 1, "one")
	wantRead(t, g, 2, "")
	wantRead(t, g, 4, "four")
}

func TestSinkUse(t *testing.T) {
	good := sampleStream(t)
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(1)
	k := create(t, g, 4, 2).(ManifestSink)
	if err := k.Close(); err == nil {
		t.Error("an empty snapshot was published")
	}
	k = create(t, g, 4, 2).(ManifestSink)
	if err := k.WriteManifest(nil, []Range{{5, 5}}); !errors.Is(err, ErrLogRange) {
		t.Errorf("pin above the index: %v", err)
	}
	if err := k.WriteManifest(nil, []Range{{2, 1}}); !errors.Is(err, ErrLogRange) {
		t.Errorf("pin upside down: %v", err)
	}
	if err := k.WriteManifest([]byte("m"), nil); err != nil {
		t.Error(err)
	}
	if err := k.WriteManifest([]byte("m"), nil); err == nil {
		t.Error("two manifests")
	}
	if _, err := k.Write(good); err == nil {
		t.Error("a stream after a manifest")
	}
	if err := errors.Join(k.Cancel(), k.Cancel(), k.Close()); err != nil {
		t.Error(err)
	}
	k = create(t, g, 3, 2).(ManifestSink) // the stream's entry 4 is above
	if _, err := k.Write(good); !errors.Is(err, ErrSnapshotStream) {
		t.Errorf("entry above the index: %v", err)
	}
	if err := k.Cancel(); err != nil {
		t.Error(err)
	}
	if _, err := g.Snapshots().Create(0, 1, 1, testConfig, 1, nil); err == nil {
		t.Error("snapshot version 0")
	}
	if _, _, err := g.Snapshots().Open("none"); !errors.Is(err, ErrSnapshotUnknown) {
		t.Errorf("unknown id: %v", err)
	}
}

// TestMarkerAtOne: raft would send the marker at index 1 to a follower that starts from nothing, so it must be the entry.
func TestMarkerAtOne(t *testing.T) {
	peer := openTest(t, Options{Dir: t.TempDir()}).Group(1)
	if err := snapshot(peer, 1, 1, "m"); err != nil {
		t.Fatal(err)
	}
	stream := streamOf(t, peer)
	for configIndex, known := range map[uint64]bool{1: true, 0: false} {
		g := openTest(t, Options{Dir: t.TempDir()}).Group(1)
		k, err := g.Snapshots().Create(1, 1, 1, testConfig, configIndex, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Write(stream); err != nil {
			t.Fatal(err)
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		var l raft.Log
		err = g.GetLog(1, &l)
		if known && (err != nil || l.Type != raft.LogConfiguration || len(raft.DecodeConfiguration(l.Data).Servers) != 1) {
			t.Errorf("configuration at 1: %+v, %v", l, err)
		}
		if !known && err != raft.ErrLogNotFound {
			t.Errorf("unknown entry at 1: %+v, %v", l, err)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add(sampleStream(f), uint8(3))
	f.Add([]byte(streamMagic), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		var p streamParser
		n := uint64(0)
		p.entryFn = func(h header, body []byte) error { n++; return nil }
		var err error
		for rest := b; len(rest) > 0 && err == nil; {
			k := min(int(step)+1, len(rest))
			err = p.write(rest[:k])
			rest = rest[k:]
		}
		if err != nil && !errors.Is(err, ErrSnapshotStream) {
			t.Fatalf("error of another kind: %v", err)
		}
		if p.state == inEnd && n != p.entries {
			t.Fatalf("%d entries of %d", n, p.entries)
		}
		m, err := ReadManifest(bytes.NewReader(b))
		if p.state > inManifest && (err != nil || !bytes.Equal(m, p.manifest)) {
			t.Fatalf("ReadManifest gave %q, %v", m, err)
		}
	})
}
