package dlx

import (
	"sort"

	"github.com/warrenmq/warren/amqp"
)

// Shorten returns properties of at most size bytes for a client that can take no more, by leaving the oldest entries out of x-death. The
// newest one stays, so that its count is seen. false: that is not enough.
func Shorten(raw amqp.RawProperties, size int) (amqp.RawProperties, bool) {
	v, _ := raw.Header(headerDeaths)
	deaths, _ := v.(amqp.Array)
	if len(raw) <= size || len(deaths) < 2 {
		return raw, len(raw) <= size
	}
	keep := func(n int) amqp.RawProperties {
		short, err := amqp.Rewrite(raw, func(p *amqp.Properties) {
			headers, _ := p.Headers()
			headers = headers.Clone()
			headers.Set(headerDeaths, deaths[:n])
			p.SetHeaders(headers)
		})
		if err != nil {
			return raw // they were validated when published
		}
		return short
	}
	left := sort.Search(len(deaths)-1, func(out int) bool { return len(keep(len(deaths)-1-out)) <= size })
	if left == len(deaths)-1 {
		return raw, false
	}
	return keep(len(deaths) - 1 - left), true
}
