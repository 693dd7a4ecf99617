// Package attempts slows down who guesses passwords, and counts logins.
//
// A [Table] remembers failed logins by the address they came from and the user they named. Somebody with many failures has to wait before the
// next try is looked at, twice as long after each one more. The right password from another address is never held up, and one success forgets
// the failures before it. The table is of one node and in memory: what another node saw is not known, and a restart forgets.
//
// It reads no clock and checks no password; both come with the calls. It is safe for concurrent use.
package attempts

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Config bounds a table. All fields are required.
type Config struct {
	// Free is how many failures in a row cost nothing; 0: none ever does.
	Free int
	// Delay is the wait after one failure more, DelayMax the longest.
	Delay, DelayMax time.Duration
	// Forget is how long after the last failure it is as if there had been none.
	Forget time.Duration
	// Entries bounds how many pairs of address and user are remembered. The one that failed longest ago goes first.
	Entries int
}

// Default is for people who mistype and programs with an old password: ten tries, then 1 s to 1 min between two.
func Default() Config {
	return Config{Free: 10, Delay: time.Second, DelayMax: time.Minute, Forget: 10 * time.Minute, Entries: 10_000}
}

// Protocol is how somebody logs in.
type Protocol int

// The protocols.
const (
	AMQP Protocol = iota
	HTTP
	GRPC
	protocols
)

// String is the name in RabbitMQ's tools.
func (p Protocol) String() string { return [protocols]string{"amqp091", "http", "grpc"}[p] }

// Protocols lists them.
func Protocols() []Protocol { return []Protocol{AMQP, HTTP, GRPC} }

// Counts are logins since the process began.
type Counts struct {
	Accepted, Failed uint64
	// Held were not looked at, because the wait was not over.
	Held uint64
}

// Source is somebody who has failed.
type Source struct {
	Address, User string
	Failures      int // since the last success
	Last          time.Time
}

type key struct{ address, user string }

type entry struct {
	key
	failures int
	last     time.Time
}

// Table remembers failures.
type Table struct {
	cfg Config

	mu     sync.Mutex
	byKey  map[key]*list.Element // of *entry
	order  list.List             // the newest failure first
	counts [protocols]Counts
}

// New returns an empty table.
func New(cfg Config) *Table { return &Table{cfg: cfg, byKey: map[key]*list.Element{}} }

// Wait tells how long somebody has to wait before a password of theirs is looked at; 0: not at all. What is told to wait is counted.
func (t *Table) Wait(p Protocol, address, user string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	el := t.byKey[keyOf(address, user)]
	if el == nil || t.cfg.Free == 0 {
		return 0
	}
	e := el.Value.(*entry)
	if e.failures < t.cfg.Free {
		return 0
	}
	wait := t.cfg.DelayMax
	if n := e.failures - t.cfg.Free; n < 30 {
		wait = min(wait, t.cfg.Delay<<n)
	}
	if wait -= now.Sub(e.last); wait <= 0 {
		return 0
	}
	t.counts[p].Held++
	return wait
}

// Done notes how a login ended that was looked at.
func (t *Table) Done(p Protocol, address, user string, ok bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := keyOf(address, user)
	el := t.byKey[k]
	if ok {
		t.counts[p].Accepted++
		if el != nil {
			t.remove(el)
		}
		return
	}
	t.counts[p].Failed++
	t.forget(now)
	if el = t.byKey[k]; el == nil {
		if t.order.Len() >= t.cfg.Entries {
			t.remove(t.order.Back())
		}
		el = t.order.PushFront(&entry{key: k})
		t.byKey[k] = el
	}
	e := el.Value.(*entry)
	e.failures++
	e.last = now
	t.order.MoveToFront(el)
}

// forget drops what failed long ago; t.mu is held.
func (t *Table) forget(now time.Time) {
	for el := t.order.Back(); el != nil && now.Sub(el.Value.(*entry).last) >= t.cfg.Forget; el = t.order.Back() {
		t.remove(el)
	}
}

func (t *Table) remove(el *list.Element) {
	delete(t.byKey, el.Value.(*entry).key)
	t.order.Remove(el)
}

// Counts are the logins by protocol.
func (t *Table) Counts() map[Protocol]Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := map[Protocol]Counts{}
	for p, c := range t.counts {
		m[Protocol(p)] = c
	}
	return m
}

// Sources lists who has failed, the newest failure first.
func (t *Table) Sources(now time.Time) []Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(now)
	all := make([]Source, 0, t.order.Len())
	for el := t.order.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		all = append(all, Source{e.address, e.user, e.failures, e.last})
	}
	return all
}

// Reset forgets all failures and counts.
func (t *Table) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey = map[key]*list.Element{}
	t.order.Init()
	t.counts = [protocols]Counts{}
}

// prefixBits is what one customer has of IPv6.
const prefixBits = 64

// userBytesMax bounds what is kept of a user's name, which may be anything.
const userBytesMax = 255

// keyOf cuts what a user may say.
func keyOf(address, user string) key {
	return key{Network(address), user[:min(len(user), userBytesMax)]}
}

// Network is what an address stands for: itself, or its /64 of IPv6, where everybody has very many addresses.
func Network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String()
	}
	if p, err := a.Prefix(prefixBits); err == nil {
		return p.String()
	}
	return address
}
