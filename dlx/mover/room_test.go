package mover

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/queue/wire"
)

// A target that is busy with many sources is not sent a window of each, again and again: one batch, until it takes that.
func TestRoomFollowsWhatIsTaken(t *testing.T) {
	const size = 100 << 10 // three of them are a batch
	begin := func(t *testing.T) (r *rig, sent func(want int)) {
		r = newRig(t, false, Target{5, "a"})
		t.Cleanup(r.m.Stop)
		var letters []string
		for range 120 {
			letters = append(letters, strings.Repeat("x", size))
		}
		r.die(letters...)
		return r, func(want int) {
			t.Helper()
			if n := len(r.take(5)); n != want {
				t.Fatalf("%d letters are sent, want %d", n, want)
			}
		}
	}
	run(t, "twice as much when all is taken", func(t *testing.T) {
		r, sent := begin(t)
		upTo := uint64(0)
		for _, n := range []int{3, 6, 12, 21} {
			sent(n)
			upTo += uint64(n)
			r.answer(wire.TransferAnswer{Target: 5, UpTo: upTo})
		}
		sent(42) // all of a window
		r.answer(wire.TransferAnswer{Target: 5, UpTo: upTo + 42})
		sent(36)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 120})
		if n := r.len(); n != 0 {
			t.Errorf("%d letters are left", n)
		}
	})
	run(t, "a batch when nothing was answered", func(t *testing.T) {
		r, sent := begin(t)
		sent(3)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3})
		sent(6)
		for range 5 {
			time.Sleep(answerTimeout)
			if r.asks(5) == 0 {
				t.Fatal("the target is not asked")
			}
			sent(0)
		}
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3})
		sent(3)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 9}) // late, and of all
		sent(6)
	})
	run(t, "a batch when it does not take what was sent", func(t *testing.T) {
		r, sent := begin(t)
		sent(3)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3})
		sent(6)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3, Gap: true})
		sent(0)
		time.Sleep(2 * backoffMin)
		sent(3)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 6, Gap: true})
		sent(3)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 9})
		sent(6)
	})
}

// newCrowd has a letter of so many bytes die that goes to n targets, numbered from 100 on.
func newCrowd(t *testing.T, n, size int) *rig {
	var targets []Target
	for id := range uint64(n) {
		targets = append(targets, Target{100 + id, fmt.Sprint("t", 100+id)})
	}
	r := newRig(t, false, targets...)
	r.die(strings.Repeat("x", size))
	return r
}

// takeAll returns what was sent to all targets since the last call.
func (r *rig) takeAll() (sent []*wire.Transfer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, r.sent = r.sent, nil
	return sent
}

// A letter with very many targets is not under way to all of them at once, if it is large. One that does not answer holds up none of the others.
func TestCrowdOfTargets(t *testing.T) {
	const size, n, silent = 8 << 20, 40, 7
	run(t, "in turn", func(t *testing.T) {
		r := newCrowd(t, n, size)
		defer r.m.Stop()
		took := map[uint64]int{}
		begin := time.Now()
		for len(took) < n-silent && time.Since(begin) < 5*time.Second {
			sent := r.takeAll()
			if len(sent) > crowdBytes/size+silent { // the silent ones are asked again
				t.Fatalf("%d are under way", len(sent))
			}
			for _, m := range sent {
				if m.Target < 100+silent {
					continue
				}
				if took[m.Target]++; took[m.Target] > 1 {
					t.Fatalf("%d is sent the letter again", m.Target)
				}
				r.answer(wire.TransferAnswer{Target: m.Target, Source: 7, UpTo: 1})
			}
			if len(sent) == 0 {
				time.Sleep(answerTimeout)
			}
			synctest.Wait()
		}
		if len(took) != n-silent {
			t.Fatalf("%d of %d got it", len(took), n-silent)
		}
		for id := uint64(100); id < 100+silent; id++ {
			r.answer(wire.TransferAnswer{Target: id, Source: 7, UpTo: 1})
		}
		if left := r.len(); left != 0 {
			t.Errorf("%d letters are left", left)
		}
	})
}

// A target whose disk is slow says that it has not taken yet what it was sent. That is in memory all the same, and others wait for it; not for ever, as
// that disk may hang.
func TestCrowdWaitsForSlowDisks(t *testing.T) {
	const size, n, hung = 8 << 20, 40, 10
	const write = 100 * time.Millisecond // of a letter
	slow := func(t *testing.T, skip func(target uint64) bool) (most int) {
		r := newCrowd(t, n, size)
		defer r.m.Stop()
		has := map[uint64]bool{}
		var disk []uint64
		written := 0
		for begin := time.Now(); written+len(has) < n; time.Sleep(write) {
			if time.Since(begin) > 2*n*write+lapsedTime {
				t.Fatalf("%d of %d letters are written, %d are not", written, n, len(has))
			}
			sent := r.takeAll()
			for _, m := range sent {
				switch {
				case len(m.In.Items) == 0:
					r.answer(wire.TransferAnswer{Target: m.Target, Gap: true})
				case skip(m.Target):
					has[m.Target] = true
				default:
					disk = append(disk, m.Target)
				}
			}
			most = max(most, len(disk))
			if len(disk) > 0 {
				r.answer(wire.TransferAnswer{Target: disk[0], UpTo: 1})
				disk, written = disk[1:], written+1
			}
		}
		return most
	}
	run(t, "all", func(t *testing.T) {
		if most := slow(t, func(uint64) bool { return false }); most > crowdBytes/size {
			t.Errorf("%d letters are under way", most)
		}
	})
	run(t, "some hang", func(t *testing.T) {
		slow(t, func(target uint64) bool { return target < 100+hung })
	})
}
