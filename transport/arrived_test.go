package transport

import (
	"bytes"
	"hash/crc32"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/dirty"
)

// TestDataStaysWhereItArrived: what raft gets are entries without data, of which the log is told where it lies, with the sender's checksum, until raft
// answers. Entries that raft itself reads are whole, and so is all for a replica whose log asks for nothing, and all from a program of level 1.
func TestDataStaysWhereItArrived(t *testing.T) {
	dirty.Poison()
	for _, level := range []int{1, levelApart} {
		a, b := pair(t, func(c *Config) { c.AppendBytesMax, c.Level = 8<<20, level })
		checkArrival(t, a, b, level)
	}
}

// checkArrival sends appends from a to b. A program of level 1 sends entries whole.
func checkArrival(t *testing.T, a, b *Mesh, level int) {
	t.Helper()
	table := crc32.MakeTable(crc32.Castagnoli)
	var sent []*raft.Log
	for i, size := range []int{10, 0, copyBytesMax + 1, 100, 100 << 10, 3 << 20, 5} {
		sent = append(sent, &raft.Log{Index: uint64(i + 1), Term: 1, Data: bytes.Repeat([]byte{byte(i + 1)}, size)})
	}
	sent[3].Type = raft.LogConfiguration
	sums := func(index, _ uint64) (uint32, bool) { return crc32.Checksum(sent[index-1].Data, table), index != 5 }

	for _, apart := range []bool{true, false} {
		g := GroupID(2)
		if !apart {
			g = 3
		}
		var mu sync.Mutex
		var rt *RaftTransport
		var kept []*raft.Log
		mu.Lock()
		rt = script(t, b, g, func(cmd any) any {
			mu.Lock()
			defer mu.Unlock()
			got := cmd.(*raft.AppendEntriesRequest).Entries
			if other := rt.Arrived([]*raft.Log{{Index: 1}}); other != nil {
				t.Error("an entry of nobody has arrived")
			}
			for from := range got {
				bodies := rt.Arrived(got[from:])
				if !apart || level < levelApart {
					if bodies != nil || !bytes.Equal(got[from].Data, sent[from].Data) {
						t.Errorf("entry %d is not whole", from+1)
					}
					continue
				}
				if len(bodies) != len(got)-from || len(rt.ArrivedFrom(uint64(from+1))) != len(bodies) {
					t.Fatalf("%d bodies of %d entries", len(bodies), len(got)-from)
				}
				l, body := got[from], bodies[0]
				if data := pieces(body.Pieces).join(); !bytes.Equal(data, sent[from].Data) {
					t.Errorf("entry %d: %d bytes arrived", l.Index, len(data))
				}
				want, summed := sums(l.Index, 1)
				if summed = summed && len(sent[from].Data) > 0; body.Summed != summed || summed && body.Sum != want {
					t.Errorf("entry %d: checksum %x, %v", l.Index, body.Sum, body.Summed)
				}
				whole := l.Type == raft.LogConfiguration || len(sent[from].Data) == 0
				if IsApart(l) == whole || whole && !bytes.Equal(l.Data, sent[from].Data) {
					t.Errorf("entry %d: %q", l.Index, l.Data)
				}
			}
			kept = got
			return agreeable(cmd)
		})
		if apart {
			rt.DataApart(nil)
		}
		mu.Unlock()
		from := a.Raft(g, 0)
		from.DataApart(sums)
		for range 3 {
			args := &raft.AppendEntriesRequest{RPCHeader: headerOf("a/1"), Term: 1, Leader: []byte("a/1"), Entries: sent}
			if err := from.AppendEntries("b/1", "b/1", args, new(raft.AppendEntriesResponse)); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "what raft has answered is given back", func() bool { return rt.Arrived(kept) == nil })
		if err := from.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
