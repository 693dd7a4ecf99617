package exchange

// randomTable passes each message to one of its destinations, whatever the keys.
type randomTable struct {
	fanoutTable
	local bool // prefer destinations on the publisher's node
}

func (t randomTable) add(b Binding) matcher { return randomTable{t.with(b.Destination), t.local} }

func (t randomTable) remove(b Binding) matcher { return randomTable{t.without(b.Destination), t.local} }

func (t randomTable) pick(dst []Destination, m *Message) []Destination {
	all := t.all()
	if len(all) == 0 {
		return dst
	}
	if t.local && m.Local != nil {
		start := len(dst)
		for _, d := range all {
			if m.Local(d) {
				dst = append(dst, d)
			}
		}
		if n := len(dst) - start; n > 0 {
			dst[start] = dst[start+int(m.draw()%uint64(n))]
			return dst[:start+1]
		}
	}
	return append(dst, all[m.draw()%uint64(len(all))])
}

// draw takes the next number of the message's random sequence.
func (m *Message) draw() uint64 {
	m.Random += 0x9e3779b97f4a7c15
	return mix(m.Random)
}
