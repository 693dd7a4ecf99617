package management

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// IncomingFrom is what clients have published into a queue by way of one exchange, the one that they named: the default exchange has the name "".
// Dead letters, and what a delayed exchange hands on, are published by nobody.
type IncomingFrom struct {
	Exchange objectName `json:"exchange"`
	Stats    struct {
		Publish        uint64  `json:"publish"`
		PublishDetails Details `json:"publish_details"`
	} `json:"stats"`
}

// Bounds of what is remembered for rates: of so many queues, for so long. Two looks that follow each other faster share the one before.
const (
	incomingSeenMax = 256
	incomingApart   = 2 * time.Second
	incomingKept    = 12 * stats.Interval
)

// incomingSeen remembers what queues had got by exchanges when they were looked at: no node samples that, since few look.
type incomingSeen struct {
	mu   sync.Mutex
	seen map[uint64][]incomingLook // by queue, the last one and one before
}

type incomingLook struct {
	at     time.Time
	counts map[string]uint64
}

// rates notes counts and returns how fast they have grown since a look some seconds ago, none if there was none.
func (i *incomingSeen) rates(queue uint64, now time.Time, counts map[string]uint64) map[string]float64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	looks := slices.DeleteFunc(i.seen[queue], func(l incomingLook) bool { return now.Sub(l.at) > incomingKept })
	var base *incomingLook
	for j := range looks {
		if now.Sub(looks[j].at) >= incomingApart {
			base = &looks[j]
		}
	}
	rates := map[string]float64{}
	if base != nil {
		for name, n := range counts {
			if before := base.counts[name]; n > before {
				rates[name] = float64(n-before) / now.Sub(base.at).Seconds()
			}
		}
	}
	if n := len(looks); n == 0 || now.Sub(looks[n-1].at) >= incomingApart {
		looks = append(looks[max(0, n-1):], incomingLook{now, counts})
	}
	if i.seen == nil || len(i.seen) > incomingSeenMax {
		i.seen = map[uint64][]incomingLook{}
	}
	i.seen[queue] = looks
	return rates
}

// peerIncoming is what a node tells of a queue.
type peerIncoming struct {
	Exchanges []broker.Incoming `json:"exchanges"`
}

func (a *API) incomingHere(queue uint64) peerIncoming {
	return peerIncoming{a.cfg.Broker.Incoming(queue)}
}

// incoming asks all nodes by which exchanges their clients have published into a queue.
func (a *API) incoming(ctx context.Context, q *broker.QueueInfo) []IncomingFrom {
	counts := map[string]uint64{}
	var mu sync.Mutex
	add := func(p peerIncoming) {
		mu.Lock()
		defer mu.Unlock()
		for _, x := range p.Exchanges {
			counts[x.Exchange] += x.Publish
		}
	}
	add(a.incomingHere(q.ID))
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		var p peerIncoming
		if err := a.ask(ctx, node, peerRequest{Op: opIncoming, Queue: q.ID}, &p); err != nil {
			return err
		}
		add(p)
		return nil
	})
	if err != nil {
		a.cfg.Logger.Info("some nodes do not tell by which exchanges a queue is published to", "err", err)
	}
	rates := a.incomingSeen.rates(q.ID, a.now(), counts)
	list := make([]IncomingFrom, 0, len(counts))
	for name, n := range counts {
		from := IncomingFrom{Exchange: objectName{name, q.VHost}}
		from.Stats.Publish, from.Stats.PublishDetails.Rate = n, rates[name]
		list = append(list, from)
	}
	slices.SortFunc(list, func(a, b IncomingFrom) int { return cmp.Compare(a.Exchange.Name, b.Exchange.Name) })
	return list
}
