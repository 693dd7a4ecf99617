package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// everyCommand is an entry with every command and operation, at their extremes.
func everyCommand() Entry {
	const big = math.MaxUint64
	p := pub("body")
	p.Priority, p.HasPriority, p.TTLMillis, p.Verdict, p.Immediate = 255, true, math.MaxInt64, RefuseConsumers, true
	p.Dedup = queue.DedupID{1, 15: 255}
	return Entry{
		Session: big, Ordinal: big, TimeMillis: math.MinInt64, CatalogRev: big, Mark: big, MarkSelf: true,
		Commands: []Command{
			Stream{Origin{math.MaxUint32, big}, big, big, []Op{
				p, pub(""),
				Settle{Kind: RequeueCounted, Runs: []Run{{big, math.MaxUint32, math.MaxUint32}, {1, 2, 3}}},
				Purge{big, ids(5, 6, 9)},
				Settle{},
				Purge{},
				Tx{
					RefuseFull,
					[]Op{pub("tx"), Settle{Kind: Discard, Runs: []Run{{1, 2, 3}}}},
					[]TxPart{{[]uint64{4, big}, part(pub("far"))}, {[]uint64{4}, part(Settle{Kind: Ack, Runs: []Run{{9, 1, 0}}})}},
				},
				Tx{},
			}},
			Stream{},
			Return{Discard, []Run{{7, 8, 9}, {1, 1, 1}}},
			Expire{[]queue.IDRange{{First: 9, Last: 3}, {First: 0, Last: big}}},
			DropHeads{ids(1)},
			Route{Items: []Routed{{big, []uint64{big, 1}, HasTargets}, {2, nil, ParkCycle}, {3, nil, Stay}}},
			TransferIn{Source{big, math.MaxUint32}, big, big, []Transfer{{Withdrawn: true}, transfer("t"), {Priority: 9, HasPriority: true, TTLMillis: math.MaxInt64, HasTTL: true, DelayMillis: math.MaxUint32, Dedup: queue.DedupID{15: 1}, Dead: true, Message: transfer("p").Message, BodyBytes: 1}, {Part: part(pub("part"))}, {Part: part(Settle{})}}},
			TransferDone{Target: big, UpTo: big},
			TargetGone{Target: big, Watermark: big},
			Withdraw{big, big},
			Plan{Settings: big, Automatic: true, Targets: []uint64{1, big}},
			TransferDone{big, big, []uint64{1, 2, big}},
			TargetGone{big, big, []uint64{big}},
			Route{[]Routed{{2, []uint64{1}, HasTargets}}, big},
			Release{ParkUnrouted},
			ForgetSources{[]Source{{1, 2}, {big, 3}}},
			SetSettings{big, queue.Settings{
				MessageTTLMillis: math.MaxInt64, MaxLength: -1, MaxLengthBytes: math.MinInt64, Overflow: queue.RejectPublishDLX,
				DeliveryLimit: 20, MaxPriority: 255, DefaultPriority: 4, DeadLetter: true, DeadLetterExchange: "dlx",
				DeadLetterRoutingKey: "k", DeadLetterKeySet: true, AtLeastOnce: true, OutboxMax: 1, OutboxMaxBytes: 2, Delayed: true, DeadLetterOnRemoval: true,
				Dedup:   queue.Dedup{WindowMillis: queue.DedupWindowMax, Size: queue.DedupSizeMax},
				StopTTL: true, MaxHops: math.MaxInt64, DeadLettersKeep: true,
			}, "queue", "vhost"},
			Close{},
			Consumed{},
			Tenure{Origin{math.MaxUint32, big}, big},
			StartRedrive{dlx.RedriveSpec{
				Token: big, Discard: true, To: dlx.ToNamedQueue, Queue: "target", Rate: math.MaxUint32, Filter: dlx.Filter{
					Reasons: []dlx.Reason{dlx.Rejected, dlx.QueueRemoved}, Queue: "src", DiedBefore: math.MaxInt64, DiedAfter: -1,
					IDs: []uint64{1, 5, big}, MessageIDs: []string{"a", ""}, Header: "h", HeaderValue: "v",
				},
			}},
			StartRedrive{},
			StopRedrive{big},
			Bury{big},
			TakeRedrive{big, 3, big, []RedriveItem{{5, math.MaxUint32, []uint64{big, 1}}, {9, 0, nil}, {big, 0, []uint64{2}}}, dlx.RedriveCounts{NoOrigin: big, Missing: 1, Busy: 2}},
		},
	}
}

func TestEntryRoundTrip(t *testing.T) {
	want := everyCommand()
	data := EncodeEntry([]byte("prefix"), &want)[6:]
	got, err := DecodeEntry(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got\n%+v, want\n%+v", got, want)
	}
	for n := range data {
		if _, err := DecodeEntry(data[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := DecodeEntry(append(data, 0)); !errors.Is(err, ErrMalformed) {
		t.Fatalf("a byte too much: %v", err)
	}
}

func TestUnknownVersionsAndCommands(t *testing.T) {
	entry := EncodeEntry(nil, &Entry{Commands: []Command{Close{}}})
	for name, c := range map[string]struct {
		at   int
		to   byte
		want error
	}{
		"version": {0, 2, ErrVersion},
		"command": {len(entry) - 1, 99, ErrCommand},
		"flag":    {1, 2, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			data := bytes.Clone(entry)
			data[c.at] = c.to
			if _, err := DecodeEntry(data); !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			defer func() {
				if s := fmt.Sprint(recover()); !strings.Contains(s, "apply entry 9 of session") || !strings.Contains(s, c.want.Error()) {
					t.Fatalf("panic %q", s)
				}
			}()
			New().Apply(9, data)
		})
	}
	if _, err := DecodeMessage([]byte{9}); !errors.Is(err, ErrVersion) {
		t.Fatalf("message: %v", err)
	}
	if _, err := Restore([]byte{9}); !errors.Is(err, ErrVersion) {
		t.Fatalf("manifest: %v", err)
	}
	for _, empty := range []error{second(DecodeEntry(nil)), second(DecodeMessage(nil)), second(Restore(nil))} {
		if !errors.Is(empty, ErrMalformed) {
			t.Fatalf("nothing at all: %v", empty)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestApplyPanicsOnAnOldIndex(t *testing.T) {
	m := New()
	data := EncodeEntry(nil, &Entry{})
	m.Apply(5, data)
	defer func() {
		if s := fmt.Sprint(recover()); !strings.Contains(s, "apply index 5 after index 5") {
			t.Fatalf("panic %q", s)
		}
	}()
	m.Apply(5, data)
}

func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short := rapid.StringN(0, 20, 300)
		m := Message{
			Exchange:    short.Draw(t, "exchange"),
			RoutingKeys: rapid.SliceOfN(short, 1, 5).Draw(t, "keys"),
			Properties:  rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "properties"),
			Body:        rapid.SliceOfN(rapid.Byte(), 1, 500).Draw(t, "body"),
		}
		m.BCC = rapid.IntRange(0, len(m.RoutingKeys)).Draw(t, "bcc")
		for range rapid.IntRange(0, 3).Draw(t, "deaths") {
			d := dlx.Death{
				Queue: short.Draw(t, "queue"), Reason: dlx.Reason(rapid.IntRange(1, 4).Draw(t, "reason")), Count: rapid.Uint64().Draw(t, "count"),
				FirstMillis: rapid.Int64().Draw(t, "first"), LastMillis: rapid.Int64().Draw(t, "last"), Exchange: short.Draw(t, "exchange"),
				RoutingKeys: rapid.SliceOfN(short, 1, 3).Draw(t, "keys"),
			}
			if d.HasExpiration = rapid.Bool().Draw(t, "expiring"); d.HasExpiration {
				d.OriginalExpiration = short.Draw(t, "expiration")
			}
			d.Detail = rapid.StringN(0, 20, dlx.DetailMax).Draw(t, "detail")
			m.Deaths = append(m.Deaths, d)
		}
		b := EncodeMessage(nil, &m)
		if len(b) != MessageSize(&m) {
			t.Fatalf("%d bytes, MessageSize says %d", len(b), MessageSize(&m))
		}
		got, err := DecodeMessage(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%v: got\n%+v, want\n%+v", err, got, m)
		}
		outlineOf(t, b)
		outlineOf(t, b[:rapid.IntRange(0, len(b)).Draw(t, "cut")])
	})
}

// outlineOf checks that DecodeOutline takes what DecodeMessage takes and tells the same.
func outlineOf(t interface{ Fatalf(string, ...any) }, data []byte) {
	m, err := DecodeMessage(data)
	o, errOutline := DecodeOutline(data)
	if (err == nil) != (errOutline == nil) {
		t.Fatalf("DecodeMessage: %v, DecodeOutline: %v", err, errOutline)
	}
	key := ""
	if len(m.RoutingKeys) > 0 {
		key = m.RoutingKeys[0]
	}
	if o.Exchange != m.Exchange || o.Key != key || !bytes.Equal(o.Properties, m.Properties) || !bytes.Equal(o.Body, m.Body) {
		t.Fatalf("outline %+v of message %+v", o, m)
	}
}

func TestPublishSizeIsABound(t *testing.T) {
	empty := len(EncodeEntry(nil, &Entry{Commands: []Command{Stream{Ops: []Op{}}}}))
	for _, p := range []Publish{pub(""), everyCommand().Commands[0].(Stream).Ops[0].(Publish), {TTLMillis: math.MaxInt64, HasPriority: true, BodyBytes: math.MaxUint32, Message: make([]byte, 1<<15)}} {
		got := len(EncodeEntry(nil, &Entry{Commands: []Command{Stream{Ops: []Op{p}}}})) - empty
		if size := PublishSize(&p); got > size || size > got+publishOverhead {
			t.Fatalf("%d bytes, PublishSize says %d", got, size)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	e := everyCommand()
	f.Add(EncodeEntry(nil, &e))
	l := level2Entry()
	f.Add(EncodeEntry(nil, &l))
	l = cancelEntry()
	f.Add(EncodeEntry(nil, &l))
	l = rejectEntry()
	f.Add(EncodeEntry(nil, &l))
	f.Add(EncodeEntry(nil, &Entry{}))
	f.Add(publishEntry(1, 3, 10, 20))
	f.Add([]byte{entryVersion, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x03})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil {
			return
		}
		again, err := DecodeEntry(EncodeEntry(nil, &e))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%v: decoded\n%+v, then\n%+v", err, e, again)
		}
		// Whatever decodes can be applied, and leaves a sound machine.
		m := New()
		m.Apply(1, publishEntry(1, 20, 1, 9))
		m.Apply(2, data)
		m.check()
		r, err := Restore(m.Snapshot())
		if err != nil || !bytes.Equal(r.Snapshot(), m.Snapshot()) {
			t.Fatalf("snapshot after the entry: %v", err)
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	m := Message{Exchange: "x", RoutingKeys: []string{"a", "b"}, BCC: 1, Properties: []byte{0, 0}, Body: []byte("body")}
	f.Add(EncodeMessage(nil, &m))
	m.Deaths = []dlx.Death{{Queue: "q", Reason: dlx.Expired, Count: 3, FirstMillis: 5, LastMillis: 9, RoutingKeys: []string{"a"}, OriginalExpiration: "7", HasExpiration: true}}
	f.Add(EncodeMessage(nil, &m))
	m = rejectedMessage()
	f.Add(EncodeMessage(nil, &m))
	f.Fuzz(func(t *testing.T, data []byte) {
		outlineOf(t, data)
		m, err := DecodeMessage(data)
		if err != nil {
			return
		}
		again, err := DecodeMessage(EncodeMessage(nil, &m))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%v: decoded\n%+v, then\n%+v", err, m, again)
		}
		if _, err := m.Dead(dlx.Dying{Queue: "q", Reason: dlx.Rejected, TimeMillis: 1}, &queue.Settings{DeadLetter: true}); err != nil && len(m.Properties) == 0 {
			t.Fatal(err)
		}
	})
}

// balance corrects how many messages came in, which restore takes as it is, by what left and what lives, so that what is applied next may recount
// (build tag invariants). Overflow is no matter: all is modulo 2^64, as in the recount.
func balance(m *Machine) {
	c := &m.counters
	lives := uint64(m.queue.Len()) + uint64(m.outbox.Len()) - uint64(len(m.leaving.ids)+len(m.undecided.ids))
	c.Published += c.Acked + c.Purged + c.Closed + c.Moved + c.Redriven + c.DroppedTotal() + lives - (c.Published + c.Transferred + c.RefusedDead + c.Relayed)
}

func FuzzRestore(f *testing.F) {
	f.Add(New().Snapshot())
	g := newRig(f)
	g.time = 1000
	g.settings(func(s *queue.Settings) { deadLettering(s); s.MessageTTLMillis, s.MaxPriority = 70, 5 })
	g.publish("a", "b", "c", "d", "e", "f")
	full := pub("full")
	full.Verdict = RefuseFull
	g.apply(g.run(full, pub("g"), Settle{Kind: Discard, Runs: []Run{{1, 3, 0}}}), Return{RequeueFailed, []Run{{5, 1, 0}}})
	g.apply(Route{Items: []Routed{to(1, 7, 8), to(2, 7), {Item: 3, NoRoute: ParkCycle}}}, TransferDone{Target: 8, UpTo: 1}, TargetGone{Target: 9, Watermark: 4})
	g.apply(TransferIn{Source{5, 1}, 1, 0, []Transfer{transfer("t"), {Withdrawn: true}}}, ForgetSources{nil})
	f.Add(g.m.Snapshot())
	f.Add(rejectMachine(f).Snapshot())
	f.Add(cancelMachine(f).Snapshot())
	g.apply(Close{})
	f.Add(g.m.Snapshot())
	miscounted := New()
	miscounted.counters.Published = 32
	f.Add(miscounted.Snapshot())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := restore(data, 1<<16)
		if err != nil {
			return
		}
		if err := m.queue.Check(); err != nil {
			t.Fatal(err)
		}
		if err := m.outbox.Check(); err != nil {
			t.Fatal(err)
		}
		shot := m.Snapshot()
		again, err := Restore(shot)
		if err != nil || !bytes.Equal(again.Snapshot(), shot) {
			t.Fatalf("the restored machine does not restore: %v", err)
		}
		m.Pins()
		if m.index < math.MaxUint64 {
			if invariants {
				balance(m)
			}
			m.Apply(m.index+1, EncodeEntry(nil, &Entry{Commands: []Command{Return{Ack, []Run{{1, math.MaxUint32, 0}}}, TargetGone{Target: 7, Watermark: 1}, Release{ParkCycle}}}))
			if err := m.outbox.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
