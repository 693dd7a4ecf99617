package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// MethodCount is the mesh's method by which a node asks another for what its clients have
// open (docs/formats/open-count.md).
const MethodCount uint8 = 0x40

// Who opens a connection or channel waits for the other nodes' counts. One that does not
// answer within countWait counts as having nothing open. It may be unreachable and not yet
// known to be dead: for muteFor it has only muteWait, so that it does not hold up each
// client anew.
const (
	countWait = time.Second
	muteWait  = 100 * time.Millisecond
	muteFor   = 2 * time.Second
)

// openCount is what clients have open: the connections to one vhost, and of one user the
// connections and channels.
type openCount struct{ vhost, user, channels uint64 }

func (c openCount) plus(d openCount) openCount {
	return openCount{c.vhost + d.vhost, c.user + d.user, c.channels + d.channels}
}

// census counts what clients have open on this node.
type census struct {
	mu                      sync.Mutex
	vhosts, users, channels map[string]uint64
	mute                    map[string]time.Time // other nodes that did not answer: until when
}

func newCensus() *census {
	return &census{vhosts: map[string]uint64{}, users: map[string]uint64{}, channels: map[string]uint64{}, mute: map[string]time.Time{}}
}

// patience is how long a node has for its answer.
func (s *census) patience(node string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.mute[node]) {
		return muteWait
	}
	return countWait
}

// answered and silent take what became of a question.
func (s *census) answered(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mute, node)
}

func (s *census) silent(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute[node] = time.Now().Add(muteFor)
}

func (s *census) count(vhost, user string) openCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countLocked(vhost, user)
}

func (s *census) countLocked(vhost, user string) openCount {
	return openCount{s.vhosts[vhost], s.users[user], s.channels[user]}
}

// admit calls check with the counts of now and adds one by add unless check refuses, at one
// instant.
func (s *census) admit(vhost, user string, check func(openCount) error, add func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := check(s.countLocked(vhost, user)); err != nil {
		return err
	}
	add()
	return nil
}

func (s *census) connectionEnds(vhost, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	less(s.vhosts, vhost)
	less(s.users, user)
}

func (s *census) channelEnds(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	less(s.channels, user)
}

// less takes one from a count and forgets it at 0: names come and go.
func less(m map[string]uint64, name string) {
	if m[name]--; m[name] == 0 {
		delete(m, name)
	}
}

// limitsOf returns the limits of a vhost and a user. One that is not there has none: what
// lets a client in checks that it is.
func limitsOf(view *catalog.View, vhost, user string) (h catalog.VhostLimits, u auth.UserLimits) {
	if v := view.Vhost(vhost); v != nil {
		h = v.Limits
	}
	if v := view.User(user); v != nil {
		u = v.Limits
	}
	return h, u
}

// admitConnection counts a connection in, or refuses it because a limit is reached. On
// this node that is exact. What other nodes let in at the same moment is not seen.
func (b *Broker) admitConnection(ctx context.Context, view *catalog.View, vhost, user string) error {
	ofVhost, ofUser := limitsOf(view, vhost, user)
	check := func(n openCount) error {
		if ofVhost.Connections.Reached(n.vhost) {
			return Errorf(NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", vhost, user, ofVhost.Connections.Value)
		}
		if ofUser.Connections.Reached(n.user) {
			return Errorf(NotAllowed, "connection refused for user '%s': user connection limit (%d) is reached", user, ofUser.Connections.Value)
		}
		return nil
	}
	limited := ofVhost.Connections.Bounds() || ofUser.Connections.Bounds()
	return b.admit(ctx, vhost, user, limited, check, func() {
		b.census.vhosts[vhost]++
		b.census.users[user]++
	})
}

// admitChannel is admitConnection for a channel.
func (b *Broker) admitChannel(ctx context.Context, vhost, user string) error {
	_, ofUser := limitsOf(b.cat.View(), vhost, user)
	check := func(n openCount) error {
		if ofUser.Channels.Reached(n.channels) {
			return Errorf(NotAllowed, "number of channels opened for user '%s' has reached the maximum allowed user limit of %d", user, ofUser.Channels.Value)
		}
		return nil
	}
	return b.admit(ctx, vhost, user, ofUser.Channels.Bounds(), check, func() { b.census.channels[user]++ })
}

// admit asks the other nodes only if something is limited, and not beyond what this node
// knows to be over.
func (b *Broker) admit(ctx context.Context, vhost, user string, limited bool, check func(openCount) error, add func()) error {
	var elsewhere openCount
	if limited {
		if err := check(b.census.count(vhost, user)); err != nil {
			return err
		}
		elsewhere = b.countElsewhere(ctx, vhost, user)
	}
	return b.census.admit(vhost, user, func(n openCount) error { return check(n.plus(elsewhere)) }, add)
}

// countElsewhere asks all other nodes that are not known to be dead at once.
func (b *Broker) countElsewhere(ctx context.Context, vhost, user string) openCount {
	if b.cfg.Call == nil {
		return openCount{}
	}
	question := encodeCountQuestion(vhost, user)
	var sum struct{ vhost, user, channels atomic.Uint64 }
	var wg sync.WaitGroup
	for n := range b.cat.View().Nodes() {
		node := string(n.ID)
		if node == b.cfg.Node || n.Superseded || !b.cfg.Alive(node) {
			continue
		}
		wg.Go(func() {
			c := b.countOn(ctx, node, question)
			sum.vhost.Add(c.vhost)
			sum.user.Add(c.user)
			sum.channels.Add(c.channels)
		})
	}
	wg.Wait()
	return openCount{sum.vhost.Load(), sum.user.Load(), sum.channels.Load()}
}

// countOn asks one node; nothing if it does not answer in time.
func (b *Broker) countOn(ctx context.Context, node string, question []byte) openCount {
	patience := b.census.patience(node)
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := b.cfg.Call(asking, node, MethodCount, question)
	var c openCount
	if err == nil {
		b.census.answered(node)
		c, err = decodeCountAnswer(answer)
	}
	switch {
	case err == nil:
	case patience < countWait: // it proves nothing about a node that is slow, and the log has it already
	case ctx.Err() != nil: // the client left
	default:
		if asking.Err() != nil {
			b.census.silent(node)
		}
		b.cfg.Logger.Warn("node not counted for a limit", "node", node, "err", err)
	}
	return c
}

// ReceiveCount answers another node's question of [MethodCount].
func (b *Broker) ReceiveCount(question []byte) ([]byte, error) {
	vhost, user, err := decodeCountQuestion(question)
	if err != nil {
		return nil, err
	}
	return encodeCountAnswer(b.census.count(vhost, user)), nil
}

const countVersion = 1

var errCountForm = errors.New("broker: malformed count of what is open")

func encodeCountQuestion(vhost, user string) []byte {
	b := []byte{countVersion}
	for _, s := range []string{vhost, user} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

func decodeCountQuestion(b []byte) (vhost, user string, err error) {
	if len(b) == 0 || b[0] != countVersion {
		return "", "", errCountForm
	}
	r := replyReader{b: b[1:]}
	vhost, user = string(r.bytes()), string(r.bytes())
	if r.bad || len(r.b) > 0 {
		return "", "", errCountForm
	}
	return vhost, user, nil
}

func encodeCountAnswer(c openCount) []byte {
	b := []byte{countVersion}
	for _, n := range []uint64{c.vhost, c.user, c.channels} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// openMax bounds what a node may say that it has open, so that no sum overflows.
const openMax = 1 << 32

func decodeCountAnswer(b []byte) (c openCount, err error) {
	if len(b) == 0 || b[0] != countVersion {
		return c, errCountForm
	}
	r := replyReader{b: b[1:]}
	c = openCount{r.uvarint(), r.uvarint(), r.uvarint()}
	if r.bad || len(r.b) > 0 || max(c.vhost, c.user, c.channels) > openMax {
		return openCount{}, errCountForm
	}
	return c, nil
}
