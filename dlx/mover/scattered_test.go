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
		r.m.Stop()
		if g := r.m.gathered; len(g.kept) != 0 || g.bytes != 0 {
			t.Errorf("%d messages of %d bytes are kept of what was sent", len(g.kept), g.bytes)
		}
	})
	run(t, "large ones are not kept", func(t *testing.T) {
		r := newRig(t, false, Target{ID: 9, Name: "t"})
		for range 8 {
			r.die(strings.Repeat("x", 2*keptEach))
		}
		time.Sleep(answerTimeout) // they are sent again
		synctest.Wait()
		r.m.Stop()
		if n := r.m.gathered.bytes; n != 0 {
			t.Errorf("%d bytes are kept of large messages that wait", n)
		}
	})
}
