package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// oracle applies every committed entry at the moment of its commit, in one order
// for all queues, and checks what single machines cannot know. World.mu guards it.
type oracle struct {
	w      *World
	queues map[uint64]*oracleQueue
	// published counts how often a message was enqueued by its publisher, by body
	// and queue.
	published map[placed]int
	// newest is the highest number of each publisher's messages in each queue.
	newest map[publisherQueue]int
	legs   map[legKey]string // body under way
	// withdrawn are the sequences that targets have not taken, for ever.
	withdrawn map[legKey]bool
	// deaths are the dead letters that came into each queue, by body and history: a
	// second one with the same history is a copy.
	deaths map[placed]bool
	gone   map[[2]uint64]bool // source, target: recorded as closed
	// txSettled are the messages that a transaction's settlement took.
	txSettled map[message]bool
	// final is where the watermark of a source stood when the target forgot it, by source
	// and target.
	final map[[2]uint64]uint64
	// stayed are the messages, by queue and id, that lost their time to live. They were out
	// of reach for a while. Clients look here too.
	stayed sync.Map
	// marks are the delivered marks that are committed, by queue. Clients look here, too.
	marks sync.Map
	plans int // letters that got their targets as they died
}

type oracleQueue struct {
	id     uint64
	m      *fsm.Machine
	bodies map[queue.MessageID]string // of live messages
	routed map[dlx.ItemID]bool
	// acked counts, by body, messages removed by an ack; dead those that died.
	acked, dead map[string]int
}

type placed struct {
	body  string
	queue uint64
}

type publisherQueue struct {
	publisher string
	queue     uint64
}

type legKey struct{ source, target, seq uint64 }

func newOracle(w *World) *oracle {
	return &oracle{
		w: w, queues: map[uint64]*oracleQueue{}, published: map[placed]int{}, newest: map[publisherQueue]int{},
		legs: map[legKey]string{}, withdrawn: map[legKey]bool{}, deaths: map[placed]bool{}, gone: map[[2]uint64]bool{},
		final: map[[2]uint64]uint64{}, txSettled: map[message]bool{},
	}
}

func (o *oracle) add(id uint64) {
	o.queues[id] = &oracleQueue{
		id: id, m: fsm.New(), bodies: map[queue.MessageID]string{}, routed: map[dlx.ItemID]bool{},
		acked: map[string]int{}, dead: map[string]int{},
	}
}

func (o *oracle) problem(q *oracleQueue, format string, args ...any) {
	o.w.problem("queue %d (%s) at entry %d: %s", q.id, q.m.Name(), q.m.Index(), fmt.Sprintf(format, args...))
}

// commit applies and checks one entry.
func (o *oracle) commit(g *group, index uint64, data []byte) {
	q := o.queues[g.id]
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		o.problem(q, "undecodable entry: %v", err)
		return
	}
	marks := map[fsm.Source]uint64{}
	for _, c := range e.Commands {
		o.before(q, c)
		if t, ok := c.(fsm.TransferIn); ok {
			marks[t.Source], _ = q.m.SourceWatermark(t.Source)
		}
	}
	leaving := map[queue.MessageID]bool{}
	for _, id := range q.m.Leaving() {
		leaving[id] = true
	}
	o.expires(g, q, &e)
	was := standingOf(q.m)
	res := q.m.Apply(index, data)
	o.marks.Store(q.id, q.m.Mark())
	o.withdraws(q, &e, marks)
	o.enqueued(g, q, &e, res)
	died := map[queue.Ref]bool{}
	for id := was.lastItem + 1; id <= q.m.Outbox().Last(); id++ {
		it, ok := q.m.Outbox().Item(id)
		if !ok {
			continue
		}
		if it.Reason == dlx.Transaction {
			o.relayed(g, q, it)
			continue
		}
		if it.Reason == dlx.Redrive {
			o.redriven(g, q, it)
			continue
		}
		died[it.Ref] = true
		q.dead[bodyAt(g, it.Ref)]++
	}
	o.removed(q, &e, res, leaving)
	for _, r := range res.Freed {
		for id := r.First; id <= r.Last; id++ {
			o.stayed.Store(message{q.id, id}, true) // or it came back from a redrive
		}
	}
	for _, c := range e.Commands {
		switch c := c.(type) {
		case fsm.Route:
			o.routed(g, q, c)
		case fsm.TransferDone:
			o.renewed(g, q, c.Target)
		}
	}
	o.planned(g, q, &e, &was)
}

// keeper is a queue whose time to live is not for dead letters.
const keeper = "keeper"

// expires checks what a leader wants to expire.
func (o *oracle) expires(g *group, q *oracleQueue, e *fsm.Entry) {
	if q.m.Name() != keeper {
		return
	}
	for _, c := range e.Commands {
		x, ok := c.(fsm.Expire)
		for i := 0; ok && i < len(x.IDs); i++ {
			for id := x.IDs[i].First; id <= x.IDs[i].Last; id++ {
				if m, live := q.m.Queue().Get(id); live && len(messageAt(g, m.Ref).Deaths) > 0 {
					o.problem(q, "dead letter %d expires", id)
				}
			}
		}
	}
}

// before checks the claims of a command against the other queues' committed state.
func (o *oracle) before(q *oracleQueue, c fsm.Command) {
	switch c := c.(type) {
	case fsm.Expire:
		if q.m.Name() == "patient" {
			o.problem(q, "expires %v after less than ten minutes", c.IDs)
		}
	case fsm.TransferDone:
		t := o.queues[c.Target]
		if t == nil && o.w.spec("temp") != nil {
			return // a queue of one node's memory, which a transaction has written to
		}
		if t == nil {
			o.problem(q, "transfers to %d done up to %d, but it was never there", c.Target, c.UpTo)
			return
		}
		if w := o.watermark(q.id, t); w < c.UpTo {
			o.problem(q, "transfers to %d recorded as done up to %d, its log has committed %d", c.Target, c.UpTo, w)
		}
		o.outcome(q, c.Target, c.UpTo, c.Withdrawn)
	case fsm.ForgetSources:
		o.forgets(q, c.Sources)
	case fsm.TargetGone:
		o.gone[[2]uint64{q.id, c.Target}] = true
		t := o.queues[c.Target]
		if t == nil {
			return
		}
		w, known := t.m.SourceWatermark(fsm.Source{Queue: q.id})
		if !t.m.Closed() || known && w != c.Watermark || !known && c.Watermark != 0 {
			o.problem(q, "target %d recorded as gone with watermark %d; closed %v, watermark %d %v", c.Target, c.Watermark, t.m.Closed(), w, known)
		}
		o.outcome(q, c.Target, c.Watermark, c.Withdrawn)
	}
}

// outcome checks what is said of legs that end: each is withdrawn in the target's log, or
// taken.
func (o *oracle) outcome(q *oracleQueue, target, upTo uint64, withdrawn []uint64) {
	done, _ := q.m.Outbox().Progress(target)
	for seq := done + 1; seq <= upTo && seq < q.m.Outbox().NextSeq(target); seq++ {
		if said, is := slices.Contains(withdrawn, seq), o.withdrawn[legKey{q.id, target, seq}]; said != is {
			o.problem(q, "transfer %d to %d recorded as withdrawn: %v, its log says %v", seq, target, said, is)
		}
	}
}

// withdraws notes which sequences this entry has withdrawn; marks are the watermarks before
// it.
func (o *oracle) withdraws(q *oracleQueue, e *fsm.Entry, marks map[fsm.Source]uint64) {
	for _, c := range e.Commands {
		t, ok := c.(fsm.TransferIn)
		if !ok {
			continue
		}
		w, _ := q.m.SourceWatermark(t.Source)
		for i, it := range t.Items {
			seq := t.First + uint64(i)
			if seq <= marks[t.Source] || seq > w {
				continue
			}
			marks[t.Source] = seq
			key := legKey{t.Source.Queue, q.id, seq}
			if _, routed := o.legs[key]; it.Withdrawn && !routed && o.queues[t.Source.Queue] != nil {
				o.problem(q, "withdrawal of %+v, which was never routed", key)
			}
			o.withdrawn[key] = it.Withdrawn
		}
	}
}

// withdrawals counts the sequences that were withdrawn.
func (o *oracle) withdrawals() (n int) {
	for _, is := range o.withdrawn {
		if is {
			n++
		}
	}
	return n
}

// forgets checks that nothing of the sources can still come.
func (o *oracle) forgets(q *oracleQueue, sources []fsm.Source) {
	for _, s := range sources {
		w, known := q.m.SourceWatermark(s)
		if known && s.Epoch == 0 {
			o.final[[2]uint64{s.Queue, q.id}] = w
		}
		from := o.queues[s.Queue]
		if from == nil {
			continue // a transient queue
		}
		if !from.m.Closed() || len(from.m.Outbox().Pending(q.id, w, 1)) > 0 {
			o.problem(q, "source %d is forgotten at %d; closed %v", s.Queue, w, from.m.Closed())
		}
	}
}

// watermark is how far target has ever taken what source sends.
func (o *oracle) watermark(source uint64, target *oracleQueue) uint64 {
	w, _ := target.m.SourceWatermark(fsm.Source{Queue: source})
	return max(w, o.final[[2]uint64{source, target.id}])
}

// enqueued walks what the entry enqueued in the order of its commands.
func (o *oracle) enqueued(g *group, q *oracleQueue, e *fsm.Entry, res fsm.Result) {
	for id := res.Enqueued.First; id <= res.Enqueued.Last; id++ {
		m, ok := q.m.Queue().Get(id)
		if !ok {
			continue // came and went in one entry
		}
		msg := messageAt(g, m.Ref)
		body := string(msg.Body)
		q.bodies[id] = body
		if len(msg.Deaths) > 0 {
			key := placed{fmt.Sprintf("%s %+v", body, msg.Deaths), q.id}
			if o.deaths[key] {
				o.problem(q, "dead letter %s came into it twice", key.body)
			}
			o.deaths[key] = true
			continue
		}
		key := placed{body, q.id}
		if o.published[key]++; o.published[key] > 1 {
			o.problem(q, "message %s was published into it %d times", body, o.published[key])
		}
		who, n := splitBody(body)
		pq := publisherQueue{who, q.id}
		if spec := o.w.spec(q.m.Name()); spec != nil && spec.once {
			continue // what is sent again comes late
		}
		if n <= o.newest[pq] {
			o.problem(q, "message %s came after number %d of its publisher", body, o.newest[pq])
		}
		o.newest[pq] = n
	}
	for _, c := range e.Commands {
		if t, ok := c.(fsm.TransferIn); ok {
			o.transferred(q, t, res)
		}
	}
}

// transferred checks that what came under a sequence is what the source routed
// under it.
func (o *oracle) transferred(q *oracleQueue, t fsm.TransferIn, res fsm.Result) {
	w, _ := q.m.SourceWatermark(t.Source)
	if o.queues[t.Source.Queue] == nil {
		return // a transient queue
	}
	for i, it := range t.Items {
		key := legKey{t.Source.Queue, q.id, t.First + uint64(i)}
		if key.seq > w {
			continue // refused
		}
		if it.Withdrawn {
			continue
		}
		if it.Part != nil {
			if o.legs[key] != string(it.Part) {
				o.problem(q, "transfer %+v brings a part that is not the source's", key)
			}
			continue
		}
		msg, err := fsm.DecodeMessage(it.Message)
		if err != nil {
			o.problem(q, "transfer %+v: %v", key, err)
			continue
		}
		if want, ok := o.legs[key]; !ok || want != string(msg.Body) {
			o.problem(q, "transfer %+v brings %q, routed was %q", key, msg.Body, want)
		}
	}
}

func (o *oracle) routed(g *group, q *oracleQueue, r fsm.Route) {
	for _, d := range r.Items {
		it, ok := q.m.Outbox().Item(d.Item)
		if !ok || it.State != dlx.Routed || q.routed[d.Item] && len(it.Legs) == 0 {
			continue
		}
		q.routed[d.Item] = true
		for _, leg := range it.Legs {
			o.legs[legKey{q.id, leg.Target, leg.Seq}] = bodyAt(g, it.Ref)
		}
	}
}

// removed checks that every message that left for good was let go by somebody.
func (o *oracle) removed(q *oracleQueue, e *fsm.Entry, res fsm.Result, leaving map[queue.MessageID]bool) {
	closes, purges := false, false
	for _, c := range e.Commands {
		switch c := c.(type) {
		case fsm.Close:
			closes = true
		case fsm.Stream:
			for _, op := range c.Ops {
				if _, ok := op.(fsm.Purge); ok {
					purges = true
				}
			}
		}
	}
	for _, r := range res.Removed {
		for id := r.First; id <= r.Last; id++ {
			body := q.bodies[id]
			delete(q.bodies, id)
			if !closes && !purges {
				o.explain(q, e, id, body, leaving)
			}
		}
	}
}

// explain looks for the command that removed a message and, for a settlement, for
// the client that made it.
func (o *oracle) explain(q *oracleQueue, e *fsm.Entry, id queue.MessageID, body string, leaving map[queue.MessageID]bool) {
	for _, c := range e.Commands {
		if o.explainRedrive(c, id, leaving) {
			return
		}
		switch c := c.(type) {
		case fsm.Bury:
			if q.m.Closed() && id <= c.UpTo {
				return
			}
		case fsm.Expire:
			if inRanges(c.IDs, id) {
				return
			}
		case fsm.DropHeads:
			if inRanges(c.IDs, id) {
				return
			}
		case fsm.Return:
			for _, r := range c.Runs {
				if inRun(r, id) {
					if c.Kind == fsm.Ack {
						o.problem(q, "message %d (%s) was settled by a leader", id, body)
					}
					return
				}
			}
		case fsm.TransferIn:
			for _, it := range c.Items {
				if op, err := fsm.DecodePart(it.Part); err == nil && o.explainTx(q, []fsm.Op{op}, id, body) {
					return
				}
			}
		case fsm.Stream:
			for _, op := range c.Ops {
				if tx, ok := op.(fsm.Tx); ok && tx.Verdict == fsm.Accept && o.explainTx(q, tx.Ops, id, body) {
					return
				}
				s, ok := op.(fsm.Settle)
				if !ok {
					continue
				}
				for _, r := range s.Runs {
					if !inRun(r, id) {
						continue
					}
					if s.Kind == fsm.Ack {
						q.acked[body]++
					}
					if (s.Kind == fsm.Ack || s.Kind == fsm.Discard) && !o.w.led.settledBy(q.id, id, r.Attempt, c.Origin, s.Kind) {
						o.problem(q, "message %d (%s) attempt %d settled (%d) by node %d, where no client did so", id, body, r.Attempt, s.Kind, c.Origin.Node)
					}
					return
				}
			}
		}
	}
	if body != "" {
		o.problem(q, "message %d (%s) left without a reason", id, body)
	}
}

func inRun(r fsm.Run, id queue.MessageID) bool {
	return id >= r.First && id < r.First+queue.MessageID(r.Count)
}

func inRanges(list []queue.IDRange, id queue.MessageID) bool {
	for _, r := range list {
		if id >= r.First && id <= r.Last {
			return true
		}
	}
	return false
}

func messageAt(g *group, ref queue.Ref) fsm.Message {
	data := g.log[ref.Index-1].data
	m, err := fsm.DecodeMessage(data[ref.Offset : ref.Offset+ref.Length])
	if err != nil {
		g.w.problem("queue %d: message at %+v: %v", g.id, ref, err)
	}
	return m
}

func bodyAt(g *group, ref queue.Ref) string {
	m := messageAt(g, ref)
	return string(m.Body)
}

// splitBody takes a body, "publisher-number", apart.
func splitBody(body string) (publisher string, n int) {
	publisher, num, _ := strings.Cut(body, "-")
	n, _ = strconv.Atoi(num) // only simulated publishers make bodies
	return publisher, n
}
