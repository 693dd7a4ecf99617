package amqp

import "testing"

// A connection has room for 16 of the largest messages side by side, on a small node for a quarter of its memory
// and always for one.
func TestLimitAssembly(t *testing.T) {
	t.Parallel()
	for memory, least := range map[uint64]int{64 << 30: 16 << 24, 1 << 30: 256 << 20, 400 << 20: 100 << 20, 1: 16 << 20, 0: 16 << 24} {
		c := Default()
		c.LimitAssembly(memory)
		if n := c.AssemblyBytesMax; n < least || n > least+16*int(c.FrameMax) || c.Validate() != nil {
			t.Errorf("%d bytes of memory: %d, want about %d", memory, n, least)
		}
		if n := c.AssemblyBytesNodeMax; memory > 1<<30 && n < 16<<30 || memory < 1<<30 && n < c.AssemblyBytesMax {
			t.Errorf("%d bytes of memory: %d for all connections", memory, n)
		}
	}
}

func TestLimitConnections(t *testing.T) {
	c := Default()
	for memory, want := range map[uint64]int{0: 10000, 512 << 20: 10000, 8 << 30: 65536} {
		if c.LimitConnections(memory); c.ConnectionsMax != want {
			t.Errorf("%d of memory: %d connections, want %d", memory, c.ConnectionsMax, want)
		}
	}
}
