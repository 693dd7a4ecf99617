package netns

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// asks sends a request with a user's name as the password, and returns the status.
func (r *rig) asks(n *cluster.Node, user, path string) int {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), timeoutReply)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.HTTP()+path, http.NoBody)
	r.must("request", err)
	req.SetBasicAuth(user, user)
	resp, err := http.DefaultClient.Do(req)
	r.must("GET "+path, err)
	r.must("close", resp.Body.Close())
	return resp.StatusCode
}

// getQueue asks for a queue over gRPC, and returns the code.
func (r *rig) getQueue(n *cluster.Node, user, queue string) codes.Code {
	r.Helper()
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.must("gRPC client", err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.Context(), timeoutReply)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+user)))
	_, err = warrenv1.NewTopologyServiceClient(conn).GetQueue(ctx, &warrenv1.GetQueueRequest{Queue: queue})
	return grpcstatus.Code(err)
}

// TestMinorityDeniesNothing: a node that is cut off does not know what the others have made meanwhile, and says so. It refuses no login of a user that it has not heard
// of, and calls nothing missing: programs and tools would believe it.
func TestMinorityDeniesNothing(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 3})
	off, on := r.Node(0), r.Node(1)
	r.ctl(on, "add_user", "known", "known")
	r.ctl(on, "set_user_tags", "known", "management")
	r.part([]string{off.Name}, []string{on.Name, r.Node(2).Name})
	r.until("the others go on", timeoutReply, func() bool {
		_, err := r.tryCtl(on, "add_user", "new", "new")
		return err == nil
	})
	r.ctl(on, "set_user_tags", "new", "administrator")
	for _, user := range []string{"new", "known"} {
		r.ctl(on, "set_permissions", user, ".*", ".*", ".*")
	}
	r.ctl(on, "set_policy", "p", "^q$", `{"max-length":5}`)
	r.declare(r.dial(on), "q", nil)
	type look struct {
		user, path string
	}
	looks := []look{{"new", "/api/whoami"}, {"app", "/api/policies/%2F/p"}, {"app", "/api/permissions/%2F/new"}, {"app", "/api/users/new"}, {"known", "/api/queues/%2F"}}
	for _, l := range looks {
		begun := time.Now()
		if got := r.asks(off, l.user, l.path); got != http.StatusServiceUnavailable {
			t.Errorf("cut off: %s by %s: %d", l.path, l.user, got)
		}
		t.Logf("%s took %v", l.path, time.Since(begun).Round(time.Millisecond))
	}
	for _, user := range []string{"new", "known", "app"} {
		if got := r.getQueue(off, user, "q"); got != codes.Unavailable {
			t.Errorf("cut off: gRPC by %s: %v", user, got)
		}
	}
	r.lan.Heal()
	r.readyAll()
	for _, l := range looks {
		if got := r.asks(off, l.user, l.path); got != http.StatusOK {
			t.Errorf("healed: %s by %s: %d", l.path, l.user, got)
		}
	}
	if got := r.getQueue(off, "new", "q"); got != codes.OK {
		t.Errorf("healed: gRPC: %v", got)
	}
}

// TestMinorityConfirmsNothingForAFormerQueue: a node that is cut off is given messages for queues that the others have deleted meanwhile. Where a queue
// of the name was declared anew before, each message is there in the end, or refused; where none was, it is confirmed.
func TestMinorityConfirmsNothingForAFormerQueue(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 3})
	off, on := r.Node(0), r.Node(1)
	const each = 20
	anew := []string{"anew-0", "anew-1", "anew-2"} // led by one node each
	outside := r.dial(on)
	for i, q := range anew {
		r.declare(r.dial(r.Node(i)), q, nil)
	}
	r.declare(outside, "gone", nil)
	inside := r.dial(off)
	r.part([]string{off.Name}, []string{on.Name, r.Node(2).Name})
	for _, q := range append([]string{"gone"}, anew...) {
		r.until(q+" is deleted", timeoutReply, func() bool {
			ch := r.dial(on)
			defer ch.Close()
			_, err := ch.QueueDelete(q, false, false, false)
			return err == nil
		})
	}
	for _, q := range anew {
		r.declare(r.dial(on), q, nil)
	}
	held := map[string][]*amqp.DeferredConfirmation{}
	for i := range each {
		for _, q := range append([]string{"gone"}, anew...) {
			c, err := inside.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: fmt.Appendf(nil, "%d", i), DeliveryMode: amqp.Persistent})
			r.must("publish within", err)
			held[q] = append(held[q], c)
		}
	}
	r.lan.Heal()
	r.readyAll()
	ch := r.dial(on)
	for q, list := range held {
		var confirmed []string
		for i, c := range list {
			select {
			case <-c.Done():
			case <-time.After(timeoutReply):
				t.Fatalf("%s: no answer after the network was whole", q)
			}
			if c.Acked() {
				confirmed = append(confirmed, fmt.Sprint(i))
			}
		}
		t.Logf("%s: %d of %d are confirmed", q, len(confirmed), each)
		if q == "gone" {
			if len(confirmed) != each {
				t.Errorf("%s: %d of %d are confirmed", q, len(confirmed), each)
			}
			continue
		}
		if got := r.take(ch, q, len(confirmed)); !slices.Equal(got, confirmed) {
			t.Errorf("%s holds %q, and %q are confirmed", q, got, confirmed)
		}
	}
}
