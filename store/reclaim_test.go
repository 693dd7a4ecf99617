package store

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func big(i uint64) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 2000) }

// churn makes a group write entries from..to, snapshot often and keep every nth entry besides pins. It returns what it keeps.
func churn(t *testing.T, g *Group, from, to, nth uint64, pins ...Range) []Range {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := g.StoreLog(&raft.Log{Index: i, Term: 1, Data: big(i)}); err != nil {
			t.Fatal(err)
		}
		if i%nth == 0 {
			pins = append(pins, Range{i, i})
		}
		if i%50 != 0 {
			continue
		}
		if err := snapshot(g, i, 1, fmt.Sprint("manifest ", i), pins...); err != nil {
			t.Fatal(err)
		}
		if err := g.DeleteRange(1, i-5); err != nil {
			t.Fatal(err)
		}
	}
	return pins
}

func wantBig(t *testing.T, g *Group, i uint64) {
	t.Helper()
	if got, err := g.Read(i); err != nil || !bytes.Equal(got, big(i)) {
		t.Fatalf("Read(%d) of group %d: %d bytes, %v", i, g.ID(), len(got), err)
	}
}

// TestReclaim writes far more than it keeps: space follows what is alive, small state and pins survive the segments they were
// written in, and copies are sorted by group.
func TestReclaim(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, TailCacheBytes: 1})
	a, b, idle := s.Group(1), s.Group(2), s.Group(3)
	vote := func(g *Group, term uint64) {
		t.Helper()
		if err := g.SetUint64([]byte(keyVoteTerm), term); err != nil {
			t.Fatal(err)
		}
		if err := g.Set([]byte(keyVoteCand), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	vote(idle, 77)
	fill(t, idle, 1, 3, 1)
	if err := idle.DeleteRange(3, 3); err != nil {
		t.Fatal(err)
	}
	gone := s.Group(9)
	fill(t, gone, 1, 3, 1)
	if err := s.DeleteGroup(9); err != nil {
		t.Fatal(err)
	}
	var pinsA []Range
	for i := range uint64(10) {
		pinsA = churn(t, a, i*100+1, i*100+100, 40, pinsA...)
		if i == 0 {
			churn(t, b, 1, 100, 30)
		}
	}
	eventually(t, "space follows life", func() bool {
		st := s.Stats()
		return st.FreedSegments > 8 && st.CopiedBytes > 0 && st.SegmentBytes < 4<<20
	})
	check := func() {
		t.Helper()
		a, b, idle := s.Group(1), s.Group(2), s.Group(3)
		for i := uint64(40); i <= 1000; i += 40 {
			wantBig(t, a, i)
		}
		wantNoRead(t, a, 81)
		wantManifest(t, a, 1000, "manifest 1000")
		for _, i := range []uint64{30, 60, 90, 96, 100} {
			wantBig(t, b, i)
		}
		wantManifest(t, b, 100, "manifest 100")
		bounds(t, b, 96, 100)
		bounds(t, idle, 1, 2)
		wantLog(t, idle, 2, 1)
		if v, err := idle.GetUint64([]byte(keyVoteTerm)); v != 77 || err != nil {
			t.Fatalf("vote %d, %v", v, err)
		}
		if ids := s.Groups(); !slices.Equal(ids, []GroupID{1, 2, 3}) {
			t.Fatalf("groups %v", ids)
		}
	}
	check()
	s = reopen(t, s)
	check()
	if st := s.Stats(); st.Recovery.Records > 400 {
		t.Errorf("recovery read %d records one by one", st.Recovery.Records)
	}
	for _, seg := range s.sealedSegments() {
		items, err := seg.listItems()
		if err != nil {
			t.Fatal(err)
		}
		if seg.cold && !slices.IsSortedFunc(items, func(a, b item) int { return int(a.group) - int(b.group) }) {
			t.Errorf("cold segment %d is not sorted by group", seg.number)
		}
	}
	s = reopen(t, s)
	check()
}

// TestYoungSegmentsAreNotGathered: a tenth of two segments is alive. It is copied when four newer ones have come, not before.
func TestYoungSegmentsAreNotGathered(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, TailCacheBytes: 1})
	g := s.Group(1)
	pins := churn(t, g, 1, 200, 10)
	eventually(t, "the segments have footers", func() bool {
		s.segMu.RLock()
		defer s.segMu.RUnlock()
		located := 0
		for _, seg := range s.segs {
			b := make([]byte, 1)
			if _, err := seg.file.ReadAt(b, locatorOffset); err == nil && b[0] != 0 {
				located++
			}
		}
		return located >= 2
	})
	s.nudge()
	time.Sleep(50 * time.Millisecond)
	if st := s.Stats(); st.CopiedBytes > 0 {
		t.Fatalf("%d bytes were copied of segments that are young", st.CopiedBytes)
	}
	churn(t, g, 201, 600, 1000, pins...)
	eventually(t, "the old ones are gathered", func() bool { return s.Stats().CopiedBytes > 0 })
	for i := uint64(10); i <= 200; i += 10 {
		wantBig(t, g, i)
	}
}

// TestArrivedSnapshotIsGathered: a snapshot comes in slowly, while another group writes and forgets. Its entries lie in many segments, alone, and
// could not be moved before it was whole.
func TestArrivedSnapshotIsGathered(t *testing.T) {
	const n = 12
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, TailCacheBytes: 1})
	from, g, busy := openTest(t, Options{Dir: t.TempDir()}).Group(1), s.Group(1), s.Group(2)
	pins := churn(t, from, 1, 50, 4)
	metas, err := from.Snapshots().List()
	if err != nil {
		t.Fatal(err)
	}
	m, r, err := from.Snapshots().Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	k, err := g.Snapshots().Create(m.Version, m.Index, m.Term, m.Configuration, m.ConfigurationIndex, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(n) {
		if _, err := io.CopyN(k, r, m.Size/n); err != nil {
			t.Fatal(err)
		}
		churn(t, busy, i*100+1, i*100+100, 1000)
	}
	s.nudge()
	time.Sleep(300 * time.Millisecond) // gatherings find nothing that they may move
	if _, err := io.Copy(k, r); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the snapshot's entries are together", func() bool {
		g.mu.RLock()
		defer g.mu.RUnlock()
		cold := 0
		g.entries.each(0, m.Index, func(_ uint64, l loc) bool {
			s.segMu.RLock()
			defer s.segMu.RUnlock()
			if s.segs[l.segment].cold {
				cold++
			}
			return true
		})
		return cold >= n*2/3
	})
	for _, pin := range pins {
		wantBig(t, g, pin.First)
	}
}

// TestReaderKeepsBytes opens a snapshot, lets everything in it die, and reads it to the end.
func TestReaderKeepsBytes(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, TailCacheBytes: 1})
	peer := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(1)
	churn(t, g, 1, 100, 10)
	m, err := g.Snapshots().List()
	if err != nil {
		t.Fatal(err)
	}
	meta, r, err := g.Snapshots().Open(m[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Stats().FreedSegments
	churn(t, g, 101, 600, 1000)
	eventually(t, "segments are freed", func() bool { return s.Stats().FreedSegments > before+2 })
	wantNoRead(t, g, 10)
	k, err := peer.Group(1).Snapshots().Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 999)
	for {
		n, err := r.Read(buf)
		if n == 0 {
			break
		}
		if _, err := k.Write(buf[:n]); err != nil {
			t.Fatal(err)
		}
		_ = err
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	wantBig(t, peer.Group(1), 10)
	wantBig(t, peer.Group(1), 100)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reader's segments are freed", func() bool { return s.Stats().SegmentBytes < 3<<20 })
}

// TestDamageDoesNotStopReclaim: an entry that cannot be copied stays where it is, once, and everything else goes on.
func TestDamageDoesNotStopReclaim(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, TailCacheBytes: 1})
	bad, good := s.Group(1), s.Group(2)
	if err := bad.StoreLog(&raft.Log{Index: 1, Term: 1, Data: big(1)}); err != nil {
		t.Fatal(err)
	}
	l, _ := bad.entries.get(1)
	churn(t, good, 1, 40, 1000)
	pins := churn(t, good, 41, 100, 7)
	s.segMu.RLock()
	_, err := s.segs[l.segment].file.WriteAt([]byte{0xff}, int64(l.off)+headerBytes)
	s.segMu.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	churn(t, good, 101, 800, 50, pins...)
	eventually(t, "the damage is met", func() bool { return bad.Err() != nil })
	churn(t, good, 801, 1200, 50, append(pins, Range{150, 150})...)
	eventually(t, "space follows life", func() bool { return s.Stats().SegmentBytes < 4<<20 })
	if st := s.Stats(); st.CopiedBytes > 4<<20 {
		t.Errorf("%d bytes copied", st.CopiedBytes)
	}
	wantBig(t, good, 150)
	s = reopen(t, s)
	wantBig(t, s.Group(2), 150)
}

// roomFS has that much free.
type roomFS struct {
	FS
	free uint64
}

func (f roomFS) Free(string) (uint64, error) { return f.free, nil }

// TestCandidates: without an alarm a copy waits until it frees a whole segment or eight files. With one a single file is enough, if less than two
// fifths of what it has is alive: one that dies slowly is not copied at each death, and a copy never at once again.
func TestCandidates(t *testing.T) {
	const whole = 1000 << 10
	sealed := func(size, live int64, cold bool) *segment {
		seg := &segment{cold: cold, footed: true, size: size, end: size}
		seg.live.Store(live << 10)
		seg.sealed.Store(true)
		return seg
	}
	written := func(live int64) *segment { return sealed(whole, live, false) }
	cold := func(size, live int64) *segment { return sealed(size<<10+segmentHeadBytes, live, true) }
	for name, c := range map[string]struct {
		free uint64 // KiB
		segs []*segment
		want []uint32
	}{
		"fresh copy, space":            {9000, []*segment{cold(300, 300)}, nil},
		"fresh copy":                   {900, []*segment{cold(300, 300)}, nil},
		"fresh copy of nearly nothing": {900, []*segment{cold(1, 1)}, nil},
		"a death in a copy":            {900, []*segment{cold(300, 299)}, nil},
		"many deaths in a copy":        {900, []*segment{cold(300, 119)}, []uint32{1}},
		"half dead":                    {900, []*segment{written(500)}, nil},
		"nearly dead":                  {900, []*segment{written(300)}, []uint32{1}},
		"nearly dead, space":           {9000, []*segment{written(300)}, nil},
		"fresh copies before":          {900, []*segment{cold(300, 300), cold(299, 299), written(300)}, []uint32{3}},
		"a whole segment to gain":      {900, []*segment{cold(100, 100), written(100), written(200)}, []uint32{1, 2, 3}},
		"no room for a copy":           {300, []*segment{written(300), written(160), written(100)}, []uint32{3}},
		"full":                         {0, []*segment{written(300), written(100)}, nil},
		"eight copies": {
			900,
			[]*segment{cold(9, 9), cold(9, 9), cold(9, 9), cold(9, 9), cold(9, 9), cold(9, 9), cold(9, 9), cold(9, 9)},
			[]uint32{1, 2, 3, 4, 5, 6, 7, 8},
		},
	} {
		s := &Store{o: Options{SegmentBytes: whole, DiskReserveBytes: 2 * whole}, fs: roomFS{free: c.free << 10}, segs: make(map[uint32]*segment)}
		s.wal.active = &segment{number: 100}
		for i, seg := range c.segs {
			seg.number = uint32(i + 1)
			s.segs[seg.number] = seg
		}
		var got []uint32
		for _, seg := range s.candidates() {
			got = append(got, seg.number)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v are copied, want %v", name, got, c.want)
		}
	}
}

// TestFreeable: dead segments go, but for the one behind a written segment that has no footer, whatever lies in between.
func TestFreeable(t *testing.T) {
	for name, c := range map[string]struct {
		segs string // a letter each: D dead, L alive, small without a footer, R dead with a reader, C dead and cold, E without records
		want string
	}{
		"all":                       {"DDCD", "0123"},
		"alive and read":            {"DLRD", "03"},
		"one has no footer":         {"DlDD", "03"},
		"dead without a footer":     {"DdDD", "013"},
		"the oldest has none":       {"dDDD", "023"},
		"one after the other":       {"LddD", "1"},
		"the next round":            {"LdD", "1"},
		"nor does an empty file":    {"lEDD", "3"},
		"copies say nothing of it":  {"lCD", "1"},
		"a copy says nothing of it": {"LCdCD", "123"},
	} {
		var sealed, want []*segment
		for i, what := range c.segs {
			seg := &segment{footed: what < 'a', cold: what == 'C', end: segmentHeadBytes + 100}
			switch what {
			case 'E':
				seg.end = segmentHeadBytes
			case 'L', 'l':
				seg.live.Store(1)
			case 'R':
				seg.refs.Store(1)
			}
			sealed = append(sealed, seg)
			if strings.Contains(c.want, fmt.Sprint(i)) {
				want = append(want, seg)
			}
		}
		if got := freeable(sealed); !slices.Equal(got, want) {
			t.Errorf("%s: %d of %s may go, want %s", name, len(got), c.segs, c.want)
		}
	}
}
