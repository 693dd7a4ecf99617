package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// rig drives one machine with entries and keeps their payloads, like a log.
type rig struct {
	t     testing.TB
	m     *Machine
	index uint64
	time  int64
	rev   uint64
	log   map[uint64][]byte
}

func newRig(t testing.TB) *rig {
	return &rig{t: t, m: New(), log: map[uint64][]byte{}, rev: 1}
}

func (g *rig) apply(cmds ...Command) Result { return g.entry(Entry{Commands: cmds}) }

func (g *rig) entry(e Entry) Result {
	g.t.Helper()
	g.index++
	e.Session, e.Ordinal = 7, g.index
	if e.TimeMillis == 0 {
		e.TimeMillis = g.time
	}
	if e.CatalogRev == 0 {
		e.CatalogRev = g.rev
	}
	data := EncodeEntry(nil, &e)
	g.log[g.index] = data
	res := g.m.Apply(g.index, data)
	if res.Index != g.index || res.Session != 7 || res.Ordinal != g.index {
		g.t.Fatalf("result names entry %d of session %d ordinal %d", res.Index, res.Session, res.Ordinal)
	}
	g.m.check()
	return res
}

// message returns the stored message that ref names.
func (g *rig) message(ref queue.Ref) Message {
	g.t.Helper()
	m, err := DecodeMessage(g.log[ref.Index][ref.Offset : ref.Offset+ref.Length])
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

// bodies lists the bodies of live messages in id order.
func (g *rig) bodies() (list []string) {
	g.t.Helper()
	for m, ok := g.m.Queue().NextLive(0); ok; m, ok = g.m.Queue().NextLive(m.ID) {
		list = append(list, string(g.message(m.Ref).Body))
	}
	return list
}

// publish publishes messages with these bodies in one run of node 1.
func (g *rig) publish(bodies ...string) Result {
	g.t.Helper()
	var ops []Op
	for _, b := range bodies {
		ops = append(ops, pub(b))
	}
	return g.apply(g.run(ops...))
}

// run is a stream of node 1 that follows its watermark.
func (g *rig) run(ops ...Op) Stream {
	_, seq, _ := g.m.Watermark(1)
	return Stream{Origin: Origin{1, 1}, First: seq + 1, Ops: ops}
}

func (g *rig) settings(edit func(*queue.Settings)) {
	g.t.Helper()
	s := g.m.Settings()
	edit(&s)
	if res := g.apply(SetSettings{Revision: g.m.SettingsRevision() + 1, Settings: s, Name: "q", VHost: "/"}); !res.SettingsSet {
		g.t.Fatal("settings not set")
	}
}

func pub(body string) Publish {
	m := Message{Exchange: "x", RoutingKeys: []string{"k"}, Body: []byte(body)}
	return Publish{TTLMillis: -1, Message: EncodeMessage(nil, &m), BodyBytes: uint32(len(body))}
}

func part(op Op) []byte { return EncodePart(nil, op) }

func transfer(body string) Transfer {
	p := pub(body)
	return Transfer{Message: p.Message, BodyBytes: p.BodyBytes}
}

func ids(r ...queue.MessageID) (list []queue.IDRange) {
	for _, id := range r {
		list = queue.AppendID(list, id)
	}
	return list
}

func (g *rig) want(bodies string) {
	g.t.Helper()
	if got := strings.Join(g.bodies(), " "); got != bodies {
		g.t.Fatalf("live bodies %q, want %q", got, bodies)
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func equalList[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestPublishEnqueuesUnderDenseIDs(t *testing.T) {
	g := newRig(t)
	res := g.publish("a", "bb")
	equal(t, "enqueued", res.Enqueued, queue.IDRange{First: 1, Last: 2})
	equal(t, "watermark", res.Streams[0].UpTo, 2)
	res = g.publish("c")
	equal(t, "enqueued", res.Enqueued, queue.IDRange{First: 3, Last: 3})
	g.want("a bb c")
	equal(t, "bytes", g.m.Queue().Bytes(), 4)
	if res = g.apply(); res.Enqueued.First <= res.Enqueued.Last {
		t.Fatalf("empty entry enqueued %v", res.Enqueued)
	}
}

func TestSnapshotRestoresEverything(t *testing.T) {
	g := newRig(t)
	g.time = 1000
	g.settings(func(s *queue.Settings) {
		s.DeadLetter, s.DeadLetterExchange, s.MessageTTLMillis, s.DeliveryLimit = true, "dlx", 500, 3
	})
	g.publish("a", "b", "c", "d", "e", "f")
	g.apply(Return{RequeueFailed, []Run{{2, 2, 0}}}, Return{Discard, []Run{{4, 2, 0}}})
	g.apply(Route{Items: []Routed{{1, []uint64{9, 8}, HasTargets}}}, TransferIn{Source: Source{5, 1}, First: 1, Items: []Transfer{transfer("t"), {Withdrawn: true}}})
	shot := g.m.Snapshot()
	r, err := Restore(shot)
	if err != nil {
		t.Fatal(err)
	}
	r.check()
	if !bytes.Equal(r.Snapshot(), shot) || r.Hash() != g.m.Hash() {
		t.Fatal("snapshot of the restored machine differs")
	}
	m, _ := r.Queue().Get(2)
	equal(t, "attempt", m.Attempt, 1)
	equal(t, "pending", len(r.Outbox().Pending(8, 0, 10)), 1)
	equalList(t, "pins", r.Pins(), g.m.Pins())
	_ = dlx.Rejected
}
