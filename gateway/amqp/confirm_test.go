package amqp

import (
	"testing"

	"pgregory.net/rapid"

	wire "github.com/warrenmq/warren/amqp"
)

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
					f.pending.Push(f.last, struct{}{})
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
		f.pending.Push(tag, struct{}{})
	}
	for tag := uint64(1000); tag > 0; tag-- {
		f.settle(tag, false)
	}
	one := (&wire.BasicAck{DeliveryTag: 1000, Multiple: true}).AppendFrame(nil, 5)
	if got := f.append(nil, 5); string(got) != string(one) {
		t.Errorf("got %x", got)
	}
}

// What is answered when the client closes its channel is told before the close is: a client that is told nothing publishes again.
func TestConfirmsBeforeCloseOk(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	b := (&wire.ConfirmSelect{NoWait: true}).AppendFrame(nil, 1)
	for range 2 { // no queue gets it
		b = (&wire.BasicPublish{RoutingKey: "none", Mandatory: true}).AppendFrame(b, 1)
		b = wire.AppendContent(b, 1, wire.ClassBasic, nil, []byte("m"), 131072)
	}
	c.bytes((&wire.ChannelClose{ReplyCode: 200}).AppendFrame(b, 1))
	want[*wire.BasicReturn](c, 1)
	want[*wire.BasicReturn](c, 1)
	if m := want[*wire.BasicAck](c, 1); m.DeliveryTag != 2 || !m.Multiple {
		t.Errorf("confirmed %d, multiple %v", m.DeliveryTag, m.Multiple)
	}
	want[*wire.ChannelCloseOk](c, 1)
	c.alive(1)
}
