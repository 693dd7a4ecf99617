package queue

// RetryOn is the value of x-delayed-retry-type: which returns are delayed.
type RetryOn uint8

// Returns that are delayed: none, all, those that count as failed (basic.reject with
// requeue, a lost consumer), or the others (basic.nack with requeue).
const (
	RetryDisabled RetryOn = iota
	RetryAll
	RetryFailed
	RetryReturned
)

// RetryDelay says how long a returned message is kept from consumers. With Factor 0 the
// delay is that of RabbitMQ 4.3: Min times the failed returns, at least once Min. Else it
// is Min times Factor/1000 to the power of the earlier returns. Either is at most Max.
type RetryDelay struct {
	On        RetryOn
	MinMillis int64
	MaxMillis int64
	Factor    uint32 // thousandths, 0 or 1000 to RetryFactorMax
	// JitterPercent shortens each delay at random by up to this part.
	JitterPercent uint8
}

// Bounds that keep the products below 2^63.
const (
	RetryFactorMax = 1_000_000
	RetryMillisMax = 315_360_000_000 // ten years
)

// factorSteps bounds the multiplications: a factor so small that it has not reached the
// maximum by then stays where it is.
const factorSteps = 4096

// For returns the delay in ms of message id, returned for the attempt'th time, with so
// many failed returns; 0 for none. It depends on its arguments only: replicas agree.
func (r *RetryDelay) For(countsAsFailed bool, id MessageID, attempt, failed uint32) int64 {
	switch {
	case r.On == RetryDisabled, r.On == RetryFailed && !countsAsFailed, r.On == RetryReturned && countsAsFailed:
		return 0
	}
	delay := r.MinMillis
	if r.Factor == 0 {
		if n := int64(max(failed, 1)); delay > 0 && n > r.MaxMillis/delay {
			delay = r.MaxMillis
		} else {
			delay *= n
		}
	} else {
		delay *= 1000 // in thousandths, so that short delays grow too
		for range min(max(attempt, 1)-1, factorSteps) {
			if delay/1000 >= r.MaxMillis {
				break
			}
			delay = delay/1000*int64(r.Factor) + delay%1000*int64(r.Factor)/1000
		}
		delay /= 1000
	}
	delay = min(delay, r.MaxMillis)
	if spread := delay / 100 * int64(r.JitterPercent); spread > 0 {
		delay -= int64(mix(uint64(id)<<20^uint64(attempt)) % uint64(spread+1))
	}
	return max(delay, 0)
}

// mix scatters the bits of x (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
