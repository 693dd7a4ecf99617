package process

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// enters tells which of HTTP and gRPC let a user in, who has the tag management.
func (r *usersRig) enters(n *cluster.Node, user, password string) (overHTTP, overRPC bool) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, n.HTTP()+"/api/whoami", http.NoBody)
	r.noError("make a request", err)
	req.SetBasicAuth(user, password)
	resp, err := http.DefaultClient.Do(req)
	r.noError("ask who I am", err)
	resp.Body.Close()
	rpc := rpcAt(r.T, n, user, password)
	_, err = rpc.topology.GetQueue(rpc.ctx, &warrenv1.GetQueueRequest{Queue: r.name("none")})
	if code := status.Code(err); code != codes.Unauthenticated && code != codes.PermissionDenied && code != codes.NotFound {
		r.Errorf("%s over gRPC: %v", user, err)
	}
	return resp.StatusCode == http.StatusOK, status.Code(err) != codes.Unauthenticated
}

// wantEnters checks which passwords HTTP and gRPC take at a node.
func (r *usersRig) wantEnters(n *cluster.Node, user string, passwords map[string]bool) {
	r.Helper()
	for password, want := range passwords {
		if overHTTP, overRPC := r.enters(n, user, password); overHTTP != want || overRPC != want {
			r.Errorf("%s with %q at %s: HTTP %v, gRPC %v, want %v", user, password, n.Name, overHTTP, overRPC, want)
		}
	}
}

// rpcStreams opens one stream of each kind; the returned function wants them to be ended by the server with a text.
func (r *usersRig) rpcStreams(n *cluster.Node, user, vhost, queue string) (forced func(text string)) {
	r.Helper()
	rpc := rpcAt(r.T, n, user, passwordFirst)
	consumer := rpc.consumer(&warrenv1.ConsumeOpen{Vhost: vhost, Queue: queue}, 1)
	publisher, err := rpc.publish.PublishStream(rpc.ctx)
	r.noError("open a stream", err)
	r.noError("open a stream", publisher.Send(&warrenv1.PublishStreamRequest{
		Open: &warrenv1.PublishOpen{Vhost: vhost}, Publications: []*warrenv1.Publication{forQueue(queue, "streamed")},
	}))
	if resp, err := publisher.Recv(); err != nil || resp.GetResults()[0].GetError() != nil { // it is open
		r.Fatalf("%v, %v", resp, err)
	}
	return func(text string) {
		r.Helper()
		_, published := publisher.Recv()
		consumed := consumer.ends()
		if strings.HasPrefix(text, "vhost") && status.Code(consumed) == codes.NotFound {
			consumed = published // the queue goes with its vhost, and the word of its leader may come before this node's own copy of the catalog
		}
		for _, err := range []error{published, consumed} {
			wantCode(r.T, err, codes.Unavailable, "CONNECTION_FORCED")
			if err != nil && !strings.Contains(err.Error(), text) {
				r.Errorf("%v, want %q", err, text)
			}
		}
	}
}
