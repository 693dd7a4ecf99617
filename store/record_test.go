package store

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func sampleRecord() record {
	r := record{header: header{kind: kindEntry, typ: 3, group: 7, seq: 9, index: 11, term: 13}, ext: []byte("ext"), data: []byte("data")}
	r.setTime(time.Unix(5, 6))
	r.seal()
	return r
}

// TestRecordKnowsItsPlace: the same bytes mean nothing at another offset or in another segment.
func TestRecordKnowsItsPlace(t *testing.T) {
	r := sampleRecord()
	b := make([]byte, padded(r.bodyBytes))
	r.put(b, 4, 4096)
	h, ok := parseHeader(b, 4, 4096)
	if !ok || h != r.header {
		t.Fatalf("header %+v, %v, want %+v", h, ok, r.header)
	}
	body := b[headerBytes : headerBytes+int(h.bodyBytes)]
	ext, data, ok := h.split(body)
	if !h.bodyOK(body) || !ok || string(ext) != "ext" || string(data) != "data" || !h.time().Equal(time.Unix(5, 6)) {
		t.Fatalf("body %q %q %v", ext, data, ok)
	}
	for _, place := range []struct {
		segment uint32
		off     int64
	}{{5, 4096}, {4, 4104}, {0, 0}} {
		if _, ok := parseHeader(b, place.segment, place.off); ok {
			t.Errorf("record found at %+v", place)
		}
	}
	for i := range headerBytes {
		b[i] ^= 1
		if _, ok := parseHeader(b, 4, 4096); ok {
			t.Errorf("header with byte %d changed", i)
		}
		b[i] ^= 1
	}
}

func TestExtensionsSurvive(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), TailCacheBytes: 1})
	g := s.Group(1)
	in := &raft.Log{Index: 1, Term: 2, Type: raft.LogConfiguration, Data: []byte("d"), Extensions: []byte("x")}
	if err := g.StoreLog(in); err != nil {
		t.Fatal(err)
	}
	g = reopen(t, s).Group(1)
	var out raft.Log
	if err := g.GetLog(1, &out); err != nil || string(out.Extensions) != "x" || string(out.Data) != "d" || !out.AppendedAt.IsZero() || out.Type != in.Type {
		t.Fatalf("%+v, %v", out, err)
	}
}

func FuzzRecord(f *testing.F) {
	r := sampleRecord()
	b := make([]byte, padded(r.bodyBytes))
	r.put(b, 1, segmentHeadBytes)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		file := append(make([]byte, segmentHeadBytes), b...)
		sc := scanner{f: bytes.NewReader(file), number: 1, size: int64(len(file))}
		short := false // a sound header may promise more than the file has
		end, _, err := sc.run(true, func(r *found) error {
			r.split(r.body)
			short = short || r.badBody
			return nil
		})
		if err != nil || end < segmentHeadBytes || !short && end > int64(len(file))+8 {
			t.Fatalf("end %d of %d, %v", end, len(file), err)
		}
		_, _ = sc.later(end, 1)
	})
}

func FuzzSmall(f *testing.F) {
	m := meta{first: 3, voteTerm: 1, voteCand: []byte("c"), keys: map[string][]byte{"k": {1}}, cuts: []truncation{{4, 5}}, alive: true}
	f.Add(m.encode())
	p := published{index: 4, term: 1, config: testConfig, pins: []Range{{1, 2}}}
	f.Add(p.encode())
	f.Add(encodeFooter([]item{{off: 4096, bodyBytes: 8, kind: kindEntry, group: 1, seq: 2, index: 3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMeta(b); err == nil && len(m.keys) <= 1 {
			if again := m.encode(); !bytes.Equal(again, b) {
				t.Fatalf("state %x encodes as %x", b, again)
			}
		}
		_, _, _ = decodePublished(&header{}, loc{}, b)
		_, _ = decodeFooter(b, 1<<20)
		_, _, _ = decodeStable(b)
		_, _, _ = decodeSegmentHead(b)
		_, _, _ = decodeLocator(b, 1)
	})
}
