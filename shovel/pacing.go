package shovel

import amqp "github.com/rabbitmq/amqp091-go"

// A consumer's prefetch bounds how many messages are under way; how many bytes these are, nobody says before they come. So a shovel begins with
// few, and takes more, or fewer, by the sizes that it sees. A prefetch cannot be changed: there is a
// new consumer first, and then the old one ends, so that the source is never without one (a queue with auto-delete would go).

const (
	// sample is after how many messages a shovel trusts what it has seen of their sizes.
	sample = 4
	// prefetchFirst is what it begins with. If all of these are large, it is the throttle that bounds them.
	prefetchFirst = 16
)

// headerStream is what RabbitMQ gives each message of a stream.
const headerStream = "x-stream-offset"

type pacing struct {
	current int // the prefetch at the moment
	seen    int // messages since the largest was begun anew
	largest int // of their bodies, in bytes
}

// first is the prefetch to begin with.
func (w *Worker) first() int {
	return min(w.def.Source.Prefetch, prefetchFirst)
}

// wanted is the prefetch that fits what has been seen, or the current one if that is near enough.
func (p *pacing) wanted(most int, budget int64) int {
	if p.seen < sample && int64(p.largest)*int64(p.current) <= budget {
		return p.current
	}
	fits := min(most, max(1, int(budget/int64(max(p.largest, 1)))))
	if fits > p.current && fits < 2*p.current && fits < most {
		return p.current // not worth it
	}
	if fits < p.current && 2*fits > p.current {
		return p.current
	}
	return fits
}

// pace has the source send as many messages ahead as there is room for. It is called for each that comes.
func (f *forwarder) pace(d *amqp.Delivery) error {
	if _, stream := d.Headers[headerStream]; stream || f.w.def.AckMode == NoAck {
		return nil // another consumer of a stream would begin elsewhere, and repeat messages, or leave some out
	}
	f.pacing.seen++
	f.pacing.largest = max(f.pacing.largest, len(d.Body))
	wanted := f.pacing.wanted(f.w.def.Source.Prefetch, f.w.cfg.Budget)
	if wanted == f.pacing.current || f.former != nil {
		return nil
	}
	old := f.consumer
	f.former, f.mixed = f.deliveries, max(f.mixed, d.DeliveryTag)
	err := f.src.raw.during(func() error {
		if err := f.subscribe(f.src, wanted); err != nil {
			return err
		}
		// The library closes the channel of the old consumer's deliveries when the last of them has been taken.
		return f.src.ch.Cancel(old, false)
	})
	if err != nil {
		return broken(errSource, err)
	}
	return nil
}
