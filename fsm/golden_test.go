package fsm

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// goldenMessage has every field of a stored message.
func goldenMessage() Message {
	return Message{
		Exchange: "orders", RoutingKeys: []string{"new", "cc", "bcc"}, BCC: 1, Properties: []byte{0x10, 0, 2}, Body: []byte("hello"),
		Deaths: []dlx.Death{
			{Queue: "q", Reason: dlx.Expired, Count: 2, FirstMillis: 1000, LastMillis: 3000, Exchange: "x", RoutingKeys: []string{"a"}, OriginalExpiration: "60000", HasExpiration: true},
			{Queue: "w", Reason: dlx.Rejected, Count: 1, FirstMillis: 2000, LastMillis: 2000, RoutingKeys: []string{""}, Redriven: true, Before: 1},
		},
	}
}

// goldenMachine has something in every part of a manifest.
func goldenMachine(t *testing.T) *Machine {
	g := newRig(t)
	g.time, g.rev = 1000, 3
	g.settings(func(s *queue.Settings) {
		deadLettering(s)
		s.MessageTTLMillis, s.MaxPriority = 70, 5
		s.Dedup = queue.Dedup{WindowMillis: 900, Size: 2}
	})
	g.publish("a", "b", "c", "d", "e", "ff", "ggg")
	for i := range 3 {
		once := pub("once")
		once.Dedup = queue.DedupID{byte(i + 1)}
		g.time += int64(i)
		g.apply(g.run(once, once, Settle{Kind: Ack, Runs: []Run{{queue.MessageID(8 + i), 1, 0}}}))
	}
	full, high := pub("full"), pub("high")
	full.Verdict = RefuseFull
	high.Priority, high.HasPriority = 5, true
	g.apply(g.run(full, high, Settle{Kind: Discard, Runs: []Run{{1, 3, 0}}}), Return{RequeueFailed, []Run{{5, 1, 0}}}, Return{Ack, []Run{{6, 1, 0}}})
	g.apply(Route{Items: []Routed{to(1, 7, 8), to(2, 7), {Item: 3, NoRoute: ParkCycle}}}, TransferDone{Target: 8, UpTo: 1}, TargetGone{Target: 9, Watermark: 4})
	g.apply(TransferIn{Source{5, 1}, 1, 0, []Transfer{transfer("t"), {Withdrawn: true}}}, ForgetSources{nil}, Tenure{Origin{2, 40}, 9})
	g.apply(g.run(Tx{Ops: []Op{pub("tx")}, Parts: []TxPart{{[]uint64{7, 8}, part(pub("far"))}, {[]uint64{8}, part(Settle{Kind: Ack, Runs: []Run{{1, 1, 0}}})}}}))
	g.apply(StartRedrive{dlx.RedriveSpec{Token: 5, To: dlx.ToFirstQueue, Rate: 9, Filter: dlx.Filter{Reasons: []dlx.Reason{dlx.Expired}, Queue: "q", IDs: []uint64{4, 7}}}})
	g.apply(TakeRedrive{Number: 1, Through: 8, Items: []RedriveItem{{7, 0, []uint64{7, 8}}}, Passed: dlx.RedriveCounts{Busy: 2}})
	g.settings(func(s *queue.Settings) { deadLettering(s); s.MessageTTLMillis, s.StopTTL = 70, true })
	g.publish("may stay")
	g.time += 70
	g.apply(Expire{[]queue.IDRange{{First: 1, Last: 99}}})
	return g.m
}

// level2Entry has what level 2 of the cluster brought.
func level2Entry() Entry {
	return Entry{Session: 3, Ordinal: 4, TimeMillis: 5, CatalogRev: 6, Commands: []Command{
		TargetMoved{Target: 7, Watermark: 300, To: 90}, TargetMoved{Target: 8, Watermark: 9, Withdrawn: []uint64{2, 9}, To: 91},
	}}
}

// level2Machine is a queue's second life, with a target that has moved.
func level2Machine(t *testing.T) *Machine {
	m := goldenMachine(t)
	m.Succeed(1)
	e := level2Entry()
	m.Apply(m.Index()+1, EncodeEntry(nil, &e))
	return m
}

// rejectEntry has settlements that say why, which came with level 2 too.
func rejectEntry() Entry {
	return Entry{Session: 3, Ordinal: 5, TimeMillis: 7, CatalogRev: 6, Commands: []Command{Stream{Origin{9, 8}, 1, 0, []Op{
		Settle{Kind: Discard, Runs: []Run{{1, 2, 0}, {4, 1, 0}}, Detail: "no such customer: żółw"}, Settle{Kind: Discard, Runs: []Run{{5, 1, 0}}, Detail: strings.Repeat("x", dlx.DetailMax)},
	}}}}
}

func rejectedMessage() Message {
	m := goldenMessage()
	m.Deaths[1].Detail = "no such customer"
	return m
}

// rejectMachine has dead letters with and without a text of the client that rejected them, and one that may stay.
func rejectMachine(t testing.TB) *Machine {
	g := newRig(t)
	g.time, g.rev = 1000, 3
	g.settings(func(s *queue.Settings) { deadLettering(s); s.MessageTTLMillis, s.StopTTL = 70, true })
	g.publish("a", "b", "c", "d", "e", "f")
	e := rejectEntry()
	e.Session = 0
	g.apply(e.Commands...)
	g.apply(Return{Discard, []Run{{3, 1, 0}}}, Route{Items: []Routed{to(2, 7, 8)}})
	g.time += 70
	g.apply(Expire{[]queue.IDRange{{First: 1, Last: 99}}})
	return g.m
}

// cancelEntry publishes messages that may be taken back, and takes some back.
func cancelEntry() Entry {
	tell, high := pub("tell"), pub("high")
	tell.Tell, tell.TTLMillis, high.Tell, high.Priority, high.HasPriority = true, 500, true, 3, true
	return Entry{Session: 3, Ordinal: 6, TimeMillis: 7, CatalogRev: 6, Commands: []Command{Stream{Origin{9, 8}, 1, 0, []Op{
		tell, high, tell, pub("b"), Cancel{3}, Cancel{1}, Cancel{math.MaxUint64},
	}}}}
}

// cancelMachine is the queue of a delayed exchange of which messages were taken back.
func cancelMachine(t testing.TB) *Machine {
	g := newRig(t)
	g.time, g.rev = 1000, 3
	g.settings(func(s *queue.Settings) { deadLettering(s); s.Delayed = true })
	e := cancelEntry()
	g.apply(e.Commands...)
	return g.m
}

// TestGolden reads the bytes that version 1 was released with and writes the same
// ones. A difference is a new version, not a new golden file.
func TestGolden(t *testing.T) {
	entry, message := everyCommand(), goldenMessage()
	machine, later, second := goldenMachine(t), level2Entry(), level2Machine(t)
	cancel, cancels := cancelEntry(), cancelMachine(t)
	reject, rejected, rejects := rejectEntry(), rejectedMessage(), rejectMachine(t)
	for _, c := range []struct {
		name  string
		bytes []byte
		check func(*testing.T, []byte)
	}{
		{"entry-v1", EncodeEntry(nil, &entry), func(t *testing.T, b []byte) {
			if got, err := DecodeEntry(b); err != nil || !reflect.DeepEqual(got, entry) {
				t.Fatalf("%v: got\n%+v, want\n%+v", err, got, entry)
			}
		}},
		{"message-v1", EncodeMessage(nil, &message), func(t *testing.T, b []byte) {
			if got, err := DecodeMessage(b); err != nil || !reflect.DeepEqual(got, message) {
				t.Fatalf("%v: got\n%+v, want\n%+v", err, got, message)
			}
		}},
		{"manifest-v1", machine.Snapshot(), func(t *testing.T, b []byte) {
			m, err := Restore(b)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Snapshot(), b) || m.Hash() != machine.Hash() {
				t.Fatal("the restored machine differs")
			}
		}},
		{"entry-level2", EncodeEntry(nil, &later), func(t *testing.T, b []byte) {
			if got, err := DecodeEntry(b); err != nil || !reflect.DeepEqual(got, later) {
				t.Fatalf("%v: got\n%+v, want\n%+v", err, got, later)
			}
		}},
		{"manifest-level2", second.Snapshot(), func(t *testing.T, b []byte) {
			m, err := Restore(b)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Snapshot(), b) || m.Hash() != second.Hash() {
				t.Fatal("the restored machine differs")
			}
		}},
		{"entry-reject", EncodeEntry(nil, &reject), func(t *testing.T, b []byte) {
			if got, err := DecodeEntry(b); err != nil || !reflect.DeepEqual(got, reject) {
				t.Fatalf("%v: got\n%+v, want\n%+v", err, got, reject)
			}
		}},
		{"entry-cancel", EncodeEntry(nil, &cancel), func(t *testing.T, b []byte) {
			if got, err := DecodeEntry(b); err != nil || !reflect.DeepEqual(got, cancel) {
				t.Fatalf("%v: got\n%+v, want\n%+v", err, got, cancel)
			}
		}},
		{"manifest-cancel", cancels.Snapshot(), func(t *testing.T, b []byte) {
			m, err := Restore(b)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Snapshot(), b) || m.Hash() != cancels.Hash() {
				t.Fatal("the restored machine differs")
			}
		}},
		{"message-reject", EncodeMessage(nil, &rejected), func(t *testing.T, b []byte) {
			if got, err := DecodeMessage(b); err != nil || !reflect.DeepEqual(got, rejected) {
				t.Fatalf("%v: got\n%+v, want\n%+v", err, got, rejected)
			}
		}},
		{"manifest-reject", rejects.Snapshot(), func(t *testing.T, b []byte) {
			m, err := Restore(b)
			if err != nil {
				t.Fatal(err)
			}
			if it, _ := m.Outbox().Item(2); !bytes.Equal(m.Snapshot(), b) || m.Hash() != rejects.Hash() || it.Detail != "no such customer: żółw" {
				t.Fatalf("the restored machine differs: %+v", it)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join("testdata", "golden", c.name+".hex")
			if _, err := os.Stat(file); *rewrite && os.IsNotExist(err) {
				if err := os.WriteFile(file, []byte(hex.Dump(c.bytes)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			dump, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.Dump(c.bytes); got != string(dump) {
				t.Errorf("now written as\n%s", got)
			}
			c.check(t, undump(t, string(dump)))
		})
	}
}

// undump reads what hex.Dump wrote.
func undump(t *testing.T, dump string) (b []byte) {
	t.Helper()
	for line := range strings.Lines(dump) {
		digits, _, _ := strings.Cut(line[min(10, len(line)):], "|")
		part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}
