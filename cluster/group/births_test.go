package group

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
	"github.com/warrenmq/warren/transport"
)

// births is a chaos in the first moments of a group, on disks that forget what was not synced.
type births struct {
	chaos
	disks map[transport.NodeID]*crashfs.FS
}

// slowSyncs is a disk whose syncs take a while, up to most.
type slowSyncs struct {
	*crashfs.FS
	seed uint64
	most time.Duration
}

type slowFile struct {
	store.File
	rnd  *rand.Rand
	most time.Duration
}

func (s slowSyncs) slow(f store.File, err error) (store.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, rand.New(rand.NewPCG(s.seed, uint64(s.Len()))), s.most}, nil
}

func (s slowSyncs) Open(name string) (store.File, error)   { return s.slow(s.FS.Open(name)) }
func (s slowSyncs) Create(name string) (store.File, error) { return s.slow(s.FS.Create(name)) }

func (f slowFile) Fdatasync() error {
	time.Sleep(time.Duration(f.rnd.Int64N(int64(f.most))))
	return f.File.Fdatasync()
}

func (b *births) storage(id transport.NodeID) (Storage, io.Closer) {
	if b.disks[id] == nil {
		b.disks[id] = crashfs.New()
	}
	slow := slowSyncs{b.disks[id], b.rnd.Uint64(), time.Millisecond << b.rnd.IntN(5)}
	s, err := store.Open(store.Options{
		Dir: "/data", FS: slow, SegmentBytes: 256 << 10, TailCacheBytes: 1 << 20, Logger: testLogger().With("on", id),
		OnFatal: func(err error) { b.t.Errorf("store of %s: %v", id, err) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return OverStore(s), s
}

// crash takes a node away with what its disk had not synced.
func (b *births) crash(id transport.NodeID) {
	n := b.nodes[id]
	b.net.change(func() { n.link.down = true })
	left := b.disks[id].Image(b.disks[id].Len(), b.rnd)
	b.kill(id)
	b.disks[id] = left
}

// A group is founded while its members crash: whatever of the founding, the first term and the first entries is left on which disk, one log
// comes of it, and what was confirmed is in it. GROUP_SEEDS=4000 tries more.
func TestBirthsAndCrashes(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("GROUP_SEEDS"), "120"), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	firstTerms := 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &births{chaos: chaos{rnd: rand.New(rand.NewPCG(seed, 49))}, disks: make(map[transport.NodeID]*crashfs.FS)}
				b.memCluster = &memCluster{t: t, net: newMemNet(), open: b.storage, nodes: make(map[transport.NodeID]*clusterNode), ids: []transport.NodeID{"n0", "n1", "n2"}}
				if b.first = "n0"; seed%4 == 3 {
					b.first = ""
				}
				defer b.close()
				if b.live() {
					firstTerms++
				}
				b.check(seed)
			})
		})
	}
	if !t.Failed() && firstTerms < int(seeds)/3 {
		t.Errorf("in %d of %d groups the first leader led in its term", firstTerms, seeds)
	}
}

// live has the group begin on each node at some moment, crash, begin again and be written to. It tells whether an entry of the first term
// was confirmed.
func (b *births) live() (first bool) {
	for _, id := range b.ids {
		b.boot(id)
	}
	time.Sleep(time.Second)
	begins := make(map[transport.NodeID]time.Time)
	for _, id := range b.ids {
		begins[id] = time.Now().Add(time.Duration(b.rnd.IntN(8)) * time.Millisecond)
	}
	crashes := b.rnd.IntN(4)
	next := time.Now().Add(time.Duration(b.rnd.IntN(25)) * time.Millisecond)
	for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); {
		for id, at := range begins {
			if time.Now().Before(at) {
				continue
			}
			delete(begins, id)
			if b.nodes[id] == nil {
				b.boot(id)
			}
			s := b.spec()
			s.Young = b.rnd.IntN(4) > 0
			b.nodes[id].start(b.t, s)
		}
		b.write()
		if g := b.leader(queueA); g != nil {
			_, term, _ := g.Leader()
			b.mu.Lock()
			first = first || term == firstTerm && len(b.acked) > 0
			b.mu.Unlock()
		}
		time.Sleep(time.Duration(b.rnd.IntN(1500)) * time.Microsecond)
		if id := b.ids[max(0, b.rnd.IntN(4)-1)]; crashes > 0 && time.Now().After(next) && b.nodes[id] != nil {
			crashes--
			b.crash(id)
			begins[id] = time.Now().Add(time.Duration(b.rnd.IntN(40)) * time.Millisecond)
			next = time.Now().Add(time.Duration(b.rnd.IntN(25)) * time.Millisecond)
		}
	}
	return first
}
