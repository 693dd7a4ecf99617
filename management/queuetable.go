package management

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// A list of ten thousand queues is made of what each node says of those that it leads, and of what its clients have done with any. That is
// one answer of a node, in which a queue that rests takes a few bytes (docs/formats/management-calls.md).

// tableVersion is that of the answer.
const tableVersion = 1

// queueTable has the figures of all queues. It does not change once it is made.
type queueTable struct {
	queues map[uint64]*queueFigures
	slab   []queueFigures // room for more of them
}

// queueFigures are those of one queue.
type queueFigures struct {
	row *broker.QueueRow // never nil: queues that rest share one
	// session is that of row.
	session uint64
	leader  string // the name of the node, "" if none has told that it leads
	used    *counted
	// The rates of the lengths, per second.
	readyRate, unackedRate float64
	// blocked is the share of the last five seconds in which it had consumers and none could take a message.
	blocked float64
}

// counted is what was counted of an object, with its rates.
type counted struct {
	Set   stats.Set   `json:"set"`
	Rates stats.Rates `json:"rates"`
}

// rested stands for queues that nothing was told of.
var (
	restedRow broker.QueueRow
	rested    = queueFigures{row: &restedRow}
	uncounted counted
)

// newTable has room for about n queues.
func newTable(n int) *queueTable { return &queueTable{queues: make(map[uint64]*queueFigures, n)} }

// slabSize is how many queues get their figures at once.
const slabSize = 256

func (t *queueTable) of(id uint64) *queueFigures {
	if f := t.queues[id]; f != nil {
		return f
	}
	return &rested
}

func (f *queueFigures) counted() *counted {
	if f.used != nil {
		return f.used
	}
	return &uncounted
}

// capacity is the share of time in which consumers could take messages: RabbitMQ's consumer_capacity.
func (f *queueFigures) capacity() float64 {
	if f.row.Consumers == 0 {
		return 0
	}
	return 1 - f.blocked
}

func (t *queueTable) make(id uint64) *queueFigures {
	f := t.queues[id]
	if f == nil {
		if len(t.slab) == 0 {
			t.slab = make([]queueFigures, slabSize)
		}
		f, t.slab = &t.slab[0], t.slab[1:]
		f.row = &restedRow
		t.queues[id] = f
	}
	return f
}

func (f *queueFigures) use() *counted {
	if f.used == nil {
		f.used = new(counted)
	}
	return f.used
}

// rowFields are the numbers of a row, in the order of the format. New ones go behind.
func rowFields(r *broker.QueueRow) [16]*uint64 {
	return [...]*uint64{
		&r.Session, &r.Ready, &r.Unacked, &r.Delayed, &r.Bytes, &r.UnackedBytes, &r.Consumers, &r.Outbox, &r.OutboxBytes, &r.Parked,
		&r.Transferred, &r.Duplicates, &r.DedupIDs, &r.DedupForgotten, &r.ActiveNode, &r.ActiveNumber,
	}
}

// encodeTable writes what this node knows.
func (a *API) encodeTable() []byte {
	buf := section([]byte{tableVersion}, func(put func(id uint64, n int, value func(int) uint64)) {
		for r := range a.cfg.Broker.Rows {
			fields := rowFields(r)
			put(r.ID, len(fields), func(i int) uint64 { return *fields[i] })
		}
	})
	buf = section(buf, func(put func(id uint64, n int, value func(int) uint64)) {
		a.cfg.Broker.UsedQueues(func(id uint64, s *stats.Set) { put(id, len(s), func(i int) uint64 { return s[i] }) })
	})
	for _, kind := range []stats.Kind{stats.Queue, stats.Led} {
		buf = section(buf, func(put func(id uint64, n int, value func(int) uint64)) {
			a.cfg.Sampler.Each(kind, func(k stats.Key, r *stats.Rates) {
				put(k.ID, len(r), func(i int) uint64 { return uint64(math.Float32bits(float32(r[i]))) })
			})
		})
	}
	return buf
}

// section writes objects with their number in front.
func section(buf []byte, each func(put func(id uint64, n int, value func(int) uint64))) []byte {
	var body []byte
	count := uint64(0)
	each(func(id uint64, n int, value func(int) uint64) {
		body = appendSparse(binary.AppendUvarint(body, id), n, value)
		count++
	})
	return append(binary.AppendUvarint(buf, count), body...)
}

// appendSparse writes which of n values are not 0, and these.
func appendSparse(buf []byte, n int, value func(int) uint64) []byte {
	var mask uint64
	for i := range n {
		if value(i) != 0 {
			mask |= 1 << i
		}
	}
	buf = binary.AppendUvarint(buf, mask)
	for i := range n {
		if mask&(1<<i) != 0 {
			buf = binary.AppendUvarint(buf, value(i))
		}
	}
	return buf
}

var errTable = errors.New("unreadable table of queues")

// tableReader reads a table. After an error all it reads is 0.
type tableReader struct {
	raw []byte
	bad bool
}

func (r *tableReader) number() uint64 {
	n, size := binary.Uvarint(r.raw)
	if size <= 0 {
		r.bad, r.raw = true, nil
		return 0
	}
	r.raw = r.raw[size:]
	return n
}

// sparse reads what appendSparse wrote. Values that a newer program has added are skipped.
func (r *tableReader) sparse(set func(i int, v uint64)) {
	for i, mask := 0, r.number(); mask != 0; i, mask = i+1, mask>>1 {
		if mask&1 != 0 {
			if v := r.number(); !r.bad {
				set(i, v)
			}
		}
	}
}

// each reads a section.
func (r *tableReader) each(object func(id uint64)) {
	for n := r.number(); n > 0 && !r.bad; n-- {
		object(r.number())
	}
}

// decodeTable calls for everything in a node's answer. What comes before an error has been told.
func (t *queueTable) decode(raw []byte, node string) error {
	if len(raw) == 0 || raw[0] != tableVersion {
		return errTable
	}
	r := tableReader{raw: raw[1:]}
	var row broker.QueueRow
	fields := rowFields(&row)
	r.each(func(id uint64) {
		row = broker.QueueRow{}
		r.sparse(func(i int, v uint64) {
			if i < len(fields) {
				*fields[i] = v
			}
		})
		if r.bad {
			return
		}
		f := t.make(id)
		if f.leader != "" && row.Session <= f.session {
			return
		}
		f.session, f.leader, f.row = row.Session, node, &restedRow
		if row.Session = 0; row != restedRow {
			own := row
			f.row = &own
		}
	})
	r.each(func(id uint64) {
		c := t.make(id).use()
		r.sparse(func(i int, v uint64) {
			if i < len(c.Set) {
				c.Set[i] += v
			}
		})
	})
	r.each(func(id uint64) {
		c := t.make(id).use()
		r.sparse(func(i int, v uint64) {
			if i < len(c.Rates) {
				c.Rates[i] += rate(v)
			}
		})
	})
	r.each(func(id uint64) {
		f := t.make(id)
		r.sparse(func(i int, v uint64) {
			switch stats.Counter(i) {
			case stats.Ready:
				f.readyRate += rate(v)
			case stats.Unacked:
				f.unackedRate += rate(v)
			case stats.Blocked:
				f.blocked = max(0, min(1, rate(v)/1e3))
			default:
			}
		})
	})
	if r.bad {
		return errTable
	}
	return nil
}

// rate reads a rate; what is no number is 0, as JSON has no room for it.
func rate(v uint64) float64 {
	f := float64(math.Float32frombits(uint32(v)))
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// Keeping of tables: one may be so many times as old as it took to make it, so that however many ask for it, it
// takes a bounded share of the nodes' time.
const (
	keepTable    = 20
	keepTableMax = 2 * time.Second
)

// What a node has told last stands in for its answer for as long as keepTold, so that a list does not wait longer than tellTime for a node that
// is slow, such as one whose processor others use.
const (
	keepTold = 10 * time.Second
	tellTime = 500 * time.Millisecond
)

// tables makes tables, one at a time.
type tables struct {
	mu    sync.Mutex
	table *queueTable
	made  time.Time // when it was
	until time.Time // it may be used until then by all
	told  map[string]toldTable
}

// toldTable is what another node has told last.
type toldTable struct {
	raw []byte
	at  time.Time
}

// queueTable asks all nodes, or returns what they said a moment ago.
func (a *API) queueTable(ctx context.Context) *queueTable { return a.queueTableOf(ctx, 0) }

// queueTableOf takes what they said within age too.
func (a *API) queueTableOf(ctx context.Context, age time.Duration) *queueTable {
	a.tables.mu.Lock()
	defer a.tables.mu.Unlock()
	began := time.Now()
	if a.tables.table != nil && (began.Before(a.tables.until) || began.Sub(a.tables.made) < age) {
		return a.tables.table
	}
	t := a.makeTable(context.WithoutCancel(ctx)) // others wait for it too
	now := time.Now()
	a.tables.table, a.tables.made, a.tables.until = t, now, now.Add(min(keepTable*now.Sub(began), keepTableMax))
	return t
}

// makeTable is called under the mutex of tables.
func (a *API) makeTable(ctx context.Context) *queueTable {
	t := newTable(len(a.cfg.Broker.QueueNames("")))
	var mu sync.Mutex
	var local sync.WaitGroup
	add := func(raw []byte, node string) error {
		mu.Lock()
		defer mu.Unlock()
		name, _, _ := strings.Cut(node, "/")
		return t.decode(raw, name)
	}
	local.Go(func() { _ = add(a.encodeTable(), a.cfg.Cluster.Local()) })
	now := map[string]toldTable{} // those who are no peers any more are forgotten
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		was := a.tables.told[node]
		stands := time.Since(was.at) < keepTold
		if stands {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, tellTime)
			defer cancel()
		}
		raw, err := a.askRaw(ctx, node, peerRequest{Op: opTable})
		if err == nil {
			was = toldTable{raw, time.Now()}
		} else if !stands {
			return err
		}
		mu.Lock()
		now[node] = was
		mu.Unlock()
		return errors.Join(err, add(was.raw, node))
	})
	a.tables.told = now
	local.Wait()
	t.slab = nil
	if err != nil {
		a.cfg.Logger.Info("figures of queues of some nodes are missing or old", "err", err)
	}
	return t
}
