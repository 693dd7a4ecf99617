package store_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/store"
)

// mixedEnv is how many messages TestMixedLifetimes takes.
const mixedEnv = "WARREN_MIXED"

// What becomes of a message.
const (
	stays     = iota // for ever
	ackedSoon        // in the next entry
	ackedLate        // after a while, out of order
	expires
	diesAway   // rejected; its dead letter is taken by the target after a while
	diesHere   // rejected, and has no route
	lifeEndsAt // how many there are
)

// mixed is one queue whose messages live as long as their kind says, on a store, without raft in between.
type mixed struct {
	*testing.T
	r     *rand.Rand
	dir   string
	o     store.Options
	s     *store.Store
	g     *store.Group
	m     *fsm.Machine
	index uint64
	clock int64
	sent  uint64

	kind   []uint8                   // by message, gone when it has ended
	late   map[int][]queue.MessageID // by step, what ends then
	step   int
	lag    int // steps after which what does not stay has ended
	routed []dlx.ItemID
	seq    uint64 // of transfers to the target

	snapshots     int
	captured      time.Duration // under the machine's lock
	encoded       time.Duration
	manifestBytes int
	manifestMax   int
	logBytes      int64
	written       int64
}

const (
	gone        = 255
	mixedBatch  = 64
	mixedTarget = 7
	mixedBody   = 100
)

// mixedText is the body of the message n.
func mixedText(n uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, mixedBody), n)
	for len(b) < mixedBody {
		n = n*6364136223846793005 + 1442695040888963407
		b = append(b, byte(n>>56))
	}
	return b
}

func (x *mixed) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

func (x *mixed) open() {
	s, err := store.Open(x.o)
	x.must(err)
	x.s, x.g = s, s.Group(1)
}

// apply appends an entry to the log and applies it.
func (x *mixed) apply(cs ...fsm.Command) fsm.Result {
	x.index++
	data := fsm.EncodeEntry(nil, &fsm.Entry{Session: 1, Ordinal: x.index, TimeMillis: x.clock, Commands: cs})
	x.must(x.g.StoreLog(&raft.Log{Index: x.index, Term: 1, Data: data}))
	x.logBytes += int64(len(data))
	x.written += int64(len(data))
	return x.m.Apply(x.index, data)
}

// publish sends a batch. Three of four are of a single kind, as from a publisher of its own.
func (x *mixed) publish() []queue.MessageID {
	s := fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: x.sent + 1, AnsweredUpTo: x.sent}
	one := x.life()
	var soon []queue.MessageID
	for range mixedBatch {
		x.sent++
		k := one
		if x.step%4 == 0 {
			k = x.life()
		}
		p := fsm.Publish{TTLMillis: -1, BodyBytes: mixedBody}
		if k == expires {
			p.TTLMillis = 1 + x.r.Int64N(int64(x.lag))
		}
		p.Message = fsm.EncodeMessage(nil, &fsm.Message{RoutingKeys: []string{"q"}, Body: mixedText(x.sent)})
		s.Ops = append(s.Ops, p)
		x.kind = append(x.kind, k)
		id := queue.MessageID(x.sent)
		switch k {
		case ackedSoon:
			soon = append(soon, id)
		case ackedLate, diesAway, diesHere:
			at := x.step + 1 + x.r.IntN(x.lag)
			x.late[at] = append(x.late[at], id)
		}
	}
	res := x.apply(s)
	if res.Enqueued.Last != queue.MessageID(x.sent) {
		x.Fatalf("message %d became %d", x.sent, res.Enqueued.Last)
	}
	return soon
}

func (x *mixed) life() uint8 {
	switch n := x.r.IntN(100); {
	case n < 6:
		return stays
	case n < 45:
		return ackedSoon
	case n < 70:
		return ackedLate
	case n < 85:
		return expires
	case n < 95:
		return diesAway
	}
	return diesHere
}

// settle ends messages: of those that die it says so to the outbox later.
func (x *mixed) settle(ids []queue.MessageID) []fsm.Command {
	var acks, rejects []fsm.Run
	for _, id := range ids {
		if k := x.kind[id-1]; k == diesAway || k == diesHere {
			rejects = append(rejects, fsm.Run{First: id, Count: 1})
		} else {
			acks = append(acks, fsm.Run{First: id, Count: 1})
		}
		x.kind[id-1] = gone
	}
	var cs []fsm.Command
	if len(acks) > 0 {
		cs = append(cs, fsm.Return{Kind: fsm.Ack, Runs: acks})
	}
	if len(rejects) > 0 {
		cs = append(cs, fsm.Return{Kind: fsm.Discard, Runs: rejects})
	}
	return cs
}

// move routes new dead letters, and lets the target take those that have waited.
func (x *mixed) move() []fsm.Command {
	var cs []fsm.Command
	var route fsm.Route
	for _, item := range x.m.Outbox().Unrouted(1 << 30) {
		it := item.ID
		d := fsm.Routed{Item: it, NoRoute: fsm.DropUnrouted}
		if it%3 != 0 {
			d = fsm.Routed{Item: it, Targets: []uint64{mixedTarget}}
			x.routed = append(x.routed, it)
		}
		route.Items = append(route.Items, d)
	}
	if len(route.Items) > 0 {
		cs = append(cs, route)
	}
	if x.step%100 == 99 && len(x.routed) > 0 { // all but the newest hundred or so
		if done := uint64(max(0, len(x.routed)-100)); done > 0 {
			x.seq += done
			x.routed = x.routed[done:]
			cs = append(cs, fsm.TransferDone{Target: mixedTarget, UpTo: x.seq})
		}
	}
	return cs
}

// due names what has expired.
func (x *mixed) due() []fsm.Command {
	var ids []queue.IDRange
	x.m.Queue().Due(x.clock, func(m queue.Message) bool {
		ids = append(ids, queue.IDRange{First: m.ID, Last: m.ID})
		x.kind[m.ID-1] = gone
		return true
	})
	if len(ids) == 0 {
		return nil
	}
	return []fsm.Command{fsm.Expire{IDs: ids}}
}

// snapshot does what the host does with what raft does.
func (x *mixed) snapshot() {
	began := time.Now()
	encode := x.m.Capture()
	x.captured += time.Since(began)
	manifest, pins := encode()
	x.encoded += time.Since(began)
	k, err := x.g.Snapshots().Create(1, x.index, 1, config, 1, nil)
	x.must(err)
	ranges := make([]store.Range, len(pins))
	for i, p := range pins {
		ranges[i] = store.Range{First: p.First, Last: p.Last}
	}
	x.must(k.(store.ManifestSink).WriteManifest(manifest, ranges))
	x.must(k.Close())
	x.must(x.g.DeleteRange(1, x.index))
	x.snapshots++
	x.manifestBytes += len(manifest)
	x.manifestMax = max(x.manifestMax, len(manifest)+16*len(pins))
	x.logBytes = 0
}

func (x *mixed) run(messages int) {
	x.apply(fsm.SetSettings{Revision: 1, Name: "q", VHost: "/", Settings: queue.Settings{
		MessageTTLMillis: -1, MaxLength: -1, MaxLengthBytes: -1, DeliveryLimit: -1, OutboxMax: -1, OutboxMaxBytes: -1, DeadLetter: true,
	}})
	for ; len(x.kind) < messages; x.step++ {
		x.clock++
		soon := x.publish()
		x.apply(append(append(x.settle(append(soon, x.late[x.step]...)), x.due()...), x.move()...)...)
		delete(x.late, x.step)
		if x.m.Reclaimable() > x.o.SegmentBytes/2 || x.logBytes > 16*x.o.SegmentBytes {
			x.snapshot()
		}
	}
	x.snapshot()
}

// check reads every live message and compares it with what was sent. It returns the bytes of the live messages as they are stored,
// and of the entries that hold one.
func (x *mixed) check() (live, entries int64) {
	x.Helper()
	n, newest := 0, uint64(0)
	for m := range x.m.Queue().View().All {
		n++
		live += int64(m.Ref.Length)
		data, err := x.g.Read(m.Ref.Index)
		x.must(err)
		if m.Ref.Index != newest {
			entries, newest = entries+int64(len(data)), m.Ref.Index
		}
		got, err := fsm.MessageIn(data, m.Ref)
		if err != nil || !bytes.Equal(got.Body, mixedText(uint64(m.ID))) {
			x.Fatalf("message %d is %x, %v", m.ID, got.Body, err)
		}
		if x.kind[m.ID-1] == gone {
			x.Fatalf("message %d is there and has ended", m.ID)
		}
	}
	want := 0
	for _, k := range x.kind {
		if k != gone {
			want++
		}
	}
	if n != want {
		x.Fatalf("%d messages are live, want %d", n, want)
	}
	out := 0
	for it := range x.m.Outbox().View().All {
		data, err := x.g.Read(it.Ref.Index)
		x.must(err)
		if _, err := fsm.MessageIn(data, it.Ref); err != nil {
			x.Fatal(err)
		}
		live += int64(it.Ref.Length)
		out++
	}
	x.Logf("%d live messages and %d dead letters on their way are readable", n, out)
	return live, entries
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMixedLifetimes lets messages live for ever, be acked at once or out of order, expire and die, a quarter of them mixed within their entries. Whatever is
// alive can be read, over a restart too; the space of the rest comes back; and neither memory nor the time of a start grows with what has been.
// `make soak` runs it with ten million.
func TestMixedLifetimes(t *testing.T) {
	messages, segment := mixedSample, int64(64<<10)
	if n, err := strconv.Atoi(os.Getenv(mixedEnv)); err == nil {
		messages, segment = n, 16<<20
	}
	x := &mixed{T: t, r: rand.New(rand.NewPCG(1, 1)), dir: t.TempDir(), m: fsm.New(), clock: 1_000_000, late: map[int][]queue.MessageID{}}
	x.o = store.Options{Dir: x.dir, SegmentBytes: segment, TailCacheBytes: 4 << 20, OnFatal: func(err error) { panic(err) }}
	before := heapBytes()
	x.lag = min(400, max(4, messages/mixedBatch/8))
	x.open()
	began := time.Now()
	x.run(messages)
	took := time.Since(began)
	live, entries := x.check()
	own := int64(len(x.kind)) + 4<<20 + 1<<20 // the test's, and the caches
	for _, ids := range x.late {
		own += 8*int64(cap(ids)) + 64
	}
	memory := int64(heapBytes()) - int64(before) - own
	n := x.m.Queue().Len()
	t.Logf("%d messages in %v, %d MiB of entries; %d live, %.1f MiB in entries of %.1f MiB; %.1f bytes of memory for each",
		messages, took.Round(time.Millisecond), x.written>>20, n, float64(live)/(1<<20), float64(entries)/(1<<20), float64(memory)/float64(n))
	t.Logf("%d snapshots: %v captured, %v with encoding, %d KiB of manifests, the largest %d KiB",
		x.snapshots, x.captured.Round(time.Microsecond), x.encoded.Round(time.Millisecond), x.manifestBytes>>10, x.manifestMax>>10)
	if memory > 64*int64(n)+2<<20 {
		t.Errorf("%d bytes of memory for %d live messages", memory, n)
	}
	// Gathering rests when no segment but young ones is alive by less than two fifths.
	bound := entries*5/2 + 10*segment
	deadline := time.Now().Add(time.Minute)
	for x.s.Stats().SegmentBytes > bound && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	st := x.s.Stats()
	t.Logf("%.1f MiB on disk in %d segments (%.2f of the live entries), %.1f MiB copied, %d freed, %d recycled",
		float64(st.SegmentBytes)/(1<<20), st.Segments, float64(st.SegmentBytes)/float64(entries), float64(st.CopiedBytes)/(1<<20), st.FreedSegments, st.Prepared.Recycled)
	if st.SegmentBytes > bound {
		t.Errorf("%d bytes on disk, at most %d allowed", st.SegmentBytes, bound)
	}
	if st.CopiedBytes > uint64(x.written) {
		t.Errorf("%d bytes copied of %d", st.CopiedBytes, x.written)
	}
	x.must(x.s.Close())
	began = time.Now()
	x.open()
	opened := time.Since(began)
	x.restore()
	x.check()
	started := time.Since(began) - opened
	t.Logf("opened in %v, %d records read one by one, machine restored and all read in %v", opened.Round(time.Millisecond), x.s.Stats().Recovery.Records, started.Round(time.Millisecond))
	if opened > 10*time.Second+time.Duration(n)*10*time.Microsecond {
		t.Errorf("opening took %v", opened)
	}
	x.must(x.s.Close())
}

// restore makes the machine anew from the newest snapshot; there is no log above it.
func (x *mixed) restore() {
	list, err := x.g.Snapshots().List()
	x.must(err)
	_, r, err := x.g.Snapshots().Open(list[0].ID)
	x.must(err)
	defer r.Close()
	manifest, err := store.ReadManifest(r)
	x.must(err)
	hash := x.m.Hash()
	x.m, err = fsm.Restore(manifest)
	x.must(err)
	if x.m.Hash() != hash {
		x.Error("the machine is another one")
	}
}
