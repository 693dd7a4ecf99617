package fsm

import (
	"bytes"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// TestCaptureIsEncodedWhileApplyGoesOn runs the encoding on another goroutine,
// over several chunks and pages, while messages leave and come. The race detector
// watches.
func TestCaptureIsEncodedWhileApplyGoesOn(t *testing.T) {
	m := New()
	index := uint64(0)
	apply := func(cmds ...Command) {
		index++
		m.Apply(index, EncodeEntry(nil, &Entry{TimeMillis: int64(index), CatalogRev: 1, Commands: cmds}))
	}
	publish := func() {
		_, seq, _ := m.Watermark(1)
		index++
		m.Apply(index, publishEntry(seq+1, 2000, 1, 50))
	}
	apply(SetSettings{Revision: 1, Settings: queue.Settings{
		DeadLetter: true, MessageTTLMillis: -1, DeliveryLimit: -1, MaxPriority: 3,
	}})
	for range 6 {
		publish()
	}
	for round := range 8 {
		first := queue.MessageID(round * 1300)
		want, pins := m.Snapshot(), m.Pins()
		encode := m.Capture()
		type result struct {
			manifest []byte
			pins     []IndexRange
		}
		done := make(chan result)
		go func() {
			manifest, pins := encode()
			done <- result{manifest, pins}
		}()
		publish()
		apply(Return{Discard, []Run{{first + 1, 700, 0}}}, Return{Ack, []Run{{first + 800, 500, 0}}}, Return{RequeueFailed, []Run{{first + 1400, 50, 0}}})
		var r Route
		for _, it := range m.Outbox().Unrouted(500) {
			r.Items = append(r.Items, to(it.ID, 7, 8))
		}
		apply(r, TransferDone{Target: 7, UpTo: 300}, TransferDone{Target: 8, UpTo: uint64(round) * 200})
		got := <-done
		if !bytes.Equal(got.manifest, want) {
			t.Fatalf("round %d: the manifest is not that of the capture", round)
		}
		equalList(t, "pins", got.pins, pins)
		m.check()
	}
}
