package catalog

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/amqp"
)

// requestsMax is how many requests the machine remembers. A retry whose first attempt
// lies further back than this many commands would be applied a second time:
// a proposer makes sure that it does not, see Catalog.surely.
const requestsMax = 8192

// outcome is what the machine keeps of a request to answer its retries.
type outcome struct {
	index   uint64
	changed bool
	id      uint64
	code    uint16 // of the refusal, 0 if there was none
	text    string // for people; at most textBytesMax
}

func (o *outcome) fields(f *fields) {
	f.u64(&o.index)
	f.bool(&o.changed)
	f.u64(&o.id)
	f.u16(&o.code)
	f.text(&o.text)
}

// result returns what the first application of the request returned.
func (o *outcome) result(v *View) (Result, error) {
	r := Result{Index: o.index, Changed: o.changed, ID: o.id}
	if o.code != 0 {
		return r, &amqp.Error{Code: o.code, Text: o.text}
	}
	r.Queue = v.QueueByID(o.id)
	return r, nil
}

// requestLog remembers the outcomes of the newest requests. The machine alone touches
// it.
type requestLog struct {
	byID  map[requestID]outcome
	order []requestID // oldest first, from head on
	head  int
}

func newRequestLog() *requestLog { return &requestLog{byID: make(map[requestID]outcome)} }

func (l *requestLog) add(id requestID, o outcome) {
	l.byID[id] = o
	l.order = append(l.order, id)
	if len(l.order)-l.head > requestsMax {
		delete(l.byID, l.order[l.head])
		l.head++
	}
	if l.head >= requestsMax {
		l.order = append(make([]requestID, 0, 2*requestsMax), l.order[l.head:]...)
		l.head = 0
	}
}

// reach is the index from which on all requests are remembered.
func (l *requestLog) reach() uint64 {
	if len(l.order)-l.head < requestsMax {
		return 0
	}
	return l.byID[l.order[l.head]].index
}

// savedRequest is one request in a snapshot.
type savedRequest struct {
	id requestID
	o  outcome
}

func (l *requestLog) save() []savedRequest {
	out := make([]savedRequest, 0, len(l.order)-l.head)
	for _, id := range l.order[l.head:] {
		out = append(out, savedRequest{id, l.byID[id]})
	}
	return out
}

// applied is what the machine tells its owner about one entry.
type applied struct {
	request requestID
	outcome outcome
	queue   *Queue // Result.Queue of a first application
}

func (a *applied) result(v *View) (Result, error) {
	r, err := a.outcome.result(v)
	if a.queue != nil {
		r.Queue = a.queue
	}
	return r, err
}

// machine is the replicated state machine. Raft's FSM goroutine is the only one
// to call its methods; the view may be read by all.
type machine struct {
	view     atomic.Pointer[View]
	requests *requestLog
	// unseen is the index below which there may be requests whose outcomes are not known here: a snapshot came in their place.
	unseen atomic.Uint64
	// notify is called after each new view with what was applied, nil after a restore.
	// It must not block.
	notify func(*applied)
}

func newMachine(notify func(*applied)) *machine {
	m := &machine{requests: newRequestLog(), notify: notify}
	m.view.Store(emptyView())
	return m
}

// apply applies one entry. It panics on an entry that cannot be decoded: a replica that
// skipped it would differ from the others.
func (m *machine) apply(index uint64, data []byte) *applied {
	id, cmd, err := decodeEntry(data)
	if err != nil {
		panic(fmt.Sprintf("catalog: entry %d, request %x: %v", index, id, err))
	}
	v := m.view.Load()
	if index <= v.revision {
		panic(fmt.Sprintf("catalog: entry %d after revision %d", index, v.revision))
	}
	a := &applied{request: id}
	tx := begin(v, index)
	if first, ok := m.requests.byID[id]; ok {
		// A retry: the state stays, only the revision moves on.
		a.outcome = first
	} else {
		r, refusal := cmd.apply(tx)
		a.outcome = outcome{index: index, changed: r.Changed, id: r.ID}
		a.queue = r.Queue
		if refusal != nil {
			tx = begin(v, index)
			a.outcome.code, a.outcome.text, a.queue = refusal.Code, cutText(refusal.Text), nil
		}
		m.requests.add(id, a.outcome)
	}
	next := tx.View
	m.view.Store(&next)
	m.notify(a)
	return a
}

// fsm shows the machine to raft.
type fsm struct{ *machine }

// Apply implements raft.FSM. The result is an *applied.
func (f fsm) Apply(l *raft.Log) any { return f.apply(l.Index, l.Data) }

// Snapshot implements raft.FSM.
func (f fsm) Snapshot() (raft.FSMSnapshot, error) {
	return &snapshot{view: f.view.Load(), requests: f.requests.save()}, nil
}

// Restore implements raft.FSM.
func (f fsm) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }() // reading is done or has failed
	view, requests, err := readSnapshot(r)
	if err != nil {
		return fmt.Errorf("restore the catalog: %w", err)
	}
	if reach := requests.reach(); reach > f.view.Load().revision+1 {
		f.unseen.Store(reach)
	}
	f.requests = requests
	f.view.Store(view)
	f.notify(nil)
	return nil
}
