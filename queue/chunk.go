package queue

import (
	"math/bits"
	"slices"
)

// chunk holds the messages of one block of ids. Its columns only grow and are
// never changed in place, so that a clone shares them; live and touched belong
// to one chunk alone.
type chunk struct {
	num     uint64
	first   uint // slot of the first value in the columns
	n       int  // live messages
	shared  bool // a frozen view holds this chunk: clone before changing it
	live    bitmap
	cols    columns
	kept    *kept   // if the columns have values for some slots only
	touched []touch // ascending by slot, live messages only
}

// touch is what a message gathers after its enqueue.
type touch struct {
	slot            uint16
	stopped         bool // it expires no more, whatever the columns say
	attempt, failed uint32
}

// kept says which slots the columns of a thinned chunk have values for.
type kept struct {
	bits   bitmap
	before [blockWords]uint16 // how many lie before each word
}

// thinShare is how many times the live messages a sealed chunk may have values for. More is copied away, so that messages
// that outlive their neighbours by far do not pay for these.
const thinShare = 3

// index is the place of a slot's value in the columns.
func (c *chunk) index(slot uint) int {
	if c.kept == nil {
		return int(slot - c.first)
	}
	w := slot >> 6
	return int(c.kept.before[w]) + bits.OnesCount64(c.kept.bits.words[w]&(1<<(slot&63)-1))
}

// seal says that no message will come into the chunk any more.
func (c *chunk) seal() {
	c.cols.seal()
	c.thin()
}

// thin drops the values of dead messages from a sealed chunk when they are most of it.
func (c *chunk) thin() {
	if c.cols.packed == nil || c.n == 0 || c.n*thinShare > c.cols.len() {
		return
	}
	k := &kept{bits: c.live}
	var cols columns
	n := 0
	at := walker{c: &c.cols}
	for w, word := range c.live.words {
		k.before[w] = uint16(n)
		for ; word != 0; word &= word - 1 {
			m := at.at(c.index(uint(w<<6 + bits.TrailingZeros64(word))))
			cols.append(&m)
			n++
		}
	}
	cols.seal()
	c.cols, c.kept = cols, k
}

func (c *chunk) clone() *chunk {
	d := *c
	d.shared = false
	d.touched = slices.Clone(c.touched)
	return &d
}

func (c *chunk) id(slot uint) MessageID { return MessageID(c.num<<blockShift | uint64(slot)) }

func (c *chunk) message(slot uint) Message {
	m := c.cols.at(c.index(slot))
	c.complete(&m, slot)
	return m
}

// complete adds to a message from the columns what is kept beside them.
func (c *chunk) complete(m *Message, slot uint) {
	m.ID = c.id(slot)
	if len(c.touched) > 0 {
		if i, ok := c.touchAt(slot); ok {
			m.Attempt, m.Failed = c.touched[i].attempt, c.touched[i].failed
			if c.touched[i].stopped {
				m.ExpiresAt = 0
			}
		}
	}
}

func (c *chunk) touchAt(slot uint) (int, bool) {
	return slices.BinarySearchFunc(c.touched, uint16(slot), func(t touch, s uint16) int {
		return int(t.slot) - int(s)
	})
}

// touch returns what a message has gathered, to be changed.
func (c *chunk) touch(slot uint) *touch {
	i, ok := c.touchAt(slot)
	if !ok {
		c.touched = slices.Insert(c.touched, i, touch{slot: uint16(slot)})
	}
	return &c.touched[i]
}

func (c *chunk) setTouch(slot uint, attempt, failed uint32) {
	t := c.touch(slot)
	t.attempt, t.failed = attempt, failed
}

// stopped tells whether the message of the slot expires no more.
func (c *chunk) stopped(slot uint) bool {
	if len(c.touched) == 0 {
		return false
	}
	i, ok := c.touchAt(slot)
	return ok && c.touched[i].stopped
}

func (c *chunk) remove(slot uint) {
	c.live.clear(slot)
	c.n--
	if len(c.touched) > 0 {
		if i, ok := c.touchAt(slot); ok {
			c.touched = slices.Delete(c.touched, i, i+1)
		}
	}
	c.thin()
}
