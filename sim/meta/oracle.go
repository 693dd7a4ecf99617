package meta

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/sim/trace"
)

// entry is one of a log.
type entry struct {
	term uint64
	kind raft.LogType
	sum  uint64
	op   int // the client's operation, 0 if it is of none
}

// kind is what an operation does.
type kind string

const (
	put     kind = "put"     // gives a user tags: a register
	once    kind = "once"    // makes a user: the first of those that want to has its way, the others are refused
	declare kind = "declare" // makes an exchange, or finds it there
	other   kind = "other"   // makes or deletes a queue: all replicas agree about it, nothing else is known of it
)

// op is one write of a client.
type op struct {
	id    int
	kind  kind
	key   string
	floor uint64 // committed when it began
	acked bool
	by    string
	// The answer.
	index            uint64
	changed, refused bool
}

// read is what somebody saw of a key.
type read struct {
	by       string
	revision uint64
	key      string
	op       int // whose value it was, 0: none
}

// change is a value that a key has had from an index on.
type change struct {
	index uint64
	op    int
}

// outcome is where an operation was applied, and whether what it is about was not there before.
type outcome struct {
	index   uint64
	changed bool
}

// oracle knows every entry of every log, every answer and every view, and says what must not be.
type oracle struct {
	*trace.Trace

	mu      sync.Mutex         // guards the rest
	written map[uint64][]entry // by index: one for each term
	log     map[uint64]entry   // what is committed
	digests map[uint64]string  // of views, by their revisions
	newest  uint64             // the newest revision that anybody has seen
	ops     []*op              // by their numbers, from 1 on
	reads   []read             // not checked yet
	// What the log says so far, up to modelled.
	modelled uint64
	first    map[int]outcome
	history  map[string][]change // by keys
	count    counters
}

func newOracle(live io.Writer) *oracle {
	return &oracle{
		Trace: trace.New(live), written: make(map[uint64][]entry), log: make(map[uint64]entry), digests: make(map[uint64]string),
		ops: make([]*op, 1), first: make(map[int]outcome), history: make(map[string][]change),
	}
}

// againMax is how often a node may get a snapshot that it has: the answer to one may be lost.
const againMax = 3

// mark stands in what an operation proposes.
func mark(id int) string { return fmt.Sprintf("op-%d.", id) }

// entryOf reads an entry of a log.
func entryOf(l *raft.Log) entry {
	h := fnv.New64a()
	_, _ = h.Write(append([]byte{byte(l.Type)}, l.Data...))
	return entry{l.Term, l.Type, h.Sum64(), marked(l.Data)}
}

func marked(data []byte) int {
	_, after, ok := bytes.Cut(data, []byte("op-"))
	digits, _, end := bytes.Cut(after, []byte("."))
	id, err := strconv.Atoi(string(digits))
	if !ok || !end || err != nil {
		return 0
	}
	return id
}

// stored takes what a process puts into its log, or that it deletes a range of it.
func (o *oracle) stored(l *life, logs []*raft.Log, from, to uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.dead.Load() {
		return
	}
	for i := from; i <= to && to > 0; i++ {
		delete(l.log, i)
	}
	for _, e := range logs {
		now := entryOf(e)
		i := slices.IndexFunc(o.written[e.Index], func(was entry) bool { return was.term == e.Term })
		switch {
		case i < 0:
			o.written[e.Index] = append(o.written[e.Index], now)
		case o.written[e.Index][i].sum != now.sum:
			o.Fail("%s stores an entry at %d of term %d, and another one has been there", l.id, e.Index, e.Term)
		}
		l.log[e.Index] = now
	}
}

// viewed takes a view that a process has come to from another one, nil for its first.
func (o *oracle) viewed(l *life, old, now *catalog.View) {
	_, digest := now.Digest()
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.dead.Load() {
		return
	}
	from := uint64(0)
	if old != nil {
		from = old.Revision()
		if from != l.seen || now.Revision() < from {
			o.Fail("%s tells of views %d to %d after %d", l.id, from, now.Revision(), l.seen)
		}
		if l.again++; now.Revision() > from {
			l.again = 0
		} else if l.again > againMax {
			o.Fail("%s gets the snapshot that leads to view %d again and again", l.id, from)
		}
		o.changes(l, old, now)
	}
	l.seen = now.Revision()
	o.newest = max(o.newest, l.seen)
	if was, ok := o.digests[l.seen]; ok && was != digest {
		o.Fail("%s has view %d with digest %s, another one has %s", l.id, l.seen, digest, was)
	}
	o.digests[l.seen] = digest
	for i := from + 1; i <= l.seen; i++ {
		if e, ok := l.log[i]; ok {
			o.committed(l, i, e)
		}
	}
}

// changes checks that what a view says of changed queues is complete.
func (o *oracle) changes(l *life, old, now *catalog.View) {
	said := slices.Collect(now.QueuesChangedSince(old))
	for q := range now.AllQueues() {
		if was := old.QueueByID(q.ID); (was == nil || was.Settings != q.Settings) && !slices.Contains(said, q.ID) {
			o.Fail("%s: queue %d is another one in view %d than in %d, and this is not said", l.id, q.ID, now.Revision(), old.Revision())
		}
	}
}

// committed notes that a process has entry i and what it leads to. Whatever it has there it would give to others as their leader.
func (o *oracle) committed(l *life, i uint64, e entry) {
	was, known := o.log[i]
	if !known {
		o.log[i] = e
	} else if was.sum != e.sum || was.term != e.term {
		o.Fail("%s has view %d, and its log has operation %d of term %d at %d, where operation %d of term %d was committed", l.id, l.seen, e.op, e.term, i, was.op, was.term)
	}
}

// began makes an operation.
func (o *oracle) start(k kind, key, by string) *op {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := &op{id: len(o.ops), kind: k, key: key, floor: o.newest, by: by}
	o.ops = append(o.ops, p)
	o.count.proposed++
	return p
}

// answered takes the answer to an operation. What a dead process says nobody hears.
func (o *oracle) answered(l *life, p *op, r catalog.Result, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, refused := errors.AsType[*amqp.Error](err)
	if l.dead.Load() || err != nil && !refused || r.Index == 0 {
		o.count.unknown++
		return
	}
	o.count.acked++
	p.acked, p.index, p.changed, p.refused = true, r.Index, r.Changed, refused
	if p.index <= p.floor {
		o.Fail("%s says that operation %d is at %d, and %d was committed before it began", l.id, p.id, p.index, p.floor)
	}
	o.newest = max(o.newest, p.index)
}

// floor is what is committed.
func (o *oracle) floor() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest
}

// saw takes what a reader saw, as the newest if since is what was committed when it asked for that, else 0.
func (o *oracle) saw(l *life, v *catalog.View, key string, since uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.dead.Load() {
		return
	}
	o.count.reads++
	if since > 0 {
		o.count.linear++
	}
	if v.Revision() < since {
		o.Fail("%s answers a read by view %d, and %d was committed before it was asked", l.id, v.Revision(), since)
	}
	o.newest = max(o.newest, v.Revision())
	o.reads = append(o.reads, read{string(l.id), v.Revision(), key, valueOf(v, key)})
}

// valueOf is the operation that a key has its value from.
func valueOf(v *catalog.View, key string) int {
	if u := v.User(key); u != nil && len(u.Tags) > 0 {
		return marked([]byte(u.Tags[0]))
	}
	if x := v.Exchange("/", key); x != nil {
		s, _ := x.Arguments.Get("op")
		text, _ := s.(string)
		return marked([]byte(text))
	}
	return 0
}

// model applies what was committed to what clients know.
func (o *oracle) model() {
	for i := o.modelled + 1; i <= o.newest; i++ {
		e, ok := o.log[i]
		if !ok {
			e, ok = o.unseen(i)
		}
		if !ok {
			o.Fail("nobody has shown entry %d, and %d was seen", i, o.newest)
			return
		}
		o.modelled = i
		if e.op == 0 || e.kind != raft.LogCommand {
			continue
		}
		if _, again := o.first[e.op]; again {
			continue
		}
		p := o.ops[e.op]
		there := len(o.history[p.key]) > 0
		o.first[e.op] = outcome{i, !there}
		if p.kind == put || !there {
			o.history[p.key] = append(o.history[p.key], change{i, e.op})
		}
	}
}

// unseen is entry i, of which no view has told: it is no command, and went from the logs before the next one came.
func (o *oracle) unseen(i uint64) (entry, bool) {
	all := slices.DeleteFunc(slices.Clone(o.written[i]), func(e entry) bool { return e.kind == raft.LogCommand })
	if len(all) == 0 {
		return entry{}, false
	}
	return all[0], true
}

// valueAt is the operation that a key has its value from at a revision.
func (o *oracle) valueAt(key string, revision uint64) (id int) {
	for _, c := range o.history[key] {
		if c.index > revision {
			break
		}
		id = c.op
	}
	return id
}

// check compares all that was answered and read with what was committed.
func (o *oracle) check() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.model()
	for _, p := range o.ops[1:] {
		at, there := o.first[p.id]
		switch {
		case there && at.index <= p.floor:
			o.Fail("operation %d of %s was applied at %d, and began after %d", p.id, p.by, at.index, p.floor)
		case !p.acked:
		case !there:
			o.Fail("operation %d, %s of %s, was answered by %s at %d and is lost", p.id, p.kind, p.key, p.by, p.index)
		case at.index != p.index:
			o.Fail("operation %d of %s was answered at %d and is at %d", p.id, p.by, p.index, at.index)
		case p.kind != other && p.changed != at.changed, p.kind == once && p.refused == at.changed, p.kind == put && p.refused:
			o.Fail("operation %d, %s of %s: changed %t, refused %t, and the log says %t", p.id, p.kind, p.key, p.changed, p.refused, at.changed)
		}
	}
	for _, r := range o.reads {
		if want := o.valueAt(r.key, r.revision); want != r.op {
			o.Fail("%s read %s as of operation %d in view %d, and it was of %d", r.by, r.key, r.op, r.revision, want)
		}
	}
	o.reads = nil
}

// verify compares a process that has caught up with what was committed, its log too.
func (o *oracle) verify(l *life, v *catalog.View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.history {
		if want, got := o.valueAt(key, v.Revision()), valueOf(v, key); want != got && o.ops[want].kind != other {
			o.Fail("%s has %s of operation %d in view %d, and it is of %d", l.id, key, got, v.Revision(), want)
		}
	}
	for i, e := range l.log {
		if i <= v.Revision() {
			o.committed(l, i, e)
		}
	}
}
