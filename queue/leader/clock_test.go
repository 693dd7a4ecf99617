package leader

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
)

// lateLog applies what earlier leaders have got into the log with the first entry of a session, as raft does on a
// node that has just been started.
type lateLog struct {
	*MemLog

	before []*fsm.Entry
}

func (l *lateLog) Propose(data []byte, done func(error)) {
	for _, e := range l.before {
		l.MemLog.Propose(fsm.EncodeEntry(nil, e), func(error) {})
	}
	l.before = nil
	l.MemLog.Propose(data, done)
}

// TestTimePassesAfterAStart: an earlier leader's clock was an hour ahead of this node's, which learns of that only when it
// has applied the log. Machine time goes on from there, and does not wait until this node's clock has caught up.
func TestTimePassesAfterAStart(t *testing.T) {
	a := node(1)
	r := newQueueRig(t, a)
	ahead := &fsm.Entry{TimeMillis: time.Now().Add(time.Hour).UnixMilli()}
	r.change = func(c *Config) { c.Log = &lateLog{r.log, []*fsm.Entry{ahead}} }
	r.lead()
	r.answerRoll(a)
	p := pub("short-lived")
	p.TTLMillis = 200
	published := time.Now()
	r.batch(a, p)
	for req := uint64(1); ; req++ {
		left := r.status(a, req).Ready
		if lived := time.Since(published); left == 0 {
			if lived < 200*time.Millisecond {
				t.Errorf("lived %v", lived)
			}
			return
		} else if lived > 10*time.Second {
			t.Fatal("the message has not expired")
		}
	}
}
