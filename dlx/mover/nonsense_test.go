package mover

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// TestAnswersOfAllKinds has targets answer anything, true or not, late or of former lives, while ways change and targets end: what a mover makes of
// it is never a command that stops a replica, and when all targets tell the truth at last, the outbox empties.
func TestAnswersOfAllKinds(t *testing.T) {
	for seed := range uint64(60) {
		run(t, fmt.Sprint(seed), func(t *testing.T) {
			r := newRig(t, seed%2 == 0, Target{8, "dead"})
			defer r.m.Stop()
			x := rand.New(rand.NewPCG(seed, 13))
			one := func(list ...uint64) uint64 { return list[x.IntN(len(list))] }
			for i := range 80 {
				switch x.IntN(8) {
				case 0, 1:
					r.die(fmt.Sprint("letter ", i), "another")
				case 2:
					ways := []Target{{8, "dead"}, {9, "more"}, {20, "dead"}}
					r.routes(ways[x.IntN(2):][:1+x.IntN(2)]...)
					r.m.Wake()
				case 3:
					r.mu.Lock()
					if x.IntN(3) == 0 {
						r.goesOn = map[uint64]uint64{8: 20}
						r.exists[20] = true
					}
					if x.IntN(3) == 0 {
						r.exists[one(8, 9)] = false
					}
					r.rev++
					r.mu.Unlock()
					r.m.Wake()
				case 4:
					time.Sleep(time.Duration(x.IntN(3000)) * time.Millisecond)
				default:
					a := wire.TransferAnswer{Target: one(8, 9, 20, 33), UpTo: uint64(x.IntN(12)), Gap: x.IntN(5) == 0, Full: x.IntN(5) == 0, Gone: x.IntN(25) == 0}
					if x.IntN(6) == 0 {
						a.Epoch = uint32(x.IntN(3))
					}
					for seq := uint64(1); seq <= 14; seq++ {
						if x.IntN(6) == 0 && seq <= a.UpTo {
							a.Withdrawn = append(a.Withdrawn, seq)
						}
					}
					r.answer(a)
				}
			}
			r.settle()
			if n := r.len(); n > 0 {
				t.Errorf("%d letters are left", n)
			}
		})
	}
}

// settle has all targets take what they are sent until nothing is sent any more.
func (r *rig) settle() {
	r.routes(Target{40, "sound"})
	taken := map[uint64]uint64{}
	for range 400 {
		r.m.Wake()
		time.Sleep(time.Second)
		synctest.Wait()
		r.mu.Lock()
		sent := slices.Clone(r.sent)
		r.sent = nil
		r.mu.Unlock()
		for _, m := range sent {
			if epoch := m.In.Source.Epoch; epoch > 0 {
				r.answer(wire.TransferAnswer{Target: m.Target, Epoch: epoch})
				continue
			}
			done := taken[m.Target]
			r.m.cfg.View(func(f *fsm.Machine) {
				at, _ := f.Outbox().Progress(m.Target)
				done = max(done, at)
			})
			if m.In.First <= done+1 {
				done = max(done, m.In.First+uint64(len(m.In.Items))-1)
			}
			taken[m.Target] = done
			var back []uint64
			for i, it := range m.In.Items {
				if it.Withdrawn {
					back = append(back, m.In.First+uint64(i))
				}
			}
			r.answer(wire.TransferAnswer{Target: m.Target, UpTo: done, Withdrawn: back})
		}
		if r.len() == 0 {
			return
		}
	}
}
