package grpc

import (
	"context"
	"slices"
	"strings"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

type statusService struct {
	warrenv1.UnimplementedStatusServiceServer
	s *Server
}

// GetCluster implements the service.
func (st *statusService) GetCluster(ctx context.Context, _ *warrenv1.GetClusterRequest) (*warrenv1.GetClusterResponse, error) {
	if err := needs(ctx, auth.TagMonitoring, auth.TagAdministrator); err != nil {
		return nil, err
	}
	return st.s.cfg.Cluster.Describe(ctx, true), nil
}

// ListQueues implements the service.
func (st *statusService) ListQueues(ctx context.Context, req *warrenv1.ListQueuesRequest) (*warrenv1.ListQueuesResponse, error) {
	names, err := st.s.queuesSeen(ctx, req.Vhost)
	if err != nil {
		return nil, err
	}
	if prefix := req.GetPrefix(); prefix != "" {
		names = slices.DeleteFunc(slices.Clone(names), func(q broker.QueueName) bool { return !strings.HasPrefix(q.Name, prefix) })
	}
	cut, next, err := page(names, req.GetPageSize(), req.GetPageToken(), func(q broker.QueueName) string { return keyOf(q.VHost, q.Name) })
	if err != nil {
		return nil, err
	}
	resp := &warrenv1.ListQueuesResponse{NextPageToken: next}
	st.s.cfg.Cluster.QueueFigures(ctx, cut, func(i int, info *broker.QueueInfo, bytes uint64, rates *stats.Rates) {
		if info.ID == 0 {
			return
		}
		resp.Queues = append(resp.Queues, &warrenv1.QueueStatus{
			Vhost: text(cut[i].VHost), Queue: queueFor(info), MessageBytes: bytes,
			PublishRate: rates[stats.Publish], DeliverRate: rates.DeliverGet(), AckRate: rates[stats.Ack],
		})
	})
	return resp, nil
}

// queuesSeen are the queues of a virtual host that the caller sees, or with nil of all that it sees. The list is read only.
func (s *Server) queuesSeen(ctx context.Context, vhost *string) ([]broker.QueueName, error) {
	if vhost != nil {
		name, err := s.looks(ctx, *vhost)
		if err != nil {
			return nil, err
		}
		return s.broker.QueueNames(name), nil
	}
	if err := needs(ctx, watcherTags...); err != nil {
		return nil, err
	}
	sees := s.sight(callerOf(ctx))
	return slices.DeleteFunc(slices.Clone(s.broker.QueueNames("")), func(q broker.QueueName) bool { return !sees(q.VHost) }), nil
}

// sight tells which virtual hosts a caller sees, who may look around. What it says of one does not change.
func (s *Server) sight(c caller) func(vhost string) bool {
	all := c.may(auth.TagMonitoring, auth.TagAdministrator)
	seen := map[string]bool{}
	return func(vhost string) bool {
		if all {
			return true
		}
		sees, known := seen[vhost]
		if !known {
			sees = s.broker.MayEnter(c.user, vhost)
			seen[vhost] = sees
		}
		return sees
	}
}
