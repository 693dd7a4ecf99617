package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warrenmq/warren/fsm"
)

func samples() []Message {
	o := fsm.Origin{Node: 3, Incarnation: 99}
	item := Item{No: 4, ID: 5, Attempt: 6, Failed: 7, Redelivered: true, Message: []byte("body")}
	m := fsm.Message{Exchange: "x", RoutingKeys: []string{"k"}, Properties: []byte{0, 0}, Body: []byte("hello")}
	enc := fsm.EncodeMessage(nil, &m)
	return []Message{
		&Batch{Queue: 1, Stream: fsm.Stream{Origin: o, First: 8, AnsweredUpTo: 7, Ops: []fsm.Op{
			fsm.Publish{TTLMillis: -1, Message: enc, BodyBytes: 5},
			fsm.Settle{Kind: fsm.Discard, Runs: []fsm.Run{{First: 1, Count: 2, Attempt: 3}}},
			fsm.Tx{Parts: []fsm.TxPart{{Targets: []uint64{4}, Part: fsm.EncodePart(nil, fsm.Settle{Kind: fsm.Discard})}}},
		}}},
		&Attach{Queue: 1, Origin: o, Consumer: Consumer{No: 9, Prefetch: 10, Priority: -3, WindowMessages: 5, WindowBytes: -6, Turn: Turn{7, 8}}},
		&Attached{Queue: 1, No: 9, Refusal: "exclusive", Turn: Turn{7, 8}},
		&Detach{Queue: 1, Origin: o, No: 9, Returns: true},
		&Detached{Queue: 1, No: 9, Gone: true, Unused: true},
		&Window{Queue: 1, Origin: o, No: 9, Messages: -1, Bytes: 1 << 40},
		&Get{Queue: 1, Origin: o, Req: 11, After: 12},
		&Got{Queue: 1, Req: 11, Session: 17, Resync: 2, Found: true, Item: item, Remaining: 3},
		&Got{Queue: 1, Req: 11},
		&Query{Queue: 1, Origin: o, Req: 13, After: 14, Use: true},
		&Query{Queue: 1, Origin: o, Req: 13, After: 14, End: EndResolved},
		&Status{Queue: 1, Req: 13, Ready: 1, Unacked: 2, Consumers: 3, Outbox: 4, Parked: 5, ReadyBytes: 6, Dropped: 7, OutboxBytes: 8},
		&Status{Queue: 1, Req: 13, Ended: true},
		&Deliver{Queue: 1, Session: 17, Resync: 3, Items: []Item{item, item}},
		&Answer{Queue: 1, Origin: o, UpTo: 15, Above: 12, Rewind: true, Next: 16, Outcomes: []fsm.Outcome{{Seq: 15, Kind: fsm.Purged, Count: 3}}},
		&Answer{Queue: 1, Origin: o, UpTo: 15, Above: 12, Next: 16, Outcomes: []fsm.Outcome{{Seq: 15, Kind: fsm.Purged, Count: 3}}, Pace: 300},
		&NotLeader{Queue: 1, Hint: "n2/u"},
		&RollCall{Queue: 1, Session: 17},
		&Resync{Queue: 1, Session: 17, No: 4, Newest: 16, Origin: o, Consumers: []Consumer{{No: 9}}, Held: []Hold{{No: 9, ID: 18, Attempt: 1, Settled: 5}}, Attaching: []ConsumerNo{10, 12}},
		&Transfer{Target: 2, Urgent: true, In: fsm.TransferIn{Source: fsm.Source{Queue: 1, Epoch: 1}, First: 3, Items: []fsm.Transfer{{Message: enc, BodyBytes: 5}, {Part: fsm.EncodePart(nil, fsm.Settle{})}}}},
		&TransferAnswer{Source: 1, Target: 2, Epoch: 1, UpTo: 3, Gap: true, Full: true, Gone: true},
		&TransferAnswer{Source: 1, Target: 2, UpTo: 900, Withdrawn: []uint64{1, 7, 900}},
		&TargetClosed{Source: 1, Epoch: 1, Target: 2, Watermark: 3},
		&TargetClosed{Source: 1, Epoch: 1, Target: 2, Watermark: 3, Withdrawn: []uint64{2, 3}},
		&TargetForgotten{Target: 2, Source: 1},
		&TxAsk{Queue: 1, Origin: o, Req: 13, Publishes: 2, Bytes: 300, First: 5, Last: 9},
		&TxTold{Queue: 1, Req: 13, Refusal: fsm.RefusedFull},
		&Unsent{Queue: 1, Origin: o, Resync: 4, Runs: []fsm.Run{{First: 5, Count: 2, Attempt: 1}, {First: 9, Count: 1}}},
	}
}

func TestRoundTrip(t *testing.T) {
	for _, m := range samples() {
		got, err := Decode(Encode(nil, m))
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("%T: %s", m, d)
		}
	}
}

// Programs of level 2 that know nothing of consumers being attached read a Resync with some, too: they refuse what is left over.
func TestAttachingIsPassedOver(t *testing.T) {
	m := &Resync{Queue: 1, No: 4, Origin: fsm.Origin{Node: 3, Incarnation: 99}, Held: []Hold{{No: 9, ID: 18, Attempt: 1, Settled: 5}}, Attaching: []ConsumerNo{10}}
	body := []byte{1, 0, 4, 0, 3, 99, 0, 2, 9, 18, 1, 5, 10, 0, 0, 0} // what they read: a list of consumers, then one of holds
	if got := Encode(nil, m); !bytes.Equal(got, append([]byte{Version, codeResync}, body...)) {
		t.Errorf("%v, want %v", got, body)
	}
}

func TestTruncatedIsRefused(t *testing.T) {
	for _, m := range samples() {
		b := Encode(nil, m)
		for n := range len(b) {
			if got, err := Decode(b[:n]); err == nil && bytes.Equal(Encode(nil, got), b) {
				t.Errorf("%T cut to %d bytes decodes to the whole", m, n)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range samples() {
		f.Add(Encode(nil, m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Encode(nil, m))
		if err != nil {
			t.Fatalf("%T does not decode again: %v", m, err)
		}
		if d := cmp.Diff(m, again); d != "" {
			t.Fatal(d)
		}
	})
}
