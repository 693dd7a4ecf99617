package leader

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// An auto-delete queue goes when its last consumer went with the node that led the
// queue: the next leader finds in the log that there was one. A queue that never had a
// consumer stays.
func TestNextLeaderMissesTheLastConsumer(t *testing.T) {
	for name, consumed := range map[string]bool{"with a consumer": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			a, b := node(1), node(2)
			r := newRig(t, plain(), a, b)
			r.l.Stop()
			unused := make(chan struct{}, 4)
			lead := func(nodes ...Node) {
				r.l.Stop()
				r.session++
				cfg := r.l.cfg
				cfg.Session, cfg.AutoDelete, cfg.Unused = r.session, true, func() { unused <- struct{}{} }
				cfg.LiveNodes = func() []Node { return nodes }
				r.l = Lead(r.replica, cfg)
				for _, n := range nodes {
					r.answerRoll(n)
				}
			}
			lead(a, b)
			if consumed {
				r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 1}})
				await[*wire.Attached](r, a.ID, nil)
			}
			r.publish(b, "kept") // behind the record
			select {
			case <-unused:
				t.Fatal("called unused too early")
			default:
			}
			lead(b) // a is dead
			patience := 200 * time.Millisecond
			if consumed {
				patience = 30 * time.Second
			}
			select {
			case <-unused:
				if !consumed {
					t.Error("a queue without consumers is called unused")
				}
			case <-time.After(patience):
				if consumed {
					t.Error("nobody misses the consumer")
				}
			}
		})
	}
}

// A node that did not answer the roll call in time may have the last consumer: the queue
// waits until it has answered or is gone. That its former process is gone says nothing.
func TestUnusedWaitsForMissingNodes(t *testing.T) {
	a, b := node(1), node(2)
	for name, tc := range map[string]struct {
		then func(r *rig)
		want bool
	}{
		"former process gone": {func(r *rig) { r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation-1) }, false},
		"gone":                {func(r *rig) { r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation) }, true},
		"has none": {func(r *rig) {
			r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: a.Origin})
		}, true},
		"has one": {func(r *rig) {
			r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: a.Origin, Consumers: []wire.Consumer{{No: 1}}})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, late := range []bool{false, true} {
				r := newRig(t, plain(), a, b)
				r.l.Stop()
				r.session++
				unused := make(chan struct{}, 4)
				cfg := r.l.cfg
				cfg.Session, cfg.AutoDelete, cfg.Unused = r.session, true, func() { unused <- struct{}{} }
				r.l = Lead(r.replica, cfg)
				r.answerRoll(a)
				r.l.Propose(fsm.Consumed{}, false, nil)
				r.publish(a, "behind it")
				r.l.Stop()
				r.session++
				cfg.Session = r.session
				r.l = Lead(r.replica, cfg)
				r.answerRoll(b)
				if late {
					time.Sleep(rollCallTimeout + 100*time.Millisecond)
				}
				tc.then(r)
				patience := 300 * time.Millisecond
				if tc.want {
					patience = 30 * time.Second
				}
				select {
				case <-unused:
					if !tc.want {
						t.Error("called unused")
					}
				case <-time.After(patience):
					if tc.want {
						t.Error("not called unused")
					}
				}
			}
		})
	}
}

// The lease of a queue does not end while a node has not answered the roll call, which may have a consumer of it; it begins when
// that node is known to have none, or is gone.
func TestLeaseWaitsForMissingNodes(t *testing.T) {
	const life = 200 * time.Millisecond
	a, b := node(1), node(2)
	for name, then := range map[string]func(r *rig){
		"gone": func(r *rig) { r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation) },
		"has none": func(r *rig) {
			r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: a.Origin})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unused := make(chan struct{}, 4)
			r := newRigWith(t, plain(), func(c *Config) {
				c.Expires, c.Expired = func() time.Duration { return life }, func() bool { return true }
				c.Unused = func() { unused <- struct{}{} }
			}, a, b)
			r.answerRoll(b)
			select {
			case <-unused:
				t.Fatal("ended while a consumer may be there")
			case <-time.After(rollCallTimeout + 3*life):
			}
			begin := time.Now()
			then(r)
			<-unused
			if lived := time.Since(begin); lived < life {
				t.Errorf("ended after %v, want %v", lived, life)
			}
		})
	}
}

// shutLog commits nothing while it is shut.
type shutLog struct {
	*MemLog
	mu      sync.Mutex
	shut    bool
	waiting []func()
}

func (l *shutLog) Propose(data []byte, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shut {
		l.MemLog.Propose(data, done)
		return
	}
	data = bytes.Clone(data)
	l.waiting = append(l.waiting, func() { l.MemLog.Propose(data, done) })
}

func (l *shutLog) set(shut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = shut
	for _, f := range l.waiting {
		f()
	}
	l.waiting = nil
}

// unusedRig is a queue that ends when nobody uses it; told gets a word for each time that the catalog is told.
func unusedRig(t *testing.T, set queue.Settings, change func(*Config), nodes ...Node) (r *rig, log *shutLog, told chan struct{}) {
	told = make(chan struct{}, 16)
	log = &shutLog{}
	r = newRigWith(t, set, func(c *Config) {
		if log.MemLog == nil {
			log.MemLog = c.Log.(*MemLog)
		}
		c.Log, c.Unused = log, func() { told <- struct{}{} }
		change(c)
	}, nodes...)
	for _, n := range nodes {
		r.answerRoll(n)
	}
	return r, log, told
}

func (r *rig) gone(n Node, no wire.ConsumerNo) {
	r.t.Helper()
	if d := await(r, n.ID, func(d *wire.Detached) bool { return d.No == no }); !d.Gone {
		r.t.Errorf("%d got %+v, want the queue gone", no, d)
	}
}

// From the moment at which a queue is found unused nobody attaches to it, and nobody, the catalog neither, hears that it has
// ended before that is committed. The next leader knows it, and tells the catalog again.
func TestUnusedQueueEndsInItsLog(t *testing.T) {
	a := node(1)
	for name, expires := range map[string]time.Duration{"auto-delete": 0, "expired": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			r, log, told := unusedRig(t, plain(), func(c *Config) {
				c.AutoDelete = expires == 0
				c.Expires, c.Expired = func() time.Duration { return expires }, func() bool { return true }
			}, a)
			r.attach(a, 1, 0)
			log.set(true)
			r.l.Receive(a.ID, &wire.Detach{Queue: 7, Origin: a.Origin, No: 1})
			if expires > 0 {
				await[*wire.Detached](r, a.ID, nil)
				time.Sleep(3 * expires)
			}
			r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 2}})
			r.l.Receive(a.ID, &wire.Query{Queue: 7, Origin: a.Origin, Req: 3, Use: true})
			time.Sleep(50 * time.Millisecond)
			r.mu.Lock()
			for _, s := range r.out {
				if _, ok := s.m.(*wire.Answer); ok {
					continue // to the roll call
				}
				t.Errorf("said before the end is committed: %T %+v", s.m, s.m)
			}
			r.mu.Unlock()
			if len(told) > 0 {
				t.Error("the catalog was told before the end is committed")
			}
			log.set(false)
			if expires == 0 {
				if d := await(r, a.ID, func(d *wire.Detached) bool { return d.No == 1 }); d.Gone || !d.Unused {
					t.Errorf("the last consumer got %+v, want the queue unused", d)
				}
			}
			r.gone(a, 2)
			r.gone(a, 3)
			<-told
			r.lead()
			r.answerRoll(a)
			<-told
			r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 4}})
			r.gone(a, 4)
		})
	}
}

// What its last consumer rejects before it goes dies as rejected, also if the leader hears of it from the next session's roll
// call before it hears it.
func TestUnusedQueueHearsItsClientsOut(t *testing.T) {
	a := node(1)
	for name, anew := range map[string]bool{"by its leader": false, "by the next": true} {
		t.Run(name, func(t *testing.T) {
			set := plain()
			set.DeadLetter = true
			r, log, told := unusedRig(t, set, func(c *Config) { c.AutoDelete = true }, a)
			r.attach(a, 1, 0)
			r.publish(a, "bad")
			it := r.items(a, 1)[0]
			if anew {
				r.lead()
				r.answerRoll(a, wire.Hold{No: 1, ID: it.ID, Attempt: it.Attempt, Settled: r.seq[a.Origin.Node] + 1})
				time.Sleep(50 * time.Millisecond)
				if len(told) > 0 {
					t.Error("the queue has ended before an operation that was announced")
				}
				r.settle(a, fsm.Discard, it)
			} else {
				log.set(true) // nothing is taken before the last consumer has gone
				r.settle(a, fsm.Discard, it)
				r.l.Receive(a.ID, &wire.Detach{Queue: 7, Origin: a.Origin, No: 1})
				log.set(false)
			}
			<-told
			r.replica.View(func(m *fsm.Machine) {
				if n := m.Outbox().Len(); n != 1 || !m.Closed() {
					t.Errorf("%d dead letters, closed %v", n, m.Closed())
				}
			})
		})
	}
}

// A consumer that was attached while its node answered a roll call is not named in the answer: its node has not heard of it yet, and
// says so. The queue stays until the Attach has come again, or nobody waits for it any more.
func TestQueueWaitsForAPromisedConsumer(t *testing.T) {
	a, b := node(1), node(2)
	resync := func(no uint64, attaching ...wire.ConsumerNo) *wire.Resync {
		return &wire.Resync{Queue: 7, No: no, Origin: a.Origin, Attaching: attaching}
	}
	attach := &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 1}}
	detach := &wire.Detach{Queue: 7, Origin: a.Origin, No: 1}
	for name, tc := range map[string]struct {
		then func(r *rig)
		ends bool
	}{
		"nothing comes":      {func(*rig) {}, false},
		"it attaches":        {func(r *rig) { r.l.Receive(a.ID, attach) }, false},
		"promised again":     {func(r *rig) { r.l.Receive(a.ID, resync(3, 1)) }, false},
		"it comes and goes":  {func(r *rig) { r.l.Receive(a.ID, attach); r.l.Receive(a.ID, detach) }, true},
		"it is given up":     {func(r *rig) { r.l.Receive(a.ID, detach) }, true},
		"no longer promised": {func(r *rig) { r.l.Receive(a.ID, resync(3)) }, true},
		"its node dies":      {func(r *rig) { r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, told := unusedRig(t, plain(), func(c *Config) { c.AutoDelete = true }, a, b)
			r.l.Receive(a.ID, attach)
			await[*wire.Attached](r, a.ID, nil)
			r.l.Receive(a.ID, resync(2, 1))
			tc.then(r)
			patience := 30 * time.Second
			if !tc.ends {
				r.status(b, 9) // behind it
				patience = 50 * time.Millisecond
			}
			select {
			case <-told:
				if !tc.ends {
					t.Error("the queue has ended")
				}
			case <-time.After(patience):
				if tc.ends {
					t.Error("the queue does not end")
				}
			}
		})
	}
}
