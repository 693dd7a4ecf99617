package auth

// Limit bounds a count. The zero value bounds nothing, nor does a negative value, which
// tools show as it was given; 0 allows none.
type Limit struct {
	Set   bool
	Value int64
}

// LimitOf is a limit of n.
func LimitOf(n int64) Limit { return Limit{Set: true, Value: n} }

// Bounds reports whether there is a largest count.
func (l Limit) Bounds() bool { return l.Set && l.Value >= 0 }

// Reached reports whether there may be no more than the n that there are.
func (l Limit) Reached(n uint64) bool { return l.Bounds() && n >= uint64(l.Value) }

// Names of limits, as RabbitMQ has them.
const (
	LimitConnections = "max-connections"
	LimitChannels    = "max-channels"
	LimitQueues      = "max-queues"
)

// UserLimits bound what a user may have open in the whole cluster.
type UserLimits struct{ Connections, Channels Limit }

// Each passes every limit with its name to f, to be read or changed.
func (l *UserLimits) Each(f func(name string, l *Limit)) {
	f(LimitChannels, &l.Channels)
	f(LimitConnections, &l.Connections)
}
