package amqp

import "math"

// DecodeTable decodes a table with its length, which must span raw exactly. Nothing
// aliases raw. The error is an [*Error] with [SyntaxError].
func DecodeTable(raw []byte) (Table, error) {
	c := cursor{buf: raw}
	t := c.table()
	if err := c.finish(0); err != nil {
		return nil, err
	}
	return t, nil
}

// table reads a table of a method or of properties. An empty one is nil.
func (c *cursor) table() Table {
	t, _ := c.fields(0)
	return t
}

// fields reads a table's length and fields; odd says that encoding the result again by type
// alone would not give the same bytes.
func (c *cursor) fields(depth int) (t Table, odd bool) {
	end := c.enter(depth)
	if c.pos < end {
		t = make(Table, 0, min(4, 1+(end-c.pos)/8)) // most tables are small
	}
	for c.pos < end {
		f := Field{Name: string(c.shortstrBytes())}
		start := c.pos
		var o bool
		f.Value, o = c.value(depth)
		if c.fault != "" {
			return nil, false
		}
		if o {
			odd = true
			f.verbatim = c.verbatim(start)
		}
		t = append(t, f)
	}
	c.leave(end)
	return t, odd
}

// verbatim returns the bytes from start to here. All such strings of one cursor share
// one copy of its buffer, so that nesting does not multiply it.
func (c *cursor) verbatim(start int) string {
	if c.text == "" {
		c.text = string(c.buf)
	}
	return c.text[start:c.pos]
}

func (c *cursor) array(depth int) (a Array, odd bool) {
	end := c.enter(depth)
	a = Array{}
	for c.pos < end {
		v, o := c.value(depth)
		if c.fault != "" {
			return nil, false
		}
		odd = odd || o
		a = append(a, v)
	}
	c.leave(end)
	return a, odd
}

// enter reads the length of a container at the given depth and returns where it
// ends. Values may run past that end; leave notices.
func (c *cursor) enter(depth int) (end int) {
	size := c.u32()
	switch {
	case depth >= TableDepthMax:
		c.fail("table nests too deep")
	case size > TableBytesMax:
		c.fail("table is too large")
	case int(size) > len(c.buf)-c.pos:
		c.fail("table runs past the end")
	}
	if c.fault != "" {
		return 0
	}
	return c.pos + int(size)
}

func (c *cursor) leave(end int) {
	if c.fault == "" && c.pos != end {
		c.fail("value runs past the end of its table")
	}
}

// countValue accounts for one more value of the table that is being read.
func (c *cursor) countValue() {
	if c.values++; c.values > TableValuesMax {
		c.fail("table holds too many values")
	}
}

// value reads one tagged value that stands in a container of the given depth.
func (c *cursor) value(depth int) (v any, odd bool) {
	c.countValue()
	switch tag := c.u8(); tag {
	case 'V':
		return nil, false
	case 't':
		b := c.u8()
		return b != 0, b > 1
	case 'b':
		return int8(c.u8()), false
	case 'B':
		return c.u8(), false
	case 's':
		return int16(c.u16()), false
	case 'u':
		return c.u16(), false
	case 'I':
		return int32(c.u32()), false
	case 'i':
		return c.u32(), false
	case 'l', 'L':
		return int64(c.u64()), tag == 'L'
	case 'f':
		return math.Float32frombits(c.u32()), false
	case 'd':
		return math.Float64frombits(c.u64()), false
	case 'D':
		scale := c.u8()
		return Decimal{Scale: scale, Value: c.u32()}, false
	case 'T':
		return Timestamp(c.u64()), false
	case 'S':
		return string(c.longstrBytes()), false
	case 'x':
		return append([]byte{}, c.longstrBytes()...), false
	case 'F':
		return c.fields(depth + 1)
	case 'A':
		return c.array(depth + 1)
	}
	c.fail("unknown field type")
	return nil, false
}

// skipTable checks a table as fields does without building it.
func (c *cursor) skipTable(depth int) {
	end := c.enter(depth)
	for c.pos < end && c.fault == "" {
		c.shortstrBytes()
		c.skipValue(depth)
	}
	c.leave(end)
}

// skipValue steps over one tagged value and checks it as value does.
func (c *cursor) skipValue(depth int) {
	c.countValue()
	switch c.u8() {
	case 'V':
	case 't', 'b', 'B':
		c.take(1)
	case 's', 'u':
		c.take(2)
	case 'I', 'i', 'f':
		c.take(4)
	case 'D':
		c.take(5)
	case 'l', 'L', 'd', 'T':
		c.take(8)
	case 'S', 'x':
		c.longstrBytes()
	case 'F':
		c.skipTable(depth + 1)
	case 'A':
		end := c.enter(depth + 1)
		for c.pos < end && c.fault == "" {
			c.skipValue(depth + 1)
		}
		c.leave(end)
	default:
		c.fail("unknown field type")
	}
}

// lookupRaw finds the first field of a name in an encoded table and decodes it
// alone.
func lookupRaw(raw []byte, name string) (v any, ok bool) {
	c := cursor{buf: raw}
	end := c.enter(0)
	for c.pos < end && c.fault == "" {
		if string(c.shortstrBytes()) != name {
			c.skipValue(0)
			continue
		}
		v, _ = c.value(0)
		return v, c.fault == ""
	}
	return nil, false
}
