package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/dirty"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// breaker stands before a node's listener and breaks the streams to it.
type breaker struct {
	l net.Listener

	mu    sync.Mutex
	conns []net.Conn
	group sync.WaitGroup

	// touch may change what passes; nil leaves it as it is.
	touch atomic.Pointer[func(b []byte)]
}

func newBreaker(t *testing.T, to string) *breaker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &breaker{l: l}
	b.group.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			b.mu.Lock()
			b.conns = append(b.conns, in, out)
			b.mu.Unlock()
			b.pass(in, out)
			b.pass(out, in)
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.cut()
		b.group.Wait()
	})
	return b
}

func (b *breaker) pass(from, to net.Conn) {
	b.group.Go(func() {
		_, _ = io.Copy(to, touched{from, b})
		from.Close()
		to.Close()
	})
}

// touched is a stream through a breaker.
type touched struct {
	io.Reader
	b *breaker
}

func (r touched) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if f := r.b.touch.Load(); f != nil {
		(*f)(p[:n])
	}
	return n, err
}

// cut breaks all streams that there are, in the middle of whatever they carry.
func (b *breaker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// lentEntry is an entry in lent memory: its number and length, then bytes that follow from these.
func lentEntry(id uint64, size int) []byte {
	b := dirty.Lend(size)
	binary.BigEndian.PutUint64(b, id)
	binary.BigEndian.PutUint32(b[8:], uint32(size))
	rnd := rand.NewPCG(id, uint64(size))
	for p := b[16:]; len(p) > 0; {
		var w [8]byte
		binary.BigEndian.PutUint64(w[:], rnd.Uint64())
		p = p[copy(p, w[:]):]
	}
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

// sound says what is wrong with an entry that a machine or a log holds.
func sound(b []byte) (id uint64, err error) {
	if len(b) < 16 {
		return 0, fmt.Errorf("an entry of %d bytes", len(b))
	}
	id = binary.BigEndian.Uint64(b)
	if int(binary.BigEndian.Uint32(b[8:])) != len(b) || binary.BigEndian.Uint32(b[12:]) != crc32.ChecksumIEEE(b[16:]) {
		return id, fmt.Errorf("entry %#x of %d bytes is not what was sent: % x …", id, len(b), b[:16])
	}
	return id, nil
}

// checker is a machine that checks what it is given and keeps refs, and numbers.
type checker struct {
	refs
	ids  []uint64
	errs []error
}

func (m *checker) Apply(e Entry) any {
	id, err := sound(e.Data)
	m.mu.Lock()
	m.ids = append(m.ids, id)
	if err != nil {
		m.errs = append(m.errs, fmt.Errorf("applied at %d: %w", e.Index, err))
	}
	m.mu.Unlock()
	return m.refs.Apply(e)
}

// Snapshot takes the numbers along: a replica that is far behind gets a snapshot in place of entries.
func (m *checker) Snapshot() (func() ([]byte, []store.Range), error) {
	live, err := m.refs.Snapshot()
	ids, _ := m.seen()
	return func() ([]byte, []store.Range) {
		refs, pins := live()
		b := append(binary.AppendUvarint(nil, uint64(len(refs))), refs...)
		for _, id := range ids {
			b = binary.BigEndian.AppendUint64(b, id)
		}
		return b, pins
	}, err
}

func (m *checker) Restore(b []byte) error {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return errors.New("malformed manifest")
	}
	refs, ids := b[n:n+int(size)], b[n+int(size):]
	m.mu.Lock()
	m.ids = nil
	for ; len(ids) >= 8; ids = ids[8:] {
		m.ids = append(m.ids, binary.BigEndian.Uint64(ids))
	}
	m.mu.Unlock()
	return m.refs.Restore(refs)
}

func (m *checker) seen() ([]uint64, []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ids), slices.Clone(m.errs)
}

// TestLentMemory has entries and requests travel in memory that is used again, and is poisoned as soon as somebody returns it, while
// leaders change, streams break and requests are sent again: all machines and logs hold what was sent.
func TestLentMemory(t *testing.T) {
	dirty.Poison()
	// A busy machine commits little in the first rounds.
	const groups, writers, rounds, roundsMax, enough, keep = 3, 2, 12, 60, 100, 100_000
	var breakers []*breaker
	c := newRealClusterVia(t, diskStorage(t), eager(), func(addr string) string {
		b := newBreaker(t, addr)
		breakers = append(breakers, b)
		return b.l.Addr().String()
	})
	machines := make(map[transport.NodeID][]*checker)
	for _, n := range c.nodes {
		for i := range groups {
			m := &checker{refs: refs{keep: keep}}
			machines[n.id] = append(machines[n.id], m)
			s := Spec{ID: queueA + transport.GroupID(i), Members: c.ids, Preferred: c.ids[i%3], Bootstrap: true}
			if _, err := n.host.Start(s, m, nil); err != nil {
				t.Fatal(err)
			}
		}
	}

	stop := make(chan struct{})
	acked := make([]map[uint64]bool, groups)
	for i := range acked {
		acked[i] = make(map[uint64]bool)
	}
	var mu sync.Mutex
	var clients sync.WaitGroup
	for w := range groups * writers {
		i := w % groups
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			for seq := uint64(1); ; seq++ {
				select {
				case <-stop:
					return
				default:
				}
				id := uint64(w+1)<<32 | seq
				// Most are large enough for the lists; some travel in parts.
				if proposeLent(c, i, id, 17<<10+rnd.IntN(150<<10)) {
					mu.Lock()
					acked[i][id] = true
					mu.Unlock()
				} else {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(7, 7))
	committed := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, ids := range acked {
			n += len(ids)
		}
		return n
	}
	for round := 0; round < rounds || round < roundsMax && committed() < enough; round++ {
		time.Sleep(time.Duration(50+rnd.IntN(250)) * time.Millisecond)
		g, _ := c.nodes[c.ids[rnd.IntN(3)]].host.Group(queueA + transport.GroupID(rnd.IntN(groups)))
		switch round % 3 {
		case 0, 1:
			breakers[rnd.IntN(3)].cut()
		default:
			_ = g.running.Load().wire.InjectTimeoutNow()
		}
	}
	close(stop)
	clients.Wait()
	for i, last := range c.commitLast(groups) {
		c.checkLent(i, machines, acked[i], last)
	}
}

// TestDamageOnTheWay changes bytes of entries on their way to other nodes, which no checksum of the network notices: a follower takes none of
// them, and gets them again.
func TestDamageOnTheWay(t *testing.T) {
	dirty.Poison()
	const hits = 6
	var breakers []*breaker
	c := newRealClusterVia(t, diskStorage(t), eager(), func(addr string) string {
		b := newBreaker(t, addr)
		breakers = append(breakers, b)
		return b.l.Addr().String()
	})
	machines := make(map[transport.NodeID][]*checker)
	for _, n := range c.nodes {
		m := &checker{refs: refs{keep: 1000}}
		machines[n.id] = append(machines[n.id], m)
		if _, err := n.host.Start(Spec{ID: queueA, Members: c.ids, Preferred: c.ids[0], Bootstrap: true}, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	var left atomic.Int64
	pattern := bytes.Repeat([]byte{0xA5}, 500)
	touch := func(b []byte) {
		if at := bytes.Index(b, pattern); at >= 0 && left.Add(-1) >= 0 {
			b[at+len(pattern)/2] ^= 4
		}
	}
	for _, b := range breakers {
		b.touch.Store(&touch)
	}
	acked := make(map[uint64]bool)
	began, begun := time.Now(), false
	// What is proposed while nobody leads, as at first on a starved machine, does not count.
	for id := uint64(1); len(acked) < 40 || left.Load() > 0; id++ {
		if time.Since(began) > 60*time.Second {
			t.Fatalf("%d entries in a minute, %d bytes are still to be changed", len(acked), left.Load())
		}
		if len(acked) == 10 && !begun {
			begun = true
			left.Store(hits)
		}
		if proposePlain(c, 0, id, 2000+1000*len(acked)) {
			acked[id] = true
		} else {
			time.Sleep(5 * time.Millisecond)
		}
	}
	c.checkLent(0, machines, acked, c.commitLast(1)[0])
}

// proposePlain proposes an entry that is one byte repeated.
func proposePlain(c *realCluster, group int, id uint64, size int) bool {
	b := lentEntry(id, size)
	for i := range b[16:] {
		b[16+i] = 0xA5
	}
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return proposeBytes(c, group, b)
}

// proposeLent proposes an entry wherever somebody leads, and returns it as a queue's leader does: once it is committed.
func proposeLent(c *realCluster, group int, id uint64, size int) bool {
	return proposeBytes(c, group, lentEntry(id, size))
}

func proposeBytes(c *realCluster, group int, b []byte) bool {
	for _, n := range c.nodes {
		g, ok := n.host.Group(queueA + transport.GroupID(group))
		if !ok || !g.IsLeader() {
			continue
		}
		done := make(chan error, 1)
		g.Propose(b, func(_ any, err error) {
			if err == nil {
				dirty.Return(b)
			}
			done <- err
		})
		err := <-done
		return err == nil
	}
	return false
}

// commitLast commits one more entry in each group, and says which. Those before it that failed may be in the log as well: whoever loses the
// lead does not know what becomes of its entries.
func (c *realCluster) commitLast(groups int) (last []uint64) {
	c.t.Helper()
	for i := range groups {
		began := time.Now()
		id := uint64(1<<40 | 1)
		for ; !proposeLent(c, i, id, 1000); id++ {
			if time.Since(began) > 30*time.Second {
				c.t.Fatalf("group %d commits nothing any more", i)
			}
			time.Sleep(10 * time.Millisecond)
		}
		last = append(last, id)
	}
	return last
}

// checkLent compares machines and logs of a group with each other and with what was confirmed, once all have applied the last entry.
func (c *realCluster) checkLent(group int, machines map[transport.NodeID][]*checker, acked map[uint64]bool, last uint64) {
	c.t.Helper()
	var first []uint64
	for _, id := range c.ids {
		m := machines[id][group]
		// A follower learns of the last commit from the next append.
		waitFor(c.t, 30*time.Second, "a replica does not apply everything", func() bool {
			ids, _ := m.seen()
			return len(ids) > 0 && ids[len(ids)-1] == last
		})
		ids, errs := m.seen()
		if err := errors.Join(errs...); err != nil {
			c.t.Errorf("group %d on %s: %v", group, id, err)
		}
		if first == nil {
			first = ids
			count := make(map[uint64]bool)
			for _, x := range ids {
				count[x] = true
			}
			for x := range acked {
				if !count[x] {
					c.t.Errorf("group %d: %#x was confirmed and is lost", group, x)
				}
			}
			c.t.Logf("group %d: %d entries, %d confirmed", group, len(ids), len(acked))
		} else if !slices.Equal(ids, first) {
			c.t.Errorf("group %d: %s has applied %d entries, another %d, or in another order (%x, %x)", group, id, len(ids), len(first), ids[max(0, len(ids)-4):], first[max(0, len(first)-4):])
		}
		g, _ := c.nodes[id].host.Group(queueA + transport.GroupID(group))
		live, _ := m.state()
		for k, index := range live {
			b, err := g.Read(index)
			var got uint64
			if err == nil {
				got, err = sound(b)
			}
			if err != nil || got != ids[k] {
				c.t.Errorf("group %d on %s: entry %d in the log is %#x, applied %#x: %v", group, id, index, got, ids[k], err)
			}
		}
	}
}
