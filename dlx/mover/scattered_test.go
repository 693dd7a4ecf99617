package mover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// Messages that leave in another order than they came do not have an entry of the log read for each.
func TestScatteredLettersReadEachEntryOnce(t *testing.T) {
	run(t, "in turn", func(t *testing.T) {
		const entries, each = 8, 24
		r := newRig(t, false, Target{ID: 9, Name: "t"})
		for e := range entries {
			s := fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq + 1}
			for i := range each {
				body := fmt.Sprint(e, ".", i)
				m := fsm.Message{RoutingKeys: []string{"k"}, Properties: []byte{0, 0}, Body: []byte(body)}
				s.Ops = append(s.Ops, fsm.Publish{TTLMillis: -1, Message: fsm.EncodeMessage(nil, &m), BodyBytes: uint32(len(body))})
			}
			r.seq += each
			r.propose(s)
		}
		die := fsm.Settle{Kind: fsm.Discard}
		var order []string
		for i := range each {
			for e := range entries {
				die.Runs = append(die.Runs, fsm.Run{First: queue.MessageID(e*each + i + 1), Count: 1})
				order = append(order, fmt.Sprintf("%d:%d.%d", len(order)+1, e, i))
			}
		}
		r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq + 1, Ops: []fsm.Op{die}})
		r.seq++
		r.m.Wake()
		synctest.Wait()
		if got := r.take(9); !slices.Equal(got, order) {
			t.Fatalf("sent %v, want %v", got, order)
		}
		if n := r.reads.Load(); n > 2*entries {
			t.Errorf("%d reads for %d entries", n, entries)
		}
		// They are under way for so long that they are sent again, and looked at again.
		sent := r.reads.Load()
		time.Sleep(3 * reviewAfter)
		synctest.Wait()
		if again := r.reads.Load() - sent; again < entries || again > entries*each/2 {
			t.Errorf("%d reads to look at what is under way in %d entries", again, entries)
		}
		if n := r.kept.bytes.Load(); n != 0 {
			t.Errorf("%d bytes are kept of what was sent", n)
		}
		r.m.Stop()
	})
	run(t, "large ones are not kept", func(t *testing.T) {
		r := newRig(t, false, Target{ID: 9, Name: "t"})
		for range 8 {
			r.die(strings.Repeat("x", 2*keptEach))
		}
		time.Sleep(answerTimeout) // they are sent again
		synctest.Wait()
		if n := r.kept.bytes.Load(); n != 0 {
			t.Errorf("%d bytes are kept of large messages that wait", n)
		}
		r.m.Stop()
	})
}

// diesScattered has messages of 4 KiB in entries of four die in another order than they came.
func diesScattered(r *rig, entries int) {
	const each, size = 4, 4 << 10
	m := fsm.Message{RoutingKeys: []string{"k"}, Properties: []byte{0, 0}, Body: make([]byte, size)}
	data := fsm.EncodeMessage(nil, &m)
	die := fsm.Settle{Kind: fsm.Discard}
	for range entries {
		s := fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq + 1}
		for range each {
			s.Ops = append(s.Ops, fsm.Publish{TTLMillis: -1, Message: data, BodyBytes: size})
		}
		r.seq += each
		r.propose(s)
	}
	for i := range each {
		for e := range entries {
			die.Runs = append(die.Runs, fsm.Run{First: queue.MessageID(e*each + i + 1), Count: 1})
		}
	}
	r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq + 1, Ops: []fsm.Op{die}})
	r.seq++
	r.m.Wake()
	synctest.Wait()
}

// What waits for a target that takes nothing is in the log, and not in the memory of each mover.
func TestWaitingLettersAreLetGo(t *testing.T) {
	for name, answer := range map[string]*wire.TransferAnswer{"which does not answer": nil, "which is full": {Target: 9, Source: 7, Full: true}} {
		run(t, name, func(t *testing.T) {
			r := newRig(t, false, Target{ID: 9, Name: "t"})
			defer r.m.Stop()
			diesScattered(r, 100)
			for range 20 {
				time.Sleep(keptRest / 2)
				if answer != nil {
					r.answer(*answer)
				}
				synctest.Wait()
			}
			if n := r.kept.bytes.Load(); n > transferBytes {
				t.Errorf("%d bytes are kept", n)
			}
		})
	}
	run(t, "with those of many others", func(t *testing.T) {
		r := newRig(t, false, Target{ID: 9, Name: "t"})
		defer r.m.Stop()
		const others = keptNodeMax
		r.kept.bytes.Store(others)
		diesScattered(r, 100)
		if n := r.kept.bytes.Load() - others; n > transferBytes {
			t.Errorf("%d bytes are kept", n)
		}
		if n := len(r.take(9)); n == 0 {
			t.Error("nothing is sent")
		}
	})
}
