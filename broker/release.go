package broker

import (
	"context"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

const opRelease = "release"

// Released tells what ReleaseParked did.
type Released struct {
	Unrouted int `json:"unrouted"` // had no route
	Cycle    int `json:"cycle"`    // would have gone round by themselves
}

// ReleaseParked has the parked dead letters of a queue routed again, those of cycles too,
// which wait for this or for another dead-letter exchange or key. What still has no way is
// parked again; Peek with the state "parked" lists it. The user must be allowed to read the
// queue. The error is an *Error.
func (b *Broker) ReleaseParked(ctx context.Context, u User, vhost, name string) (r Released, err error) {
	q, err := b.queueFor(ctx, u, vhost, name, auth.Read)
	if err != nil {
		return r, err
	}
	return r, b.inquireNamed(ctx, q, opRelease, struct{}{}, &r)
}

func answerRelease(ctx context.Context, _ *Broker, h *hosted, _ []byte) (any, error) {
	l := h.replica.Leader()
	if l == nil {
		return nil, errNotHere
	}
	var r Released
	h.replica.View(func(m *fsm.Machine) {
		r.Unrouted, r.Cycle = m.Outbox().Count(dlx.ParkedUnrouted), m.Outbox().Count(dlx.ParkedCycle)
	})
	for kind, n := range map[fsm.NoRoute]int{fsm.ParkUnrouted: r.Unrouted, fsm.ParkCycle: r.Cycle} {
		if n == 0 {
			continue
		}
		if err := proposeAndWait(ctx, l, fsm.Release{Kind: kind}); err != nil {
			return nil, err
		}
	}
	return r, nil
}
