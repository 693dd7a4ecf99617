package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// otherNode makes the broker's cluster one of two: the other node answers f.
func otherNode(t *testing.T, b *Broker, f func(question []byte) ([]byte, error)) (asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	propose(t, b, &catalog.RegisterNode{ID: "other/1"})
	b.cfg.Call = func(_ context.Context, node string, method uint8, question []byte) ([]byte, error) {
		asked.Add(1)
		if node != "other/1" || method != MethodCount {
			t.Errorf("call %#x of %s", method, node)
		}
		return f(question)
	}
	return asked
}

func open(t *testing.T, b *Broker) (*Conn, error) {
	t.Helper()
	return b.Open(t.Context(), User{Name: "guest"}, "/", ConnInfo{})
}

func setVhostLimit(t *testing.T, b *Broker, n int64) {
	t.Helper()
	if err := b.SetVhostLimits(t.Context(), "/", map[string]int64{auth.LimitConnections: n}, false); err != nil {
		t.Fatal(err)
	}
}

func setUserLimit(t *testing.T, b *Broker, name string, n int64) {
	t.Helper()
	if err := b.SetUserLimits(t.Context(), "guest", map[string]int64{name: n}); err != nil {
		t.Fatal(err)
	}
}

func TestConnectionLimits(t *testing.T) {
	const ofVhost = "access to vhost '/' refused for user 'guest': connection limit (%d) is reached"
	const ofUser = "connection refused for user 'guest': user connection limit (%d) is reached"
	for name, tc := range map[string]struct {
		set  func(t *testing.T, b *Broker, n int64)
		text string
	}{
		"vhost": {setVhostLimit, ofVhost},
		"user":  {func(t *testing.T, b *Broker, n int64) { setUserLimit(t, b, auth.LimitConnections, n) }, ofUser},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			first, err := open(t, b)
			if err != nil {
				t.Fatal(err)
			}
			tc.set(t, b, 2)
			if _, err := open(t, b); err != nil {
				t.Fatal(err)
			}
			_, err = open(t, b)
			wantKind(t, err, NotAllowed, fmt.Sprintf(tc.text, 2))
			first.Close(t.Context())
			first.Close(t.Context()) // counts once
			if _, err := open(t, b); err != nil {
				t.Fatal(err)
			}
			_, err = open(t, b)
			wantKind(t, err, NotAllowed, fmt.Sprintf(tc.text, 2))
			tc.set(t, b, 0)
			_, err = open(t, b)
			wantKind(t, err, NotAllowed, fmt.Sprintf(tc.text, 0))
			tc.set(t, b, -1)
			if _, err := open(t, b); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A refusal for another reason does not use up the limit; a limit comes before permissions.
func TestConnectionLimitAndPermission(t *testing.T) {
	b := newBroker(t)
	propose(t, b, &catalog.PutVhost{Vhost: catalog.Vhost{Name: "v"}})
	for range 3 {
		_, err := b.Open(t.Context(), User{Name: "guest"}, "v", ConnInfo{})
		wantKind(t, err, NotAllowed, "access to vhost 'v' refused for user 'guest'")
	}
	if n := b.census.count("v", "guest"); n != (openCount{}) {
		t.Errorf("counted %+v", n)
	}
	if err := b.SetVhostLimits(t.Context(), "v", map[string]int64{auth.LimitConnections: 0}, true); err != nil {
		t.Fatal(err)
	}
	_, err := b.Open(t.Context(), User{Name: "guest"}, "v", ConnInfo{})
	wantKind(t, err, NotAllowed, "access to vhost 'v' refused for user 'guest': connection limit (0) is reached")
}

func TestChannelLimit(t *testing.T) {
	b := newBroker(t)
	c, d := dial(t, b), dial(t, b)
	setUserLimit(t, b, auth.LimitChannels, 3)
	ch, err := c.conn.OpenChannel(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.conn.OpenChannel(t.Context(), d)
	wantKind(t, err, NotAllowed, "number of channels opened for user 'guest' has reached the maximum allowed user limit of 3")
	ch.Close(t.Context())
	ch.Close(t.Context()) // counts once
	if _, err := d.conn.OpenChannel(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if _, err := d.conn.OpenChannel(t.Context(), d); err == nil {
		t.Error("a fourth channel")
	}
	c.conn.Close(t.Context()) // with its channel
	if _, err := d.conn.OpenChannel(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.conn.Close(t.Context())
	if s := b.census; len(s.vhosts)+len(s.users)+len(s.channels) > 0 {
		t.Errorf("%+v is left", s)
	}
}

func TestLimitsCountOtherNodes(t *testing.T) {
	b := newBroker(t)
	var answer []byte
	var failure error
	asked := otherNode(t, b, func(question []byte) ([]byte, error) {
		if vhost, user, err := decodeCountQuestion(question); vhost != "/" || user != "guest" || err != nil {
			t.Errorf("asked for %q, %q, %v", vhost, user, err)
		}
		return answer, failure
	})
	c := dial(t, b)
	if asked.Load() != 0 {
		t.Error("asked although nothing is limited")
	}
	setVhostLimit(t, b, 5)
	setUserLimit(t, b, auth.LimitChannels, 9)
	answer = encodeCountAnswer(openCount{vhost: 3, channels: 7})
	conn, err := open(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, b); err == nil {
		t.Error("a sixth connection")
	}
	if _, err := conn.OpenChannel(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.OpenChannel(t.Context(), c); err == nil {
		t.Error("a tenth channel")
	}
	// Who does not answer, or not understandably, has nothing open.
	failure = errors.New("no link")
	if _, err := open(t, b); err != nil {
		t.Error(err)
	}
	failure, answer = nil, []byte{countVersion + 1, 99, 99, 99}
	if _, err := open(t, b); err != nil {
		t.Error(err)
	}
	setVhostLimit(t, b, 2)
	if n := asked.Load(); n != 6 {
		t.Errorf("asked %d times", n)
	}
	if _, err := open(t, b); err == nil || asked.Load() != 6 {
		t.Errorf("%v; asked though this node knows enough", err)
	}
}

// A node that is silent but not known to be dead holds up one client, not all of them.
func TestLimitOfSilentNode(t *testing.T) {
	b := newBroker(t)
	otherNode(t, b, nil)
	setVhostLimit(t, b, 9)
	silent := true
	var waited time.Duration
	b.cfg.Call = func(ctx context.Context, _ string, _ uint8, _ []byte) ([]byte, error) {
		deadline, ok := ctx.Deadline()
		if waited = time.Until(deadline); !ok || silent {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return encodeCountAnswer(openCount{vhost: 1}), nil
	}
	for i, tc := range []struct {
		silent       bool
		least, limit time.Duration
	}{
		{true, muteWait, countWait},
		{true, 0, muteWait},
		{false, 0, muteWait},
		{false, muteWait, countWait}, // it answered
	} {
		silent = tc.silent
		if _, err := open(t, b); err != nil {
			t.Fatal(err)
		}
		if waited < tc.least || waited > tc.limit {
			t.Errorf("question %d has %s for its answer", i, waited)
		}
	}
	left, leave := context.WithCancel(t.Context())
	silent = true
	leave()
	if _, err := b.Open(left, User{Name: "guest"}, "/", ConnInfo{}); err != nil {
		t.Fatal(err)
	}
	if got := b.census.patience("other/1"); got != countWait {
		t.Errorf("a client that left made the node wait for %s", got)
	}
}

// On one node the limit is exact, however many come at once.
func TestConnectionLimitAtOnce(t *testing.T) {
	b := newBroker(t)
	setVhostLimit(t, b, 5)
	var opened atomic.Int32
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if _, err := open(t, b); err == nil {
				opened.Add(1)
			}
		})
	}
	if wg.Wait(); opened.Load() != 5 {
		t.Errorf("%d connections", opened.Load())
	}
}

func TestLimitsAdmin(t *testing.T) {
	b := newBroker(t)
	if l := b.VhostLimits(); l == nil || len(l) > 0 {
		t.Errorf("%v before any is set", l)
	}
	setVhostLimit(t, b, 4)
	setUserLimit(t, b, auth.LimitChannels, -2)
	setUserLimit(t, b, auth.LimitConnections, 0)
	if got := fmt.Sprint(b.VhostLimits(), b.UserLimits()); got != "[{/ map[max-connections:4]}] [{guest map[max-channels:-2 max-connections:0]}]" {
		t.Error(got)
	}
	ctx := t.Context()
	one := map[string]int64{"max-quests": 1}
	wantKind(t, b.SetVhostLimits(ctx, "/", one, true), PreconditionFailed, "unknown limit 'max-quests' of a vhost")
	wantKind(t, b.SetUserLimits(ctx, "guest", one), PreconditionFailed, "unknown limit 'max-quests' of a user")
	wantKind(t, b.SetVhostLimits(ctx, "gone", nil, false), NotFound, "vhost gone not found")
	wantKind(t, b.SetUserLimits(ctx, "gone", nil), NotFound, "user 'gone' not found")
	wantKind(t, b.ClearVhostLimits(ctx, "gone", ""), NotFound, "vhost gone not found")
	wantKind(t, b.ClearUserLimits(ctx, "gone", ""), NotFound, "user 'gone' not found")
	if err := errors.Join(b.ClearVhostLimits(ctx, "/", ""), b.ClearUserLimits(ctx, "guest", auth.LimitChannels)); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.VhostLimits(), b.UserLimits()); got != "[] [{guest map[max-connections:0]}]" {
		t.Error(got)
	}
	if ok, err := b.HasUser(ctx, "guest"); !ok || err != nil {
		t.Errorf("guest: %v, %v", ok, err)
	}
	if ok, err := b.HasUser(ctx, "gone"); ok || err != nil {
		t.Errorf("gone: %v, %v", ok, err)
	}
}

func FuzzDecodeCount(f *testing.F) {
	f.Add(encodeCountQuestion("/", "guest"))
	f.Add(encodeCountQuestion("", strings.Repeat("u", 255)))
	f.Add(encodeCountAnswer(openCount{1, 2, 300}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if vhost, user, err := decodeCountQuestion(b); err == nil {
			v, u, err := decodeCountQuestion(encodeCountQuestion(vhost, user))
			if v != vhost || u != user || err != nil {
				t.Errorf("%q %q: %v", v, u, err)
			}
		}
		if c, err := decodeCountAnswer(b); err == nil {
			again := encodeCountAnswer(c)
			d, err := decodeCountAnswer(again)
			if d != c || err != nil || len(again) > len(b) || !bytes.HasPrefix(b, []byte{countVersion}) {
				t.Errorf("%+v %+v: %v", c, d, err)
			}
		}
	})
}
