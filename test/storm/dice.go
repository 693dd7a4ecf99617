package storm

import (
	"math/rand/v2"
	"strings"
	"time"
)

// dice are the chance of one client.
type dice struct{ *rand.Rand }

func newDice(seed, stream uint64) dice { return dice{rand.New(rand.NewPCG(seed, stream))} }

func (d dice) chance(p float64) bool { return d.Float64() < p }

// between is a time from least to most.
func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.Int64N(int64(most-least)+1))
}

func pick[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }

// odd is a text that is no good name.
func (d dice) odd() string {
	switch d.IntN(8) {
	case 0:
		return ""
	case 1:
		return strings.Repeat("n", d.IntN(300))
	case 2:
		return "a\xff\xfeb"
	case 3:
		return "a/b c%2F?#\n\x00"
	case 4:
		return "amq.gen-" + string(rune('a'+d.IntN(26)))
	}
	return pick(d, "none", "*", "#", "(", "[", "😀", "0", "-1", "null", "../..", "guest", "amq.direct", "amq.rabbitmq.trace", "amq.topic")
}

// bytes are any.
func (d dice) bytes(most int) []byte {
	b := make([]byte, d.IntN(most+1))
	for i := range b {
		b[i] = byte(d.Uint32())
	}
	return b
}

// number is small, or one at which something may go over.
func (d dice) number() int64 {
	if d.chance(.6) {
		return d.Int64N(12)
	}
	return pick[int64](d, -1, 0, 255, 256, 1000, 65535, 65536, 1<<31-1, 1<<31, 1<<32, 1<<40, 1<<63-1, -1<<63)
}

// weighted is a choice of one of several, each as often as its weight says.
type weighted[T any] []struct {
	weight int
	value  T
}

func (w weighted[T]) pick(d dice) T {
	sum := 0
	for _, c := range w {
		sum += c.weight
	}
	n := d.IntN(sum)
	for _, c := range w {
		if n -= c.weight; n < 0 {
			return c.value
		}
	}
	panic("not reached")
}
