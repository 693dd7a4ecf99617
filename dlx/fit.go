package dlx

import (
	"slices"
	"sort"

	"github.com/warrenmq/warren/amqp"
)

// Shorten returns properties of at most size bytes for a client that can take no more, by leaving out what tells of deaths, as little as
// it takes: the oldest entries of x-death; then, as CC may have many, the keys of the newest but the first; then the headers of the
// first and the last death; then all. false: that is not enough.
func Shorten(raw amqp.RawProperties, size int) (amqp.RawProperties, bool) {
	if len(raw) <= size {
		return raw, true
	}
	v, _ := raw.Header(headerDeaths)
	deaths, _ := v.(amqp.Array)
	if len(deaths) == 0 {
		return raw, false
	}
	steps := len(deaths) + 3
	step := sort.Search(steps, func(i int) bool { return len(shorter(raw, deaths, i)) <= size })
	if step == steps {
		return raw, false
	}
	return shorter(raw, deaths, step), true
}

// shorter does the first steps of Shorten. Each entry but the newest is one of them.
func shorter(raw amqp.RawProperties, deaths amqp.Array, steps int) amqp.RawProperties {
	short, err := amqp.Rewrite(raw, func(p *amqp.Properties) {
		headers, _ := p.Headers()
		headers = headers.Clone()
		var gone []string
		switch more := steps - len(deaths); more {
		default:
			headers.Set(headerDeaths, deaths[:-more])
		case 0, 1:
			headers.Set(headerDeaths, amqp.Array{oneKey(deaths[0])})
			gone = deathHeaderNames[firstQueue : firstQueue+more*(deathSum-firstQueue)]
		case 2:
			gone = deathHeaderNames[:]
		}
		p.SetHeaders(slices.DeleteFunc(headers, func(f amqp.Field) bool { return slices.Contains(gone, f.Name) }))
	})
	if err != nil {
		return raw // they were validated when published
	}
	return short
}

// oneKey is an entry of x-death with the first of its keys.
func oneKey(entry any) any {
	t, _ := entry.(amqp.Table)
	v, _ := t.Get("routing-keys")
	keys, _ := v.(amqp.Array)
	if len(keys) < 2 {
		return entry
	}
	t = t.Clone()
	t.Set("routing-keys", keys[:1])
	return t
}
