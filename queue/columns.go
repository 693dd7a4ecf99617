package queue

// columns stores what is fixed at enqueue, for consecutive ids. It grows in the
// open form and is packed once, when nothing will be appended any more. Values
// are never changed in place.
type columns struct {
	records  []record
	expires  []int64 // empty while no message expires
	priority []uint8 // empty while every priority is 0
	packed   *packed // instead of all others
}

type record struct {
	index                uint64
	offset, length, body uint32
}

func (c *columns) len() int {
	if c.packed != nil {
		return c.packed.n
	}
	return len(c.records)
}

func (c *columns) append(m *Message) {
	if m.ExpiresAt != 0 || len(c.expires) > 0 {
		for len(c.expires) < len(c.records) {
			c.expires = append(c.expires, 0)
		}
		c.expires = append(c.expires, m.ExpiresAt)
	}
	if m.Priority != 0 || len(c.priority) > 0 {
		for len(c.priority) < len(c.records) {
			c.priority = append(c.priority, 0)
		}
		c.priority = append(c.priority, m.Priority)
	}
	c.records = append(c.records, record{m.Ref.Index, m.Ref.Offset, m.Ref.Length, m.BodyBytes})
}

func (c *columns) at(i int) Message {
	if c.packed != nil {
		return c.packed.at(i)
	}
	r := &c.records[i]
	m := Message{Ref: Ref{r.index, r.offset, r.length}, BodyBytes: r.body}
	if len(c.expires) > 0 {
		m.ExpiresAt = c.expires[i]
	}
	if len(c.priority) > 0 {
		m.Priority = c.priority[i]
	}
	return m
}

// sizes is at without the place in the log, which takes longest to find.
func (c *columns) sizes(i int) Message {
	if c.packed != nil {
		return c.packed.sizes(i)
	}
	return c.at(i)
}

// seal says that nothing will be appended any more.
func (c *columns) seal() {
	if c.packed == nil {
		*c = columns{packed: pack(c)}
	}
}
