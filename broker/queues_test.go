package broker

import (
	"slices"
	"testing"
)

// A node that starts opens the queues first that were in use before.
func TestHotQueuesAreOpenedFirst(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	var ids []uint64
	for _, name := range []string{"a", "b", "c", "d"} {
		c.declare(name, nil)
		ids = append(ids, b.cat.View().Queue("/", name).ID)
	}
	b.cfg.Groups.(*memGroups).heat = map[uint64]int64{ids[1]: 10, ids[3]: 4000}
	if got, want := b.queues.hotFirst(b.cat.View())[:2], []uint64{ids[3], ids[1]}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v at the head", got, want)
	}
}

// TestNamesOfBytes: names that are no UTF-8 are names like others, two of them two queues. Line breaks are left out, as RabbitMQ does.
func TestNamesOfBytes(t *testing.T) {
	c := dial(t, newBroker(t))
	for _, name := range []string{"caf\xe9", "caf\xe8", "caf\xe9\n\r2\xff"} {
		c.declare(name, nil)
	}
	for _, name := range []string{"caf\xe9", "caf\xe8", "caf\xe92\xff"} {
		c.put(name, name, nil)
		if d := c.eventually(name); string(d.Body) != name {
			t.Errorf("%q got %q", name, d.Body)
		}
	}
}
