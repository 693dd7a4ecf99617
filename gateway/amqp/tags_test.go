package amqp

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	wire "github.com/warrenmq/warren/amqp"
)

// The list behaves like a map of what is outstanding, whatever the gaps.
func TestTagList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l tagList[int]
		model := map[uint64]int{}
		next := uint64(0)
		lowest := func() (uint64, bool) {
			var all []uint64
			for tag := range model {
				all = append(all, tag)
			}
			if len(all) == 0 {
				return 0, false
			}
			return slices.Min(all), true
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					next += uint64(rapid.SampledFrom([]int{1, 1, 1, 1, 2, 50}).Draw(t, "step"))
					l.push(next, int(next)*3)
					model[next] = int(next) * 3
				}
			},
			"take": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, next+2).Draw(t, "tag")
				v, ok := l.take(tag)
				if want, have := model[tag]; ok != have || v != want {
					t.Fatalf("take %d: %d %v, want %d %v", tag, v, ok, want, have)
				}
				delete(model, tag)
			},
			"take up to": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, next+2).Draw(t, "tag")
				got := l.takeUpTo(tag, nil)
				var want []int
				for have, v := range model {
					if have <= tag {
						want = append(want, v)
						delete(model, have)
					}
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("take up to %d: %v, want %v", tag, got, want)
				}
			},
			"": func(t *rapid.T) {
				tag, ok := l.lowest()
				if want, have := lowest(); tag != want || ok != have || l.len() != len(model) {
					t.Fatalf("lowest %d %v of %d, want %d %v of %d", tag, ok, l.len(), want, have, len(model))
				}
			},
		})
	})
}

// One old tag must not keep the space of all that came after it.
func TestTagListSpace(t *testing.T) {
	var l tagList[int]
	l.push(1, 0)
	for tag := uint64(2); tag < 1_000_000; tag++ {
		l.push(tag, 0)
		if tag > 100 {
			if _, ok := l.take(tag - 50); !ok {
				t.Fatalf("take %d", tag-50)
			}
		}
	}
	if cap(l.entries) > 2048 {
		t.Errorf("%d live tags keep %d entries", l.len(), cap(l.entries))
	}
}

// inOrder reads confirms as amqp091-go's NotifyPublish does: it tells fates in order, and
// takes an ack of many for the fate of all that it has not told, a refused one among them.
type inOrder struct {
	told  []bool // refused
	early map[uint64]bool
}

func (c *inOrder) one(tag uint64, refused bool) {
	c.early[tag] = refused
	c.tell()
}

func (c *inOrder) upTo(tag uint64) {
	for uint64(len(c.told)) < tag {
		delete(c.early, uint64(len(c.told))+1)
		c.told = append(c.told, false)
	}
	c.tell()
}

func (c *inOrder) tell() {
	for {
		next := uint64(len(c.told)) + 1
		refused, ok := c.early[next]
		if !ok {
			return
		}
		delete(c.early, next)
		c.told = append(c.told, refused)
	}
}

// A client that reads the frames learns each publish's fate exactly once as the
// broker told it, and an ack of many never covers a publish without an answer or
// a refused one, also for a client that puts the answers in order.
func TestConfirmsMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f confirms
		answered := map[uint64]bool{} // tag: refused
		fate := map[uint64]string{}
		client := inOrder{early: map[uint64]bool{}}
		frames := 0
		open := func() []uint64 {
			var tags []uint64
			for tag := uint64(1); tag <= f.last; tag++ {
				if _, ok := answered[tag]; !ok {
					tags = append(tags, tag)
				}
			}
			return tags
		}
		read := func(t *rapid.T, b []byte) {
			for len(b) > 0 {
				size := int(b[3])<<24 | int(b[4])<<16 | int(b[5])<<8 | int(b[6])
				m, err := wire.Decode(b[7 : 7+size])
				if err != nil {
					t.Fatal(err)
				}
				b = b[8+size:]
				frames++
				switch m := m.(type) {
				case *wire.BasicNack:
					if refused, ok := answered[m.DeliveryTag]; !ok || !refused || fate[m.DeliveryTag] != "" {
						t.Fatalf("nack of %d", m.DeliveryTag)
					}
					fate[m.DeliveryTag] = "nack"
					client.one(m.DeliveryTag, true)
				case *wire.BasicAck:
					first := m.DeliveryTag
					if m.Multiple {
						first = 1
						client.upTo(m.DeliveryTag)
					} else if fate[first] != "" {
						t.Fatalf("second answer to %d", first)
					} else {
						client.one(first, false)
					}
					for tag := first; tag <= m.DeliveryTag; tag++ {
						refused, ok := answered[tag]
						if !ok || refused && fate[tag] != "nack" {
							t.Fatalf("ack %+v covers %d", m, tag)
						}
						if fate[tag] == "" {
							fate[tag] = "ack"
						}
					}
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				for range rapid.IntRange(1, 10).Draw(t, "n") {
					f.last++
					f.pending.push(f.last, struct{}{})
				}
			},
			"answer": func(t *rapid.T) {
				tags := open()
				if len(tags) == 0 {
					t.Skip()
				}
				tag := rapid.SampledFrom(tags).Draw(t, "tag")
				refused := rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "refused")
				f.settle(tag, refused)
				answered[tag] = refused
				f.settle(tag, !refused) // a second answer changes nothing
			},
			"answer the oldest": func(t *rapid.T) {
				for _, tag := range open() {
					if rapid.IntRange(0, 9).Draw(t, "stop") == 0 {
						return
					}
					f.settle(tag, false)
					answered[tag] = false
				}
			},
			"write": func(t *rapid.T) { read(t, f.append(nil, 1)) },
		})
		read(t, f.append(nil, 1))
		for tag, refused := range answered {
			if want := map[bool]string{true: "nack", false: "ack"}[refused]; fate[tag] != want {
				t.Fatalf("publish %d: %q, want %s", tag, fate[tag], want)
			}
		}
		for i, refused := range client.told {
			if tag := uint64(i) + 1; refused != answered[tag] {
				t.Fatalf("publish %d: a client that puts answers in order sees refused=%v, want %v", tag, refused, answered[tag])
			}
		}
		if len(fate) != len(answered) {
			t.Fatalf("%d fates of %d answers", len(fate), len(answered))
		}
	})
}

func TestConfirmsOfARunAreOneFrame(t *testing.T) {
	f := confirms{last: 1000}
	for tag := uint64(1); tag <= 1000; tag++ {
		f.pending.push(tag, struct{}{})
	}
	for tag := uint64(1000); tag > 0; tag-- {
		f.settle(tag, false)
	}
	one := (&wire.BasicAck{DeliveryTag: 1000, Multiple: true}).AppendFrame(nil, 5)
	if got := f.append(nil, 5); string(got) != string(one) {
		t.Errorf("got %x", got)
	}
}
