package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// TestHeldUpPublishes: large messages for a queue without a quorum keep those for others waiting for a while only.
func TestHeldUpPublishes(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	n := c.Node(0)
	restartWith(t, n, "--memory-high-watermark", fmt.Sprint(residentBytes(t, n.PID(), "RssAnon:")+200<<20))
	s := at(t, n)
	stands := plainQueue(s, "stands", nil)
	_, err := s.ch.QueueDeclare("memory", false, false, false, false, nil)
	s.noError("declare", err)
	kill(t, c.Node(1))
	kill(t, c.Node(2))
	body := strings.Repeat("x", 8<<20)
	ends := make(chan error, 5)
	rpc := rpcAt(t, n, "guest", "guest")
	for range 3 { // they have all the room there is
		go func() {
			_, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue(stands, body)})
			ends <- err
		}()
	}
	for range 2 { // a stream stands when the queue has no room for more
		stream := rpc.publisher()
		go func() {
			for err := error(nil); err == nil; {
				err = stream.Send(&warrenv1.PublishStreamRequest{Publications: []*warrenv1.Publication{forQueue(stands, body)}})
			}
			for { // the results, and the end
				if _, err := stream.Recv(); err != nil {
					ends <- err
					return
				}
			}
		}()
	}
	time.Sleep(time.Second) // they are first
	began := time.Now()
	other := rpcAt(t, n, "guest", "guest")
	other.fill("memory", body)
	t.Logf("the other queue has its message after %v", time.Since(began))
	s.ready("memory", 1)
	select {
	case err := <-ends:
		wantCode(t, err, codes.DeadlineExceeded, "REQUEST_STALLED")
	case <-time.After(time.Second):
		t.Error("nobody was cut off")
	}
}
